"""Spaces: drawing, conditions, what is forbidden, grids, checks of values and of the config."""

import random
import subprocess
import sys
from itertools import islice

import pytest

from runnerkit.compat.vega.space import AdjacencyList, BinaryCode
from runnerkit.config import Config
from runnerkit.search import (
    Bool,
    Categorical,
    Condition,
    Float,
    Forbidden,
    Int,
    NothingAllowed,
    RandomSuggest,
    Space,
    draw_allowed,
)
from runnerkit.search.space import as_space, combinations_of, order_of_names

OPTIMIZER = {
    'optimizer.momentum': Float(0.0, 0.99),
    'optimizer.nesterov': Bool(),
    'optimizer.lr': Float(1e-4, 1e-1, log=True),
    'optimizer.type': ['SGD', 'Adam'],
}
CONDITIONS = [
    Condition('optimizer.momentum', 'optimizer.type', 'EQUAL', 'SGD'),
    {'child': 'optimizer.nesterov', 'parent': 'optimizer.momentum', 'type': 'IN', 'range': [0.5, 0.99]},
]


def suggest(seed=0):
    return RandomSuggest(random.Random(seed))


def grid(space, points=None):
    return [values for _, values in combinations_of(space, points)]


def test_children_are_drawn_only_under_their_conditions_and_parents_first():
    space, source = Space(OPTIMIZER, CONDITIONS), suggest()
    kinds = set()
    for _ in range(200):
        values = space.draw(source)
        assert ('optimizer.momentum' in values) == (values['optimizer.type'] == 'SGD')
        assert ('optimizer.nesterov' in values) == (values.get('optimizer.momentum', 0) >= 0.5)
        assert list(values) == [key for key in OPTIMIZER if key in values]
        kinds.add(tuple(values))
    assert len(kinds) == 3


def test_all_conditions_of_a_child_have_to_be_met():
    space = Space(
        {'a': Bool(), 'b': Bool(), 'c': [1, 2]}, [Condition('c', 'a', range=True), Condition('c', 'b', range=True)]
    )
    drawn = [space.draw(suggest(seed)) for seed in range(40)]
    assert {('c' in values, values['a'] and values['b']) for values in drawn} == {(True, True), (False, False)}


def test_a_trial_of_optuna_is_a_suggester_and_so_are_the_answers_of_a_grid():
    optuna = pytest.importorskip('optuna')
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parameters = {**OPTIMIZER, 'model.widths': [[8, 16], [16, 32]], 'model.code': BinaryCode(2)}
    space = Space(parameters, CONDITIONS)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=4))
    wanted = []
    for answers, values in islice(combinations_of(space, 2), 12):
        study.enqueue_trial(answers)
        wanted.append(values)
    drawn = []
    for _ in range(20):
        trial = study.ask()
        drawn.append(space.draw(trial))
        study.tell(trial, drawn[-1]['optimizer.lr'])
    assert drawn[:12] == wanted
    assert len({str(values) for values in drawn}) == 20


def test_a_forbidden_combination_is_raised_with_what_was_drawn():
    space = Space({'a': Bool(), 'b': Bool(), 'c': [1, 2]}, forbidden=[{'a': True, 'b': True}])
    source, errors = suggest(), []
    for _ in range(100):
        try:
            values = space.draw(source)
        except Forbidden as error:
            errors.append(error)
        else:
            assert not (values['a'] and values['b'])
    assert 10 < len(errors) < 40
    assert all(error.combination == {'a': True, 'b': True} for error in errors)
    assert str(errors[0]) == 'the space forbids a=True with b=True'
    assert all(not (each['a'] and each['b']) for each in (draw_allowed(space, source) for _ in range(50)))


def test_a_combination_with_a_parameter_that_does_not_exist_is_not_there():
    conditions = [Condition('b', 'a', range=True)]
    space = Space({'a': Bool(), 'b': ['x', 'y']}, conditions, [{'a': False, 'b': 'x'}])
    assert grid(space) == [{'a': False}, {'a': True, 'b': 'x'}, {'a': True, 'b': 'y'}]


def test_a_space_that_forbids_everything_is_refused_at_once():
    with pytest.raises(NothingAllowed, match=r'the space forbids everything: none of 1,000 configurations drawn'):
        Space({'a': Bool(), 'b': [1, 2, 3]}, forbidden=[{'a': True}, *({'a': False, 'b': b} for b in (1, 2, 3))])
    assert grid(Space({'a': Bool(), 'b': [1, 2]}, forbidden=[{'a': True}, {'b': 1}])) == [{'a': False, 'b': 2}]


def test_a_grid_tries_every_combination_that_is_allowed():
    space = Space(
        {'type': ['SGD', 'Adam'], 'momentum': Float(0, 1), 'depth': Int(1, 3)},
        [Condition('momentum', 'type', range='SGD')],
        [{'type': 'Adam', 'depth': 2}],
    )
    assert grid(space, 2) == [
        {'type': 'SGD', 'depth': 1, 'momentum': 0},
        {'type': 'SGD', 'depth': 1, 'momentum': 1},
        {'type': 'SGD', 'depth': 3, 'momentum': 0},
        {'type': 'SGD', 'depth': 3, 'momentum': 1},
        {'type': 'Adam', 'depth': 1},
        {'type': 'Adam', 'depth': 3},
    ]
    with pytest.raises(ValueError, match=r'momentum: a grid over the numbers from 0 to 1 needs points'):
        grid(space)
    huge = combinations_of(Space({'code': BinaryCode(464)}))
    assert [sum(next(huge)[1]['code']) for _ in range(2)] == [0, 1]


def test_edges_in_another_order_are_forbidden_and_meet_a_condition_as_well():
    space = Space(
        {'edges': AdjacencyList([1, 2, 3], edges=2), 'depth': [1]},
        [Condition('depth', 'edges', range=[[[2, 3], [1, 2]]])],
        [{'edges': [[1, 3], [1, 2]]}],
    )
    drawn = [draw_allowed(space, suggest(seed)) for seed in range(20)]
    assert {str(each['edges']): 'depth' in each for each in drawn} == {
        '[[1, 2], [2, 3]]': True,
        '[[1, 3], [2, 3]]': False,
    }


def test_the_keys_are_those_of_cfg_options():
    cfg = Config(
        {
            'optimizer': {'type': 'Adam', 'lr': 0.1},
            'data': {'train': {'pipeline': [{'type': 'Resize', 'size': 8}]}},
            'model': {'code': [1, 1, 1]},
        }
    )
    space = Space({'optimizer.lr': Float(0.2, 0.3), 'data.train.pipeline.0.size': [16], 'model.code': BinaryCode(3, 1)})
    space.check_config(cfg)
    values = space.draw(suggest())
    cfg.merge_from_dict(values)
    assert cfg.data.train.pipeline[0] == {'type': 'Resize', 'size': 16}
    assert cfg.optimizer.lr == values['optimizer.lr']
    assert cfg.optimizer.type == 'Adam'
    assert cfg.model.code == values['model.code']
    assert sum(cfg.model.code) == 1


@pytest.mark.parametrize(
    'key, error, told',
    [
        ('optimzer.lr', KeyError, "optimzer.lr: the config has no 'optimzer'; did you mean 'optimizer'?"),
        ('seeed', KeyError, "seeed: the config has no 'seeed'; did you mean 'seed'?"),
        ('unheard', KeyError, "unheard: the config has no 'unheard'"),
        ('optimizer.momentun', KeyError, "optimizer has no 'momentun'; did you mean 'momentum'?"),
        ('layers.2.size', KeyError, "layers is a list of 2, in which '2' is no index"),
        ('layers.1.siez', KeyError, "layers.1 has no 'siez'; did you mean 'size'?"),
        ('layers.x', KeyError, "layers is a list of 2, in which 'x' is no index"),
        ('seed.of', TypeError, "seed is 3, neither a dict nor a list, so it has no 'of'"),
        ('none.lr', TypeError, "none is None, neither a dict nor a list, so it has no 'lr'"),
    ],
)
def test_keys_that_lead_nowhere_in_the_config(key, error, told):
    cfg = {'seed': 3, 'none': None, 'optimizer': {'lr': 1, 'momentum': 0}, 'layers': [{'size': 1}, {'size': 2}]}
    with pytest.raises(error) as caught:
        Space({key: [1, 2]}).check_config(cfg)
    assert told in caught.value.args[0]
    Space({'optimizer.weight_decay': [0, 1], 'layers.1': [3], 'layers.0.size': [4]}).check_config(Config(cfg))


def test_a_space_in_a_config():
    text = (
        "search_space = dict(parameters={'lr': dict(type='Float', low=1e-4, high=0.1, log=True), 'width': [64, 128]}, "
        "conditions=[dict(child='lr', parent='width', range=64)], forbidden=[dict(width=128)])"
    )
    space = Space.of(Config.fromstring(text, '.py').search_space)
    assert space.parameters == {'lr': Float(1e-4, 0.1, log=True), 'width': Categorical((64, 128))}
    assert space.conditions == [Condition('lr', 'width', range=64)]
    assert space.forbidden == [{'width': 128}]
    assert Space.of(space) is space
    assert Space.of({'lr': Float(0, 1)}).parameters == {'lr': Float(0, 1)}
    assert repr(Space.of({'lr': Float(0, 1)})).startswith("Space({'lr': Float(low=0, high=1,")


@pytest.mark.parametrize(
    'section, error, told',
    [
        (3, TypeError, 'a search space must be a dict of parameters by key, but got 3'),
        ({}, ValueError, 'a search space needs at least one parameter'),
        ({'parameters': [1]}, TypeError, 'parameters must be a dict of parameters by key, but got [1]'),
        ({'lr': [1], 'conditions': []}, KeyError, "'conditions' is no parameter: write the parameters in `parameters`"),
        ({'parameters': {'lr': [1]}, 'condition': []}, KeyError, "no 'condition'; did you mean 'conditions'?"),
        ({'': [1]}, TypeError, "a parameter's key must be a dotted one of the config, 'optimizer.lr', but got ''"),
        ({'a..b': [1]}, TypeError, "but got 'a..b'"),
        ({'a': [1], 'a.b': [1]}, ValueError, 'a.b is a part of a, which is varied as a whole'),
        ({'parameters': {'lr': [1]}, 'conditions': {'child': 'lr'}}, TypeError, 'conditions must be a list of dicts'),
        ({'parameters': {'lr': [1]}, 'conditions': [3]}, TypeError, 'a condition must be a Condition or a dict'),
        ({'parameters': {'lr': [1]}, 'conditions': [{'chld': 1}]}, KeyError, "no 'chld'; did you mean 'child'?"),
        ({'parameters': {'lr': [1]}, 'conditions': [{'child': 'lr'}]}, KeyError, "needs 'parent', but has only child"),
        ({'parameters': {'lr': [1]}, 'forbidden': [3]}, TypeError, 'a forbidden combination must be a dict'),
        (
            {'parameters': {'lr': [1]}, 'forbidden': [{'lrr': 1}]},
            KeyError,
            "`forbidden` is 'lrr', but there is no such",
        ),
        ({'parameters': {'lr': [1]}, 'forbidden': [{'lr': 2}]}, ValueError, 'lr=2, which never occurs: it must be'),
    ],
)
def test_what_is_no_space(section, error, told):
    with pytest.raises(error) as caught:
        Space.of(section)
    assert told in caught.value.args[0]


def test_a_space_needs_neither_torch_nor_optuna():
    code = 'import sys\nfrom runnerkit.search import Float, Space\nSpace({"lr": Float(0, 1)}, forbidden=[{"lr": 0}])\n'
    code += 'print([name for name in ("torch", "optuna", "numpy.random", "yaml") if name in sys.modules])'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == '[]', done.stderr


def test_a_section_describes_values_or_networks():
    space = as_space({'optimizer.lr': [0.1, 0.2]})
    assert isinstance(space, Space)
    assert list(space.parameters) == ['optimizer.lr']
    assert as_space(space) is space
    assert as_space({'modules': ['backbone']}).describe() == {'modules': ['backbone']}
    with pytest.raises(KeyError, match='describes a network, in modules, and names values, in hyperparameters'):
        as_space({'modules': ['backbone'], 'hyperparameters': []})


def test_what_study_folders_hold_of_a_space_stays():
    """A study compares this text with the one that it was begun with, by whatever version."""
    space = Space(
        {'lr': Float(1e-4, 0.1, log=True), 'depth': Int(1, 8), 'kind': ['a', 'b']}, [], [{'kind': 'a', 'depth': 1}]
    )
    assert repr(space) == (
        "Space({'lr': Float(low=0.0001, high=0.1, log=True, step=None, points=None), "
        "'depth': Int(low=1, high=8, log=False, step=1, points=None), 'kind': Categorical(choices=('a', 'b'))}, "
        "forbidden=[{'kind': 'a', 'depth': 1}])"
    )


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
