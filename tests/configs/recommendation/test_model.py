"""DeepFM, and the model that the config makes of it."""

import torch
from support import ROOT

from runnerkit.utils.imports import import_object

FILE = ROOT / 'configs/recommendation/model.py'
DeepFM, Model = (import_object(f'{FILE}:{name}') for name in ('DeepFM', 'Model'))


def test_a_logit_is_the_sum_of_weights_products_and_the_network():
    torch.manual_seed(0)
    net = DeepFM(fields=3, features=10, size=4, widths=[6, 5], dropout=0.5).eval()
    torch.nn.init.normal_(net.weights.weight)
    torch.nn.init.normal_(net.vectors.weight)
    net.bias.data.fill_(0.3)
    features = torch.tensor([[0, 4, 8], [1, 4, 9]])
    for numbers, logit in zip(features.tolist(), net(features), strict=True):
        vectors = [net.vectors.weight[number] for number in numbers]
        expected = net.bias + sum(net.weights.weight[number, 0] for number in numbers)
        expected = expected + sum(vectors[i] @ vectors[j] for i in range(3) for j in range(i))
        expected = expected + net.deep(torch.cat(vectors)[None])[0, 0]
        assert torch.allclose(logit, expected, atol=1e-5)
    net(features).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in net.parameters())


def test_the_model_has_a_loss_and_the_area_under_the_curve():
    torch.manual_seed(0)
    model = Model(fields=2, features=6, size=2, widths=[4], dropout=0.0)
    data = torch.tensor([[0, 3], [1, 4], [2, 5]]), torch.tensor([1.0, 0.0, 1.0])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        loss = model.train_step(data, optimizer)['loss']
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4
    step = model.eval().val_step(data)
    metric = model.metrics['auc']
    metric.update(step['preds'], step['target'])
    assert metric.compute() == 1
