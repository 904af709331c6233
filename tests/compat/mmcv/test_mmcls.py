"""mmcls 0.25.0, unchanged: its own train tool, config grammar, data set and hook."""

import subprocess
import sys

import torch
from compat.mmcv.downstream import ROOT, folder_of, losses, scores, train


def test_a_resnet_learns_the_digits(tmp_path):
    folder_of('mmcls')
    recipe = ROOT / 'configs' / 'mmcls'
    subprocess.run([sys.executable, recipe / 'write_digits.py', tmp_path / 'data' / 'mnist'], check=True, timeout=300)
    lines = train('mmcls', recipe / 'resnet_mnist.py', tmp_path, '--device', 'cpu')
    real = train('mmcls', recipe / 'resnet_mnist.py', tmp_path, '--device', 'cpu', work_dir='real', compat=())
    assert losses(lines) == losses(real) != []
    assert scores(lines, 'accuracy_top-1') == scores(real, 'accuracy_top-1') != []
    weights, expected = (torch.load(tmp_path / run / 'epoch_3.pth', weights_only=False) for run in ('run', 'real'))
    assert weights['state_dict'].keys() == expected['state_dict'].keys()
    for name, value in expected['state_dict'].items():
        assert torch.equal(weights['state_dict'][name], value)
    files = {path.name for path in (tmp_path / 'run').glob('*.pth')}
    assert {'epoch_3.pth', 'latest.pth', 'best_accuracy_top-1_epoch_3.pth'} <= files
