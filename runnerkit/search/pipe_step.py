"""What a step of a pipeline is."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from runnerkit.registry import Registry
from runnerkit.search.report import Report
from runnerkit.utils.exceptions import WrongKey
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.suggest import suggestion

_STEPS = EntryPoints('runnerkit.pipe_steps')

#: Steps by name; of one that is not registered, the entry points of installed packages are asked.
PIPE_STEPS = Registry('pipe step', fallback=_STEPS.load, fallback_names=_STEPS.names)

#: The pipeline that runs in this context.
CURRENT: ContextVar[Any] = ContextVar('pipeline', default=None)


class NothingUsable(RuntimeError):
    """A step has no result that the next one could use."""


class PipeStep:
    """One step of a pipeline. Subclass it, implement `do`, and register it in `PIPE_STEPS`, or name it by its path.

    What ``pipe_step`` has besides ``type`` are the arguments of the constructor. The pipeline sets the attributes
    before it calls `check` and `do`.

    Attributes:
        name: of the step.
        cfg: its section of the config.
        work_dir: its own folder.
        report: the records of all steps; a step adds its own with ``self.report.update(Record(step=self.name, …))``.
        pipeline: the `runnerkit.search.pipeline.Pipeline` that it belongs to.
    """

    #: The keys of the section with their defaults; None: any key.
    KEYS: Mapping[str, Any] | None = None
    #: Those of them that a section must have.
    REQUIRED: tuple[str, ...] = ()

    name: str
    cfg: Any
    work_dir: Path
    report: Report
    pipeline: Any

    def do(self) -> None:
        """Do the work of the step. It is called again after an interruption, with the folder as it was left.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(f'{type(self).__name__} must override do')

    def check(self) -> None:
        """Refuse a wrong section, before the first step of the pipeline begins.

        Raises:
            KeyError: a key is not known, or one is missing.
        """
        if self.KEYS is None:
            return
        known = ('pipe_step', *self.KEYS)
        for key in self.cfg:
            if key not in known:
                raise WrongKey(f'{self.name} has no key {key!r}{suggestion(str(key), known)}')
        for key in self.REQUIRED:
            if self.cfg.get(key) is None:
                raise WrongKey(f'{self.name} needs the key {key!r}')

    def content(self) -> Any:
        """What decides the work of the step apart from its section, such as the content of a file that the section
        names: if it changes, the step is done again. None: nothing."""
        return None

    def stop(self, number: int) -> None:
        """Called when the signal ``number`` ends the pipeline: make `do` return soon, and continue from there when it
        is called again. By default, the step is finished first."""

    def get(self, key: str) -> Any:
        """The value of a key of the section, or its default."""
        found = self.cfg.get(key)
        return (self.KEYS or {}).get(key) if found is None else found

    def sources(self) -> list[PipeStep]:
        """The steps whose records this one works with: those that ``source`` names, or the one before.

        Raises:
            KeyError: there is no such step before this one.
        """
        before = self.pipeline.names[: self.pipeline.names.index(self.name)]
        named = self.cfg.get('source')
        if named is None and not before:
            raise WrongKey(f'{self.name} works with the records of the step before, but it is the first one')
        several = [before[-1]] if named is None else named if isinstance(named, list | tuple) else [named]
        for name in several:
            if name not in before:
                hint = suggestion(str(name), before)
                raise WrongKey(f'{self.name}.source is {name!r}, which is no step before it{hint}')
        return [self.pipeline.steps[name] for name in several]

    def source(self) -> PipeStep:
        """The only step, or the first one, of `sources`."""
        return self.sources()[0]
