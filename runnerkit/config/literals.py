"""Reading a config's text as data: what `Config.pretty_text` writes, without executing any of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from runnerkit.config.config_dict import TOO_DEEP, check_depth

#: What a call in such a text may be. `pretty_text` writes values that have no literal as these calls.
_CALLS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (dict, float, complex, set, frozenset, range, slice)
}


class NoLiteral(ValueError):
    """A text is not data alone: it would have to be executed."""


def read_literals(text: str) -> dict[str, Any]:
    """The values of a Python config in which every line is ``key = value`` and every value is a literal.

    Nothing is executed or imported, no file is read, and no ``{{ variable }}`` is replaced. Besides literals, a value
    may be ``dict(key=value)``, ``set()``, ``frozenset({…})``, ``float('inf')``, ``complex('1j')``, ``range(…)`` and
    ``slice(…)``.

    Raises:
        NoLiteral: the text has anything else, or is not Python.
    """
    try:
        values: dict[str, Any] = {}
        for statement in ast.parse(text).body:
            values.update(_assigned(statement))
        check_depth(values)
    except SyntaxError as error:
        raise NoLiteral(f'line {error.lineno} is not Python: {error.msg}') from None
    except (RecursionError, MemoryError):  # MemoryError: the parser's stack is exhausted, not the memory
        raise NoLiteral(TOO_DEEP) from None
    except ValueError as error:
        raise error if isinstance(error, NoLiteral) else NoLiteral(str(error)) from None
    return values


def _assigned(statement: ast.stmt) -> dict[Any, Any]:
    """What ``key = value`` or ``globals().update({key: value})``, for keys that are no names, says."""
    if isinstance(statement, ast.Assign) and [type(each) for each in statement.targets] == [ast.Name]:
        return {statement.targets[0].id: _value(statement.value)}  # type: ignore[attr-defined]
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if ast.unparse(call.func) == 'globals().update' and len(call.args) == 1 and isinstance(call.args[0], ast.Dict):
            return dict(_value(call.args[0]))
    raise _refused(statement, 'is not of the form key = value')


def _value(node: ast.expr) -> Any:
    try:
        if isinstance(node, ast.Call):
            return _called(node)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = [_value(item) for item in node.elts]
            return items if isinstance(node, ast.List) else tuple(items) if isinstance(node, ast.Tuple) else set(items)
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key}
        return ast.literal_eval(node)
    except NoLiteral:
        raise
    except (ValueError, TypeError) as error:
        raise _refused(node, 'is not a literal') from error


def _called(call: ast.Call) -> Any:
    function = _CALLS.get(call.func.id) if isinstance(call.func, ast.Name) else None
    named = [word.arg for word in call.keywords]
    if function is None or None in named or (named and function is not dict):
        raise _refused(call, 'is a call, and would have to be executed')
    arguments = [_value(each) for each in call.args]
    if any(isinstance(each, range) for each in arguments):
        raise _refused(call, 'would take the values of a range, which may be too many')
    return function(*arguments, **{str(word.arg): _value(word.value) for word in call.keywords})


def _refused(node: ast.AST, why: str) -> NoLiteral:
    text = ast.unparse(node)
    return NoLiteral(f'line {getattr(node, "lineno", "?")}: {text[:80]}{"…" * (len(text) > 80)} {why}')
