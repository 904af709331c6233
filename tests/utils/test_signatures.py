"""The arguments of classes and functions, and those that are functions."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from torch.optim.lr_scheduler import CyclicLR, LambdaLR

from runnerkit.utils.signatures import bind_arguments, function_arguments, parameters_of


class Base:
    def __init__(self, first: Callable[[int], int], second: 'Callable | None' = None, third: int = 1):
        pass


class Child(Base):
    def __init__(self, fourth: list[Callable] | Callable | None = None, **others: Any):
        pass


def test_arguments_of_base_classes_count_where_others_are_handed_on():
    assert list(parameters_of(Child)) == ['fourth', 'first', 'second', 'third']
    assert list(parameters_of(Base)) == ['first', 'second', 'third']
    assert parameters_of(dict.update) == {}


@pytest.mark.parametrize('constructor, expected', [
    (Child, {'fourth': False, 'first': False, 'second': False}),
    (LambdaLR, {'lr_lambda': False}),
    (CyclicLR, {'scale_fn': False}),
    (dict, {}),
])  # fmt: skip
def test_functions(constructor, expected):
    assert function_arguments(constructor) == expected


@pytest.mark.parametrize('annotation, expected', [
    ('Callable', False), ('Callable[[int], str] | None', False), ('typing.Callable[..., Any] | None', False),
    ('Sequence[Callable[[Any], Any]]', False), ('Annotated[Callable, "str"]', False), ('list["Callable"]', False),
    ('dict[str, Any] | Callable', True), ('Mapping | Callable', True),
    ('str | Callable', None), ('Any', None), ('Union[str, Callable]', None), ('dict[str, Callable]', None),
    ('Callable[', None), ('type[Callable]', None),
])  # fmt: skip
def test_annotations(annotation, expected):
    def constructor(f):
        pass

    constructor.__annotations__['f'] = annotation
    assert function_arguments(constructor) == ({} if expected is None else {'f': expected})


def test_an_argument_whose_default_is_a_text_takes_texts():
    def constructor(f: Callable = 'relu', g: Callable = {'type': 'relu'}):
        pass

    assert function_arguments(constructor) == {}


def test_arguments_are_bound_with_their_defaults_or_refused_with_the_name_of_the_class():
    signature = inspect.signature(Child.__init__)
    child = Child()
    assert bind_arguments(child, signature, (), {'first': 2}) == {'fourth': None, 'others': {'first': 2}}
    with pytest.raises(TypeError, match=r'^Child\(\): too many positional arguments'):
        bind_arguments(child, signature, (1, 2), {})
