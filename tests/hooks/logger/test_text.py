"""Console lines and JSON lines of real runs."""

import json
import os
import re
import shutil
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import CheckpointHook, Hook, IterTimerHook, TextLoggerHook
from runnerkit.hooks.logger import text as module
from runnerkit.utils.logging import close_logger, get_logger


class Known(Tiny):
    """Logs what is known beforehand."""

    def train_step(self, data, optimizer=None, **kwargs):
        numbers = {'loss': torch.tensor(1.5), 'acc': 0.123456789012, 'tiny': 1e-7, 'zero': 0.0}
        return {'loss': torch.zeros(()), 'log_vars': numbers, 'num_samples': len(data[0])}

    val_step = dis_step = train_step


@pytest.fixture
def logger(tmp_path):
    yield get_logger('test_text', tmp_path / 'console.log')
    close_logger('test_text')


class Run:
    """A run of seven batches a pass, and what it has written."""

    def __init__(self, folder, logger, kind='epoch', workflow=(('train', 1),), hooks=(), optimizer=None, **options):
        limits = options.pop('limits', {'max_epochs': 1})
        self.runner = tiny_runner(kind, Known(), folder / 'work', optimizer=optimizer, **limits)
        self.runner.logger = logger
        self.runner.meta.update(options.pop('meta', {}))
        self.runner.register_hook(IterTimerHook(), 'LOW')
        self.hook = TextLoggerHook(by_epoch=kind == 'epoch', **options)
        for hook in [*hooks, self.hook]:
            self.runner.register_hook(hook, 'VERY_LOW')
        self.folder = folder
        self.workflow = list(workflow)

    def __call__(self, data=None):
        self.runner.run([data or loader(28) for _ in self.workflow], self.workflow)
        return self

    @property
    def lines(self):
        text = (self.folder / 'console.log').read_text()
        return [
            line.split(' - INFO - ')[1] for line in text.splitlines() if re.search(r'INFO - (Epoch|Iter|Exp)', line)
        ]

    @property
    def json(self):
        path = self.folder / 'work' / f'{self.runner.timestamp}.log.json'
        return [json.loads(line) for line in path.read_text().splitlines()]


VALUES = r'loss: 1\.5000, acc: 0\.1235, tiny: 1\.000e-07, zero: 0\.0000'
TIMES = r'eta: 0:00:00, time: 0\.\d{3}, data_time: 0\.\d{3}'


def assert_lines(lines, *patterns):
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns):
        assert re.fullmatch(pattern, line), (line, pattern)


def test_epochs(tmp_path, logger):
    run = Run(tmp_path, logger, workflow=[('train', 1), ('val', 1)], interval=3, meta={'seed': 3, 'exp_name': 'e1'})()
    assert_lines(
        run.lines,
        rf'Epoch \[1\]\[3/7\]\tlr: 1\.000e-01, {TIMES}, {VALUES}',
        rf'Epoch \[1\]\[6/7\]\tlr: 1\.000e-01, {TIMES}, {VALUES}',
        'Exp name: e1',
        rf'Epoch\(val\) \[1\]\[7\]\t{VALUES}',
    )
    meta, first, second, val = run.json
    assert meta == {'seed': 3, 'exp_name': 'e1'}
    assert list(first)[:5] == ['mode', 'epoch', 'iter', 'step', 'lr']
    assert (first['mode'], first['epoch'], first['iter'], first['lr']) == ('train', 1, 3, 0.1)
    assert (second['iter'], val['mode'], val['iter']) == (6, 'val', 7)
    assert (first['loss'], first['acc'], first['tiny']) == (1.5, pytest.approx(0.123456789012, rel=1e-15), 1e-07)
    assert {'time', 'data_time'} < set(first)


def test_iterations(tmp_path, logger):
    run = Run(tmp_path, logger, 'iter', [('train', 5), ('val', 2)], interval=5, limits={'max_iters': 10})()
    assert_lines(
        run.lines,
        rf'Iter \[5/10\]\tlr: 1\.000e-01, {TIMES}, {VALUES}',
        rf'Iter\(val\) \[5\]\t{VALUES}',
        rf'Iter \[10/10\]\tlr: 1\.000e-01, {TIMES}, {VALUES}',
        rf'Iter\(val\) \[10\]\t{VALUES}',
    )
    assert [(line['mode'], line['iter']) for line in run.json] == [('train', 5), ('val', 5), ('train', 10), ('val', 10)]


def test_the_experiments_name_every_so_often(tmp_path, logger):
    run = Run(tmp_path, logger, interval=1, interval_exp_name=3, meta={'exp_name': 'e1'})()
    assert [i for i, line in enumerate(run.lines) if line.startswith('Exp')] == [2, 6, 8]


def test_several_optimizers_or_none(tmp_path, logger):
    def two(model):
        return {
            name: torch.optim.SGD(part.parameters(), lr)
            for name, part, lr in (('a', model.body, 0.1), ('b', model.head, 0.2))
        }

    run = Run(tmp_path, logger, interval=7, optimizer=two)()
    assert re.match(r'Epoch \[1\]\[7/7\]\tlr_a: 1\.000e-01 lr_b: 2\.000e-01, eta', run.lines[0])
    assert run.json[0]['lr'] == {'a': 0.1, 'b': 0.2}
    run = Run(tmp_path, logger, interval=7, optimizer=lambda model: None)
    run.runner.timestamp = 'other'
    run()
    assert re.match(r'Epoch \[1\]\[7/7\]\teta', run.lines[1])
    assert 'lr' not in run.json[0]


@pytest.mark.parametrize('count, shown', [(2, ', lr_x2: 2.000e-01, '), (6, ', 5 other lrs: 2.000e-01 to 6.000e-01, ')])
def test_rates_of_groups_that_differ_have_names(tmp_path, logger, count, shown):
    def groups(model):
        parameters = list(model.parameters())
        rates = [0.1 * (1 + index % count) for index in range(len(parameters))]
        return torch.optim.SGD([{'params': [p], 'lr': lr} for p, lr in zip(parameters, rates, strict=True)], lr=0.1)

    run = Run(tmp_path, logger, interval=7, optimizer=groups)()
    assert f'lr: 1.000e-01{shown}' in run.lines[-1]
    assert run.lines[-1].count('lr_') == (count == 2)
    (line,) = [line for line in run.json if line.get('mode') == 'train']
    assert line['lr'] == 0.1
    assert line['lr_groups'] == pytest.approx({f'x{k}': 0.1 * k for k in range(2, count + 1)})


def test_floats_read_back_as_they_were(tmp_path, logger, monkeypatch):
    """Code written for MMCV gets its five decimals, and no names that it does not know."""

    def groups(model):
        first, *rest = model.parameters()
        return torch.optim.SGD([{'params': [first], 'lr': 0.3}, {'params': rest}], lr=0.1)

    class Third(Hook):
        def after_train_iter(self, runner):
            runner.log_buffer.output.update(third=1 / 3, several=[1 / 3, 1e-9])

    def logged():
        run = Run(tmp_path, logger, interval=7, optimizer=groups)
        run.runner.register_hook(Third(), 'LOW')
        return run()

    assert (logged().json[0]['third'], logged().json[0]['several']) == (1 / 3, [1 / 3, 1e-9])
    monkeypatch.setitem(sys.modules, 'mmcv', SimpleNamespace(IS_RUNNERKIT=True))
    line = logged().json[-1]
    assert (line['third'], line['several'], 'lr_groups' in line) == (0.33333, [0.33333, 0.0], False)


def test_scores_of_an_evaluation_by_a_data_set(tmp_path, logger):
    class Scores(Hook):
        def after_train_epoch(self, runner):
            scores = {
                'eval_iter_num': 25,
                'mIoU': np.float32(0.5),
                'n': 3,
                'note': 'text',
                'each': np.array([0.25, 1.0]),
            }
            runner.log_buffer.output.update(scores, own=slice(1))
            runner.log_buffer.ready = True

    run = Run(tmp_path, logger, hooks=[Scores()], interval=7)()
    assert_lines(
        run.lines[1:],
        r'Epoch\(val\) \[1\]\[25\]\tmIoU: 0\.5000, n: 3, note: text, each: \[0\.25, 1\.0\], own: slice\(.*\)',
    )
    val = {
        'mode': 'val',
        'epoch': 1,
        'iter': 25,
        'step': 7,
        'lr': 0.1,
        'mIoU': 0.5,
        'n': 3,
        'note': 'text',
        'each': [0.25, 1.0],
    }
    found = run.json[1]
    assert abs(found.pop('timestamp') - time.time()) < 600
    assert found == {**val, 'own': 'slice(None, 1, None)'}


class Clock:
    """One minute an iteration."""

    def __init__(self, runner):
        self.runner = runner

    time = staticmethod(time.time)

    def monotonic(self):
        return 60.0 * self.runner.completed_iters


@pytest.mark.parametrize('kind, limits', [('epoch', {'max_epochs': 20}), ('iter', {'max_iters': 140})])
@pytest.mark.parametrize('resumed_at', [0, 70])
def test_eta_in_both_runners_also_after_a_resume(tmp_path, logger, monkeypatch, kind, limits, resumed_at):
    class Stop(Hook):
        def after_train_iter(self, runner):
            if runner.completed_iters == resumed_at + 14:
                runner.stop('seen enough')

    run = Run(tmp_path, logger, kind, hooks=[Stop()], interval=7, limits=limits)
    monkeypatch.setattr(module, 'time', Clock(run.runner))
    run.runner._epoch, run.runner._iter = resumed_at // 7, resumed_at
    run()
    left = [140 - resumed_at - 7, 140 - resumed_at - 14]
    shown = [re.search(r'eta: ([^,]+(?: days?, [\d:]+)?)', line)[1] for line in run.lines]
    assert shown == [f'{minutes // 60}:{minutes % 60:02}:00' for minutes in left]


def test_the_file_is_complete_at_every_moment_and_closed_at_the_end(tmp_path, logger):
    seen = []

    class Look(Hook):
        def after_train_iter(self, runner):
            seen.append(len(run.json))

    run = Run(tmp_path, logger, interval=1)
    run.runner.register_hook(Look(), 'LOWEST')
    run()
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert run.hook._file is None


@pytest.mark.skipif(not os.path.exists('/dev/full'), reason='needs a device that is always full')
def test_a_full_disk_warns_once_and_training_goes_on(tmp_path, logger):
    run = Run(tmp_path, logger, interval=1)
    (tmp_path / 'work' / f'{run.runner.timestamp}.log.json').symlink_to('/dev/full')
    with pytest.warns(RuntimeWarning, match=r'log\.json cannot be written') as caught:
        run()
    assert len(caught) == 1
    assert run.runner.iter == 7


def test_without_a_work_dir_there_is_the_console_only(logger, tmp_path):
    runner = tiny_runner(model=Known(), max_epochs=1)
    runner.logger = logger
    hook = TextLoggerHook(interval=7)
    runner.register_hook(hook)
    runner.run([loader(28)], [('train', 1)])
    assert hook.json_log_path is None
    assert 'Epoch [1][7/7]' in (tmp_path / 'console.log').read_text()


@pytest.mark.parametrize('keep_local', [True, False])
def test_files_go_to_out_dir_in_the_end(tmp_path, logger, keep_local):
    out = tmp_path / 'out'
    run = Run(tmp_path, logger, interval=7, out_dir=str(out), out_suffix='.log.json', keep_local=keep_local)
    (tmp_path / 'work' / 'other.txt').write_text('stays')
    (tmp_path / 'work' / 'sub').mkdir()
    (tmp_path / 'work' / 'sub' / 'b.log.json').write_text('{}')
    run()
    name = f'{run.runner.timestamp}.log.json'
    assert sorted(path.name for path in (out / 'work').iterdir()) == [name, 'sub']
    assert (out / 'work' / 'sub' / 'b.log.json').read_text() == '{}'
    assert json.loads((out / 'work' / name).read_text())['loss'] == 1.5
    assert (tmp_path / 'work' / name).exists() is keep_local
    assert (tmp_path / 'work' / 'other.txt').exists()


def test_a_storage_of_the_users_own_gets_the_files(tmp_path, logger):
    from runnerkit.fileio.file_client import BaseStorageBackend, FileClient

    class Memory(BaseStorageBackend):
        files = {}

        def get(self, filepath):
            return self.files[filepath].encode()

        def get_text(self, filepath, encoding='utf-8'):
            return self.files[filepath]

        def put_text(self, obj, filepath, encoding='utf-8'):
            self.files[filepath] = obj

        def join_path(self, filepath, *filepaths):
            return ':'.join([filepath, *filepaths])

    FileClient.register_backend('memory_of_a_test', Memory, force=True)
    run = Run(tmp_path, logger, interval=7, out_dir='out', file_client_args={'backend': 'memory_of_a_test'})()
    assert list(Memory.files) == [f'out:work:{run.runner.timestamp}.log.json']
    assert '"loss": 1.5' in Memory.files[f'out:work:{run.runner.timestamp}.log.json']


def test_mistakes():
    with pytest.raises(TypeError, match='out_dir should be a folder, a URL or None, but got .*: 5'):
        TextLoggerHook(out_dir=5)
    with pytest.raises(ValueError, match='file_client_args should be None where there is no out_dir'):
        TextLoggerHook(file_client_args={'backend': 'disk'})
    with pytest.raises(ValueError, match='Backend floppy is not supported'):
        TextLoggerHook(out_dir='x', file_client_args={'backend': 'floppy'})


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_memory_of_the_gpu(tmp_path, logger):
    run = Run(tmp_path, logger, interval=7)
    run.runner.model.cuda()
    torch.empty(2**28, dtype=torch.uint8, device='cuda')
    run()
    assert run.json[0]['memory'] >= 256
    assert 'memory: ' in run.lines[0]


# --- after a resume --------------------------------------------------------------------------------------------------


def moments(folder, ending='log.json'):
    lines = [json.loads(line) for path in sorted(folder.glob(f'*.{ending}')) for line in path.read_text().splitlines()]
    return [(line['mode'], line['step']) for line in lines if 'mode' in line]


def interrupted(folder, logger, at, resume=None, workflow=(('train', 1), ('val', 1)), into='work'):
    """A run of two epochs that saves at their ends and dies in the validation (or the second iteration) after `at`."""

    class Dies(Hook):
        def after_val_iter(self, runner):
            if runner.completed_iters == at:
                raise KeyboardInterrupt

        def before_train_iter(self, runner):
            if runner.completed_iters == at + 2:
                raise KeyboardInterrupt

    runner = tiny_runner('epoch', Known(), folder / into, max_epochs=2)
    runner.logger, runner.timestamp = logger, f'{len(list(folder.rglob("*.log.json")))}'
    for hook in (CheckpointHook(interval=1), TextLoggerHook(interval=1), Dies()):
        runner.register_hook(hook)
    if resume:
        runner.resume(str(resume))
    try:
        runner.run([loader(12), loader(4)], list(workflow))
    except KeyboardInterrupt:
        pass
    return runner


WHOLE = [('train', 1), ('train', 2), ('train', 3), ('val', 3), ('train', 4), ('train', 5), ('train', 6), ('val', 6)]


def test_a_resumed_run_logs_each_moment_once(tmp_path, logger):
    """Also the validation after the checkpoint, which no iteration separates from it."""
    interrupted(tmp_path, logger, at=100)
    assert moments(tmp_path / 'work') == WHOLE
    interrupted(tmp_path, logger, at=100, resume=tmp_path / 'work' / 'epoch_1.pth')
    assert moments(tmp_path / 'work') == WHOLE
    assert moments(tmp_path / 'work', 'log.json.superseded') == WHOLE[3:]
    assert (
        'beyond 3 iterations, which will be repeated, are moved to 0.log.json.superseded'
        in (tmp_path / 'console.log').read_text()
    )
    interrupted(tmp_path, logger, at=6, resume=tmp_path / 'work' / 'epoch_1.pth')
    interrupted(tmp_path, logger, at=100, resume=tmp_path / 'work' / 'epoch_2.pth')
    assert moments(tmp_path / 'work') == WHOLE
    assert len(moments(tmp_path / 'work', 'log.json.superseded')) == 2 * 5


def test_a_run_that_is_not_resumed_leaves_older_logs_alone(tmp_path, logger):
    interrupted(tmp_path, logger, at=100)
    interrupted(tmp_path, logger, at=100)
    assert moments(tmp_path / 'work') == WHOLE + WHOLE


def test_a_log_that_is_deleted_meanwhile_is_missed(tmp_path, logger):
    class Delete(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 2:
                shutil.rmtree(runner.work_dir)

    run = Run(tmp_path, logger, hooks=[Delete()], interval=1)
    with pytest.warns(RuntimeWarning, match=r'log\.json cannot be written \(the file or its folder was del') as caught:
        run()
    assert len(caught) == 1
    assert run.runner.iter == 7


def test_a_storage_that_is_not_reached_at_the_end_costs_the_copies_and_not_the_run(tmp_path, logger, caplog):
    from runnerkit.fileio.file_client import BaseStorageBackend, FileClient

    class Away(BaseStorageBackend):
        def get(self, filepath): ...

        def get_text(self, filepath, encoding='utf-8'): ...

        def put_text(self, obj, filepath, encoding='utf-8'):
            raise ConnectionError('nobody is there')

        def join_path(self, filepath, *filepaths):
            return '/'.join([filepath, *filepaths])

    FileClient.register_backend('away', Away, force=True)
    run = Run(tmp_path, logger, interval=7, out_dir='out', keep_local=False, file_client_args={'backend': 'away'})()
    assert (tmp_path / 'work' / f'{run.runner.timestamp}.log.json').exists()
    assert 'could not all be copied to out: ConnectionError: nobody is there' in caplog.text
