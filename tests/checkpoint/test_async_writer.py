"""Copies in reused memory, and the thread that writes them."""

import subprocess
import sys
import threading
import time
import weakref
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from runnerkit.checkpoint.async_writer import AsyncWriter, ReusedCopies


def state():
    return {
        'weights': OrderedDict(a=torch.rand(3, 4), b=torch.arange(5)),
        'list': [torch.rand(2).half(), (torch.tensor(True), 'text', 3, None)],
        'empty': torch.empty(0, 4),
        'scalar': torch.tensor(2.5, dtype=torch.bfloat16),
    }


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for item in items for tensor in tensors(item)]


def assert_equal(left, right):
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right):
            assert_equal(a, b)
    else:
        assert left == right


# --- copies ----------------------------------------------------------------------------------------------------------


def test_memory_that_torch_does_not_own_may_have_several_sizes():
    array = np.arange(1000, dtype=np.float32)
    value = {'beginning': torch.from_numpy(array[:3]), 'whole': torch.from_numpy(array)}
    copies = ReusedCopies()
    for _ in range(2):
        assert_equal(copies.of(value), value)


def test_a_copy_is_equal_and_shares_nothing():
    value = state()
    copied = ReusedCopies().of(value)
    assert_equal(copied, value)
    for tensor in tensors(value):
        tensor.zero_()
    assert all(tensor.any() for tensor in tensors(copied) if tensor.numel())


def test_the_next_copy_lies_in_the_same_memory():
    copies = ReusedCopies()
    before = {tensor.data_ptr() for tensor in tensors(copies.of(state()))}
    value = state()
    again = copies.of(value)
    assert {tensor.data_ptr() for tensor in tensors(again)} == before
    assert_equal(again, value)


def test_memory_follows_what_changes_its_size():
    copies = ReusedCopies()
    copies.of({'a': torch.rand(10), 'b': torch.rand(20)})
    value = {'b': torch.rand(20), 'c': torch.rand(7), 'd': torch.rand(10)}
    assert_equal(copies.of(value), value)
    copies.of({'a': torch.rand(10)})
    assert [buffer.numel() for buffer in copies._buffers] == [40]  # the rest is given back


def test_what_shares_memory_shares_it_in_the_copy(tmp_path):
    whole = torch.rand(4, 1000)
    value = {'whole': whole, 'tied': whole, 'row': whole[2], 'turned': whole.t()}
    copied = ReusedCopies().of(value)
    assert_equal(copied, value)
    assert copied['turned'].stride() == (1, 1000)
    copied['tied'].fill_(7)
    assert all((tensor == 7).all() for tensor in tensors(copied))
    torch.save(value, tmp_path / 'value.pth')
    torch.save(copied, tmp_path / 'other.pth')
    assert all((tmp_path / name).stat().st_size < 20_000 for name in ('value.pth', 'other.pth'))


def test_a_state_dict_keeps_its_metadata():
    value = nn.BatchNorm1d(3).state_dict()
    copied = ReusedCopies().of({'state_dict': value})['state_dict']
    assert copied._metadata == value._metadata
    assert copied._metadata[''] == {'version': 2}


def test_unusual_tensors_are_copied_as_well():
    parameter, sparse = nn.Parameter(torch.rand(3)), torch.eye(3).to_sparse()
    conjugate = torch.tensor([1 + 2j]).conj()
    copied = ReusedCopies().of([parameter, sparse, conjugate])
    with torch.no_grad():
        parameter.zero_()
    assert copied[0].all()
    assert torch.equal(copied[1].to_dense(), torch.eye(3))
    assert torch.equal(copied[2], torch.tensor([1 - 2j]))


# --- the thread ------------------------------------------------------------------------------------------------------


def test_it_writes_what_was_there_when_it_started():
    writer, go, written = AsyncWriter(), threading.Event(), []
    value = {'a': torch.ones(3)}

    def write(checkpoint):
        go.wait(10)
        written.append((checkpoint['a'].clone(), threading.current_thread()))

    assert writer.is_done
    writer.start(value, write)
    value['a'].zero_()
    assert not writer.is_done
    assert not written
    go.set()
    writer.wait()
    assert writer.is_done
    assert torch.equal(written[0][0], torch.ones(3))
    assert written[0][1] is not threading.current_thread()
    writer.wait()  # nothing to wait for


def test_one_at_a_time():
    writer, running, seen = AsyncWriter(), [], []

    def write(checkpoint):
        running.append(1)
        time.sleep(0.02)
        seen.append((len(running), checkpoint['a'].tolist()))
        running.pop()

    for i in range(4):
        writer.start({'a': torch.full((2,), float(i))}, write)
    writer.wait()
    assert seen == [(1, [i, i]) for i in range(4)]


def test_the_caller_lets_go_of_no_tensor_while_the_thread_writes():
    writer, ends = AsyncWriter(), threading.Event()
    state = {'a': torch.ones(2)}
    tensor = weakref.ref(state['a'])
    writer.start(state, lambda checkpoint: ends.wait())
    del state
    is_kept = tensor() is not None
    ends.set()
    writer.wait()
    assert is_kept
    assert tensor() is None


def test_an_error_is_raised_once_by_whoever_waits():
    writer = AsyncWriter()

    def fail(checkpoint):
        raise OSError(28, 'No space left on device')

    writer.start({}, fail)
    with pytest.raises(OSError, match='No space left'):
        writer.wait()
    writer.wait()
    writer.start({}, fail)
    with pytest.raises(OSError, match='No space left'):
        writer.start({}, lambda checkpoint: None)
    written = []
    writer.start({}, written.append)
    writer.wait()
    assert written == [{}]


@pytest.mark.parametrize('waits', [False, True])
def test_an_error_that_is_not_waited_for_is_logged(waits, warm):
    done = subprocess.run(
        [sys.executable, '-'],
        input=f"""
from contextlib import suppress
from runnerkit.checkpoint.async_writer import AsyncWriter

def write(checkpoint):
    raise OSError(28, 'No space left on device')

writer = AsyncWriter()
writer.start({{}}, write)
if {waits}:
    with suppress(OSError):
        writer.wait()
""",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    told = 'a checkpoint could not be written in the background: [Errno 28] No space left on device'
    assert done.stderr.count(told) == (not waits)


def test_the_interpreter_waits_for_it_at_its_end(tmp_path, warm):
    (tmp_path / 'program.py').write_text(f"""
import time, torch
from runnerkit.checkpoint.async_writer import AsyncWriter

def write(checkpoint):
    time.sleep(0.5)
    torch.save(checkpoint, {str(tmp_path / 'a.pth')!r})

AsyncWriter().start({{'a': torch.ones(3)}}, write)
raise SystemExit(3)
""")
    assert subprocess.run([sys.executable, tmp_path / 'program.py'], timeout=300).returncode == 3
    assert torch.equal(torch.load(tmp_path / 'a.pth')['a'], torch.ones(3))
