"""A training by config that diverges: its exit code, its last line, and what can still be done with its work dir."""

import re
import shlex
import shutil
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO

import pytest
import torch
from cli.conftest import FILES

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
        if runner.epoch + 1 == self.at and runner.optimizer.param_groups[0]['initial_lr'] > 0.05:
            torch.nn.init.constant_(next(runner.model.parameters()), math.nan)
"""


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """A project, the exit code and what was said, after a run of 5 epochs whose weights became NaN in the third."""
    project = tmp_path_factory.mktemp('diverged')
    for name, text in FILES.items():
        (project / name).write_text(text)
    (project / 'breaks.py').write_text(BREAKS)
    text = FILES['cfg.py'] + 'checkpoint_config = dict(interval=1, max_keep_ckpts=2)\n'
    text += "custom_hooks = ['{{ fileDirname }}/breaks.py:Breaks']\n"
    (project / 'cfg.py').write_text(text.replace('max_epochs=3', 'max_epochs=5'))
    with redirect_stdout(StringIO()) as out, redirect_stderr(out):
        code = main([str(project / 'cfg.py'), '--work-dir', str(project / 'run')])
    return project, code, out.getvalue()


@pytest.fixture
def project(trained, tmp_path):
    """A copy of the project and its run."""
    return shutil.copytree(trained[0], tmp_path, symlinks=True, dirs_exist_ok=True)


def names(folder):
    return sorted(path.name for path in folder.glob('*.pth'))


def test_the_exit_code_the_last_line_and_the_command_that_it_gives(trained, capsys):
    """The command is run as it is printed: it goes on from the last finite one, with the lower rate, to the end."""
    project, code, said = trained
    run = project / 'run'
    assert code == 5
    assert 'Run diverged' in said
    assert f'{run}/epoch_3.pth has NaN or infinite values in model.0.weight (32 of 32 values)' in said
    told = next(line for line in said.splitlines() if 'THE RUN HAS DIVERGED' in line)
    command = re.search(r'(runnerkit train .*) \(or clip', told)[1]
    _, _, *words = shlex.split(command)
    assert words[words.index('--resume-from') + 1] == str(run / 'epoch_2.pth')
    assert words[-1] == 'optimizer.lr=0.01'
    copy = shutil.copytree(run, project / 'before', symlinks=True)  # which the other tests want as it was
    assert main(words) == 0
    assert f'resumed from {run / "epoch_2.pth"}' in capsys.readouterr().err
    content = torch.load(run / 'epoch_5.pth')
    assert content['meta']['non_finite'] == {}
    assert content['optimizer']['param_groups'][0]['initial_lr'] == 0.01
    assert (run / 'latest.pth').resolve().name == 'epoch_5.pth'
    assert [name for name in names(run) if 'best' not in name] == ['epoch_4.pth', 'epoch_5.pth', 'latest.pth']
    shutil.rmtree(run)
    copy.rename(run)


def test_auto_resume_and_the_latest_are_of_the_newest_finite_one(project, train, caplog):
    run = project / 'run'
    assert [name for name in names(run) if 'best' not in name] == [
        'epoch_1.pth',
        'epoch_2.pth',
        'epoch_5.pth',
        'latest.pth',
    ]
    code, said, _ = train('--auto-resume')
    assert code == 5
    assert 'epoch_5.pth is skipped: NaN or infinite values in' in said
    assert f'resumed from {run / "epoch_2.pth"}' in said
    caplog.clear()
    model = runnerkit.load_model(run, which='latest', trust=True)
    assert all(torch.isfinite(each).all() for each in model.parameters())
    assert not caplog.records
    (run / 'latest.pth').unlink()  # as where the storage has no links
    (run / 'latest.pth').symlink_to('epoch_1.pth')  # or the run was killed before it moved it
    code, said, _ = train('--resume-from', run, '--cfg-options', 'optimizer.lr=0.01')
    assert f'resumed from {run / "epoch_2.pth"}' in said
    assert code == 0


def test_what_uses_a_broken_checkpoint_warns(trained, caplog, tmp_path):
    run = trained[0] / 'run'
    broken = str(run / 'epoch_5.pth')
    shape = (4,)
    for use in (
        lambda: runnerkit.load_model(broken),
        lambda: runnerkit.publish(broken, tmp_path / 'out.pth'),
        lambda: runnerkit.test(run, checkpoint=broken),
        lambda: runnerkit.predict(str(run), 'test', checkpoint=broken),
        lambda: runnerkit.export(broken, tmp_path / 'out.pt2', shape=shape),
    ):
        caplog.clear()
        with suppress(ValueError):  # an export compares outputs, which are NaN
            use()
        [told] = [each.getMessage() for each in caplog.records if 'are useless' in each.getMessage()]
        assert f'{broken} has NaN or infinite values in' in told
        assert '(32 of 32 values)' in told
        assert re.search(r'Use \S+(epoch_2|best_error_epoch_2)\.pth', told)


def test_an_old_file_is_asked_for_nan_alone(project, caplog):
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
        assert any('are useless' in each.getMessage() for each in caplog.records) == is_told


def test_from_python_the_result_says_it(project):
    result = runnerkit.train(project / 'cfg.py', project / 'again', cfg_options={'runner.max_epochs': 3})
    assert result.outcome.kind == 'diverged'
    assert re.search(r'best_error_epoch_[12]\.pth', result.best_checkpoint)
    assert result.signal is None


def with_hook(project, hook):
    text = (project / 'cfg.py').read_text().rpartition('custom_hooks')[0]
    (project / 'other.py').write_text(text + f'custom_hooks = [{hook}]\n')


def test_a_signal_that_stops_it_counts_more(project, train):
    stops = BREAKS + '            import os, signal\n            os.kill(os.getpid(), signal.SIGTERM)\n'
    (project / 'stops.py').write_text(stops)
    with_hook(project, "'{{ fileDirname }}/stops.py:Breaks'")
    code, said, _ = train(config='other.py', work_dir='other')
    assert code == 143
    assert 'Run diverged: SIGTERM' in said
    assert 'THE RUN HAS DIVERGED' in said


def test_a_hook_that_ends_the_run_for_it_has_the_same_code(project, train):
    with_hook(project, "dict(type='NonFiniteHook')")
    code, _, error = train('--cfg-options', 'optimizer.lr=1e30', config='other.py', work_dir='other')
    assert 'not finite since iteration' in error
    assert code == 5
