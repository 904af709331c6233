"""What a checkpoint may hold: each kind of value comes back, or is refused at the save with its place."""

import io
import math
import os
import time
import types
import warnings
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from datetime import datetime
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch
from torch import nn

from runnerkit.checkpoint.async_writer import ReusedCopies
from runnerkit.checkpoint.content import raw_checkpoint
from runnerkit.checkpoint.plain import plain_checkpoint, to_plain
from runnerkit.config import ConfigDict


def content_of(*args):
    return plain_checkpoint(raw_checkpoint(*args))


class Colour(Enum):
    RED = 'red'
    TABLE = ('a', 'b')


class Level(IntEnum):
    HIGH = 3


class Mixin:
    pass


class Number(Mixin, int):
    def __int__(self):
        return 99


class Real(float):
    pass


class Text(str):
    def __str__(self):
        return 'something else'


class Marked(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    """As DTensor and quantised tensors are made: no memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.size(), dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


class Thing:
    pass


Point = namedtuple('Point', 'x y')  # noqa: PYI024 (it is the class itself that is tested)
ONE = torch.tensor([1.5, -2.5])


def with_attribute():
    tensor = ONE.clone()
    tensor.note = Thing()
    return tensor


def nested_in_itself():
    value = [1]
    value.append(value)
    return value


def metadata():
    state = OrderedDict(w=1)
    state._metadata = OrderedDict({'': {'version': 2}})
    return state


def quiet(make):
    """What torch warns of, sparse CSR being in beta and the like, is no matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        return make()


#: Comes back as it was.
SAME = {
    'none': None,
    'bool': True,
    'int': -3,
    'largest int': 2**2039 - 1,
    'most negative int': 1 - 2**2039,
    'float': 0.1,
    'infinite': -math.inf,
    'not a number': math.nan,
    'minus zero': -0.0,
    'complex': 1 - 2j,
    'text': 'Grüße\0\n',
    'half a character': '\ud800',
    'empty text': '',
    'bytes': b'\0\xff',
    'empty bytes': b'',
    'bytearray': bytearray(b'\0\xff'),
    'empty bytearray': bytearray(),
    'size': torch.Size([2, 3]),
    'device': torch.device('cuda', 1),
    'dtype': torch.bfloat16,
    'float8': torch.float8_e4m3fn,
    'layout': torch.sparse_coo,
    'list': [1, [2.5, None]],
    'tuple': (1, ()),
    'set': {1, 'a', b'b', (2, 3), None},
    'empty set': set(),
    'dict': {1: 'a', 'b': 2, (1, 'x'): 3, None: 4, 2.5: 5, b'': 7, torch.float32: 8},
    'ordered dict': OrderedDict(b=1, a=2),
    'counter': Counter('aab'),
    'state dict': metadata(),
    'tensor': ONE,
    'no elements': torch.zeros(0, 3),
    'no dimensions': torch.tensor(3),
    'with a gradient': torch.ones(2, requires_grad=True),
    'transposed': torch.arange(6).view(2, 3).t(),
    'expanded': torch.ones(1).expand(4),
    'part of another': torch.arange(9)[3:6],
    'bfloat16': ONE.bfloat16(),
    'complex tensor': torch.tensor([1 + 2j]),
    'conjugated': torch.tensor([1 + 2j]).conj(),
    'booleans': torch.tensor([True, False]),
    'uint16': torch.tensor([1, 2], dtype=torch.uint16),
    'float8 tensor': ONE.to(torch.float8_e5m2),
    'sparse': torch.eye(2).to_sparse(),
    'sparse rows': quiet(lambda: torch.eye(2).to_sparse_csr()),
    'quantised': quiet(lambda: torch.quantize_per_tensor(ONE, 0.5, 0, torch.qint8)),
    'channel-wise quantised': quiet(
        lambda: torch.quantize_per_channel(torch.eye(2), torch.tensor([0.5, 1]), torch.tensor([0, 0]), 0, torch.qint8)
    ),
}

#: Comes back as what stands beside it, with that type.
PLAINER = {
    'parameter': (nn.Parameter(ONE), ONE.clone().requires_grad_()),
    'frozen parameter': (nn.Parameter(ONE, requires_grad=False), ONE),
    'buffer': (nn.Buffer(ONE), ONE),
    'tensor subclass': (ONE.as_subclass(Marked), ONE),
    'tensor with attributes': (with_attribute(), ONE),
    'numpy float': (np.float64(0.5), 0.5),
    'numpy half': (np.float16(0.5), 0.5),
    'numpy int': (np.uint64(2**64 - 1), 2**64 - 1),
    'numpy bool': (np.bool_(True), True),
    'numpy complex': (np.complex64(1j), 1j),
    'numpy text': (np.str_('x'), 'x'),
    'numpy bytes': (np.bytes_(b'x'), b'x'),
    'array': (np.arange(4, dtype='>i2').reshape(2, 2), [[0, 1], [2, 3]]),
    'array of texts': (np.array(['a', 'bc']), ['a', 'bc']),
    'array of anything': (np.array([1, 'x', None], dtype=object), [1, 'x', None]),
    'array without dimensions': (np.array(2.5), 2.5),
    'range': (range(1, 4), [1, 2, 3]),
    'frozen set': (frozenset({1}), {1}),
    'named tuple': (Point(1, 2), (1, 2)),
    'time': (time.struct_time(range(9)), tuple(range(9))),
    'default dict': (defaultdict(list, a=[1]), {'a': [1]}),
    'user dict': (UserDict(a=1), {'a': 1}),
    'config': (ConfigDict(a=dict(b=1)), {'a': {'b': 1}}),
    'read-only dict': (types.MappingProxyType({'a': 1}), {'a': 1}),
    'path': (PurePosixPath('a/b'), 'a/b'),
    'enum': (Colour.RED, 'red'),
    'enum of a tuple': (Colour.TABLE, ('a', 'b')),
    'integer enum': (Level.HIGH, 3),
    'int subclass': (Number(3), 3),
    'float subclass': (Real(0.5), 0.5),
    'text subclass': (Text('x'), 'x'),
    'numpy key': ({np.int64(1): 'a', Colour.RED: 'b'}, {1: 'a', 'red': 'b'}),
}

#: Refused at the save: the value, where in it the trouble is, and what is said of that.
REFUSED = {
    'object': (Thing(), '', r'a .*Thing, which a checkpoint cannot hold: give tensors'),
    'deep object': ({'hooks': {'X#0': {'y': (1, [2, Thing()])}}}, r"['hooks']['X#0']['y'][1][1]", 'a .*Thing'),
    'too large an int': ([2**2039], '[0]', 'an integer of 2040 bits; torch.load reads 2039: give a string'),
    'too large a key': ({2**9999: 1}, '', 'an integer of 10000 bits'),
    'wrapper': ({'w': Wrapper(ONE)}, "['w']", 'a .*Wrapper, which wraps other tensors: give a plain one'),
    'jagged': (
        quiet(lambda: torch.nested.nested_tensor([ONE, ONE[:1]], layout=torch.jagged)),
        '',
        'a .*NestedTensor, which wraps',
    ),
    'uninitialised parameter': (nn.UninitializedParameter(), '', 'run a batch through the model before'),
    'uninitialised buffer': ([nn.UninitializedBuffer()], '[0]', 'an uninitialised .*UninitializedBuffer'),
    'mkldnn': (ONE.to_mkldnn(), '', 'a tensor of torch.float32, torch._mkldnn, on cpu, which torch.load refuses'),
    'odd numbers': (ONE.new_zeros(2, dtype=torch.uint8).view(torch.uint4), '', 'a tensor of torch.uint4'),
    'odd dtype': ({'d': torch.uint3}, "['d']", 'torch.uint3, which a checkpoint cannot hold'),
    'memory format': (torch.channels_last, '', 'a torch.memory_format'),
    'storage': (ONE.untyped_storage(), '', 'a torch.storage.UntypedStorage'),
    'generator': (torch.Generator(), '', 'a torch._C.Generator'),
    'module': (nn.ReLU(), '', 'a .*ReLU'),
    'long double': (np.longdouble(1), '', 'a numpy.longdouble of .*, which has no equivalent in Python'),
    'numpy date': (np.datetime64('2020-01-01'), '', 'a numpy.datetime64 of'),
    'not a time': (np.datetime64('NaT'), '', 'a numpy.datetime64 of'),
    'numpy duration': (np.timedelta64(1, 's'), '', 'a numpy.timedelta64 of'),
    'array of dates': ([np.array(['2020'], dtype='M8[ns]')], '[0]', 'a numpy.ndarray of datetime64'),
    'record array': (np.zeros(1, [('a', 'i4')]), '', 'a numpy.ndarray of'),
    'array of objects': (np.array([1, Thing()], dtype=object), '[1]', 'a .*Thing'),
    'masked array': (np.ma.array([1, 2], mask=[0, 1]), '', 'MaskedArray: give its data and its mask'),
    'numpy generator': (np.random.default_rng(0), '', 'a numpy.random._generator.Generator'),
    'date': ({'when': datetime(2020, 1, 1)}, "['when']", 'a datetime.datetime'),  # noqa: DTZ001
    'decimal': (Decimal(1), '', 'a decimal.Decimal'),
    'fraction': (Fraction(1, 2), '', 'a fractions.Fraction'),
    'deque': (deque([1]), '', 'a collections.deque'),
    'ellipsis': (..., '', 'a builtins.ellipsis'),
    'slice': (slice(1), '', 'a builtins.slice'),
    'function': ({'f': len}, "['f']", 'a builtins.builtin_function_or_method'),
    'class': (int, '', 'a builtins.type'),
    'iterator': (iter([1]), '', 'a builtins.list_iterator'),
    'memory view': (memoryview(b'a'), '', 'a builtins.memoryview'),
    'set as a member': ({frozenset({1})}, '', 'the key .* which becomes a builtins.set and cannot be a key then'),
    'set as a key': ({(1, frozenset()): 1}, '', 'the key .* which becomes a builtins.tuple and cannot be a key then'),
    'tensor as a key': ({ONE: 1}, '', 'a tensor as a key'),
    'keys that become equal': ({'red': 1, Colour.RED: 2}, '', 'keys that become equal'),
    'members that become equal': ({'a', PurePosixPath('a')}, '', 'members that become equal'),
    'in itself': (
        nested_in_itself(),
        '[1]' * 100,
        'values nested more than 100 levels deep, or that contain themselves',
    ),
    'forged place': ({'\x1b[2J\nEverything is fine': Thing()}, r"['\x1b[2J\nEverything is fine']", 'a .*Thing'),
}


def read_back(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return quiet(lambda: torch.load(file, weights_only=True))


def assert_equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert (found.dtype, found.layout, found.shape) == (expected.dtype, expected.layout, expected.shape)
        assert found.requires_grad == expected.requires_grad
        assert found.stride() == expected.stride() if expected.layout is torch.strided else True
        found, expected = (x.dequantize() if x.is_quantized else x.detach() for x in (found, expected))
        found, expected = (x.to_dense() if x.layout is not torch.strided else x for x in (found, expected))
        assert (
            torch.equal(found.view(torch.uint8), expected.view(torch.uint8))
            if found.element_size() == 1
            else (torch.equal(found, expected))
        )
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_equal(found[key], expected[key])
        assert getattr(found, '_metadata', None) == getattr(expected, '_metadata', None)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for each, other in zip(found, expected, strict=True):
            assert_equal(each, other)
    else:
        assert repr(found) == repr(expected) or found == expected


@pytest.mark.parametrize('kind', SAME)
def test_comes_back_as_it_was(kind):
    assert_equal(read_back(to_plain(SAME[kind], 'meta')), SAME[kind])


@pytest.mark.parametrize('kind', PLAINER)
def test_comes_back_as_something_plainer(kind):
    value, expected = PLAINER[kind]
    assert_equal(read_back(to_plain([value], 'meta')), [expected])


@pytest.mark.parametrize('kind', REFUSED)
def test_is_refused_with_its_place(kind):
    value, place, reason = REFUSED[kind]
    with pytest.raises(TypeError, match=reason) as caught:
        to_plain(value, 'runnerkit')
    assert str(caught.value).startswith(f'runnerkit{place} holds ')
    assert str(caught.value).isprintable()


@pytest.mark.parametrize('kind', [kind for kind in SAME if isinstance(SAME[kind], torch.Tensor)])
def test_what_is_written_in_the_background_is_the_same(kind):
    assert_equal(read_back(ReusedCopies().of(to_plain([SAME[kind]], 'meta'))), [SAME[kind]])


def test_tensors_are_shared_and_containers_are_not():
    state = {'w': ONE, 'tied': ONE, 'list': [1], 'bytes': bytearray(b'a')}
    plain = to_plain(state, 'meta')
    assert plain['w'] is plain['tied'] is ONE
    assert plain['list'] is not state['list']
    assert plain['bytes'] is not state['bytes']
    part = to_plain(nn.Parameter(ONE), 'meta')
    assert part.data_ptr() == ONE.data_ptr()


def test_a_lazy_model_and_the_extra_state_of_a_module_are_refused_at_the_save():
    with pytest.raises(TypeError, match=r"^state_dict\['weight'\] holds an uninitialised .*UninitializedParameter"):
        content_of(nn.LazyLinear(2))

    class Extra(nn.Linear):
        def get_extra_state(self):
            return {'a': Thing()}

    with pytest.raises(TypeError, match=r"^state_dict\['_extra_state'\]\['a'\] holds a .*Thing"):
        content_of(Extra(1, 1))


def test_the_optimizers_place():
    class Odd(torch.optim.SGD):
        def state_dict(self):
            return {'x': os}

    model = nn.Linear(1, 1)
    with pytest.raises(TypeError, match=r"^optimizer\['x'\] holds a builtins.module"):
        content_of(model, Odd(model.parameters(), 0.1))
    with pytest.raises(TypeError, match=r"^optimizer\['dis'\]\['x'\] holds a builtins.module"):
        content_of(model, {'dis': Odd(model.parameters(), 0.1)})


def test_paths_of_this_system():
    assert to_plain(Path('a') / 'b', 'meta') == os.path.join('a', 'b')
