"""Conditions: when they are met, what they refuse, and the order that follows from them."""

import pytest

from runnerkit.search import Categorical, Condition, Float, Int
from runnerkit.search.space import order_of_names

PARAMETERS = {
    'type': Categorical(['SGD', 'Adam', 'LBFGS']),
    'depth': Int(1, 9),
    'momentum': Float(0, 1),
    'width': Categorical([8, 16]),
}


def met(condition, **parents):
    return condition.is_met(parents, PARAMETERS[condition.parent])


def test_when_a_child_exists():
    is_sgd = Condition('momentum', 'type', 'EQUAL', ['SGD'])
    assert met(is_sgd, type='SGD')
    assert not met(is_sgd, type='Adam')
    no_lbfgs = Condition('momentum', 'type', 'not_equal', 'LBFGS')
    assert met(no_lbfgs, type='SGD')
    assert not met(no_lbfgs, type='LBFGS')
    some = Condition('momentum', 'type', range=['SGD', 'Adam'])
    assert met(some, type='Adam')
    assert not met(some, type='LBFGS')
    assert not met(no_lbfgs)  # its parent does not exist


def test_an_interval_of_a_number_and_values_of_it():
    deep = Condition('width', 'depth', 'IN', [4, 6])
    assert [depth for depth in range(1, 10) if met(deep, depth=depth)] == [4, 5, 6]
    ends = Condition('width', 'depth', 'EQUAL', [4, 6])
    assert [depth for depth in range(1, 10) if met(ends, depth=depth)] == [4, 6]
    choices = Condition('momentum', 'width', 'IN', [8, 16])  # of a Categorical the choices, though they are numbers
    assert met(choices, width=16)
    assert not met(choices, width=12)


@pytest.mark.parametrize(
    'make, error, told',
    [
        (lambda: Condition('momentum', 'type', 'EQUALS', 'SGD'), ValueError, "EQUALS'; did you mean 'EQUAL'"),
        (lambda: Condition('momentum', 'type', 'EQUAL', []), ValueError, 'range must have at least one value'),
        (lambda: Condition('momentum', 'typ', range='SGD'), KeyError, "the parent of a condition is 'typ', but there"),
        (lambda: Condition('momentun', 'type', range='SGD'), KeyError, "did you mean 'momentum'?"),
        (
            lambda: Condition('momentum', 'type', range='Adma'),
            ValueError,
            "range has 'Adma', but type must be one of 'SGD', 'Adam', 'LBFGS'; did you mean 'Adam'?",
        ),
        (
            lambda: Condition('momentum', 'depth', 'NOT_EQUAL', 12),
            ValueError,
            'range has 12, but depth must be a whole number from 1 to 9',
        ),
        (lambda: Condition('momentum', 'depth', 'IN', [6, 4]), ValueError, 'must be [lowest, highest], but got [6, 4]'),
        (lambda: Condition('momentum', 'depth', 'IN', ['a', 4]), TypeError, "must be two numbers, but got ['a', 4]"),
        (lambda: Condition('momentum', 'depth', 'IN', [1, 2, 4]), ValueError, 'for single values write EQUAL'),
        (
            lambda: Condition('momentum', 'depth', 'IN', [10, 20]),
            ValueError,
            'depth must be a whole number from 1 to 9',
        ),
    ],
)
def test_conditions_that_cannot_be(make, error, told):
    with pytest.raises(error) as caught:
        make().check(PARAMETERS)
    assert told in caught.value.args[0]


def test_parents_come_first_and_others_in_the_order_given():
    conditions = [Condition('a', 'c', range=1), Condition('c', 'd', range=1)]
    order = order_of_names('abcd', conditions)
    assert order.index('d') < order.index('c') < order.index('a')
    assert order_of_names('dbca', []) == list('dbca')


def test_a_circle_is_named():
    conditions = [Condition('a', 'b', range=1), Condition('b', 'c', range=1), Condition('c', 'a', range=1)]
    with pytest.raises(ValueError, match=r'lead in a circle, so its parameters are never drawn: \w → \w → \w → \w'):
        order_of_names('abcd', conditions)
    with pytest.raises(ValueError, match='a → a'):
        order_of_names('ab', [Condition('a', 'a', range=1)])
