"""Whose fault a failure is, by real refusals of the machine wherever they can be had."""

import errno
import gc
import os
import resource
from contextlib import contextmanager

import pytest
import torch
from torch.utils.data import DataLoader

from runnerkit.data.loader import keep_queues
from runnerkit.search.blame import is_machine_error, is_text_of_machine
from runnerkit.utils.lock import FolderLock


def write_to_full_disk(folder):
    with open('/dev/full', 'wb') as file:
        file.write(b'x')


def save_to_full_disk(folder):
    torch.save({'weights': torch.zeros(1 << 16)}, '/dev/full')  # its writer in C++ loses the number


class Full(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        write_to_full_disk(None)


def read_in_a_worker(folder):
    list(keep_queues(iter(DataLoader(Full(), num_workers=1))))  # the main process gets the worker's traceback as a text


@contextmanager
def limited(kind, soft):
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def open_too_many(folder):
    with limited(resource.RLIMIT_NOFILE, 3):
        open(folder / 'file', 'w').close()


def write_too_much(folder):
    with open(folder / 'file', 'wb', buffering=0) as file, limited(resource.RLIMIT_FSIZE, 10):
        file.write(b'x' * 10)
        file.write(b'x')


def take_a_locked_folder(folder):
    locks = [FolderLock(folder)]
    try:
        FolderLock(folder)
    finally:
        locks[0].release()


def hide_a_full_disk(folder):
    try:
        write_to_full_disk(folder)
    except OSError:
        raise ValueError('the width is wrong') from None


def open_nothing(folder):
    open(folder / 'nothing')


@pytest.mark.parametrize(
    ('fail', 'blame'),
    [
        (write_to_full_disk, True),
        (save_to_full_disk, True),
        (read_in_a_worker, True),
        (open_too_many, True),
        (write_too_much, True),
        (take_a_locked_folder, False),
        (hide_a_full_disk, False),
        (open_nothing, False),
    ],
)
def test_who_is_to_blame(fail, blame, tmp_path):
    found = None
    try:
        fail(tmp_path)
    except Exception as error:
        found = is_machine_error(error)
    gc.collect()  # ends the worker of a loader that the error has referred to
    assert found == blame


@pytest.mark.parametrize(
    ('number', 'blame'),
    [
        *((number, True) for number in (errno.EDQUOT, errno.EIO, errno.ENFILE, errno.EROFS, errno.EAGAIN)),
        (errno.ENOMEM, False),  # the run may take too much
        (errno.EACCES, False),
    ],
)
def test_what_cannot_be_had_here(number, blame):
    assert is_machine_error(OSError(number, os.strerror(number))) == blame
    told = RuntimeError('Model: it failed')
    told.__context__ = OSError(number, os.strerror(number), 'a file')
    assert is_machine_error(told) == blame
    assert is_text_of_machine(f'output\nOSError: [Errno {number}] {os.strerror(number)}: a file') == blame


@pytest.mark.parametrize(
    ('text', 'blame'),
    [
        ('RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB', False),
        ('RuntimeError: received 0 items of ancdata', True),
        ('it might be caused by insufficient shared memory (shm)', True),
        ('ValueError: lr must be positive', False),
    ],
)
def test_what_is_read_of_a_text(text, blame):
    assert is_text_of_machine(text) == blame
