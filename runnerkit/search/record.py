"""What is known of one trial."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.utils.exceptions import WrongValue, one_line

#: The statuses of a trial.
RUNNING, COMPLETED, PRUNED, FAILED = STATUSES = 'running', 'completed', 'pruned', 'failed'

#: The file of a record, in the folder of its trial.
RECORD = 'record.json'


_KINDS: dict[str, Any] = {
    'str': str, 'int': int, 'float': (int, float), 'bool': bool, 'dict': Mapping, 'None': type(None),
}  # fmt: skip

T = TypeVar('T')


@dataclass
class Record:
    """One trial: what it was, and what came of it.

    Attributes:
        step: the pipeline step that it belongs to.
        number: its number there, from 0.
        hps: the values that were chosen, by dotted key of the config.
        desc: the network that was chosen, as the config of a model; None if the space is one of values alone.
        objectives: the scores that count, by name, each with ``'max'`` or ``'min'``.
        performance: its scores, by name: of one moment, which ``moment`` names; what no evaluation measures has its
            latest value.
        status: ``'running'``, ``'completed'``, ``'pruned'`` or ``'failed'``.
        message: why it was pruned or failed.
        epoch: completed epochs, or iterations in an iteration runner, at the last report.
        seed: of the run.
        threads: torch's CPU threads.
        command: the command line that repeats it.
        work_dir: its work dir.
        weights_file: the checkpoint of that moment; None if there is none.
        moment: which moment of the run the trial is: ``'best accuracy'``, the best checkpoint, if the run keeps it by
            the first objective (``evaluation.save_best``), else ``'last evaluation'``.
        iter: the training iterations that were completed then.
        parent: the checkpoint that it began with, if any.
        source: the `uid` of the record of an earlier step that it continues, if any.
        start: seconds since the epoch.
        end: the same.
        asked: how many trials had ended when this one was proposed.
        told: how many had ended when this one did.
    """

    step: str
    number: int
    hps: dict[str, Any] = field(default_factory=dict)
    desc: dict[str, Any] | None = None
    objectives: dict[str, str] = field(default_factory=dict)
    performance: dict[str, float] = field(default_factory=dict)
    status: str = RUNNING
    message: str = ''
    epoch: int = 0
    seed: int = 0
    threads: int = 1
    command: str = ''
    work_dir: str = ''
    weights_file: str | None = None
    moment: str = ''
    iter: int = 0
    parent: str | None = None
    source: str | None = None
    start: float = 0.0
    end: float = 0.0
    asked: int = 0
    told: int | None = None

    @property
    def uid(self) -> str:
        """Its name among the trials of all steps."""
        return f'{self.step}_{self.number}'

    @property
    def runtime(self) -> float:
        """Seconds from its first start to its end; 0 while it runs."""
        return max(0.0, self.end - self.start)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status != RUNNING

    @property
    def values(self) -> list[float] | None:
        """The objectives' scores in their order; None if one is missing or no finite number."""
        found = [self.performance.get(name, math.nan) for name in self.objectives]
        return found if found and all(math.isfinite(value) for value in found) else None

    @property
    def rewards(self) -> list[float] | None:
        """`values` of which greater is better: those to be minimised are negated."""
        values = self.values
        if values is None:
            return None
        signs = (1.0 if rule == 'max' else -1.0 for rule in self.objectives.values())
        return [sign * value for sign, value in zip(signs, values, strict=True)]

    def check_scores(self) -> list[str]:
        """Let a completed trial without a finite score for each objective count as failed.

        Returns:
            The objectives of which it has no score.
        """
        if self.status != COMPLETED or self.values is not None:
            return []
        missing = [name for name in self.objectives if name not in self.performance]
        self.status, self.message = FAILED, f'a score is no finite number: {self.performance}'
        if missing:
            given = ', '.join(self.performance) or 'none'
            self.message = f'the run gave no score {", ".join(missing)}; it gave {given}'
        return missing

    def as_dict(self) -> dict[str, Any]:
        """All attributes, and the runtime."""
        return {**vars(self), 'runtime': self.runtime}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Record:
        """The record of which `as_dict` gave ``content``.

        Raises:
            WrongValue: it is none of a record.
        """
        known = {each.name: str(each.type) for each in fields(cls)}
        try:
            found = cls(**{name: value for name, value in content.items() if name in known})
        except (AttributeError, TypeError) as error:
            raise WrongValue(f'it is no record of a trial: {error}') from None
        for name, kind in known.items():
            value = getattr(found, name)
            if not any(isinstance(value, _KINDS[part.partition('[')[0]]) for part in kind.split(' | ')):
                raise WrongValue(f'{name} must be of the type {kind}, but got {value!r}')
        if found.status not in STATUSES:
            raise WrongValue(f'status must be one of {", ".join(STATUSES)}, but got {found.status!r}')
        return found

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it to `RECORD` in ``folder``, whole or not at all."""
        os.makedirs(folder, exist_ok=True)
        text = json.dumps(self.as_dict(), indent=2)
        write_atomically(Path(folder) / RECORD, text.encode())


def records_in(folder: str | os.PathLike[str]) -> list[Record]:
    """The records of all trials in ``folder``, by number."""
    files = Path(folder).glob(f'*/{RECORD}')
    way_out = 'put back a copy of it, or remove the folder of the whole search'
    found = [parse_json_file(path, Record.from_dict, way_out) for path in files]
    return sorted(found, key=lambda record: record.number)


def parse_json_file(path: Path, parse: Callable[[Any], T], way_out: str) -> T:
    """What ``parse`` makes of the JSON in a file."""
    try:
        return parse(json.loads(path.read_text(encoding='utf-8')))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WrongValue(f'{path} is damaged: {one_line(error)}. {way_out[0].upper()}{way_out[1:]}') from None


def dominates(one: list[float], other: list[float]) -> bool:
    """Whether rewards are nowhere worse than others, and somewhere better."""
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def front(records: Iterable[Record]) -> list[Record]:
    """Those of ``records`` that no other one dominates, in their order; records without all objectives are left out."""
    complete = [(record, rewards) for record in records if (rewards := record.rewards) is not None]
    found: list[tuple[int, list[float]]] = []
    # Best first: none is dominated by a later one, nor by one that is dominated itself.
    for index, (_, rewards) in sorted(enumerate(complete), key=lambda each: each[1][1], reverse=True):
        if not any(dominates(other, rewards) for _, other in found):
            found.append((index, rewards))
    return [complete[index][0] for index in sorted(index for index, _ in found)]
