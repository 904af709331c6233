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
from runnerkit.flow.report.record import RunRecord, is_run, read_run, short_names
from runnerkit.utils.numbers import rule_by_name

#: Keys that differ between runs of the same experiment.
SEEDS = ('seed', 'work_dir', 'resume_from', 'auto_resume')


@dataclass
class Group:
    """Runs that differ by their seed alone: of each score mean, standard deviation, smallest and largest value."""

    names: list[str]
    scores: dict[str, tuple[float, float, float, float]]


@dataclass
class Comparison:
    """Several runs side by side.

    Attributes:
        names: of the runs, the one with the best score first.
        columns, rows: a table with a row for each run: its best score, the other scores of that evaluation
            (``'loss at best'``), the scores of the last one (``'last loss'``), and how far and how long it trained.
        best: the best value of each of these columns whose score says what is better.
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
                found.append(plain_record(read_run(Path(place), only_scores=True), Path(folder)))
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
        'best_rule': (best and _rule(best.score, [run])) or None,
        'seed': run.seed,
        'began': run.began,
        'ended': run.ended,
        'duration': run.busy,
        'bytes': run.bytes,
        **{f'score.{name}': value for name, value in run.scores.items()},
    }


def compare(work_dirs: Sequence[RunRecord | str | os.PathLike[str]]) -> Comparison:
    """Several runs side by side."""
    found = by_best_score(
        [each if isinstance(each, RunRecord) else read_run(each, only_scores=True) for each in work_dirs]
    )
    names = short_names(found)
    scores: dict[str, tuple[str, list[float | None]]] = {}  # by column: the score, and its value in each run
    for score in dict.fromkeys(run.best.score for run in found if run.best):
        bests = [run.best.value if run.best and run.best.score == score else None for run in found]
        scores[f'best {score}'] = score, bests
    then = [_at_best(run) for run in found]
    for score in dict.fromkeys(name for each in then for name in each):
        scores[f'{score} at best'] = score, [each.get(score) for each in then]
    last = dict.fromkeys(name for run in found for name in run.scores)
    for score in sorted(last, key=lambda name: f'best {name}' not in scores):  # in the order of the columns before
        scores[f'last {score}'] = score, [run.scores.get(score) for run in found]
    columns = ['run', 'outcome', *scores, 'epoch', 'iterations', 'duration', 'seed']
    rows = [
        [
            name,
            run.outcome,
            *(values[i] for _, values in scores.values()),
            run.epoch,
            run.iterations,
            run.busy,
            run.seed,
        ]
        for i, (name, run) in enumerate(zip(names, found, strict=True))
    ]
    best = {}
    for column, (score, values) in scores.items():
        rule = _rule(score, found)
        known = [value for value in values if value is not None and math.isfinite(value)]
        if rule and len(set(known)) > 1:
            best[column] = min(known) if rule == 'less' else max(known)
    settings = [{key: value for key, value in run.settings.items() if key != 'work_dir'} for run in found]
    differs = {key: [each.get(key) for each in settings] for key in differing(settings)}
    return Comparison(names, columns, rows, best, differs, list(_groups(found, names)))


def by_best_score(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs by their best score, those without one last; in the given order where no rule says what is better."""
    score = next((run.best.score for run in runs if run.best), '')
    rule = _rule(score, runs)

    def place(run: RunRecord) -> float:
        value = run.best.value if run.best and run.best.score == score else None
        return math.inf if value is None or not math.isfinite(value) else value if rule == 'less' else -value

    return sorted(runs, key=place) if rule else list(runs)


def _rule(score: str, runs: Iterable[RunRecord]) -> str:
    """What is better: as a run with this best score has recorded it, else as its config or the score's name says; empty
    if unknown."""
    with_score = [run for run in runs if run.best and run.best.score == score]
    given = {start['rules'].get(score) for run in with_score for start in run.starts if 'rules' in start}
    given = given - {None} or {run.settings.get('evaluation.rule') for run in with_score}
    for rule in ('less', 'greater'):
        if rule in given:
            return rule
    with suppress(ValueError):
        return rule_by_name(score)
    return ''


def _at_best(run: RunRecord) -> dict[str, float]:
    """The other scores of the best evaluation."""
    best = run.best
    if best is None:
        return {}
    return {
        name: value
        for (mode, name), points in run.curves.items()
        for step, value in points
        if mode == 'val' and step == best.step and name != best.score
    }


def _groups(found: Sequence[RunRecord], names: Sequence[str]) -> Iterator[Group]:
    alike: dict[str, list[tuple[str, RunRecord]]] = {}
    for name, run in zip(names, found, strict=True):
        if run.outcome not in ('completed', 'stopped', 'unknown'):
            continue
        key = repr(sorted((k, repr(v)) for k, v in run.settings.items() if k not in SEEDS))
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
