"""Where the weights come from."""

import os
import pickle

import pytest
import torch
from folders import write
from support import weights

from runnerkit.config import Config
from runnerkit.flow import Context, Options, Startup, StartupBase
from runnerkit.flow.stages.startup import to_resume
from runnerkit.flow.work_dir.resume import load_from
from runnerkit.hooks import CheckpointHook


def started(context):
    """What the stage does: which checkpoint it notes, and which weights it loads."""
    calls = []

    class Notes(Startup):
        def load(self, context):
            if load_from(context):
                calls.append(('load', load_from(context)))

    Notes(context)(context)
    return calls + ([('resume', context.resume_from)] if context.resume_from else [])


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
    assert started(Context(Config(cfg), Options(**options), work_dir=tmp_path)) == [
        (what, str(tmp_path / 'epoch_3.pth') if path == 'latest' else path) for what, path in calls
    ]


def test_nothing_to_resume_falls_back_to_load_from(tmp_path):
    assert started(Context(Config({'load_from': 'b'}), Options(auto_resume=True), work_dir=tmp_path)) == [('load', 'b')]


def test_weights_are_loaded(tmp_path):
    model, other = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    torch.save(
        {'state_dict': {f'module.{name}': each for name, each in other.state_dict().items()}}, tmp_path / 'x.pth'
    )
    Startup(None)(Context(Config({'load_from': str(tmp_path / 'x.pth')}), work_dir=tmp_path, model=model))
    assert weights(model).equal(weights(other))


def test_a_stage_of_ones_own_still_notes_the_resume(tmp_path):
    """What it loads is replaced when the runner stage resumes."""

    class Own(StartupBase):
        def startup(self, context):
            assert context.resume_from is not None

    checkpoint(tmp_path / 'epoch_3.pth')
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path)
    Own(context)(context)
    assert (context.resume_from, context.continues) == (str(tmp_path / 'epoch_3.pth'), True)


def test_what_a_run_logged_that_died_before_its_first_checkpoint_is_moved_aside(tmp_path):
    log = tmp_path / 'former.log.json'
    log.write_text('{"exp_name": "x"}\n{"mode": "train", "step": 5, "loss": 1.0}\n')
    Startup(None)(Context(Config({}), Options(auto_resume=True), work_dir=tmp_path))
    assert log.read_text() == '{"exp_name": "x"}\n'
    assert (tmp_path / 'former.log.json.superseded').read_text() == '{"mode": "train", "step": 5, "loss": 1.0}\n'


@pytest.mark.parametrize('hook', ['checkpoint_config', 'dict', 'object'])
def test_the_newest_of_all_places_is_taken(tmp_path, hook):
    for name in ('run', 'out', 'out/run'):
        (tmp_path / name).mkdir()
    out = {'out_dir': str(tmp_path / 'out')}
    custom = CheckpointHook(**out) if hook == 'object' else {'type': 'CheckpointHook', **out}
    cfg = Config({'checkpoint_config': out} if hook == 'checkpoint_config' else {'custom_hooks': [custom]})
    context = Context(cfg, Options(auto_resume=True), work_dir=tmp_path / 'run')
    ours = checkpoint(tmp_path / 'run' / 'epoch_9.pth', age=20)
    assert to_resume(context) == ours
    theirs = checkpoint(tmp_path / 'out' / 'run' / 'epoch_2.pth', age=10)
    assert to_resume(context) == theirs
    checkpoint(tmp_path / 'run' / 'epoch_9.pth', age=0)
    assert to_resume(context) == ours


def test_files_that_no_run_can_go_on_from_are_skipped_and_told(tmp_path, caplog):
    of_use = checkpoint(tmp_path / 'epoch_1.pth', age=9)
    checkpoint(tmp_path / 'epoch_2.pth', age=8, iter=-5)
    torch.save({'w': torch.ones(2)}, tmp_path / 'epoch_3.pth')
    checkpoint(tmp_path / 'epoch_4.pth', epoch=10**30)
    (tmp_path / 'epoch_5.pth').write_bytes(b'half')
    (tmp_path / 'latest.pth').symlink_to('epoch_5.pth')
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path)
    assert to_resume(context) == of_use
    for n in range(2, 6):
        assert f'epoch_{n}.pth is skipped: ' in caplog.text
    for reason in ("counter 'iter' is -5", 'holds no training state', "counter 'epoch' is 1000"):
        assert reason in caplog.text


def test_a_file_is_unpickled_once_to_see_whether_it_is_of_use(tmp_path, monkeypatch):
    of_use = checkpoint(tmp_path / 'epoch_1.pth')
    loads, load = [], torch.load
    monkeypatch.setattr(torch, 'load', lambda *args, **options: loads.append(args) or load(*args, **options))
    assert to_resume(Context(Config({}), Options(auto_resume=True), work_dir=tmp_path)) == of_use
    assert len(loads) == 1


@pytest.mark.parametrize(
    'data', [bytes(1000), b'<html>404</html>', pickle.dumps({'meta': {}})], ids=['zeros', 'page', 'pickle']
)
def test_files_that_are_none_of_torchs_are_skipped(tmp_path, data):
    of_use = checkpoint(tmp_path / 'epoch_1.pth')
    (tmp_path / 'epoch_9.pth').write_bytes(data)
    assert to_resume(Context(Config({}), Options(auto_resume=True), work_dir=tmp_path)) == of_use


def test_folders_are_taken_or_skipped_like_files(tmp_path, caplog):
    content = {'meta': {'epoch': 1, 'iter': 5}, 'state_dict': {'w': torch.ones(3)}, 'runnerkit': None}
    write(tmp_path / 'epoch_1.pth', content)
    write(tmp_path / 'epoch_2.pth', {**content, 'meta': {'epoch': 1, 'iter': -5}})
    write(tmp_path / 'epoch_3.pth', content)
    (tmp_path / 'epoch_3.pth/MANIFEST').unlink()
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path)
    assert to_resume(context) == str(tmp_path / 'epoch_1.pth')
    assert "epoch_2.pth is skipped: its counter 'iter' is -5" in caplog.text
    assert 'epoch_3.pth is skipped: it has no MANIFEST: its save was not ended' in caplog.text


def test_a_file_that_wants_to_be_trusted_is_not_skipped(tmp_path):
    """Or a run of long ago would start from the beginning, and overwrite it; resuming it tells what to do."""
    checkpoint(tmp_path / 'epoch_1.pth', age=9)
    newest = checkpoint(tmp_path / 'epoch_2.pth', x=os.__spec__)
    context = Context(Config({}), Options(auto_resume=True), work_dir=tmp_path)
    assert to_resume(context) == newest


def test_a_checkpoint_that_is_not_there_is_met_with_the_line_that_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text("x = 1\nload_from = 'nowhere.pth'\n")
    for options, place in ((Options(), r' \(cfg.py:2\)$'), (Options(load_from='other.pth'), 'other.pth')):
        with pytest.raises(FileNotFoundError, match=place):
            Startup(None)(Context(Config.fromfile('cfg.py'), options, model=torch.nn.Linear(1, 1)))
