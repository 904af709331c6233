"""Numbers: checked, read from tensors and containers, shown in short; and which names are those of losses."""

import math
from types import MappingProxyType

import numpy as np
import pytest
import torch

from runnerkit.utils.numbers import (
    check_whole_number,
    in_bytes,
    in_seconds,
    in_short,
    moment,
    names_a_loss,
    plain_number,
    values_in,
)


@pytest.mark.parametrize(
    'value, options, error, message',
    [
        (0, {}, ValueError, '^n must be a whole number of at least 1, but got 0$'),
        (1, {'at_least': 2, 'hint': 'use two'}, ValueError, '^n must be .* at least 2, but got 1; use two$'),
        (1.0, {}, TypeError, 'but got 1.0$'),
        (True, {}, TypeError, 'but got True$'),
        ('2', {}, TypeError, "but got '2'$"),
        (None, {}, TypeError, 'at least 1, but got None$'),
        (0, {'or_none': True}, ValueError, '^n must be a whole number of at least 1, or None, but got 0$'),
    ],
)
def test_what_is_refused(value, options, error, message):
    with pytest.raises(error, match=message) as caught:
        check_whole_number('n', value, **options)
    assert isinstance(caught.value, AssertionError)  # which MMCV raises


def test_what_is_taken():
    check_whole_number('n', 1)
    check_whole_number('n', 0, at_least=0)
    check_whole_number('n', None, or_none=True)


@pytest.mark.parametrize(
    'value, number',
    [
        (torch.tensor(2.0), 2.0),
        (torch.tensor([[3]]), 3),
        (np.float64(0.5), 0.5),
        (np.array([1]), 1),
        (np.str_('a'), 'a'),
        (4, 4),
        ('text', 'text'),
        (None, None),
    ],
)
def test_numbers_in_tensors(value, number):
    found = plain_number(value)
    assert (found, type(found)) == (number, type(number))


def test_what_holds_several_stays():
    for value in (torch.ones(2), np.ones((2, 2)), torch.ones(0), [1]):
        assert plain_number(value) is value


def test_values_come_with_their_keys_and_indices():
    value = {'a': [1, (2, {'b': None})], 3: MappingProxyType({'c': 'text'})}
    assert list(values_in(value)) == [(('a', 0), 1), (('a', 1, 0), 2), (('a', 1, 1, 'b'), None), ((3, 'c'), 'text')]
    assert list(values_in('text', ('x',))) == [(('x',), 'text')]


def test_empty_containers_and_arrays_are_values():
    array = np.zeros(2)
    assert list(values_in({'a': [], 'b': {}, 'c': (array, {1})})) == [
        (('a',), []), (('b',), {}), (('c', 0), array), (('c', 1), {1}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    'made, text',
    [
        (in_short(0.123456), '0.1235'),
        (in_short(None), '-'),
        (in_short(math.nan), 'nan'),
        (in_short(12), '12'),
        (in_seconds(0.25), '0.25 s'),
        (in_seconds(42.4), '42 s'),
        (in_seconds(200), '3 min 20 s'),
        (in_seconds(7500), '2 h 05 min'),
        (in_seconds(math.inf), '-'),
        (in_bytes(10), '10 B'),
        (in_bytes(3 << 20), '3 MiB'),
        (in_bytes(1 << 41), '2 TiB'),
        (moment('yesterday'), ''),
        (moment(1e30), ''),
    ],
)
def test_short_texts(made, text):
    assert made == text


@pytest.mark.parametrize(
    'names, is_loss',
    [
        ('loss loss_cls decode.loss_ce val/loss celoss d_losses losses loss2 trainLossCls LOSS', True),
        ('glossary_accuracy glossiness accuracy', False),
    ],
)
def test_names_of_losses(names, is_loss):
    assert {name: names_a_loss(name) for name in names.split()} == dict.fromkeys(names.split(), is_loss)
