"""Printing a config as JSON or YAML."""

from __future__ import annotations

from typing import Any

from runnerkit.config.pretty import FILLED_IN, has_text, mark_of, path_of


def format_data(config: dict[Any, Any], file_format: str) -> str:
    """The JSON or YAML text of a config.

    Reading it gives the same values, except that classes and functions become their paths (which a registry can look
    up) or, if no path finds them, `OBJECT` with their ``repr``; sets become lists, and in JSON tuples become lists.

    Args:
        config: the values.
        file_format: 'json', 'yaml' or 'yml'.
    """
    from runnerkit.fileio import dump

    options: dict[str, Any] = {} if file_format == 'json' else {'Dumper': _dumper()}
    text: str = dump(as_data(config), file_format=file_format, **options)
    # Neither format has two adjacent braces outside strings.
    return FILLED_IN.sub(r'\\u007b', text)


def as_data(value: Any) -> Any:
    """``value`` with plain containers and values only."""
    if isinstance(value, dict):
        return {key: as_data(item) for key, item in value.items()}
    if isinstance(value, list | set | frozenset):
        return [as_data(item) for item in value]
    if isinstance(value, tuple):
        return tuple(as_data(item) for item in value)
    if not callable(value):
        return value
    return path_of(value) if has_text(value) else mark_of(value)


def _dumper() -> Any:
    """A YAML dumper that double-quotes strings with template variables, so that their braces can be escaped."""
    from runnerkit.fileio.yaml_format import YamlDumper

    class Dumper(YamlDumper):
        pass

    def represent_string(dumper: Any, value: str) -> Any:
        style = '"' if FILLED_IN.search(value) else None
        return dumper.represent_scalar('tag:yaml.org,2002:str', value, style=style)

    Dumper.add_representer(str, represent_string)
    return Dumper
