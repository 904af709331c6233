"""mmcls 0.25.0, unchanged: its own train tool, config grammar, data set and hook."""

import subprocess
import sys

import pytest
from compat.mmcv.downstream import ROOT, folder_of, losses, scores, train

# What the same command logs with the real mmcv 1.7.2; the weights after three epochs were equal to the last bit.
FIRST_EPOCH = [2.2966, 2.2759, 2.2226, 2.1511, 2.0608]
ACCURACY = [37.2, 64.4, 90.0]


def test_a_resnet_learns_the_digits(tmp_path):
    folder_of('mmcls')
    recipe = ROOT / 'configs' / 'mmcls'
    subprocess.run([sys.executable, recipe / 'write_digits.py', tmp_path / 'data' / 'mnist'], check=True, timeout=300)
    lines = train('mmcls', recipe / 'resnet_mnist.py', tmp_path, '--device', 'cpu')
    assert losses(lines)[:5] == pytest.approx(FIRST_EPOCH, abs=0.01)  # other processors add up in another order
    assert scores(lines, 'accuracy_top-1') == pytest.approx(ACCURACY, abs=10)
    files = {path.name for path in (tmp_path / 'run').glob('*.pth')}
    assert {'epoch_3.pth', 'latest.pth', 'best_accuracy_top-1_epoch_3.pth'} <= files
