"""The stage that trains."""

import pytest

from runnerkit.config import Config
from runnerkit.flow import Context, Runner
from runnerkit.hooks.hook import Outcome


class Fake:
    outcome = None

    def __init__(self, error=None):
        self.error = error

    def run(self, loaders, workflow):
        self.seen = loaders, workflow
        self.outcome = Outcome('failed' if self.error else 'completed', error=self.error)
        if self.error:
            raise self.error


def test_the_outcome_is_published_whatever_it_is(tmp_path):
    cfg = Config({'seed': 7})
    context = Context(cfg, work_dir=tmp_path, runner=Fake(), loaders=[1], workflow=[('train', 2)])
    Runner()(context)
    assert context.runner.seen == ([1], [('train', 2)])
    assert context.outcome.kind == 'completed'
    assert Config.fromfile(str(tmp_path / 'config.py')).seed == 7
    context = Context(cfg, work_dir=tmp_path, runner=Fake(ValueError('boom')))
    with pytest.raises(ValueError, match='boom'):
        Runner()(context)
    assert context.outcome.kind == 'failed'
