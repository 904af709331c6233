"""Config readers: they turn configs in another system's shape into configs of runs.

A package adds one as an entry point of the group ``runnerkit.config_readers``, a subclass of `ConfigReader`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from runnerkit.config.config import Config
from runnerkit.config.known_keys import REQUIRED
from runnerkit.utils.lazy import EntryPoints

_READERS = EntryPoints('runnerkit.config_readers')


class Run(NamedTuple):
    """One run of a config.

    Attributes:
        name: its name in the config; empty if the config has one run without a name.
        cfg: its config.
        device: ``'cpu'``, ``'cuda'`` …; None if the config names none.
    """

    name: str
    cfg: Config
    device: str | None


class ConfigReader(ABC):
    """Reads the configs of one other system.

    Attributes:
        hints: by name of that system (a module, a method, a variable): what to write in its place. Errors about such a
            name in a stage file get the hint as a note.
    """

    hints: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def recognizes(self, cfg: Config) -> bool:
        """Whether a config has this system's shape."""

    @abstractmethod
    def read_runs(self, cfg: Config) -> list[Run]:
        """The runs of a config of this system, in their order.

        Raises:
            KeyError: a name or a key is unknown.
            TypeError: a part has another shape.
            ValueError: a part has no counterpart in runnerkit.
        """


def config_readers() -> Iterator[ConfigReader]:
    """The readers of all installed packages, this one included."""
    for name in _READERS.names():
        yield _READERS.load(name)()


def read_runs(cfg: Config) -> list[Run]:
    """The runs of a config: itself, or what the reader of its shape makes of it.

    A config with all required sections is runnerkit's own, and no reader is imported for it. Errors are those of
    `ConfigReader.read_runs`.
    """
    if not all(isinstance(cfg.get(section), Mapping) for section in REQUIRED):
        for reader in config_readers():
            if reader.recognizes(cfg):
                return reader.read_runs(cfg)
    return [Run('', cfg, None)]


def hint_for_name(name: str) -> str:
    """What to write in place of a name of another system; empty if no reader knows it."""
    return next((reader.hints[name] for reader in config_readers() if name in reader.hints), '')


def hint_for_error(error: BaseException) -> str:
    """What to write in place of the name that ``error`` did not find; empty if no reader knows it."""
    if not isinstance(error, (NameError, AttributeError, ModuleNotFoundError)):
        return ''
    return hint_for_name((getattr(error, 'name', None) or '').partition('.')[0])
