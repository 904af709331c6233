"""Work dirs that are used again, moved elsewhere, or shared by the ranks of a run."""

import os
import re
import shutil
import signal
import time

import torch
from forks import Fork

from runnerkit.checkpoint import Store
from runnerkit.cli import test as test_tool
from runnerkit.cli.train import main

ONE_EPOCH = ['--cfg-options', 'runner.max_epochs=1']


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def earlier(project, work_dir='run'):
    return sorted(project.glob(f'{work_dir}.*'))


HOOK = """
from pathlib import Path
from runnerkit.hooks import HOOKS, Hook


@HOOKS.register_module()
class Writes(Hook):
    def before_run(self, runner):
        Path(runner.work_dir, 'samples').mkdir(exist_ok=True)
"""


def test_a_second_run_does_not_mix_with_the_first(project, train):
    (project / 'writes.py').write_text(HOOK)
    (project / 'cfg.py').write_text(
        (project / 'cfg.py').read_text() + "\ncustom_hooks = [dict(type='{{ fileDirname }}/writes.py:Writes')]\n"
    )
    train()
    before, first = torch.load(project / 'run' / 'epoch_3.pth')['meta'], set(names(project / 'run'))
    assert 'samples' in first  # of a hook of the user
    (project / 'run' / 'notes.txt').write_text('mine')
    code, said, _ = train('--cfg-options', 'runner.max_epochs=2', 'seed=5')
    assert code == 1
    assert 'cannot be renamed to make room for this one: no run wrote notes.txt. Move that elsewhere' in said
    assert not earlier(project)
    assert not (project / 'run' / 'epoch_2.log').exists()
    first = {name for name in names(project / 'run') if name != 'notes.txt'}
    (project / 'run' / 'notes.txt').unlink()
    code, said, _ = train('--cfg-options', 'runner.max_epochs=2', 'seed=5')
    assert code == 0
    (folder,) = earlier(project)
    assert folder == project / 'run.1'
    told = [line for line in said.splitlines() if 'the earlier run in' in line]
    assert len(told) == 1
    assert f'to {folder} (continue it with --resume-from {folder})' in told[0]
    assert set(names(folder)) == first
    assert torch.load(folder / 'latest.pth')['meta']['time'] == before['time']
    assert 'epoch_3.pth' not in names(project / 'run')
    assert len(list((project / 'run').glob('*.log.json'))) == 1
    assert 'seed = 5' in (project / 'run' / 'cfg.py').read_text()
    assert 'seed = 3' in (folder / 'cfg.py').read_text()
    # The moved run is whole: it is tested and gone on with from where it is.
    assert test_tool.main([str(folder / 'cfg.py'), str(folder)]) == 0
    train('--resume-from', folder, '--cfg-options', 'runner.max_epochs=4', work_dir='on')
    assert torch.load(project / 'on' / 'epoch_4.pth')['meta']['iter'] == 20
    train()
    assert earlier(project) == [project / 'run.1', project / 'run.2']


def test_a_resumed_run_stays_where_it_is(project, train):
    train(*ONE_EPOCH)
    kept = {name for name in names(project / 'run') if not name.startswith('best')}
    run = project / 'run'
    ways = (['--auto-resume'], ['--if-used', 'resume'], ['--resume-from', run], ['--resume-from', run / 'latest.pth'])
    for epochs, flags in enumerate(ways, 2):
        code, said, _ = train(*flags, '--cfg-options', f'runner.max_epochs={epochs}')
        assert code == 0
        assert 'resumed from' in said
        assert (run / f'epoch_{epochs}.pth').exists()
        assert kept < set(names(run))
        assert not earlier(project)


def test_a_resumed_run_has_its_drawn_seed_again(project, train):
    """Else a config without a seed, whose order is another one each time, would not be resumed exactly."""
    cfg = project / 'cfg.py'
    cfg.write_text(cfg.read_text().replace('seed = 3', ''))
    train(*ONE_EPOCH)
    seed = torch.load(project / 'run' / 'latest.pth')['meta']['seed']
    for epochs, (flags, work_dir) in enumerate(
        [
            (['--auto-resume'], 'run'),
            (['--resume-from', project / 'run'], 'run'),
            (['--resume-from', project / 'run' / 'latest.pth'], 'other'),
        ],
        2,
    ):
        said = train(*flags, '--cfg-options', f'runner.max_epochs={epochs}', work_dir=work_dir)[1]
        assert torch.load(project / work_dir / f'epoch_{epochs}.pth')['meta']['seed'] == seed
        changed = said.partition('Changed since the checkpoint was saved:\n')[2].split('\n')
        assert changed[1].startswith(f'length  {epochs - 1} epoch')  # and nothing else
        assert changed[2].startswith('20')
    assert (
        'Changed since the checkpoint was saved'
        in train('--auto-resume', '--seed', '1', '--cfg-options', 'runner.max_epochs=5')[1]
    )
    train(work_dir='new')
    assert torch.load(project / 'new' / 'latest.pth')['meta']['seed'] != seed


def test_what_is_refused_changes_nothing(project, train):
    train(*ONE_EPOCH)
    before = {path: path.stat().st_mtime_ns for path in sorted((project / 'run').iterdir())}
    last = project / 'run' / 'latest.pth'
    for code, text, flags in (
        (1, '--if-used refuse is given', ['--if-used', 'refuse']),
        (2, '--auto-resume and --if-used aside contradict', ['--if-used', 'aside', '--auto-resume']),
        (1, 'belongs to the earlier run', ['--load-from', last]),
        (1, 'belongs to the earlier run', ['--resume-from', last, '--if-used', 'aside']),
        (2, "did you mean 'epoch_1.pth'", ['--resume-from', project / 'run' / 'epoch_2.pth']),
        (2, 'is a file', ['--cfg-options', f'checkpoint_config.out_dir={project}/cfg.py']),
        (0, 'The run would start', ['--dry-run']),
        (2, 'is not in the', ['--cfg-options', 'optimizer.type=SDG']),
    ):
        got, said, _ = train(*flags)
        assert (got, text in said) == (code, True), (flags, said)
        left = {path: path.stat().st_mtime_ns for path in sorted((project / 'run').iterdir()) if path in before}
        assert left == before
    assert {name for name in names(project / 'run') if not name.endswith('.log')} == {
        path.name for path in before if not path.name.endswith('.log')
    }


def test_wrong_paths_are_told_before_the_data_are_built(project, train):
    (project / 'points.py').write_text('raise RuntimeError("built")\n')
    for flags in (
        ['--resume-from', project / 'nowhere.pth'],
        ['--load-from', project / 'nowhere.pth'],
        ['--cfg-options', f'evaluation.out_dir={project}/cfg.py/x'],
    ):
        code, said, _ = train(*flags)
        assert code == 2
        assert 'built' not in said
    assert not (project / 'run').exists()


def test_a_finished_run_says_so(project, train):
    train(*ONE_EPOCH)
    code, said, _ = train('--auto-resume', *ONE_EPOCH)
    assert code == 0
    assert re.search(
        r'nothing is left to train: .*epoch_1.pth has completed all 1 epochs\n.*To train longer: '
        r'--cfg-options runner.max_epochs=2\.',
        said,
    )
    options = ['runner.type=IterBasedRunner', 'runner.max_epochs=None', 'runner.max_iters=4', 'lr_config=None']
    options = ['--no-validate', '--cfg-options', *options]
    train(*options, work_dir='iters')
    assert 'has completed all 4 iterations' in train('--auto-resume', *options, work_dir='iters')[1]
    assert 'nothing left' not in train('--auto-resume', *options, 'runner.max_iters=6', work_dir='iters')[1]


def test_the_work_dirs_own_config_is_run_again_elsewhere(project, train):
    train(*ONE_EPOCH)
    code, said, _ = train('--cfg-options', 'seed=4', config='run/cfg.py')
    assert code == 1
    assert 'this run reads cfg.py, code in it. Copy that elsewhere' in said
    assert train('--cfg-options', 'seed=4', config='run/cfg.py', work_dir='other')[0] == 0
    assert names(project / 'run' / 'code') == names(project / 'other' / 'code') == ['points.py']
    assert 'seed = 4' in (project / 'other' / 'cfg.py').read_text()
    assert not earlier(project)


def test_checkpoints_elsewhere_move_too(project, train):
    out = f'checkpoint_config.out_dir=memory://{project.name}'
    train('--cfg-options', out, 'runner.max_epochs=3', f'evaluation.out_dir={project}/best')
    _, said, _ = train('--cfg-options', out, 'runner.max_epochs=1', f'evaluation.out_dir={project}/best')
    assert len(earlier(project)) == 1
    place = f'memory://{project.name}/run'
    assert f"moved the earlier run's 3 checkpoints in {place} to {place}.1" in said
    assert [each.number for each in Store(place).numbered()] == [1]
    assert [each.number for each in Store(f'{place}.1').numbered()] == [3, 2, 1]
    assert len(Store(project / 'best' / 'run').best()) == 1
    assert len(Store(project / 'best' / 'run.1').best()) == 1


def test_checkpoints_that_are_not_known_to_be_ours_stay_and_are_told(project, train):
    store = Store(f'memory://{project.name}-shared/run')
    store.write('epoch_7.pth', {})
    _, said, _ = train(
        '--cfg-options', f'checkpoint_config.out_dir=memory://{project.name}-shared', 'runner.max_epochs=1'
    )
    assert f'{store} holds 1 checkpoints of an earlier run, which stay there: they may belong to another work' in said
    assert {each.number for each in store.numbered()} == {7, 1}


# --- real processes --------------------------------------------------------------------------------------------------


def test_a_work_dir_is_whole(project):
    """Trained, moved elsewhere, the project deleted: it is tested and resumed by its own config, by new processes."""
    (project / 'hook.py').write_text(
        'from runnerkit.hooks import HOOKS, Hook\nfrom .said import TEXT\n\n\n@HOOKS.register_module()\n'
        'class SaysIt(Hook):\n    def before_run(self, runner):\n        runner.logger.info(TEXT)\n'
    )
    (project / 'said.py').write_text("TEXT = 'it is said'\n")
    (project / 'hooked.py').write_text(
        "_base_ = 'cfg.py'\ncustom_imports = dict(imports=['{{ fileDirname }}/hook.py'])\n"
        "custom_hooks = [dict(type='SaysIt')]\n"
    )
    said = project.parent / 'said'
    said.mkdir()
    process = Fork(main, [str(project / 'hooked.py'), '--work-dir', str(project / 'run'), *ONE_EPOCH], folder=said)
    assert process.code() == 0, process.said()
    assert 'it is said' in process.said()
    moved = project.parent / 'elsewhere'
    shutil.move(project / 'run', moved)
    shutil.rmtree(project)
    process = Fork(test_tool.main, [str(moved / 'hooked.py'), str(moved)], folder=said)
    assert process.code() == 0, process.said()
    assert 'test error: ' in process.said('stdout')
    process = Fork(
        main, [str(moved / 'hooked.py'), '--auto-resume', '--cfg-options', 'runner.max_epochs=2'], folder=said
    )
    assert process.code() == 0, process.said()
    assert (moved / 'epoch_2.pth').exists()
    assert 'it is said' in process.said()
    # The best checkpoint is known where it is now, and the former one deleted.
    best = list(moved.glob('best_*.pth'))
    assert len(best) == 1
    assert torch.load(moved / 'epoch_2.pth')['meta']['hook_msgs']['best_ckpt'] == str(best[0])


def test_trained_and_tested_in_one_process(project, train, capsys):
    """As in a notebook: the copy of a file that is loaded does not register its classes a second time."""
    (project / 'metric.py').write_text(
        'from runnerkit.hooks import HOOKS, Hook\n\n\n@HOOKS.register_module()\nclass OnceOnly(Hook): ...\n'
    )
    (project / 'again.py').write_text(
        "_base_ = 'cfg.py'\ncustom_imports = dict(imports=['{{ fileDirname }}/metric.py'])\n"
        "custom_hooks = [dict(type='OnceOnly')]\n"
    )
    assert train(*ONE_EPOCH, config='again.py')[0] == 0
    assert test_tool.main([str(project / 'run' / 'again.py'), str(project / 'run')]) == 0


def worker(*arguments):
    """One rank; the second one comes late to what the first one does."""
    if os.environ['RANK'] == '1':
        time.sleep(0.5)
    return main([*arguments, '--launcher', 'pytorch'])


def test_with_two_ranks_the_first_one_moves_and_the_others_wait(launch, project, train):
    train(*ONE_EPOCH)
    # There is nothing to evaluate for the second one.
    arguments = [str(project / 'cfg.py'), '--work-dir', str(project / 'run'), *ONE_EPOCH, 'data.val.length=1']
    process = Fork(launch, worker, *arguments, folder=project)
    assert process.code() == 0, process.said()[-2000:]
    (folder,) = earlier(project)
    assert {'epoch_1.pth', 'cfg.py', 'curve.png'} < set(names(folder))
    assert len(torch.load(folder / 'epoch_1.pth')['runnerkit']['ranks']) == 1
    assert len(torch.load(project / 'run' / 'epoch_1.pth')['runnerkit']['ranks']) == 2


def test_a_work_dir_in_use_is_told_once(launch, project):
    """By rank 0; the other says that it did."""
    from runnerkit.flow.stages.instance import claim_work_dir

    (project / 'run').mkdir()
    lock = claim_work_dir(project / 'run')
    arguments = [str(project / 'cfg.py'), '--work-dir', str(project / 'run')]
    process = Fork(launch, worker, *arguments, folder=project)
    assert process.code() == 1
    lock.release()
    assert process.said().count('another run is using this work dir') == 1
    assert process.said().count('rank 1 ends: rank 0 has failed, and says why') == 1


class Restarted:
    """The environment of a job of Slurm's, before and after it was started again."""

    def __init__(self, monkeypatch):
        self.set = monkeypatch.setenv
        self.set('SLURM_JOB_ID', '4711')

    def again(self):
        self.set('SLURM_RESTART_COUNT', '1')


def test_a_job_that_is_started_again_goes_on(project, train, monkeypatch):
    """Killed after an epoch; the same command, which names neither --auto-resume nor a checkpoint, goes on."""
    train(work_dir='whole')
    train(*ONE_EPOCH)  # an earlier run, of another job
    job = Restarted(monkeypatch)
    process = Fork(main, [str(project / 'cfg.py'), '--work-dir', str(project / 'run')], folder=project)
    deadline = time.time() + 200
    while not (project / 'run' / 'epoch_2.pth').exists() and time.time() < deadline:
        time.sleep(0.005)
    process.send(signal.SIGKILL)
    process.code()
    job.again()
    code, said, _ = train()
    assert code == 0
    assert 'restarted job: continuing the run in ' in said
    assert 'resumed from' in said
    assert len(earlier(project)) == 1
    ours, whole = (torch.load(project / name / 'epoch_3.pth')['state_dict'] for name in ('run', 'whole'))
    assert all(torch.equal(ours[name], whole[name]) for name in whole)


def test_a_restart_before_the_run_began_does_not_resume_the_earlier_run(project, train, monkeypatch):
    train(*ONE_EPOCH)
    Restarted(monkeypatch).again()
    code, said, _ = train(*ONE_EPOCH)
    assert code == 0
    assert 'resumed from' not in said
    assert len(earlier(project)) == 1
