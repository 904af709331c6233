"""Runners by name."""

import pytest
from support import Tiny

from runnerkit.runner import RUNNER_BUILDERS, EpochBasedRunner, IterBasedRunner, build_runner


def test_runners_are_built_by_name_and_the_config_is_not_changed():
    cfg = {'type': 'EpochBasedRunner', 'max_epochs': 3}
    runner = build_runner(cfg, {'model': Tiny()})
    assert type(runner) is EpochBasedRunner
    assert runner.max_epochs == 3
    assert cfg == {'type': 'EpochBasedRunner', 'max_epochs': 3}
    assert type(build_runner({'type': 'IterBasedRunner', 'max_iters': 3}, {'model': Tiny()})) is IterBasedRunner


def test_a_constructor_may_be_named():
    @RUNNER_BUILDERS.register_module(name='Twice', force=True)
    class Twice:
        def __init__(self, runner_cfg, default_args=None):
            self.cfg, self.args = runner_cfg, default_args

        def __call__(self):
            assert 'constructor' not in self.cfg
            return [EpochBasedRunner(max_epochs=self.cfg['max_epochs'], **self.args) for _ in range(2)]

    assert len(build_runner({'type': 'X', 'max_epochs': 1, 'constructor': 'Twice'}, {'model': Tiny()})) == 2


def test_a_misspelt_runner_names_the_nearest():
    with pytest.raises(KeyError, match='EpochBasedRuner is not in the runner registry.*EpochBasedRunner'):
        build_runner({'type': 'EpochBasedRuner', 'max_epochs': 1}, {'model': Tiny()})
