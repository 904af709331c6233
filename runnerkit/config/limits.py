"""Limits on the depth of a config, so that a broken file causes an error that names it, not a crash."""

from __future__ import annotations

from typing import Any

#: How deeply dicts, lists and tuples may be nested.
MAX_DEPTH = 100
#: How many files may stand behind each other in ``_base_``.
MAX_BASES = 50

#: The message about values that are nested deeper; the caller adds the file.
TOO_DEEP = f'values may be nested {MAX_DEPTH} levels deep, but these are nested deeper, or contain themselves'


def check_depth(value: Any) -> None:
    """Check that ``value`` is within `MAX_DEPTH`.

    Raises:
        ValueError: it is nested deeper.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for part in level
            if isinstance(part, (dict, list, tuple))
            for item in (part.values() if isinstance(part, dict) else part)
        ]
    if level:
        raise ValueError(TOO_DEEP)


def check_yaml(source: str) -> None:
    """Check that a YAML text is within `MAX_DEPTH` and has no key twice, before anything is built.

    Raises:
        ValueError: it is nested deeper, or a mapping has a key twice.
        YAMLError: it is not YAML.
    """
    import yaml

    from runnerkit.fileio.yaml_format import YamlLoader

    # For each open collection, two that take turns at each node: a mapping's keys so far, and None where a value
    # follows, or a sequence's item.
    open_: list[list[set[str] | None]] = [[None, None]]
    for event in yaml.parse(source, YamlLoader):
        if isinstance(event, yaml.NodeEvent):
            keys, other = open_[-1]
            if keys is not None and isinstance(event, yaml.ScalarEvent) and event.value != '<<':
                if event.value in keys:
                    line = event.start_mark.line + 1 if event.start_mark else '?'
                    raise ValueError(f'duplicate key {event.value!r} in line {line}')
                keys.add(event.value)
            open_[-1] = [other, keys]
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append([set(), None] if isinstance(event, yaml.MappingStartEvent) else [None, None])
            if len(open_) > MAX_DEPTH + 1:
                raise ValueError(TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            open_.pop()
