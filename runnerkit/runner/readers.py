"""All readers of a run: one for each entry of its workflow, and one for each loader that is evaluated on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from runnerkit.data.iter_loader import IterLoader, new_iter_loaders, numbers
from runnerkit.data.kinds import is_unbounded
from runnerkit.data.reader import Reader
from runnerkit.data.reader_state import ReaderState
from runnerkit.runner.workflow import Workflow

#: How many readers of loaders are kept that came up in the run.
_MOST_LATE = 8


class Readers:
    """Finds the reader of a loader. They live as long as the runner, so that a second run goes on.

    Attributes:
        entries: the readers of the workflow's entries, in their order; those of loaders that a subclass's own loop
            brings come behind them.
        evaluations: the readers of loaders that are evaluated on.
    """

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.evaluations: list[Reader] = []
        self._prepared = 0  # how many of these were known when the run began
        self._since = next(numbers)

    def open(self, loaders: Sequence[Any], kind: type[Reader]) -> None:
        """Have a reader for each workflow entry; those of an earlier run are kept if all loaders are the same."""
        former = [reader.dataloader for reader in self.entries]
        if len(former) != len(loaders) or any(one is not other for one, other in zip(former, loaders, strict=True)):
            self.entries = [kind(loader) for loader in loaders]

    def adopt_new_iter_loaders(self) -> None:
        """Take in the loaders that a subclass's own ``run`` has made."""
        self.entries = list[IterLoader](new_iter_loaders(self._since))

    def find(self, loader: Any, entry: int) -> Reader | None:
        """The reader of a training loader, that of the workflow entry if it has it; None for an unknown loader."""
        for reader in (*self.entries[entry : entry + 1], *self.entries):
            if reader.dataloader is loader:
                return reader
        return None

    def find_or_add(self, loader: Any, entry: int) -> Reader:
        """As `find`; an unknown loader gets a reader."""
        found = self.find(loader, entry)
        if found is None:
            found = Reader(loader)
            self.entries.append(found)
        return found

    def find_or_add_evaluation(self, loader: Any) -> Reader:
        """The reader for evaluations on ``loader``."""
        for reader in self.evaluations:
            if reader.dataloader is loader:
                return reader
        self.evaluations.append(Reader(loader))
        if len(self.evaluations) > self._prepared + _MOST_LATE:  # a loader may be built for each evaluation
            del self.evaluations[self._prepared]
        return self.evaluations[-1]

    def add_evaluations(self, workflow: Workflow, hooks: Iterable[Any]) -> None:
        """Make readers for validations and for hooks that evaluate: they are restored before anything is read."""
        loaders = [
            reader.dataloader for reader, (mode, _) in zip(self.entries, workflow, strict=False) if mode == 'val'
        ]
        for hook in hooks:
            several = getattr(hook, 'dataloaders', None)
            loaders += several.values() if isinstance(several, Mapping) else [getattr(hook, 'dataloader', None)]
        for loader in loaders:
            if loader is not None:
                self._prepared = len(self.evaluations) + 1  # none of them is forgotten
                self.find_or_add_evaluation(loader)
        self._prepared = len(self.evaluations)

    def state_dict(self, state_of_entry: Callable[[Any], ReaderState]) -> dict[str, Any]:
        """The states of all of them."""
        return {
            'readers': [state_of_entry(reader).state_dict() for reader in self.entries],
            'evaluations': [reader.state_dict() for reader in self.evaluations],
        }

    def streams(self) -> list[Any]:
        """The loaders that read a stream."""
        return [reader.dataloader for reader in self.entries if is_unbounded(reader.dataloader)]

    def acknowledge(self, state: Mapping[str, Any]) -> None:
        """``state``, as `state_dict` gave it, is in a checkpoint on disk: tell the streams."""
        for reader, each in self.entries_in(state):
            if is_unbounded(reader.dataloader) and each.loader is not None:
                reader.dataloader.acknowledge(each.loader)

    def restore_held(self, state: Mapping[str, Any]) -> None:
        """Give all loaders back what they held when `state_dict` was called."""
        for reader, each in (*self.entries_in(state), *self.evaluations_in(state)):
            reader.restore_held(each)

    def entries_in(self, state: Mapping[str, Any]) -> Iterator[tuple[Any, ReaderState]]:
        """The readers of entries, each with its part of ``state``, if it has one."""
        return _pairs(self.entries, state['readers'], state.get('rng'))

    def evaluations_in(self, state: Mapping[str, Any]) -> Iterator[tuple[Reader, ReaderState]]:
        """The readers of evaluations, each with its part of ``state``."""
        return _pairs(self.evaluations, state.get('evaluations', ()), state.get('rng'))


def _pairs(readers: Iterable[Any], saved: Iterable[Any], rng: Any) -> Iterator[tuple[Any, ReaderState]]:
    for reader, each in zip(readers, saved, strict=False):
        if each is not None:
            yield reader, ReaderState.of({**each, 'rng': rng})
