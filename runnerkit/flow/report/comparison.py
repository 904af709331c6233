"""Several runs: the list of those below a folder, and what sets them apart."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runnerkit.config.settings import differing
from runnerkit.evaluation import rule_by_name
from runnerkit.flow.report.record import RunRecord, is_run, read_run, short_names

#: Keys that differ between runs of the same experiment.
_SEEDS = ('seed', 'work_dir', 'resume_from', 'auto_resume')


@dataclass
class Group:
    """Runs that differ by their seed alone: of each score mean, standard deviation, smallest and largest value."""

    names: list[str]
    scores: dict[str, tuple[float, float, float, float]]


@dataclass
class Comparison:
    """Several runs side by side.

    Attributes:
        names: of the runs.
        columns, rows: a table with a row for each run.
        best: the best value of each score whose name says what is better.
        differing: the values of each key of the config that is not the same in all runs.
        groups: the runs that differ by their seed alone, and have neither failed nor are still running.
    """

    names: list[str]
    columns: list[str]
    rows: list[list[Any]]
    best: dict[str, float]
    differing: dict[str, list[Any]]
    groups: list[Group]


def runs(folder: str | os.PathLike[str] = 'work_dirs', earlier: bool = False) -> list[dict[str, Any]]:
    """A plain record of each run below a folder, newest first; ``pandas.DataFrame`` takes the list.

    Args:
        folder: it and the folders below it are searched.
        earlier: also list the runs that later ones have moved aside.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not Path(folder).is_dir():
        raise FileNotFoundError(f'no such folder: {os.fspath(folder)}')
    found = []
    for place, folders, _ in os.walk(folder):
        former = {name for name in folders if (parts := name.rpartition('.'))[2].isdecimal() and parts[0] in folders}
        folders[:] = sorted(name for name in folders if not name.startswith('.') and (earlier or name not in former))
        with suppress(FileNotFoundError):  # it has been moved or deleted meanwhile
            if is_run(Path(place)):
                found.append(plain_record(read_run(Path(place)), Path(folder)))
    return sorted(found, key=lambda each: -(each['ended'] or 0))


def plain_record(run: RunRecord, root: Path | None = None) -> dict[str, Any]:
    """The record of one run as a plain dict; the latest scores have ``score.`` before their name."""
    best, path = run.best, str(run.folder)
    return {
        'name': run.name if root is None or run.folder == root else os.path.relpath(run.folder, root),
        'path': path,
        'outcome': run.outcome,
        'epoch': run.epoch,
        'iterations': run.iterations,
        'best': None if best is None else best.score,
        'best_score': None if best is None else best.value,
        'seed': run.seed,
        'began': run.began,
        'ended': run.ended,
        'duration': run.busy,
        'bytes': run.bytes,
        **{f'score.{name}': value for name, value in run.scores.items()},
    }


def compare(work_dirs: Sequence[RunRecord | str | os.PathLike[str]]) -> Comparison:
    """Several runs side by side."""
    found = [each if isinstance(each, RunRecord) else read_run(each) for each in work_dirs]
    names = short_names(found)
    scores = list(dict.fromkeys(name for run in found for name in run.scores))
    bests = [run.best for run in found]
    columns = ['run', 'outcome', 'best score', *scores, 'epoch', 'iterations', 'duration', 'seed']
    rows = []
    for name, run, best in zip(names, found, bests, strict=True):
        values = [best and best.value, *map(run.scores.get, scores), run.epoch, run.iterations, run.busy, run.seed]
        rows.append([name, run.outcome, *values])
    settings = [{key: value for key, value in run.settings.items() if key != 'work_dir'} for run in found]
    differs = {key: [each.get(key) for each in settings] for key in differing(settings)}
    return Comparison(names, columns, rows, _best(columns, rows, scores), differs, list(_groups(found, names)))


def _best(columns: Sequence[str], rows: Sequence[Sequence[Any]], scores: Iterable[str]) -> dict[str, float]:
    found = {}
    for name in scores:
        values = [row[columns.index(name)] for row in rows]
        known = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
        with suppress(ValueError):  # the name does not say what is better
            if len(set(known)) > 1:
                found[name] = min(known) if rule_by_name(name) == 'less' else max(known)
    return found


def _groups(found: Sequence[RunRecord], names: Sequence[str]) -> Iterator[Group]:
    alike: dict[str, list[tuple[str, RunRecord]]] = {}
    for name, run in zip(names, found, strict=True):
        if run.outcome not in ('completed', 'stopped', 'unknown'):
            continue
        key = repr(sorted((k, repr(v)) for k, v in run.settings.items() if k not in _SEEDS))
        alike.setdefault(key, []).append((name, run))
    for members in alike.values():
        records = [run for _, run in members]
        if len({run.seed for run in records}) < 2 or not records[0].settings:
            continue
        scores = {name: [run.scores.get(name) for run in records] for name in records[0].scores}
        best = [run.best.value if run.best else None for run in records]
        spreads = {}
        for name, values in {**scores, 'best score': best}.items():
            known = [value for value in values if value is not None and math.isfinite(value)]
            if len(known) == len(values):
                spreads[name] = (statistics.mean(known), statistics.stdev(known), min(known), max(known))
        yield Group([name for name, _ in members], spreads)
