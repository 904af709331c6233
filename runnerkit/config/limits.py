"""Limits on the size of a config, so that a broken or hostile file causes an error, not a crash or an endless loop."""

from __future__ import annotations

from typing import Any

#: How deeply dicts, lists and tuples may be nested.
MAX_DEPTH = 100
#: How many files may stand behind each other in ``_base_``.
MAX_BASES = 50
#: How many values the aliases of a YAML file may add.
MAX_REPEATED = 1_000_000

#: The message about values that are nested deeper; the caller adds the file.
TOO_DEEP = f'values may be nested {MAX_DEPTH} levels deep, but these are nested deeper, or contain themselves'


def check_depth(value: Any) -> None:
    """Check that ``value``, in which no object occurs twice, is within `MAX_DEPTH`.

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
    """Check that a YAML text is within `MAX_DEPTH` and `MAX_REPEATED` and has no key twice, before anything is built.

    An alias (``*name``) repeats all values that it refers to; aliases of aliases multiply them.

    Raises:
        ValueError: a limit is exceeded, a mapping has a key twice, or an alias refers to a collection that contains it.
        YAMLError: it is not YAML.
    """
    import yaml

    from runnerkit.fileio.yaml_format import YamlLoader

    sizes: dict[str | None, int] = {}
    # For each open collection: its anchor, its values so far, and how many of them come from aliases.
    open_: list[tuple[str | None, int, int]] = [(None, 0, 0)]
    keys = _Keys()

    def add(values: int, repeated: int) -> None:
        name, values_before, repeated_before = open_[-1]
        open_[-1] = name, values_before + values, repeated_before + repeated
        if repeated_before + repeated > MAX_REPEATED:
            raise ValueError(f'its aliases repeat more than {MAX_REPEATED:,} values: write fewer of them')

    for event in yaml.parse(source, YamlLoader):
        keys.see(event)
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            open_.append((event.anchor, 1, 0))
            if len(open_) > MAX_DEPTH + 1:
                raise ValueError(TOO_DEEP)
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value) // 64  # a long text counts as several values
            if event.anchor:
                sizes[event.anchor] = size
            add(size, 0)
        elif isinstance(event, yaml.AliasEvent):
            if any(name == event.anchor for name, _, _ in open_):
                line = event.start_mark.line + 1 if event.start_mark else '?'
                raise ValueError(f'the alias *{event.anchor} in line {line} refers to a collection that contains it')
            size = sizes.get(event.anchor, 0)
            add(size, size)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            anchor, size, repeated = open_.pop()
            if anchor:
                sizes[anchor] = size
            add(size, repeated)


class _Keys:
    """Refuses a key that a mapping has twice, given one event of a YAML text after another."""

    def __init__(self) -> None:
        # For each open collection, two that take turns at each node: a mapping's keys so far, and None where a value
        # follows, or a sequence's item.
        self.open: list[list[set[str] | None]] = [[None, None]]

    def see(self, event: Any) -> None:
        """Look at the next event.

        Raises:
            ValueError: it is such a key.
        """
        import yaml

        if isinstance(event, yaml.NodeEvent):
            known, other = self.open[-1]
            if known is not None and isinstance(event, yaml.ScalarEvent) and event.value != '<<':
                if event.value in known:
                    line = event.start_mark.line + 1 if event.start_mark else '?'
                    raise ValueError(f'duplicate key {event.value!r} in line {line}')
                known.add(event.value)
            self.open[-1] = [other, known]
        if isinstance(event, yaml.CollectionStartEvent):
            self.open.append([set(), None] if isinstance(event, yaml.MappingStartEvent) else [None, None])
        elif isinstance(event, yaml.CollectionEndEvent):
            self.open.pop()
