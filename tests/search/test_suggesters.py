"""Values at random: in their range, evenly on their scale, from any generator."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from runnerkit.search import RandomSuggest


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
