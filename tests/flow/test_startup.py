"""Where the weights come from."""

import os

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Context, Options, Startup
from runnerkit.hooks import CheckpointHook
from runnerkit.runner import EpochBasedRunner


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


def test_what_a_run_logged_that_died_before_its_first_checkpoint_is_moved_aside(tmp_path):
    log = tmp_path / 'former.log.json'
    log.write_text('{"exp_name": "x"}\n{"mode": "train", "step": 5, "loss": 1.0}\n')
    Startup()(Context(Config({}), Options(auto_resume=True), work_dir=tmp_path, runner=Runner()))
    assert log.read_text() == '{"exp_name": "x"}\n'
    assert (tmp_path / 'former.log.json.superseded').read_text() == '{"mode": "train", "step": 5, "loss": 1.0}\n'


def checkpoint(path, age):
    torch.save({}, path)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return str(path)


def test_the_newest_of_all_places_is_taken(tmp_path):
    for name in ('run', 'out', 'out/run'):
        (tmp_path / name).mkdir()
    runner = EpochBasedRunner(torch.nn.Linear(1, 1), lambda: None, work_dir=str(tmp_path / 'run'), max_epochs=1)
    runner.register_hook(CheckpointHook(out_dir=str(tmp_path / 'out')))
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path / 'run', runner=runner)
    ours = checkpoint(tmp_path / 'run' / 'epoch_9.pth', age=20)
    assert Startup().to_resume(context) == ours
    theirs = checkpoint(tmp_path / 'out' / 'run' / 'epoch_2.pth', age=10)
    assert Startup().to_resume(context) == theirs
    checkpoint(tmp_path / 'run' / 'epoch_9.pth', age=0)
    assert Startup().to_resume(context) == ours
