"""One trial as an ordinary run: what it is told, what comes of it, and the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runnerkit.config.action import parse_value
from runnerkit.utils.exceptions import WrongValue

#: ``report(step, scores) -> prune``, called after each evaluation.
Report = Callable[[int, dict[str, float]], bool]


@dataclass(frozen=True)
class Job:
    """A run of ``runnerkit train``; it can be written as JSON.

    Attributes:
        number: of the trial.
        config: the config file.
        overrides: changes of it by dotted key, as with ``--cfg-options``.
        work_dir: where it runs.
        seed: of the run.
        objectives: the names of the scores that count.
        device: as ``--device``; None: a GPU if there is one.
        threads: torch's CPU threads.
        parent: a checkpoint whose weights it begins with.
        again: whether it goes on with what is in its work dir.
    """

    number: int
    config: str
    overrides: dict[str, Any]
    work_dir: str
    seed: int
    objectives: tuple[str, ...]
    device: str | None = None
    threads: int = 1
    parent: str | None = None
    again: bool = False


@dataclass
class Result:
    """How a job has ended.

    Attributes:
        status: ``'completed'``, ``'pruned'``, ``'failed'``, or ``'stopped'`` by a signal: then it can go on.
        scores: the latest value of each, by name.
        message: what went wrong.
        weights_file: its best checkpoint, else its last one.
        step: completed epochs, or iterations in an iteration runner.
        signal: the number of the signal that has stopped it, if one has.
    """

    status: str
    scores: dict[str, float] = field(default_factory=dict)
    message: str = ''
    weights_file: str | None = None
    step: int = 0
    signal: int | None = None


def run_job(job: Job, report: Report) -> Result:
    """Train. Errors of the run are a result as well; those of ``report`` are raised.

    Args:
        job: what to train.
        report: called after each evaluation that gives one of the objectives.
    """
    from runnerkit.flow.from_python import train
    from runnerkit.hooks.report import PRUNED, ReportHook

    errors: list[Exception] = []

    def reported(step: int, scores: dict[str, float]) -> bool:
        try:
            return report(step, scores)
        except Exception as error:
            errors.append(error)
            raise

    hook = ReportHook(reported, job.objectives)
    try:
        result = train(
            job.config,
            job.work_dir,
            seed=job.seed,
            device=job.device,
            resume=job.again,
            if_used='resume' if job.again else 'aside',
            cfg_options=all_overrides(job),
            hooks=[hook],
        )
    except KeyboardInterrupt:
        return Result('stopped', message='interrupted')
    except (Exception, SystemExit) as error:
        if errors:  # the study's own, such as a full disk: not the trial's fault
            raise errors[0] from None
        return Result('failed', message=f'{type(error).__name__}: {error}')
    outcome, step = result.outcome, 0 if hook.last is None else hook.last[0]
    weights = result.best_checkpoint or result.last_checkpoint
    if outcome.kind == 'stopped' and result.signal is not None:
        return Result('stopped', dict(result.scores), str(outcome), weights, step, result.signal)
    status = 'pruned' if outcome.reason == PRUNED else 'completed'
    return Result(status, dict(result.scores), '' if status == 'completed' else str(outcome), weights, step)


def all_overrides(job: Job) -> dict[str, Any]:
    """The changes of the config, those that every trial has included."""
    more = {} if job.parent is None else {'load_from': job.parent}
    return {**job.overrides, 'num_threads': job.threads, **more}


def command_of(job: Job, work_dir: str, stop_after: int | None = None) -> str:
    """The command line that repeats a job.

    Args:
        job: the job.
        work_dir: where the repetition runs.
        stop_after: where the trial was pruned, if it was.
    """
    words = ['runnerkit', 'train', job.config, '--work-dir', work_dir, '--seed', str(job.seed)]
    if job.device is not None:
        words += ['--device', job.device]
    if stop_after is not None:
        words += ['--stop-after', str(stop_after)]
    words += ['--cfg-options', *(f'{key}={as_option(key, value)}' for key, value in all_overrides(job).items())]
    return shlex.join(words)


def as_option(key: str, value: Any) -> str:
    """``value`` as it is written after ``--cfg-options key=``.

    Raises:
        WrongValue: it would not be read as the same value.
    """
    text = value if isinstance(value, str) else repr(value).replace(' ', '')
    if not same(parse_value(text), value):
        raise WrongValue(
            f'{key}={value!r} cannot be written on a command line, so no trial with it could be repeated: use numbers, '
            'words, and lists of them'
        )
    return text


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, types included."""
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def overrides_of(hps: Mapping[str, Any], desc: Mapping[str, Any] | None, network: str = 'model') -> dict[str, Any]:
    """The changes of a config that a proposal means: its values, and its network under the dotted key ``network``."""
    return dict(hps) if desc is None else {**flattened(network, desc), **hps}


def flattened(key: str, value: Any) -> dict[str, Any]:
    """Nested dicts as values by dotted key."""
    if not isinstance(value, Mapping):
        return {key: value}
    found: dict[str, Any] = {}
    for name, each in value.items():
        found |= flattened(f'{key}.{name}', each)
    return found
