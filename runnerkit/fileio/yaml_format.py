"""YAML by PyYAML's safe loader and dumper, with tuples; the dumper knows dicts of any kind and numpy's numbers, too."""

from __future__ import annotations

from typing import IO, Any

import yaml
from yaml import YAMLError

__all__ = ['YAMLError', 'YamlDumper', 'YamlLoader', 'dump', 'load']

_TUPLE_TAG = 'tag:yaml.org,2002:python/tuple'


# libyaml's parser is ten times as fast, where PyYAML was built with it.
class YamlLoader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
    """The safe loader, with tuples."""


class YamlDumper(yaml.SafeDumper):
    """The safe dumper, with dicts of any kind as mappings, with tuples, and with numpy's numbers as numbers."""


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
    """The document in a text or an open file.

    Args:
        source: the text or file.
        **options: arguments of ``yaml.load``, such as another ``Loader``.

    Raises:
        YAMLError: it is not YAML, or has tags that the loader does not know.
    """
    return yaml.load(source, **{'Loader': YamlLoader, **options})


def dump(value: Any, file: IO[Any] | None = None, **options: Any) -> Any:
    """Write one document to an open file, or return its text where ``file`` is None.

    Args:
        value: what the document says.
        file: an open file.
        **options: arguments of ``yaml.dump``, such as another ``Dumper``.

    Raises:
        YAMLError: it holds objects that the dumper does not know.
    """
    return yaml.dump(value, file, **{'Dumper': YamlDumper, **options})
