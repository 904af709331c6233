"""Where the weights come from."""

import os

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Context, Options, Startup
from runnerkit.hooks import CheckpointHook
from runnerkit.runner import EpochBasedRunner


class Runner:
    max_epochs = max_iters = None
    completed_epochs = completed_iters = 0

    def __init__(self):
        self.calls = []

    def resume(self, path):
        self.calls.append(('resume', path))

    def load_checkpoint(self, path):
        self.calls.append(('load', path))


def checkpoint(path, age=0, **meta):
    torch.save({'meta': {'epoch': 1, 'iter': 5, **meta}, 'state_dict': {}}, path)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return str(path)


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
    checkpoint(tmp_path / 'epoch_3.pth')
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


def test_files_that_no_run_can_go_on_from_are_skipped_and_told(tmp_path, caplog):
    of_use = checkpoint(tmp_path / 'epoch_1.pth', age=9)
    checkpoint(tmp_path / 'epoch_2.pth', age=8, iter=-5)
    torch.save({'w': torch.ones(2)}, tmp_path / 'epoch_3.pth')
    checkpoint(tmp_path / 'epoch_4.pth', epoch=10**30)
    (tmp_path / 'epoch_5.pth').write_bytes(b'half')
    (tmp_path / 'latest.pth').symlink_to('epoch_5.pth')
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path, runner=Runner())
    assert Startup().to_resume(context) == of_use
    for n in range(2, 6):
        assert f'epoch_{n}.pth is skipped: ' in caplog.text
    for reason in ("counter 'iter' is -5", 'holds no training state', "counter 'epoch' is 1000"):
        assert reason in caplog.text


def test_a_file_that_wants_to_be_trusted_is_not_skipped(tmp_path):
    """Or a run of long ago would start from the beginning, and overwrite it; resuming it tells what to do."""
    checkpoint(tmp_path / 'epoch_1.pth', age=9)
    newest = checkpoint(tmp_path / 'epoch_2.pth', x=os.__spec__)
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path, runner=Runner())
    assert Startup().to_resume(context) == newest


@pytest.mark.parametrize('key', ['load_from', 'resume_from'])
def test_a_checkpoint_that_is_not_there_is_met_with_the_line_that_names_it(key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text(f"x = 1\n{key} = 'nowhere.pth'\n")

    class Fails:
        def resume(self, path):
            raise FileNotFoundError(f'there is no checkpoint {path}')

        load_checkpoint = resume

    for options, place in ((Options(), r' \(cfg.py:2\)$'), (Options(**{key: 'other.pth'}), 'other.pth$')):
        with pytest.raises(FileNotFoundError, match=place):
            Startup()(Context(Config.fromfile('cfg.py'), options, runner=Fails()))
