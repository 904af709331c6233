"""Parameters: what they draw, what they accept, what a grid of them tries, what they refuse to be; random values."""

import math
import random
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from runnerkit.compat.vega.space import AdjacencyList, BinaryCode
from runnerkit.search import PARAMETERS, Bool, Categorical, Float, Int, Parameter, RandomSuggest, Space
from runnerkit.search.parameters import as_parameter
from runnerkit.search.space import combinations_of


class Answers:
    """Suggests what it was given, and notes what it was asked."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def suggest_float(self, name, low, high, *, step=None, log=False):
        self.asked.append(('float', name, low, high, step, log))
        return self.answers[name]

    def suggest_int(self, name, low, high, *, step=1, log=False):
        self.asked.append(('int', name, low, high, step, log))
        return self.answers[name]

    def suggest_categorical(self, name, choices):
        self.asked.append(('categorical', name, choices))
        return self.answers[name]


EVERY = [
    Categorical(['SGD', 'Adam']),
    Categorical([[1, 0, 1], {'type': 'ReLU'}, (1, 2), None, 0.5]),
    Bool(),
    Int(1, 9),
    Int(0, 10, step=5),
    Int(0, 11, step=4),
    Int(1, 100000, log=True),
    Float(-1, 1),
    Float(0.0, 0.5, step=0.1),
    Float(0, 0.3, step=0.1),
    Float(0, 1, step=0.35),
    Float(1e-5, 1e-1, log=True),
    BinaryCode(6),
    BinaryCode(6, ones=2),
    AdjacencyList(['a', 'b', 'c']),
    AdjacencyList([1, 2, 3, 4], edges=2),
]


@pytest.mark.parametrize('parameter', EVERY, ids=repr)
def test_what_is_drawn_is_in_the_range(parameter):
    suggest, seen = RandomSuggest(random.Random(0)), []
    for _ in range(40):
        value = parameter.draw('k', suggest)
        assert parameter.why_not(value) is None
        seen.append(value)
    assert any(value != seen[0] for value in seen)


def grid(parameter, points=None):
    return [values['k'] for _, values in islice(combinations_of(Space({'k': parameter}), points), 1000)]


@pytest.mark.parametrize(
    'parameter', [each for each in EVERY if 'ones=2' not in repr(each) and 'edges=2' not in repr(each)], ids=repr
)
def test_a_grid_has_different_values_of_the_range(parameter):
    for points in (2, 3, 10**6):
        values = grid(parameter, points)
        assert all(parameter.why_not(value) is None for value in values)
        assert all(value not in values[:index] for index, value in enumerate(values))


def test_the_questions_are_those_of_optuna():
    suggest = Answers(lr=0.1, width=64, momentum=0.5, act='ReLU', flag=True, **{'code[0]': 1, 'code[1]': 0})
    assert Float(1e-4, 1, log=True).draw('lr', suggest) == 0.1
    assert Float(0, 1, step=0.25).draw('momentum', suggest) == 0.5
    assert Int(16, 128, step=16).draw('width', suggest) == 64
    assert Categorical(('ReLU', 'GELU')).draw('act', suggest) == 'ReLU'
    assert Bool().draw('flag', suggest) is True
    assert BinaryCode(2).draw('code', suggest) == [1, 0]
    assert suggest.asked == [
        ('float', 'lr', 1e-4, 1, None, True),
        ('float', 'momentum', 0, 1, 0.25, False),
        ('int', 'width', 16, 128, 16, False),
        ('categorical', 'act', ['ReLU', 'GELU']),
        ('categorical', 'flag', [False, True]),
        ('int', 'code[0]', 0, 1, 1, False),
        ('int', 'code[1]', 0, 1, 1, False),
    ]


def test_a_step_that_does_not_divide_the_range_ends_below_it():
    """Optuna warns of each draw from another range; and 3 * 0.1 is above 0.3."""
    suggest = Answers(x=0)
    for parameter in (Int(0, 11, step=4), Float(0, 1, step=0.3), Float(0, 0.3, step=0.1), Float(-1, 1, step=0.5)):
        parameter.draw('x', suggest)
    assert [question[3] for question in suggest.asked] == [8, 0.9, 0.3, 1.0]


def test_the_same_value_may_be_written_in_several_ways():
    assert AdjacencyList([1, 2, 3]).same([[1, 2], [2, 3]], [[2, 3], (1, 2)])
    assert not AdjacencyList([1, 2, 3]).same([[1, 2], [2, 3]], [[1, 2], [1, 3]])
    assert BinaryCode(2).same([0, 1], (0, 1))
    assert not Categorical(['SGD', 'Adam']).same('SGD', 'Adam')


def test_a_choice_that_no_storage_holds_is_asked_for_by_its_text_and_drawn_as_a_copy():
    widths = [[16, 32], [32, 64]]
    parameter = Categorical(widths)
    suggest = Answers(k='[32, 64]')
    drawn = parameter.draw('k', suggest)
    drawn.append(128)
    assert suggest.asked == [('categorical', 'k', ['[16, 32]', '[32, 64]'])]
    assert parameter.draw('k', suggest) == widths[1] == [32, 64]


def test_of_a_code_with_a_number_of_ones_the_highest_weights_win():
    weights = {'c[0]': 0.2, 'c[1]': 0.9, 'c[2]': 0.2, 'c[3]': 0.5}
    assert BinaryCode(4, ones=3).draw('c', Answers(**weights)) == [1, 1, 0, 1]
    assert BinaryCode(4, ones=0).draw('c', Answers(**weights)) == [0, 0, 0, 0]
    codes = [BinaryCode(4, ones=2).draw('c', RandomSuggest(random.Random(seed))) for seed in range(300)]
    assert len({tuple(code) for code in codes}) == 6


def test_edges_lead_from_a_node_to_a_later_one():
    assert AdjacencyList([1, 2, 3, 4]).possible == [[1, 2], [1, 3], [1, 4], [2, 3], [2, 4], [3, 4]]
    assert grid(AdjacencyList(['A', 'C', 'x']))[-1] == [['A', 'C'], ['A', 'x'], ['C', 'x']]


def test_the_points_of_a_grid():
    assert grid(Int(1, 4)) == [1, 2, 3, 4]
    assert grid(Int(0, 10, step=5), 7) == [0, 5, 10]
    assert grid(Int(1, 1000, log=True), 4) == [1, 10, 100, 1000]
    assert grid(Int(1, 1000, log=True, points=2), 4) == [1, 1000]
    assert grid(Int(1, 9), 1) == [5]
    assert grid(Int(1, 100, log=True), 1) == [10]
    assert grid(Float(0, 1), 3) == [0, 0.5, 1]
    assert grid(Float(1e-3, 1e-1, log=True), 3) == pytest.approx([1e-3, 1e-2, 1e-1])
    assert grid(Float(0.5, 0.5), 3) == [0.5]
    assert grid(Float(0.0, 1.0, step=0.25)) == [0, 0.25, 0.5, 0.75, 1]
    assert grid(Float(0.0, 1.0, step=0.25), 3) == [0, 0.5, 1]
    assert grid(Int(0, 11, step=4), 2) == [0, 8]
    assert grid(Float(0, 1, step=0.35), 2) == [0, 0.7]
    assert grid(Bool(), 1) == [False, True]
    assert len(grid(BinaryCode(5))) == 32
    with pytest.raises(ValueError, match=r'k: a grid over the numbers from 0 to 1 needs points=…'):
        grid(Float(0, 1))


@pytest.mark.parametrize(
    'parameter, value, why',
    [
        (Categorical(['SGD', 'Adam']), 'adam', "must be one of 'SGD', 'Adam'; did you mean 'Adam'?"),
        (Categorical([1, 2]), [1], 'must be one of 1, 2'),
        (Int(1, 9), 10, 'must be a whole number from 1 to 9'),
        (Int(1, 9), 2.5, 'must be a whole number from 1 to 9'),
        (Int(1, 9), True, 'must be a whole number from 1 to 9'),
        (Int(0, 10, step=5), 4, 'must be a whole number from 0 to 10 in steps of 5'),
        (Float(0, 1), '0.5', 'must be a number from 0 to 1'),
        (Float(0, 1, step=0.5), 0.75, 'must be a number from 0 to 1 in steps of 0.5'),
        (BinaryCode(3), [1, 0], 'must be a list of 3 zeros and ones'),
        (BinaryCode(3), [1, 0, 2], 'must be a list of 3 zeros and ones'),
        (BinaryCode(3, ones=1), [1, 0, 1], 'must be a list of 3 zeros and ones, 1 of them ones'),
        (
            AdjacencyList([1, 2]),
            [[2, 1]],
            'must be a list of different pairs [from, to] of the nodes 1, 2, from an earlier to a later',
        ),
        (
            AdjacencyList([1, 2, 3], edges=2),
            [[1, 2]],
            'must be a list of 2 different pairs [from, to] of the nodes 1, 2, 3, from an earlier to a later',
        ),
        (
            AdjacencyList([1, 2]),
            [[1, 2], [1, 2]],
            'must be a list of different pairs [from, to] of the nodes 1, 2, from an earlier to a later',
        ),
    ],
)
def test_what_is_not_in_the_range(parameter, value, why):
    assert parameter.why_not(value) == why


@pytest.mark.parametrize(
    'make, error, told',
    [
        (lambda: Categorical('abc'), TypeError, "choices must be a list, but got 'abc'"),
        (lambda: Categorical([1, 2, 1.0]), ValueError, 'choices must be different, but 1 and 1.0 are equal'),
        (lambda: Bool([0, 1]), TypeError, 'choices must be True and False'),
        (lambda: Int(3, 2), ValueError, 'low=3 must not be above high=2'),
        (lambda: Int(0, 2, log=True), ValueError, 'low must be above 0 on a logarithmic scale, but got low=0'),
        (lambda: Int(1.0, 2), TypeError, 'low must be a whole number, but got 1.0; for other numbers there is Float'),
        (lambda: Int(1, 8, log=True, step=2), ValueError, 'step=2 and log=True exclude each other'),
        (lambda: Int(1, 8, step=0), ValueError, 'step must be above 0, but got 0'),
        (lambda: Int(1, 8, points=0), ValueError, 'points must be a whole number of at least 1, or None, but got 0'),
        (lambda: Float(1, 8, log=True, step=1.0), ValueError, 'step=1.0 and log=True exclude each other'),
        (lambda: Float('1e-5', 0.1), TypeError, "low must be a number, but got '1e-5'; without quotes, and in YAML"),
        (lambda: Float(0, float('inf')), TypeError, 'high must be a number, but got inf'),
        (lambda: Float(True, 2), TypeError, 'low must be a number, but got True'),
        (lambda: Float(0, 1, log='yes'), TypeError, "log must be True or False, but got 'yes'"),
        (lambda: BinaryCode(0), ValueError, 'length must be a whole number of at least 1'),
        (lambda: BinaryCode(3, ones=4), ValueError, 'ones=4 is more than length=3'),
        (lambda: AdjacencyList([1]), ValueError, 'nodes must be at least two different ones, but got [1]'),
        (lambda: AdjacencyList(3), TypeError, 'nodes must be a list, but got 3'),
        (lambda: AdjacencyList([1, 2], edges=2), ValueError, 'edges=2 is more than 2 nodes have: 1'),
        (lambda: as_parameter({'type': 'builtins.list'}), TypeError, "'builtins.list' is no kind of search parameter"),
    ],
)
def test_ranges_that_cannot_be(make, error, told):
    with pytest.raises(error) as caught:
        make()
    assert told in caught.value.args[0]


def test_a_kind_of_ones_own():
    @PARAMETERS.register_module()
    class Even(Parameter):
        def __init__(self, high):
            self.high = high

        def draw(self, name, suggest):
            return 2 * suggest.suggest_int(name, 0, self.high // 2)

        def why_not(self, value):
            return None if value in range(0, self.high + 1, 2) else f'must be an even number up to {self.high}'

    even = as_parameter({'type': 'Even', 'high': 8})
    assert even.draw('k', Answers(k=3)) == 6


@pytest.fixture
def suggest():
    return RandomSuggest(random.Random(3))


class Ends:
    """A generator of the lowest and the highest number that there are below 1."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


def test_both_ends_belong_to_the_range():
    def both(name, *args, **kwargs):
        suggest = RandomSuggest(Ends(0.0, 1 - 2**-53))
        return [getattr(suggest, f'suggest_{name}')('x', *args, **kwargs) for _ in range(2)]

    assert both('int', 3, 7) == [3, 7]
    assert both('int', 3, 8, step=2) == [3, 7]
    assert both('int', 1, 1000, log=True) == [1, 1000]
    assert both('float', 0.1, 0.7, step=0.2) == pytest.approx([0.1, 0.7])
    assert both('float', -1.0, 1.0) == pytest.approx([-1, 1])
    assert both('float', 1e-4, 0.3, log=True) == pytest.approx([1e-4, 0.3])
    assert both('categorical', ['a', None, 'c']) == ['a', 'c']


def test_a_logarithmic_scale_has_as_many_values_in_each_decade(suggest):
    decades = Counter(math.floor(math.log10(suggest.suggest_float('x', 1e-4, 1e-1, log=True))) for _ in range(3000))
    assert set(decades) == {-4, -3, -2}
    assert all(900 < count < 1100 for count in decades.values())
    whole = Counter(suggest.suggest_int('x', 1, 4, log=True) for _ in range(3000))
    shares = {each: math.log((each + 0.5) / (each - 0.5)) / math.log(4.5 / 0.5) for each in (1, 2, 3, 4)}
    assert all(abs(whole[each] / 3000 - share) < 0.03 for each, share in shares.items())


def test_a_generator_of_numpy_will_do_and_a_seed_repeats_the_values():
    def draws(generator):
        suggest = RandomSuggest(generator)
        return [
            suggest.suggest_int('x', 0, 10**6),
            suggest.suggest_float('y', 0, 1),
            suggest.suggest_categorical('z', 'ab'),
        ]

    assert draws(np.random.default_rng(1)) == draws(np.random.default_rng(1)) != draws(np.random.default_rng(2))
    assert draws(random.Random(1)) == draws(random.Random(1))
    assert [type(value) for value in draws(np.random.default_rng(1))] == [int, float, str]
