from pathlib import Path

import pytest
import torch

from runnerkit.compat.vega.prune import PruneCodec
from runnerkit.config import Config
from runnerkit.nn import build_model
from runnerkit.utils.imports import import_object

FOLDER = Path(__file__).parents[3] / 'configs/search'
PruneResNet = import_object(f'{FOLDER}/networks.py:PruneResNet')


def test_the_whole_network_of_the_config():
    model = build_model(Config.fromfile(str(FOLDER / 'resnet.py')).model)
    assert model.model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_any_code_gives_a_network_of_the_kept_channels():
    base = dict(base_chn=[8, 8, 16, 16], base_chn_node=[8, 8, 16], num_classes=10)
    codec = PruneCodec(base)
    torch.manual_seed(0)
    sizes = []
    for share in (0.0, 0.3, 0.7, 1.0):
        desc = codec.decode((torch.rand(codec.length) < share).int().tolist())
        network = PruneResNet(**desc)
        assert network(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
        sizes.append(sum(each.numel() for each in network.parameters()))
        for block, kept in zip(network.blocks, desc['chn'], strict=True):
            assert block.residual[0].out_channels == kept
        assert network.stem[0].out_channels == desc['chn_node'][0]
        assert network.classifier.in_features == desc['chn_node'][-1]
    assert sizes == sorted(sizes)
    assert sizes[-1] == sum(each.numel() for each in PruneResNet(**base).parameters())


def test_blocks_that_do_not_fit_the_stages_are_told():
    with pytest.raises(ValueError, match='3 blocks'):
        PruneResNet(base_chn=[8, 8, 8], base_chn_node=[8, 8, 16])
