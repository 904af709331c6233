"""Where the weights come from."""

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Context, Options, Startup


class Runner:
    def __init__(self):
        self.calls = []

    def resume(self, path):
        self.calls.append(('resume', path))

    def load_checkpoint(self, path):
        self.calls.append(('load', path))


@pytest.mark.parametrize(
    'cfg, options, calls',
    [
        ({}, {}, []),
        ({'load_from': 'a'}, {}, [('load', 'a')]),
        ({'load_from': 'a'}, {'load_from': 'b'}, [('load', 'b')]),
        ({'resume_from': 'a', 'load_from': 'b'}, {'auto_resume': True}, [('resume', 'a')]),
        ({'resume_from': 'a'}, {'resume_from': 'b'}, [('resume', 'b')]),
        ({'auto_resume': True, 'load_from': 'b'}, {}, [('resume', 'latest')]),
        ({'load_from': 'b'}, {'auto_resume': True}, [('resume', 'latest')]),
    ],
)
def test_precedence(tmp_path, cfg, options, calls):
    torch.save({}, tmp_path / 'epoch_3.pth')
    context = Context(Config(cfg), Options(**options), work_dir=tmp_path, runner=Runner())
    Startup()(context)
    assert context.runner.calls == [
        (what, str(tmp_path / 'epoch_3.pth') if path == 'latest' else path) for what, path in calls
    ]


def test_nothing_to_resume_falls_back_to_load_from(tmp_path):
    context = Context(Config({'load_from': 'b'}), Options(auto_resume=True), work_dir=tmp_path, runner=Runner())
    Startup()(context)
    assert context.runner.calls == [('load', 'b')]
