"""Spaces in Vega's format, as its documents write them."""

import random

import pytest

from runnerkit.compat.vega.space import AdjacencyList, BinaryCode
from runnerkit.config import Config
from runnerkit.search import Bool, Categorical, Condition, Float, Int, RandomSuggest, Space

#: The types of the document, and what they are here.
TEXT = """
search_space:
    type: SearchSpace
    hyperparameters:
        -   key: dataset.batch_size
            type: CATEGORY
            range: [8, 16, 32]
        -   key: trainer.optimizer.params.lr
            type: FLOAT_EXP
            range: [0.00001, 0.1]
        -   key: trainer.optimizer.type
            type: CATEGORY
            range: ['Adam', 'SGD']
        -   key: trainer.optimizer.params.momentum
            type: FLOAT
            range: [0.0, 0.99]
            slice: 4
        -   key: trainer.amp
            type: BOOL
            range: [True, False]
        -   key: network.depth
            type: int
            range: [10, 100]
        -   key: network.width
            type: INT_EXP
            range: [1, 100000]
        -   key: network.code
            type: BINARY_CODE
            range: [464]
        -   key: network.doubled
            type: BINARY_CODE
            range: [10, 2]
        -   key: network.edge
            type: ADJACENCY_LIST
            range: [1, 2, 3]
        -   key: network.edges
            type: ADJACENCY_LIST
            range: [1, 2, 3]
            sample_num: 2
        -   key: network.generated
            type: CATEGORY
            range: [5]
            generator: BinaryList
            sample_num: 3
    condition:
        -   key: condition_for_sgd_momentum
            child: trainer.optimizer.params.momentum
            parent: trainer.optimizer.type
            type: EQUAL
            range: ["SGD"]
    forbidden:
        -   trainer.optimizer.type: Adam
            trainer.amp: true
"""


def section(text=TEXT):
    return Config.fromstring(text, '.yaml').search_space


def test_every_type_of_the_format():
    space = Space.of(section())
    assert space.parameters == {
        'dataset.batch_size': Categorical((8, 16, 32)),
        'trainer.optimizer.params.lr': Float(0.00001, 0.1, log=True),
        'trainer.optimizer.type': Categorical(('Adam', 'SGD')),
        'trainer.optimizer.params.momentum': Float(0.0, 0.99, points=4),
        'trainer.amp': Bool((True, False)),
        'network.depth': Int(10, 100),
        'network.width': Int(1, 100000, log=True),
        'network.code': BinaryCode(464),
        'network.doubled': BinaryCode(10, ones=2),
        'network.edge': Categorical([[1, 2], [1, 3], [2, 3]]),
        'network.edges': AdjacencyList([1, 2, 3], edges=2),
        'network.generated': BinaryCode(5, ones=3),
    }
    momentum = 'trainer.optimizer.params.momentum'
    assert space.conditions == [
        Condition(momentum, 'trainer.optimizer.type', 'EQUAL', ['SGD'], 'condition_for_sgd_momentum')
    ]
    assert space.forbidden == [{'trainer.optimizer.type': 'Adam', 'trainer.amp': True}]


def test_it_is_drawn_from_with_its_condition():
    space, suggest = Space.of(section().copy()), RandomSuggest(random.Random(0))
    drawn = [values for values in (draw(space, suggest) for _ in range(60)) if values]
    assert {'trainer.optimizer.params.momentum' in values for values in drawn} == {True, False}
    for values in drawn:
        is_sgd = values['trainer.optimizer.type'] == 'SGD'
        assert ('trainer.optimizer.params.momentum' in values) == is_sgd
        assert is_sgd or not values['trainer.amp']
        assert len(values['network.code']) == 464
        assert sum(values['network.doubled']) == 2


def draw(space, suggest):
    from runnerkit.search import Forbidden

    try:
        return space.draw(suggest)
    except Forbidden:
        return None


def item(**changes):
    made = {'key': 'lr', 'type': 'FLOAT', 'range': [0, 1], **changes}
    return {name: value for name, value in made.items() if value is not None}


@pytest.mark.parametrize(
    'section, error, told',
    [
        ({'hyperparameters': 3}, TypeError, 'hyperparameters must be a list of dicts, but got 3'),
        ({'hyperparameters': ['lr']}, TypeError, "hyperparameters must be a list of dicts, but has 'lr'"),
        ({'hyperparameters': [item(type='FLOAT_EXPP')]}, ValueError, 'lr: type must be one of CATEGORY, BOOL, INT'),
        ({'hyperparameters': [item(type='FLOAT_EXPP')]}, ValueError, "'FLOAT_EXPP'; did you mean 'FLOAT_EXP'"),
        ({'hyperparameters': [item(type='HALF')]}, ValueError, 'HALF, whose code is all ones most of the time, is not'),
        ({'hyperparameters': [item(rnage=[1])]}, KeyError, "has no 'rnage'; did you mean 'range'?"),
        ({'hyperparameters': [item(range=None)]}, KeyError, "needs 'range', but has only key, type"),
        ({'hyperparameters': [item(key=3)]}, TypeError, "key must be a dotted key of the config, 'optimizer.lr'"),
        ({'hyperparameters': [item(), item()]}, ValueError, "key 'lr' is there twice"),
        ({'hyperparameters': [item(range=3)]}, TypeError, 'lr: range must be a list, but got 3'),
        ({'hyperparameters': [item(range=[1])]}, ValueError, 'lr: range of FLOAT: must be [low, high], but got [1]'),
        ({'hyperparameters': [item(range=[1, 0])]}, ValueError, 'lr: range of FLOAT: low=1 must not be above high=0'),
        ({'hyperparameters': [item(type='FLOAT_EXP')]}, ValueError, 'range of FLOAT_EXP: low must be above 0'),
        ({'hyperparameters': [item(type='CATEGORY', range=[])]}, ValueError, 'choices must have at least one value'),
        ({'hyperparameters': [item(type='BINARY_CODE', range=[])]}, ValueError, 'must be [length] or [length, ones]'),
        ({'hyperparameters': [item(generator='BinaryLst')]}, ValueError, "did you mean 'BinaryList'?"),
        ({'hyperparameters': [item()], 'conditions': []}, KeyError, "has no 'conditions'; did you mean 'condition'?"),
        ({'hyperparameters': [item()], 'forbiden': []}, KeyError, "has no 'forbiden'; did you mean 'forbidden'?"),
    ],
)
def test_what_is_no_space(section, error, told):
    with pytest.raises(error) as caught:
        Space.of(section)
    assert told in caught.value.args[0]


def test_a_mistake_has_its_place(tmp_path):
    file = tmp_path / 'space.yaml'
    file.write_text(TEXT.replace('range: [10, 100]', 'range: [100, 10]'))
    with pytest.raises(ValueError, match=r'network\.depth: range of INT: low=100 must not be above .*space\.yaml:2\d'):
        Space.of(Config.fromfile(file).search_space)
