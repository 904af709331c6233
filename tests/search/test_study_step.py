"""What the steps with a study have in common."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pipelines import small_pipeline  # noqa: E402
from studies import config_file  # noqa: E402

from runnerkit.config import Config  # noqa: E402

TENSORBOARD = [dict(type='TextLoggerHook'), dict(type='TensorboardLoggerHook')]


@pytest.mark.parametrize(
    ('overrides', 'words'),
    [
        ({'log_config.hooks': TENSORBOARD}, 'TensorboardLoggerHook needs tensorboard: pip install'),
        ({'custom_hooks': [dict(type='TensorboardLoggerHook', priority='LOW')]}, 'TensorboardLoggerHook needs'),
        ({'log_config.hooks': [dict(type='WandbLoggerHook')]}, 'WandbLoggerHook needs wandb: pip install'),
    ],
)
@pytest.mark.parametrize('step', ['nas', 'fullytrain'])
def test_a_package_that_all_trials_lack_is_told_before_the_first(step, overrides, words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, 'wandb', None)
    monkeypatch.setattr('runnerkit.hooks.logger.tensorboard.find_spec', lambda name: None)
    config = Config.fromfile(str(config_file(tmp_path)))  # as a file, since such values are for no command line
    config.merge_from_dict(overrides)
    config.dump(str(tmp_path / 'logged.py'))
    section = dict(config=str(tmp_path / 'logged.py'))
    changes = {step: section if step == 'nas' else dict(section, hps={}, objectives={'error': 'min'})}
    with pytest.raises(ImportError, match=words):
        small_pipeline(tmp_path, **changes)
    assert not (tmp_path / 'work').exists()
