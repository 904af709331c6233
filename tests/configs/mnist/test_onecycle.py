from pathlib import Path

import pytest

import runnerkit

FILE = Path(__file__).parents[3] / 'configs/mnist/onecycle.py'


@pytest.mark.thorough  # tests/flow/preflight/test_preflight.py builds it, tests/hooks/test_lr_updater.py has the cycle
def test_the_whole_cycle_is_trained(tmp_path):
    changes = {'data.train.augment': False, 'custom_hooks.0.patience': 2, 'log_config.interval': 1}
    result = runnerkit.train(FILE, tmp_path, device='cpu', runner__max_epochs=2, cfg_options=changes)
    assert result.scores['accuracy'] > 0.9
    rates = [record['lr'] for record in result.history if record['mode'] == 'train']
    assert len(rates) == 110
    assert max(rates) == pytest.approx(0.01, rel=0.01)
    assert rates.index(max(rates)) == pytest.approx(0.3 * 110, abs=2)
    assert rates[-1] < 1e-6
    assert Path(result.best_checkpoint).name.startswith('best_accuracy_epoch_')
