"""Shell patterns over names of parameters."""

import pytest
from torch import nn

from runnerkit.optim.default_constructor import as_patterns, chosen_parameters, matches


def test_one_or_several():
    assert as_patterns('a.*', 'params') == ['a.*']
    assert as_patterns(('a', 'b'), 'params') == ['a', 'b']
    for wrong in ([], None, 3, [1], {'a': 1}, b'a'):
        with pytest.raises(TypeError, match='params must be names or patterns'):
            as_patterns(wrong, 'params')


def test_a_star_stands_for_dots_and_case_counts():
    assert matches(['x', 'body.*'], 'body.0.weight')
    assert not matches(['Body.*', 'body'], 'body.0.weight')


def test_names_are_those_of_the_model_in_its_order():
    model = nn.ModuleDict({'a': nn.Linear(1, 1), 'b': nn.Linear(1, 1)})
    model['c'] = model['a']
    assert list(chosen_parameters(['b.*', 'c.bias'], model)) == ['a.bias', 'b.weight', 'b.bias']
    assert chosen_parameters(['c.bias'], model)['a.bias'] is model['a'].bias


@pytest.mark.parametrize(
    'pattern, hint',
    [
        ('body', r"did you mean 'body\.\*'"),
        ('weight', r"did you mean '\*weight'"),
        ('0', r"did you mean '\*\.0\.\*'"),
        ('bdoy.*', r"did you mean 'body\.\*'"),
        ('qqq', 'they are called body.0.weight, body.0.bias, head.weight …'),
    ],
)
def test_a_pattern_that_matches_nothing_gets_a_hint(pattern, hint):
    model = nn.ModuleDict({'body': nn.Sequential(nn.Linear(1, 1)), 'head': nn.Linear(1, 1)})
    with pytest.raises(ValueError, match=f'matches no parameter of ModuleDict; {hint}'):
        chosen_parameters([pattern], model)
