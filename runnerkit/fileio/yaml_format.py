"""YAML with PyYAML's safe loader and dumper, extended by tuples; the dumper also supports dict subclasses and numpy."""

from __future__ import annotations

from typing import IO, Any

import yaml
from yaml import YAMLError

__all__ = ['YAMLError', 'YamlDumper', 'YamlLoader', 'dump', 'load']

_TUPLE_TAG = 'tag:yaml.org,2002:python/tuple'


# libyaml's parser is ten times as fast, if PyYAML was built with it.
class YamlLoader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, with tuples."""


class YamlDumper(yaml.SafeDumper):
    """The safe dumper, with dict subclasses, tuples and numpy values."""


YamlLoader.add_constructor(_TUPLE_TAG, lambda loader, node: tuple(loader.construct_sequence(node, deep=True)))
YamlDumper.add_representer(tuple, lambda dumper, value: dumper.represent_sequence(_TUPLE_TAG, value))
YamlDumper.add_multi_representer(dict, yaml.SafeDumper.represent_dict)
YamlDumper.add_multi_representer(
    object,
    lambda dumper, value: (
        dumper.represent_data(value.tolist()) if hasattr(value, 'tolist') else dumper.represent_undefined(value)
    ),
)


def load(source: str | IO[Any], **options: Any) -> Any:
    """Read one document from a text or an open file; ``options`` are arguments of ``yaml.load``."""
    return yaml.load(source, **{'Loader': YamlLoader, **options})


def dump(value: Any, file: IO[Any] | None = None, **options: Any) -> Any:
    """Write one document to an open file, or return its text; ``options`` are arguments of ``yaml.dump``."""
    return yaml.dump(value, file, **{'Dumper': YamlDumper, **options})


def with_place(error: Exception, path: str) -> Exception:
    """An error of the same class with the file, the line and the problem in its message; for YAML's own errors."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return type(error)(f'{path}: {error}')
    mark = error.problem_mark or error.context_mark
    place = path if mark is None else f'{path}:{mark.line + 1}'
    text = ', '.join(part for part in (error.context, error.problem) if part)
    if error.context and error.context_mark and mark and error.context_mark.line != mark.line:
        text += f' (it begins in line {error.context_mark.line + 1})'
    return type(error)(problem=f'{place}: invalid YAML: {text}')
