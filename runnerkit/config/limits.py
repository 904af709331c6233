"""How large a config may be, so that a broken or hostile file ends in an error instead of a crash, or of no end."""

from __future__ import annotations

from typing import Any

#: How many dicts, lists and tuples may lie inside each other.
MAX_DEPTH = 100
#: How many values the aliases of a YAML file may add to those that are written out.
MAX_REPEATED = 1_000_000

#: The message about values that are nested deeper; who raises it names the file.
TOO_DEEP = f'values may be nested {MAX_DEPTH} levels deep, but these go deeper, or contain themselves'


def check_depth(value: Any) -> None:
    """Whether ``value``, in which no two parts are the same object, is within `MAX_DEPTH`.

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
    """Whether a YAML text is within `MAX_DEPTH` and `MAX_REPEATED`, before anything is built from it.

    An alias (``*name``) stands for all values of what it names; aliases of aliases multiply them.

    Raises:
        ValueError: it is not, or an alias names what it is part of.
        YAMLError: it is not YAML.
    """
    import yaml

    from runnerkit.fileio.yaml_format import YamlLoader

    sizes: dict[str | None, int] = {}
    # Of each collection that is open: its name, its values so far, and how many of these come from aliases.
    open_: list[tuple[str | None, int, int]] = [(None, 0, 0)]

    def add(values: int, repeated: int) -> None:
        name, values_before, repeated_before = open_[-1]
        open_[-1] = name, values_before + values, repeated_before + repeated
        if repeated_before + repeated > MAX_REPEATED:
            raise ValueError(f'its aliases repeat more than {MAX_REPEATED:,} values: write fewer of them')

    for event in yaml.parse(source, YamlLoader):
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_.append((event.anchor, 1, 0))
            if len(open_) > MAX_DEPTH + 1:
                raise ValueError(TOO_DEEP)
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value) // 64  # a long text weighs as much as some numbers
            if event.anchor:
                sizes[event.anchor] = size
            add(size, 0)
        elif isinstance(event, yaml.AliasEvent):
            if any(name == event.anchor for name, _, _ in open_):
                line = event.start_mark.line + 1 if event.start_mark else '?'
                raise ValueError(f'the alias *{event.anchor} in line {line} names what it is in')
            size = sizes.get(event.anchor, 0)
            add(size, size)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            anchor, size, repeated = open_.pop()
            if anchor:
                sizes[anchor] = size
            add(size, repeated)
