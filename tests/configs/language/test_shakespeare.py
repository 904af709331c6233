"""The language model learns from real text."""

import math
from pathlib import Path

import runnerkit

FILE = Path(__file__).parents[3] / 'configs/language/shakespeare.py'
SMALL = {
    'model.model': dict(width=32, blocks=1, heads=2, longest=32),
    'data.train.length': 32,
    'data.val': dict(length=32, most=16),
    'runner.max_iters': 150,
    'lr_config.warmup_iters': 5,
    'optimizer.lr': 1e-2,
    'evaluation.interval': 75,
    'log_config.interval': 30,
}


def test_it_learns(tmp_path):
    result = runnerkit.train(FILE, tmp_path, device='cpu', cfg_options=SMALL)
    assert result.scores['loss'] < 3.2 < math.log(84)
