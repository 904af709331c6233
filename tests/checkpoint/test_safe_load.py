"""Loading without running code: numpy's numbers come back, and no file makes anything else of numpy."""

import os
import pickle
import struct
import threading
from pickle import UnpicklingError

import numpy as np
import pytest
import torch

from runnerkit.checkpoint import _load_checkpoint, why_damaged
from runnerkit.checkpoint.safe_load import safe_load


class Call:
    """Pickled as a call of ``function``, and a state for what that returns."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


class Named:
    """Pickled as the bare name of something."""

    def __init__(self, module, name):
        self.module, self.name = module, name


class Pickler(pickle._Pickler):
    """Writes `Named` as pickle's GLOBAL, whatever is there."""

    def save(self, value, *args, **kwargs):
        if isinstance(value, Named):
            self.write(pickle.GLOBAL + f'{value.module}\n{value.name}\n'.encode())
        elif isinstance(value, Call) and isinstance(value.reduced[0], Named):
            function, args, *state = value.reduced
            self.save(function)
            self.save(args)
            self.write(pickle.REDUCE)
            for each in state:
                self.save(each)
                self.write(pickle.BUILD)
        else:
            super().save(value, *args, **kwargs)


class PickleModule:
    """What torch.save takes in place of the module pickle."""

    Pickler = Pickler


def saved(path, value):
    torch.save(value, path, pickle_module=PickleModule)
    return path


MULTIARRAY = (np._core if hasattr(np, '_core') else np.core).multiarray
RECONSTRUCT, SCALAR = MULTIARRAY._reconstruct, MULTIARRAY.scalar
POINTER = struct.pack('<Q', 0x4141414141414141)
OBJECTS = Call(np.dtype, 'O', False, True)
#: A number's type that says of itself that it is a sub-array of objects.
DISGUISED = Call(np.dtype, 'f8', False, True, state=(3, '<', (OBJECTS, (1,)), None, None, 8, 8, 0))
FLOAT = Call(np.dtype, 'f8', False, True, state=(3, '<', None, None, None, -1, -1, 0))


def array(dtype, data=POINTER, shape=(1,), kind=np.ndarray):
    return Call(RECONSTRUCT, kind, (0,), b'b', state=(1, shape, dtype, False, data))


HOSTILE = {
    'array of pointers from a buffer': Call(np.ndarray, (1,), DISGUISED, POINTER),
    'array of pointers': array(DISGUISED),
    'array of objects': array(OBJECTS),
    'array of objects from a list': array(OBJECTS, [1]),
    'scalar of a pointer': Call(SCALAR, DISGUISED, POINTER),
    'scalar of an object': Call(SCALAR, OBJECTS, 1),
    'array by its class': Call(np.ndarray, (1,), 'O', POINTER),
    'type with fields': Call(np.dtype, [('a', 'O')], False, True),
    'type of a record': array(Call(np.dtype, 'V8', False, True)),
    'type from a name': Call(np.dtype, 'numpy.object_', False, True),
    'type without a name': Call(np.dtype, None, False, True),
    'type with flags': array(Call(np.dtype, 'f8', False, True, state=(3, '<', None, None, None, -1, -1, 63))),
    'type with another size': array(Call(np.dtype, 'f8', False, True, state=(3, '<', None, None, None, 800, 8, 0))),
    'type with a strange order': array(Call(np.dtype, 'f8', False, True, state=(3, 'x', None, None, None, -1, -1, 0))),
    'type with a strange state': array(Call(np.dtype, 'f8', False, True, state=7)),
    'dates': array(Call(np.dtype, 'M8[s]', False, True)),
    'texts': array(Call(np.dtype, 'U2', False, True)),
    'another class': array(FLOAT, kind=np.recarray),
    'no type': array(3),
    'a type of torch': array(torch.float64),
    'larger than its bytes': array(FLOAT, shape=(1000000,)),
    'smaller than its bytes': array(FLOAT, shape=(0,)),
    'negative': array(FLOAT, shape=(-1,)),
    'negative twice': array(FLOAT, shape=(-1, -1)),
    'no shape': array(FLOAT, shape=8),
    'more than memory': array(FLOAT, b'', shape=(2**62, 2**62, 0)),
    'more dimensions than there are': array(FLOAT, shape=(1,) * 100),
    'scalar of too few bytes': Call(SCALAR, FLOAT, b'1234'),
    'scalar of a text': Call(SCALAR, FLOAT, '12345678'),
    'array with a strange state': Call(RECONSTRUCT, np.ndarray, (0,), b'b', state=(1, 2)),
    'a class of types': Call(type(np.dtype('f8'))),
    'any other function': Call(np.frombuffer, POINTER),
    'a function of the same name': Call(Named('numpy.ma', 'dtype'), 'f8'),
    'made without its constructor': array(Call(Named('copyreg', '__newobj__'), np.dtype)),
}


@pytest.mark.parametrize('kind', HOSTILE)
def test_nothing_but_numbers_is_made_of_what_a_file_says(kind, tmp_path):
    path = saved(tmp_path / 'hostile.pth', {'meta': {'x': HOSTILE[kind]}})
    with pytest.raises(UnpicklingError, match='Weights only'):
        safe_load(path)
    assert why_damaged(path) is None  # it is what was written
    with pytest.raises(ValueError, match='could run code when loaded, so it was not loaded'):
        _load_checkpoint(path)


ARRAYS = {
    **{
        f'{code} {order}': np.array([0, 1, 100], code).astype(np.dtype(code).newbyteorder(order))
        for code in '?bBhHiIlLqQefdFD'
        for order in '<>'
    },
    'long double': np.array([1, 2], np.longdouble),
    'long complex': np.array([1, 2j], np.clongdouble),
    'columns first': np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    'no dimensions': np.array(2.5),
}


@pytest.mark.parametrize('kind', ARRAYS)
def test_arrays_of_numbers_come_back(kind, tmp_path):
    expected = ARRAYS[kind]
    torch.save(expected, tmp_path / 'a.pth')
    found = safe_load(tmp_path / 'a.pth')
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
    assert found.tolist() == expected.tolist()
    assert found.flags.writeable


@pytest.mark.parametrize('code', '?bBhHiIlLefdgFDG')
def test_numbers_come_back(code, tmp_path):
    torch.save(np.dtype(code).type(1), tmp_path / 'a.pth')
    found = safe_load(tmp_path / 'a.pth')
    assert (type(found), found) == (np.dtype(code).type, 1)


@pytest.mark.parametrize('core', ['numpy.core.multiarray', 'numpy._core.multiarray'])
def test_files_of_numpy_1_and_2_are_read(core, tmp_path):
    kind = Call(np.dtype, 'f8', 0, 1, state=(3, '<', None, None, None, -1, -1, 0))
    numbers = np.array([1.5, 2.5])
    reconstruct = Call(
        Named(core, '_reconstruct'), np.ndarray, (0,), b'b', state=(1, (2,), kind, False, numbers.tobytes())
    )
    path = saved(tmp_path / 'a.pth', [Call(Named(core, 'scalar'), kind, numbers[:1].tobytes()), reconstruct])
    scalar, array = safe_load(path)
    assert (type(scalar), scalar, array.tolist()) == (np.float64, 1.5, [1.5, 2.5])


def test_arrays_are_found_wherever_they_stand(tmp_path):
    shared = np.arange(2)
    value = {'a': [shared, (1, (shared, 'x'))], 'b': (2, 3), 'c': shared}
    value['itself'] = value['a']
    value['a'].append(value)
    torch.save(value, tmp_path / 'a.pth')
    found = safe_load(tmp_path / 'a.pth')
    assert found['c'] is found['a'][0] is found['a'][1][1][0]
    assert type(found['c']) is np.ndarray
    assert found['itself'][2] is found


def test_a_small_file_cannot_take_forever_or_end_in_a_recursion(tmp_path):
    bomb = (np.arange(2),)
    for _ in range(60):
        bomb = (bomb, bomb)  # 2 ** 60 paths lead to the array
    torch.save(bomb, tmp_path / 'bomb.pth')
    assert len(safe_load(tmp_path / 'bomb.pth')) == 2
    deep = pickle.EMPTY_LIST * 5000 + pickle.APPEND * 4999

    class Deep(pickle._Pickler):
        def save(self, value, *args, **kwargs):
            self.write(deep)

    torch.save(0, tmp_path / 'deep.pth', pickle_module=type('Module', (), {'Pickler': Deep}))
    with pytest.raises(ValueError, match='nested too deeply'):
        safe_load(tmp_path / 'deep.pth')
    assert 'nested too deeply' in why_damaged(tmp_path / 'deep.pth')


def test_what_the_user_allows_counts_and_stays_but_for_numpys_constructors(tmp_path):
    hostile = [array(DISGUISED), HOSTILE['a class of types']]
    torch.save(threading.Barrier, tmp_path / 'a.pth')
    allowed = [np.dtype, np.ndarray, RECONSTRUCT, type(np.dtype('f8')), threading.Barrier]
    with torch.serialization.safe_globals(allowed):
        before = torch.serialization.get_safe_globals()
        assert safe_load(tmp_path / 'a.pth') is threading.Barrier
        for each in hostile:
            with pytest.raises(UnpicklingError, match='Weights only'):
                safe_load(saved(tmp_path / 'hostile.pth', each))
        assert set(torch.serialization.get_safe_globals()) == set(before)


def test_files_are_read_in_several_threads(tmp_path):
    torch.save({'best': np.float64(0.5)}, tmp_path / 'a.pth')
    found = []

    def read():
        found.extend(safe_load(tmp_path / 'a.pth')['best'] for _ in range(10))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [0.5] * 40


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / 'epoch_1.pth')
    with pytest.raises(OSError, match='epoch_1.pth'):
        safe_load(tmp_path / 'epoch_1.pth')
