"""The command line's ``--cfg-options key=value``, as an argparse action."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from runnerkit.config.config_dict import MAX_DEPTH, TOO_DEEP
from runnerkit.utils.ending import CommandLineExit

#: The bracket that ends a list, tuple or dict, by the first character of each.
_CLOSING = {'(': ')', '[': ']', '{': '}', 'd': ')'}
_OPENING = re.compile(r'dict\(|[(\[{]')
_WORDS = {'true': True, 'false': False}
_DIGITS = re.compile(r'[+-]?\d+')
_WAY_OUT = """for a string, put quotes inside those of the shell, as in key='"a, b"'"""


class WrongBrackets(CommandLineExit, AssertionError):
    """Ends the program because of wrong arguments where MMCV has an ``assert``."""


class DictAction(argparse.Action):
    """Collects ``key=value`` arguments in a dict.

    A value is an integer, a float, ``true`` or ``false`` in any case, ``None``, a list ``a,b`` or ``[a,b]``, a tuple
    ``(a,b)``, a dict ``{key: value}`` or ``dict(key=value)``, any nesting of these, or else a string. What is in quotes
    is a string; as in MMCV, quotes around a whole list, tuple or dict are removed. Spaces around a value are removed.
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
            try:
                options[key] = parse_value(text)
            except ValueError as error:
                try:
                    parser.error(str(argparse.ArgumentError(self, f'{argument!r}: {error}')))
                except SystemExit as ending:
                    raise WrongBrackets(ending.code) from None
        setattr(namespace, self.dest, options)


def parse_value(text: str, depth: int = 0) -> Any:
    """The value of ``text`` on the command line."""
    if depth > MAX_DEPTH:
        raise ValueError(TOO_DEEP)
    text = text.strip(' ')
    quoted = _in_quotes(text)
    if quoted is not None:
        with suppress(ValueError):
            if depth == 0 and _is_enclosed(quoted.strip(' ')):
                return parse_value(quoted, depth + 1)
        return quoted
    opening = _OPENING.match(text)
    if opening and _closes_at(text) == len(text) - 1:
        is_dict = opening[0] in ('{', 'dict(')
        items = _split_at_commas(text[opening.end() : -1], is_dict)
        if not is_dict:
            values = [parse_value(item, depth + 1) for item in items]
            return tuple(values) if opening[0] == '(' else values
        pairs = [_pair(item, ':' if opening[0] == '{' else '=') for item in items]
        if None not in pairs:
            return {key: parse_value(value, depth + 1) for key, value in filter(None, pairs)}
        if len(pairs) > 1:
            raise ValueError(
                f'a dict is written dict(key=value), or with colons in braces, but got {text!r}; {_WAY_OUT}'
            )
    elif len(parts := _split_at_commas(text)) > 1 or text.endswith(','):
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


def _is_enclosed(text: str) -> bool:
    """Whether ``text`` is one list, tuple, dict or quoted string."""
    return _in_quotes(text) is not None or (_OPENING.match(text) is not None and _closes_at(text) == len(text) - 1)


def _closes_at(text: str) -> int:
    """The index of the bracket that closes the first one."""
    ends = (each for each in _outside_quotes(text) if each[1] in ')]}' and each[2] == 0)
    index, char, _ = next(ends, (-1, '', 0))
    if char != _CLOSING[text[0]]:
        raise ValueError(f'the brackets in {text!r} do not match: {_CLOSING[text[0]]!r} is missing; {_WAY_OUT}')
    return index


def _split_at_commas(text: str, in_dict: bool = False) -> list[str]:
    """``text`` (items of a dict) split at the commas outside brackets and quotes; a final one adds no empty part."""
    parts, start, depth = [], 0, 0
    for index, char, depth in _outside_quotes(text, in_dict):
        if char == ',' and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    if ',' in text and depth:
        raise ValueError(f'the brackets in {text!r} do not match; {_WAY_OUT}')
    return parts + [text[start:]] if text[start:].strip(' ') else parts


def _pair(item: str, separator: str) -> tuple[Any, str] | None:
    """The key of an item of a dict, and the text of its value; None if the item has no key."""
    at = next((index for index, char, depth in _outside_quotes(item, True) if char == separator and depth == 0), 0)
    key = item[:at].strip(' ')
    quoted = _in_quotes(key)
    return (parse_scalar(key) if quoted is None else quoted, item[at + 1 :]) if key else None


def _in_quotes(text: str) -> str | None:
    """The text inside the quotes around ``text``; None if no quotes, or more than one pair, are around it."""
    if text[:1] not in ('"', "'") or list(_outside_quotes(text)):
        return None
    return text[1:-1].replace('\\' + text[0], text[0])


def _outside_quotes(text: str, in_dict: bool = False) -> Iterator[tuple[int, str, int]]:
    """The characters of ``text`` outside quotes: their indices, themselves and the number of brackets around what
    follows. A quote begins where an item, or in brackets or the text of a dict a value begins; others are letters, as
    in ``it's``."""
    quote, depth, before = '', 0, ','
    for index, char in enumerate(text):
        if quote:
            if char == quote and text[index - 1] != '\\':
                quote = ''
        elif char in '\'"' and before in (',([{:=' if depth or in_dict else ','):
            quote = before = char
        else:
            depth += (char in '([{') - (char in ')]}')
            before = before if char == ' ' else char
            yield index, char, depth
    if quote:
        raise ValueError(f'the quotes in {text!r} do not match: {quote} is missing; {_WAY_OUT}')
