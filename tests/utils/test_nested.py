from types import MappingProxyType

import numpy as np

from runnerkit.utils.numbers import values_in


def test_values_come_with_their_keys_and_indices():
    value = {'a': [1, (2, {'b': None})], 3: MappingProxyType({'c': 'text'})}
    assert list(values_in(value)) == [(('a', 0), 1), (('a', 1, 0), 2), (('a', 1, 1, 'b'), None), ((3, 'c'), 'text')]
    assert list(values_in('text', ('x',))) == [(('x',), 'text')]


def test_empty_containers_and_arrays_are_values():
    array = np.zeros(2)
    assert list(values_in({'a': [], 'b': {}, 'c': (array, {1})})) == [
        (('a',), []), (('b',), {}), (('c', 0), array), (('c', 1), {1}),
    ]  # fmt: skip
