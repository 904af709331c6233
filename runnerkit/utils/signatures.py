"""The arguments that a class or function takes, and those among them that are functions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: Annotations that admit a string as a string, and those that admit a dict as a dict.
_TEXTS, _DICTS = {'str', 'Any', 'object'}, {'dict', 'Dict', 'Mapping', 'ConfigDict'}

#: Annotations of several functions.
_SEQUENCES = {'list', 'List', 'tuple', 'Tuple', 'Sequence', 'Iterable'}

#: The options of a loader that are functions: a list, since torch and its annotations are not imported here.
LOADER_FUNCTIONS = ('collate_fn', 'worker_init_fn')


def parameters_of(constructor: Any) -> dict[str, inspect.Parameter]:
    """The keyword arguments of ``constructor`` by name, including those of base classes if it has ``**kwargs``."""
    functions = [constructor]
    if inspect.isclass(constructor):
        functions = [cls.__dict__['__init__'] for cls in constructor.__mro__[:-1] if '__init__' in cls.__dict__]
    found: dict[str, inspect.Parameter] = {}
    for function in functions:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # some C functions have no signature
            break
        for each in parameters:
            if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                found.setdefault(each.name, each)
        if not any(each.kind is each.VAR_KEYWORD for each in parameters):
            break
    found.pop('self', None)
    return found


def bind_arguments(
    instance: Any, signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a constructor by name, without ``self``, with defaults; further keywords are one dict."""
    try:
        given = signature.bind(instance, *args, **kwargs)
    except TypeError as error:
        raise TypeError(f'{type(instance).__name__}(): {error}') from None
    given.apply_defaults()
    del given.arguments['self']
    return given.arguments


def function_arguments(constructor: Callable[..., Any]) -> dict[str, bool]:
    """The arguments annotated as functions, where a string can only be a function's name."""
    found = {}
    for name, each in parameters_of(constructor).items():
        text = each.annotation if isinstance(each.annotation, str) else str(each.annotation)
        if 'Callable' not in text or isinstance(each.default, str | Mapping):
            continue
        try:
            kinds = set(_alternatives(ast.parse(text, mode='eval').body))
        except SyntaxError:  # the text of an object that has no annotation's
            continue
        if 'Callable' in kinds and not kinds & _TEXTS:
            found[name] = bool(kinds & _DICTS)
    return found


def _alternatives(node: ast.expr) -> Iterator[str]:
    """The names of the types that an annotation allows; those of a list's items count as its own."""
    if isinstance(node, ast.BinOp):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    elif isinstance(node, ast.Subscript):
        name = next(_alternatives(node.value), '')
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in {'Optional', 'Union', 'Annotated', *_SEQUENCES}:
            for each in inner[:1] if name == 'Annotated' else inner:
                yield from _alternatives(each)
        else:
            yield name
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # 'list["Callable"]'
        yield from _alternatives(ast.parse(node.value, mode='eval').body)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield node.id if isinstance(node, ast.Name) else node.attr
