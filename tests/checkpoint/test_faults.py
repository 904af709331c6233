"""A disk that fails at every single operation of a save, loses its power, or alters what it holds."""

import errno
import itertools
import logging
import os
import random
import resource
import shutil
import subprocess
import zipfile

import pytest
import torch
from disk_model import Disk, lay_out, watched
from support import loader, tiny_runner
from torch import nn

from runnerkit.checkpoint import find_latest_checkpoint, why_damaged
from runnerkit.hooks import CheckpointHook, Hook
from runnerkit.runner import EpochBasedRunner

logger = logging.getLogger('faults')


class Small(nn.Module):
    """As few tensors as can be, so that a save is few operations."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(64))

    def train_step(self, data, optimizer):
        return {'loss': (self.w - 1).square().sum(), 'log_vars': {}, 'num_samples': 1}


class Finds(Hook):
    """Looks, before each epoch, which checkpoint a run killed now would go on from."""

    def __init__(self, folder):
        self.folder, self.found = folder, []

    def before_train_epoch(self, runner):
        self.found.append(newest(self.folder))


def newest(folder):
    """The number of the newest whole checkpoint, which must also hold what its name says."""
    path = find_latest_checkpoint(folder)
    if path is None:
        return None
    number = int(path.stem.rpartition('_')[2])
    assert torch.load(path, weights_only=True)['meta']['epoch'] == number
    return number


def train(folder, epochs=3, resume=False, **options):
    """A run that saves every epoch and keeps one checkpoint; returns what was found before each epoch."""
    model = Small()
    runner = EpochBasedRunner(
        model, optimizer=torch.optim.SGD([model.w], lr=0.1), work_dir=str(folder), logger=logger, max_epochs=epochs
    )
    finds = Finds(folder)
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1, **options))
    runner.register_hook(finds)
    if resume:
        runner.resume(str(find_latest_checkpoint(folder)))
    runner.run([[0]], [('train', 1)])
    return finds.found


class SecondSave:
    """Counts the operations of the second epoch's save, and does something at one of them."""

    def __init__(self, at=None, act=None):
        self.at, self.act, self.names, self.running = at, act, [], False

    def __call__(self, name, args, real):
        path = str(args[0])
        if 'epoch_2' in path and name == 'open':
            self.running = True
        if 'epoch_3' in path:
            self.running = False
        reads = name == 'open' and args[1] & os.O_NONBLOCK  # what `Finds` looks for
        if reads or not self.running:
            return real()
        self.names.append(name)
        if len(self.names) - 1 == self.at:
            return self.act(name, args, real)
        return real()


def fail_with(number):
    def act(name, args, real):
        if name == 'close':
            real()  # the descriptor is gone, whatever is said
        raise OSError(number, os.strerror(number))

    return act


def die(name, args, real):
    if name == 'write' and len(args[1]) > 1:
        real(args[0], bytes(args[1])[: len(args[1]) // 2])
    os._exit(9)


def in_child(work):
    """Let a child process do ``work``; returns its exit code."""
    child = os.fork()
    if child == 0:
        try:
            code = work()
            os._exit(code if isinstance(code, int) else 0)
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope='module')
def operations(tmp_path_factory):
    """The names of all operations of one save."""
    folder, second = tmp_path_factory.mktemp('count') / 'run', SecondSave()
    with watched(folder, second):
        assert train(folder) == [None, 1, 2]
    assert {'open', 'write', 'fsync', 'close', 'replace', 'symlink', 'remove'} <= set(second.names)
    return second.names


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize('number', [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=errno.errorcode.get)
def test_an_error_at_every_operation_of_a_save(tmp_path, operations, number):
    for i, name in enumerate(operations):
        folder = tmp_path / str(i)
        with watched(folder, SecondSave(i, fail_with(number))):
            found = train(folder)
        assert found[2] in (1, 2), (i, name)
        assert names_in(folder) == ['epoch_3.pth', 'latest.pth'], (i, name)
        assert newest(folder) == 3
        if name in ('open', 'write', 'fsync', 'replace') and i < operations.index('replace'):
            assert found[2] == 1, (i, name)


def test_an_error_in_the_midst_of_what_torch_writes(tmp_path, monkeypatch):
    monkeypatch.setattr('runnerkit.checkpoint.atomic.BLOCK', 1)  # so that each of its writes is one operation
    for i in (2, 3, 11, 40):
        folder = tmp_path / str(i)
        with watched(folder, SecondSave(i, fail_with(errno.ENOSPC))):
            assert train(folder)[2] == 1
        assert names_in(folder) == ['epoch_3.pth', 'latest.pth']


def test_a_crash_at_every_operation_of_a_save(tmp_path, operations):
    for i, name in enumerate(operations):
        folder = tmp_path / str(i)

        def crash(folder=folder, i=i):
            with watched(folder, SecondSave(i, die)):
                train(folder)

        assert in_child(crash) == 9, (i, name)
        assert newest(folder) in (1, 2), (i, name)
        train(folder, resume=True)
        assert newest(folder) == 3
        # What the killed process left half-written is gone; of whole checkpoints at most the one is left that it was
        # about to delete.
        assert {'epoch_3.pth', 'latest.pth'} <= set(names_in(folder)) <= {'epoch_1.pth', 'epoch_3.pth', 'latest.pth'}
        shutil.rmtree(folder)


def states_after_power_loss(folder, flush, **options):
    """Every state in which the disk may be found during the second save, without files whose names are temporary."""
    train(folder, 1, **options)
    disk, states = Disk(folder), []

    def around(name, args, real):
        result = None if name == 'fsync' and not flush else real()
        if name != 'fsync' or flush:
            disk.note(name, args, result)
        for state in disk.after_power_loss():
            state = {name: value for name, value in state.items() if not name.startswith('.')}
            if state not in states:
                states.append(state)
        return result

    with watched(folder, around):
        train(folder, 2, resume=True, **options)
    return states


def found_after_power_loss(tmp_path, flush, **options):
    found = []
    for i, state in enumerate(states_after_power_loss(tmp_path / 'run', flush, **options)):
        lay_out(state, tmp_path / str(i))
        found.append(newest(tmp_path / str(i)))
    return found


@pytest.mark.parametrize('link', [True, False])
def test_after_a_power_loss_the_old_or_the_new_checkpoint_is_there(tmp_path, link):
    found = found_after_power_loss(tmp_path, flush=True, create_symlink=link)
    assert set(found) == {1, 2}
    assert len(found) >= 3


def test_without_flushing_a_power_loss_takes_all(tmp_path):
    assert None in found_after_power_loss(tmp_path, flush=False)  # so the test above can fail


@pytest.fixture(scope='module')
def two(tmp_path_factory):
    """A folder with two real checkpoints."""
    folder = tmp_path_factory.mktemp('two')
    runner = tiny_runner(work_dir=folder, max_epochs=2)
    runner.register_hook(CheckpointHook(interval=1))
    runner.run([loader(8)], [('train', 1)])
    return folder


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return a == b


def test_every_truncation_falls_back_to_the_one_before(two):
    path, draw = two / 'epoch_2.pth', random.Random(0)
    whole = path.read_bytes()
    try:
        for length in [0, 1, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(50))]:
            path.write_bytes(whole[:length])
            assert newest(two) == 1, length
    finally:
        path.write_bytes(whole)


def test_every_flipped_bit_is_refused_or_harmless(two):
    path, draw = two / 'epoch_2.pth', random.Random(0)
    whole, expected = path.read_bytes(), torch.load(path, weights_only=True)
    refused = silent = 0
    try:
        for _ in range(200):
            damaged = bytearray(whole)
            damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            path.write_bytes(damaged)
            if why_damaged(path) is not None:
                refused += 1
                silent += loads_wrong(path, expected)
            else:  # not in the payload
                assert equal(torch.load(path, weights_only=True), expected)
    finally:
        path.write_bytes(whole)
    assert refused > 100
    assert silent > 20  # torch.load alone would have trained on these


def loads_wrong(path, expected):
    """Whether torch loads the file without a word, with other values in it."""
    try:
        return not equal(torch.load(path, weights_only=True), expected)
    except Exception:
        return False


def test_a_flip_in_the_table_of_contents_is_seen_although_all_checksums_are_right(two, tmp_path):
    path = shutil.copy(two / 'epoch_2.pth', tmp_path / 'epoch_1.pth')
    whole = path.read_bytes()
    name = b'archive/data/0' if b'archive/data/0' in whole else b'epoch_2/data/0'
    at = whole.rindex(name)  # in the table at the end; the one before the record is left as it is
    unseen = 0
    for offset, bit in itertools.product(range(-46, 0), (0, 4)):
        damaged = bytearray(whole)
        damaged[at + offset] ^= 1 << bit
        path.write_bytes(damaged)
        if not checksums_are_right(path):
            continue
        try:
            torch.load(path, weights_only=True)
        except Exception:
            assert why_damaged(path) is not None
            unseen += 1
    assert unseen > 0


def checksums_are_right(path):
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except Exception:
        return False


class Quota(Hook):
    """From the second epoch on no file may be larger than ``size`` bytes; from epoch ``until`` on it may again."""

    def __init__(self, size, until):
        self.size, self.until = size, until

    def before_train_epoch(self, runner):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        if runner.epoch == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, hard))
        if runner.epoch == self.until:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def train_with_quota(folder, until, epochs=4):
    runner = tiny_runner(work_dir=folder, max_epochs=epochs)
    runner.register_hook(CheckpointHook(interval=1))
    runner.register_hook(Quota(2000, until))
    runner.run([loader(4)], [('train', 1)])


def test_a_quota_that_is_lifted_costs_the_checkpoints_in_between_only(tmp_path):
    assert in_child(lambda: train_with_quota(tmp_path, until=3)) == 0
    assert names_in(tmp_path) == ['epoch_1.pth', 'epoch_4.pth', 'latest.pth']
    assert newest(tmp_path) == 4


def test_a_quota_to_the_end_fails_the_run_and_leaves_what_there_was(tmp_path):
    assert in_child(lambda: train_with_quota(tmp_path, until=None)) == 99
    assert names_in(tmp_path) == ['epoch_1.pth', 'latest.pth']
    assert newest(tmp_path) == 1


def test_a_disk_that_fills_up(tmp_path):
    folder = tmp_path / 'small'
    folder.mkdir()
    mount = subprocess.run(
        ['mount', '-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f'no tmpfs can be mounted here: {mount.stderr.strip()}')
    try:
        with pytest.raises(OSError, match='No space left on device'):
            runner = tiny_runner(work_dir=folder, max_epochs=20)
            runner.register_hook(CheckpointHook(interval=1))
            runner.run([loader(4)], [('train', 1)])
        assert not [name for name in names_in(folder) if name.endswith('.tmp')]
        assert 1 <= newest(folder) < 20
    finally:
        subprocess.run(['umount', str(folder)], check=True)
