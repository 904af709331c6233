import torch

from runnerkit.optim.named import named_optimizers


def test_one_optimizer_and_several():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    assert named_optimizers(optimizer) == {'': optimizer}
    several = {'G': optimizer, 'D': optimizer}
    assert named_optimizers(several) is several
