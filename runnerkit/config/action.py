"""The command line's ``--cfg-options key=value``, as an argparse action."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Sequence
from typing import Any

from runnerkit.config.limits import MAX_DEPTH, TOO_DEEP
from runnerkit.utils.exit_codes import CommandLineExit

_CLOSING = {'(': ')', '[': ']'}
_WORDS = {'true': True, 'false': False}
_DIGITS = re.compile(r'[+-]?\d+')
#: A dict as Python writes it.
_DICT = re.compile(r"""\s*(?:dict\(|\{\s*['"])""")


class WrongBrackets(CommandLineExit, AssertionError):
    """Ends the program because of wrong arguments where MMCV has an ``assert``."""


class DictAction(argparse.Action):
    """Collects ``key=value`` arguments in a dict.

    A value is an integer, a float, ``true`` or ``false`` in any case, ``None``, a list ``a,b`` or ``[a,b]``, a tuple
    ``(a,b)``, any nesting of these, or else a string. Quotes and spaces around a value are removed.
    """

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Parse the arguments of one option; wrong ones end the program with exit code 2, as in argparse."""
        options = {}
        for argument in [values] if isinstance(values, str) else values or []:
            key, equals, text = argument.partition('=')
            if not (key and equals):
                raise argparse.ArgumentError(self, f'{argument!r} must be key=value, such as optimizer.lr=0.1')
            if _DICT.match(text):
                raise argparse.ArgumentError(self, f'{argument!r}: a value cannot be a dict; {_way_out(key, text)}')
            try:
                options[key] = parse_value(text)
            except ValueError as error:
                try:
                    parser.error(str(argparse.ArgumentError(self, f'{argument!r}: {error}')))
                except SystemExit as ending:
                    raise WrongBrackets(ending.code) from None
        setattr(namespace, self.dest, options)


def _way_out(key: str, text: str) -> str:
    """What to write in place of the dict ``text``: an option for each of its keys."""
    try:
        node = ast.parse(text.strip(), mode='eval').body
    except SyntaxError:
        node = None
    if isinstance(node, ast.Call):
        values = {each.arg: each.value for each in node.keywords if each.arg}
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        values = {str(name.value): value for name, value in pairs if isinstance(name, ast.Constant)}
    else:
        return f'write {key} in a config file'
    plain = ((name, str(getattr(value, 'value', '…'))) for name, value in values.items() if name != '_delete_')
    return 'write ' + ' '.join(f'{key}.{name}={value}' for name, value in plain)


def parse_value(text: str, depth: int = 0) -> Any:
    """The value of ``text`` on the command line.

    Args:
        text: the text.
        depth: its nesting level in lists and tuples.

    Raises:
        ValueError: its brackets do not match, or are nested deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise ValueError(TOO_DEEP)
    text = text.strip(' ').strip('\'"')
    inner = text.strip(' ')
    opening = inner[:1]
    if opening in _CLOSING and _closes_at(inner) == len(inner) - 1:
        items = [parse_value(item, depth + 1) for item in _split(inner[1:-1])]
        return tuple(items) if opening == '(' else items
    if len(parts := _split(inner)) > 1 or inner.endswith(','):
        return [parse_value(part, depth + 1) for part in parts]
    return parse_scalar(text)


def parse_scalar(text: str) -> Any:
    """The number or constant that ``text`` names, or ``text`` itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text == 'None':
        return None
    number: float | str = text
    try:
        number = float(text)
        number = int(text)
    except ValueError as error:  # not a number, or not an integer: keep what was found so far
        if _DIGITS.fullmatch(text):
            raise ValueError(f'a number of {len(text)} digits is too long: {error}') from None
    return number


def _closes_at(text: str) -> int:
    """The index of the bracket that closes the first one."""
    depth = 0
    for index, char in enumerate(text):
        depth += (char in '([') - (char in ')]')
        if depth == 0:
            return index
    raise ValueError(f'the brackets in {text!r} do not match: {_CLOSING[text[0]]!r} is missing')


def _split(text: str) -> list[str]:
    """``text`` split at the commas outside brackets; a final comma adds no empty part."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in '([') - (char in ')]')
        if char == ',' and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if ',' in text and (text.count('(') != text.count(')') or text.count('[') != text.count(']')):
        raise ValueError(f'the brackets in {text!r} do not match')
    return parts + [text[start:]] if text[start:].strip(' ') else parts
