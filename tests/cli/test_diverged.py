"""A training by config that diverges: its exit code, its last line, and what can still be done with its work dir."""

import re
import shlex
from contextlib import suppress

import pytest
import torch

import runnerkit
from runnerkit.cli.train import main

BREAKS = """
import math
import torch
from runnerkit.hooks import Hook


class Breaks(Hook):
    def __init__(self, at=3):
        self.at = at

    def after_train_epoch(self, runner):
        if runner.epoch + 1 == self.at:
            torch.nn.init.constant_(next(runner.model.parameters()), math.nan)
"""


@pytest.fixture
def diverged(project, train):
    """The answer of the tool, after a run of 5 epochs whose weights became NaN in the third."""
    (project / 'breaks.py').write_text(BREAKS)
    text = (project / 'cfg.py').read_text()
    text += 'checkpoint_config = dict(interval=1, max_keep_ckpts=2)\n'
    text += "custom_hooks = ['{{ fileDirname }}/breaks.py:Breaks']\n"
    (project / 'cfg.py').write_text(text.replace('max_epochs=3', 'max_epochs=5'))
    return train()


def names(folder):
    return sorted(path.name for path in folder.glob('*.pth'))


def test_the_exit_code_the_last_line_and_the_command_that_it_gives(diverged, project, train, capsys):
    code, said, _ = diverged
    run = project / 'run'
    assert code == 3
    assert 'Run diverged' in said
    assert [name for name in names(run) if 'best' not in name] == [
        'epoch_1.pth',
        'epoch_2.pth',
        'epoch_5.pth',
        'latest.pth',
    ]
    told = next(line for line in said.splitlines() if 'THE RUN HAS DIVERGED' in line)
    command = re.search(r'(runnerkit train .*) \(or clip', told)[1]
    _, _, *words = shlex.split(command)
    assert words[words.index('--resume-from') + 1] == str(run / 'epoch_2.pth')
    assert words[-1] == 'optimizer.lr=0.01'
    assert main(words) == 3  # as the hook breaks it again
    assert f'resumed from {run / "epoch_2.pth"}' in capsys.readouterr().err


def test_auto_resume_and_the_latest_are_of_the_newest_finite_one(diverged, project, train, caplog):
    run = project / 'run'
    code, said, _ = train('--auto-resume')
    assert code == 3
    assert 'epoch_5.pth is skipped: NaN or infinite values in' in said
    assert f'resumed from {run / "epoch_2.pth"}' in said
    caplog.clear()
    model = runnerkit.load_model(run, which='latest', trust=True)
    assert all(torch.isfinite(each).all() for each in model.parameters())
    assert not caplog.records
    (run / 'latest.pth').unlink()  # as where the storage has no links
    (run / 'latest.pth').symlink_to('epoch_1.pth')  # or the run was killed before it moved it
    code, said, _ = train('--resume-from', run)
    assert f'resumed from {run / "epoch_2.pth"}' in said


def test_what_uses_a_broken_checkpoint_warns(diverged, project, caplog, tmp_path):
    run = project / 'run'
    broken = str(run / 'epoch_5.pth')
    shape = (4,)
    for use in (
        lambda: runnerkit.load_model(broken),
        lambda: runnerkit.publish(broken, tmp_path / 'out.pth'),
        lambda: runnerkit.predict(str(run), 'test', checkpoint=broken),
        lambda: runnerkit.export(broken, tmp_path / 'out.safetensors', shape=shape),
    ):
        caplog.clear()
        with suppress(ValueError):  # an export compares outputs, which are NaN
            use()
        [told] = [each.getMessage() for each in caplog.records if 'is useless' in each.getMessage()]
        assert f'{broken} has NaN or infinite values in' in told
        assert '(32 of 32 values)' in told
        assert re.search(r'Use \S+(epoch_2|best_error_epoch_2)\.pth', told)


def test_an_old_file_is_asked_for_nan_alone(diverged, project, caplog):
    """A file that does not say what was infinite on purpose."""
    path = project / 'run' / 'epoch_2.pth'
    content = torch.load(path)
    del content['meta']['non_finite']
    name = next(iter(content['state_dict']))
    for value, is_told in ((-torch.inf, False), (torch.nan, True)):
        content['state_dict'][name].view(-1)[0] = value
        torch.save(content, path)
        caplog.clear()
        runnerkit.load_model(path)
        assert any('is useless' in each.getMessage() for each in caplog.records) == is_told


def test_from_python_the_result_says_it(diverged, project):
    result = runnerkit.train(project / 'cfg.py', project / 'again', cfg_options={'runner.max_epochs': 3})
    assert result.outcome.kind == 'diverged'
    assert re.search(r'best_error_epoch_[12]\.pth', result.best_checkpoint)
    assert result.signal is None


def with_hook(project, hook):
    text = (project / 'cfg.py').read_text().rpartition('custom_hooks')[0]
    (project / 'other.py').write_text(text + f'custom_hooks = [{hook}]\n')


def test_a_signal_that_stops_it_counts_more(diverged, project, train):
    stops = BREAKS + '            import os, signal\n            os.kill(os.getpid(), signal.SIGTERM)\n'
    (project / 'stops.py').write_text(stops)
    with_hook(project, "'{{ fileDirname }}/stops.py:Breaks'")
    code, said, _ = train(config='other.py', work_dir='other')
    assert code == 143
    assert 'Run diverged: SIGTERM' in said
    assert 'THE RUN HAS DIVERGED' in said


def test_a_hook_that_ends_the_run_for_it_has_the_same_code(diverged, project, train):
    with_hook(project, "dict(type='NonFiniteHook')")
    code, _, error = train('--cfg-options', 'optimizer.lr=1e30', config='other.py', work_dir='other')
    assert 'not finite since iteration' in error
    assert code == 3
