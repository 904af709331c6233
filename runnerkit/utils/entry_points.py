"""What installed packages offer by name, without an import: entry points."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class EntryPoints:
    """The classes and functions that installed packages offer under one group.

    The ``pyproject.toml`` of a package says ``[project.entry-points.'runnerkit.hooks']``, and below that
    ``GradientWatch = 'my_package.hooks:GradientWatch'``. The metadata is read at the first call, and again if a folder
    of ``sys.path`` has changed: a notebook may install a package. A module is imported when what it offers is loaded.
    Names that are no identifiers are ignored.

    Args:
        group: the group's name.
    """

    def __init__(self, group: str) -> None:
        self.group = group

    def names(self) -> list[str]:
        """All names, sorted. Nothing is imported."""
        return sorted({point.name for point in self._points()})

    def load(self, name: str) -> Any:
        """What is offered under ``name``, imported; None if nothing is."""
        if not name.isidentifier():  # a path, which reads no metadata
            return None
        points = {point.value: point for point in self._points() if point.name == name}
        if len(points) > 1:
            offers = ' and '.join(f'{value} ({_package(point)})' for value, point in points.items())
            raise ImportError(
                f'{name} is offered under {self.group} by several packages: {offers}. Name the class by its dotted path'
            )
        for value, point in points.items():
            try:
                return point.load()
            except (ImportError, AttributeError) as error:
                raise ImportError(
                    f'{_package(point)} offers {name} as {value}, which cannot be imported: {error}. '
                    f'Mend or reinstall {_package(point)}'
                ) from error
        return None

    def _points(self) -> Iterator[EntryPoint]:
        paths = (path or '.' for path in sys.path)
        folders = tuple((path, os.stat(path).st_mtime_ns) for path in paths if os.path.isdir(path))
        yield from (point for point in _all_points(folders).select(group=self.group) if point.name.isidentifier())


@lru_cache(maxsize=1)
def _all_points(folders: tuple[tuple[str, int], ...]) -> Any:
    """What all packages in ``folders`` offer; each has the time of its last change."""
    from importlib.metadata import entry_points  # 30 ms, which most commands do not need

    return entry_points()


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else 'an installed package'
