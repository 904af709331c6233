"""One trial as an ordinary run: its job, its result, and the command that repeats it."""

from __future__ import annotations

import gc
import math
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from runnerkit.config.action import parse_value
from runnerkit.config.config_dict import walk
from runnerkit.search.blame import is_machine_error
from runnerkit.utils.exceptions import WrongValue

if TYPE_CHECKING:  # torch is imported when a job runs
    from runnerkit.flow.from_python import TrainResult
    from runnerkit.hooks.report import ReportHook

#: ``report(step, scores) -> prune``, called after each evaluation.
Report = Callable[[int, dict[str, float]], bool]

#: The most characters of a message, which every record, report and log contains. A trial's own log has all of it.
_MOST = 2000

_RULES = {'max': 'greater', 'min': 'less'}


@dataclass(frozen=True)
class Job:
    """A run of ``runnerkit train``; it can be written as JSON.

    Attributes:
        number: of the trial.
        config: the config file.
        overrides: changes of it by dotted key, as with ``--cfg-options``.
        work_dir: where it runs.
        seed: of the run.
        objectives: the scores that count, by name, each with ``'max'`` or ``'min'``.
        device: as ``--device``; None: a GPU if there is one.
        threads: torch's CPU threads.
        parent: a checkpoint whose weights it begins with.
        again: whether it resumes what is in its work dir.
    """

    number: int
    config: str
    overrides: dict[str, Any]
    work_dir: str
    seed: int
    objectives: dict[str, str]
    device: str | None = None
    threads: int = 1
    parent: str | None = None
    again: bool = False


@dataclass
class Result:
    """How a job has ended.

    Attributes:
        status: ``'completed'``, ``'pruned'``, ``'failed'``, or ``'stopped'`` by a signal: then it can go on.
        scores: of the moment that the trial is, by name; what evaluations do not measure has its latest value.
        message: what went wrong; a long one is shortened.
        weights_file: the checkpoint of that moment; None if there is none.
        step: completed epochs, or iterations in an iteration runner, at the end.
        signal: the number of the signal that has stopped it, if one has.
        moment: which moment that is: ``'best accuracy'``, or ``'last evaluation'``.
        iter: the training iterations that were completed then.
        is_of_machine: whether the machine is to blame for a failure, see `runnerkit.search.blame`.
        has_begun: False if it has failed before its first training iteration.
    """

    status: str
    scores: dict[str, float] = field(default_factory=dict)
    message: str = ''
    weights_file: str | None = None
    step: int = 0
    signal: int | None = None
    moment: str = ''
    iter: int = 0
    is_of_machine: bool = False
    has_begun: bool = True

    def __post_init__(self) -> None:
        if len(self.message) > _MOST:
            half, length = _MOST // 2, len(self.message)
            self.message = f'{self.message[:half]} … ({length} characters) … {self.message[-half:]}'


def run_job(job: Job, report: Report) -> Result:
    """Train. Errors of the run are a result as well; those of ``report`` are raised.

    Args:
        job: what to train.
        report: called after each evaluation that gives one of the objectives.
    """
    errors: list[Exception] = []
    hook: ReportHook | None = None

    def reported(step: int, scores: dict[str, float]) -> bool:
        try:
            return report(step, scores)
        except Exception as error:
            errors.append(error)
            raise

    try:
        from runnerkit.flow.from_python import train
        from runnerkit.hooks.report import ReportHook

        hook = ReportHook(reported, tuple(job.objectives))
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
        return _judged(result, hook, job.objectives)
    except KeyboardInterrupt:
        return Result('stopped', message='interrupted')
    except BaseException as error:  # such as SystemExit
        if errors:  # the study's own, such as a full disk: not the trial's fault
            raise errors[0] from None
        failure = Result(
            'failed',
            message=f'{type(error).__name__}: {error}',
            is_of_machine=is_machine_error(error),
            has_begun=hook is not None and hook.has_begun,
        )
    gc.collect()  # a model that an error still refers to leaves no memory for the next trial
    return failure


class _Moment(NamedTuple):
    """One evaluation, and the checkpoint of the weights that it has measured, if there is one."""

    name: str
    iter: int
    scores: dict[str, float]
    weights_file: str | None


def _judged(result: TrainResult, hook: ReportHook, objectives: Mapping[str, str]) -> Result:
    """How a run that has not raised an error has ended, as a trial."""
    from runnerkit.hooks.report import PRUNED

    outcome, step = result.outcome, 0 if hook.last is None else hook.last[0]
    if outcome.kind in ('stopped', 'diverged') and result.signal is not None:
        return Result('stopped', dict(result.scores), str(outcome), None, step, result.signal)
    moment, message = _moment_of(result, hook, objectives), str(outcome)
    what = _diverged_in(result, objectives)
    if outcome.kind not in ('completed', 'stopped'):
        status, message = 'failed', message if what is None else f'it has diverged: {what}'
    elif outcome.reason == PRUNED:
        status = 'pruned'
    elif what is not None:
        status, message = 'failed', f'it has diverged: {what}'
    else:
        status, message = 'completed', ''
        if moment.weights_file is None and result.last_checkpoint is not None:
            message = (
                f'it has no checkpoint of iteration {moment.iter}, at which it was scored: let the end of the run '
                'be evaluated (evaluation.interval), or keep the best checkpoint by the objective '
                f'(evaluation.save_best={next(iter(objectives))})'
            )
    measured = hook.measured if hook.measured.intersection(objectives) else ()  # else none says which moment counts
    others = {name: value for name, value in result.scores.items() if name not in measured}
    scores = {**others, **moment.scores}
    return Result(status, scores, message, moment.weights_file, step, moment=moment.name, iter=moment.iter)


def _moment_of(result: TrainResult, hook: ReportHook, objectives: Mapping[str, str]) -> _Moment:
    """The moment of a run that the trial is: of its best checkpoint, if it keeps the best by the first objective; else
    of its last evaluation."""
    name, rule = next(iter(objectives.items()))
    if hook.best_by == (name, _RULES[rule]) and result.best_checkpoint is not None:
        done, scores = _scores_in(result.best_checkpoint)
        return _Moment(f'best {name}', done, scores, result.best_checkpoint)
    done, scores = hook.latest
    return _Moment('last evaluation', done, scores, _checkpoint_of(result.last_checkpoint, done, hook))


def _checkpoint_of(last: str | None, done: int, hook: ReportHook) -> str | None:
    """The checkpoint of ``done`` completed iterations, in the folder of the last one of a run; None: there is none."""
    from runnerkit.checkpoint.store import BY_EPOCH, BY_ITER, Store

    if last is None or done == 0:
        return None
    store, name = Store.of(last)
    names = [name, BY_ITER.format(done), *([] if hook.last is None else [BY_EPOCH.format(hook.last[0])])]
    paths = [store.path(each) for each in names if store.is_whole(each)]
    return next((path for path in paths if _scores_in(path)[0] == done), None)


def _scores_in(checkpoint: str) -> tuple[int, dict[str, float]]:
    """The completed iterations of a checkpoint, and the scores that it has of just that moment."""
    from runnerkit.checkpoint import CheckpointLoader

    content = CheckpointLoader.load_checkpoint(checkpoint, 'cpu')
    done = int(content['meta']['iter'])
    found = (content.get('runnerkit') or {}).get('scores', {})
    return done, {name: float(value) for name, (value, at) in found.items() if at == done}


def _diverged_in(result: TrainResult, objectives: Mapping[str, str]) -> str | None:
    """What is not finite at the end of a run: weights, a loss, or an objective. None: nothing.

    Other scores may be NaN by their definition, such as one of a class of which there is no sample.
    """
    for name, weights in result.model.named_parameters():
        if not bool(weights.isfinite().all()):
            return f'{name} is not finite'
    trained = [record for record in result.history if record['mode'] != 'val'][-1:]
    logged = {name: value for record in trained for name, value in record.items() if 'loss' in name}
    scores = {name: value for name, value in result.scores.items() if 'loss' in name or name in objectives}
    for when, values in (('the last training log', logged), ('the last evaluation', scores)):
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                return f'{name} is {value} in {when}'
    return None


def all_overrides(job: Job) -> dict[str, Any]:
    """The changes of the config, those that every trial has included."""
    more = {} if job.parent is None else {'load_from': job.parent}
    return {**job.overrides, 'num_threads': job.threads, **more}


def command_of(job: Job, work_dir: str, stop_after: int | None = None) -> str:
    """The command line that repeats a job."""
    words = ['runnerkit', 'train', job.config, '--work-dir', work_dir, '--seed', str(job.seed)]
    if job.device is not None:
        words += ['--device', job.device]
    if stop_after is not None:
        words += ['--stop-after', str(stop_after)]
    words += ['--cfg-options', *(f'{key}={as_option(key, value)}' for key, value in all_overrides(job).items())]
    return shlex.join(words)


def as_option(key: str, value: Any) -> str:
    """``value`` as it is written after ``--cfg-options key=``."""
    for text in (value if isinstance(value, str) else repr(value).replace(' ', ''), repr(value)):
        with suppress(ValueError):
            if same(parse_value(text), value):
                return text
    raise WrongValue(
        f'{key}={value!r} cannot be written on a command line, so no trial with it could be repeated: use numbers, '
        'strings, and lists and dicts of them'
    )


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, types included."""
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def overrides_of(hps: Mapping[str, Any], desc: Mapping[str, Any] | None, network: str = 'model') -> dict[str, Any]:
    """The changes of a config that a proposal means: its values, and its network under the dotted key ``network``."""
    return dict(hps) if desc is None else {**dict(walk({network: desc})), **hps}
