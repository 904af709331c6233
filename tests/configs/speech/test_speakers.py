from pathlib import Path

import pytest

from runnerkit.config import Config
from runnerkit.flow import Flow, Options
from runnerkit.hooks.hook import Hook

FILE = Path(__file__).parents[3] / 'configs/speech/speakers.py'


@pytest.mark.thorough  # test_experiment.py trains two iterations
def test_it_learns(tmp_path):
    """The first ninth of the run, in which most speakers are known already."""
    losses = []

    class Look(Hook):
        def after_train_iter(self, runner):
            losses.append(runner.outputs['loss'].item())

    cfg = Config.fromfile(str(FILE))
    cfg.training.update(max_iteration=100, valid_interval=100)
    options = Options(work_dir=str(tmp_path), device='cpu')
    runner = Flow(cfg, options, hooks=[(Look(), 'NORMAL')]).run().runner
    assert sum(losses[-10:]) < 0.4 * sum(losses[:10])
    assert runner.scores['accuracy'].value > 0.8
    assert runner.epoch == 6  # all 270 utterances, 15 batches an epoch
