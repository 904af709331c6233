"""A study: trials that an algorithm proposes and an executor runs."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config import Config
from runnerkit.fileio.paths import join, lies_in, local_path
from runnerkit.flow.work_dir.previous_runs import rename_aside
from runnerkit.flow.work_dir.resume import out_dirs
from runnerkit.search.algorithm import (
    Proposal,
    SearchAlgorithm,
    as_proposal,
    as_type,
    checked_objectives,
    derived_seed,
    is_of,
    plain,
)
from runnerkit.search.executors import EXECUTORS, Executor
from runnerkit.search.job import Job, Result, command_of, overrides_of
from runnerkit.search.optuna_algorithm import JOURNAL, OptunaAlgorithm, checked_algorithm, made_algorithm
from runnerkit.search.record import COMPLETED, FAILED, Record, parse_json_file, records_in
from runnerkit.search.report import REPORTS, STUDY, TABLE, Report, in_words
from runnerkit.search.space import Space, as_space
from runnerkit.utils.exceptions import WrongKey, WrongValue
from runnerkit.utils.lock import FolderLock
from runnerkit.utils.logging import get_logger
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion

#: The folder of the trials, in a study's work dir.
TRIALS = 'trials'

_ATTEMPTS = 100  # proposals in a row that may be refused
_WAIT = 0.5  # seconds between two looks at what has ended
_EARLY = 3  # trials that fail alike before a first iteration, until the config counts as wrong


class NotATrialsFault(RuntimeError):
    """The machine, or what all trials have in common, has ended a study."""


class Study:
    """Searches a space: each trial is an ordinary run of a config with some of its values changed.

    Killed at any moment, a study resumes when it is run again in the same work dir: trials that were running continue
    from their checkpoints. It may then have more trials, another executor, or other settings of its algorithm. If what
    is searched has changed (the config, the space, the objectives, the seed, the name of the algorithm,
    ``network`` or ``overrides``), the former trials are moved to ``<work dir>.1`` …, and the study starts over.

    Args:
        config: the config file of the trials.
        space: a `runnerkit.search.Space`, or a section of a config that describes one, see `Space.of`; or, for
            algorithms that choose networks, a section with ``modules``.
        objectives: the scores that count, each with ``'max'`` or ``'min'``. The first one is what pruners look at.
        work_dir: where all of it goes.
        algorithm: a name of `SEARCH_ALGORITHMS`, or a dict of its arguments with ``type``; or an object.
        executor: a name of `EXECUTORS`, or a dict of its arguments with ``type``; or an object.
        seed: of the search; each trial's own one is derived from it.
        name: of the pipeline step.
        device: where the trials train; None: a GPU if there is one.
        threads: torch's CPU threads in each trial.
        overrides: changes of the config for all trials.
        network: the dotted key in the config that descriptions of networks replace: ``'model.model'`` for that of a
            `Supervised`.
        why_not: ``why_not(proposal) -> reason`` refuses proposals before they are trained; None accepts one.
        report: where the records go; None: a new one.
        on_change: called with the report after each change.
        known: ``known(proposal)`` gives the scores that are known before the training, such as ``params``.
        changes: ``changes(values)`` gives what chosen values change in the config, by dotted key; None: themselves.
    """

    def __init__(
        self,
        config: str | os.PathLike[str],
        space: Any,
        objectives: Mapping[str, str],
        work_dir: str | os.PathLike[str],
        algorithm: str | Mapping[str, Any] | SearchAlgorithm = 'TPE',
        executor: str | Mapping[str, Any] | Executor = 'Serial',
        seed: int = 0,
        name: str = 'search',
        device: str | None = None,
        threads: int = 1,
        overrides: Mapping[str, Any] | None = None,
        network: str = 'model',
        why_not: Callable[[Proposal], str | None] | None = None,
        report: Report | None = None,
        on_change: Callable[[Report], None] | None = None,
        known: Callable[[Proposal], dict[str, float]] | None = None,
        changes: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.config, self.objectives = os.path.abspath(config), checked_objectives(objectives)
        self.space = as_space(space)
        check_whole_number('seed', seed, at_least=0)
        check_whole_number('threads', threads)
        self.work_dir, self.seed, self.name = local_folder(work_dir), seed, name
        self.device, self.threads, self.overrides = device, threads, plain(dict(overrides or {}))
        self.network, self.why_not = network, why_not
        self._given = algorithm
        self.executor = executor if isinstance(executor, Executor) else EXECUTORS.build(as_type(executor))
        self.report = Report() if report is None else report
        self.on_change = on_change or (lambda report: None)
        self.known, self.changes = known or (lambda proposal: {}), changes or dict
        self.logger = get_logger('runnerkit')
        self.stop_signal: int | None = None
        self._is_stopping = False
        self._why_not_on: str | None = None  # what ends the study, if the machine or all trials are to blame
        self._early: list[str] | None = []  # the errors of trials before a first iteration; None: one has begun
        self._known: dict[int, dict[str, float]] = {}  # of the running trials: the scores known before the training

    def run(self) -> Report:
        """Search, or continue, until the algorithm finishes or a signal ends the study.

        Raises:
            BlockingIOError: another process works in the work dir.
            ValueError: the work dir lacks the records of some trials, or one is damaged.
            NotATrialsFault: the machine refuses what a trial needs, such as room on the disk: the trial is repeated
                when the study resumes. Or the first trials have all failed with the same error before their first
                iteration.
        """
        self.work_dir.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(self.work_dir)
        try:
            self._set_others_aside()
            if isinstance(self.space, Space):
                self.space.check_config(Config.fromfile(self.config, import_custom_modules=False)._cfg_dict)
            records = records_in(self.work_dir / TRIALS)
            if [record.number for record in records] != [*range(len(records))]:
                numbers = ', '.join(str(record.number) for record in records)
                raise WrongValue(
                    f'{self.work_dir / TRIALS} has the trials {numbers}, but the search has learnt from others, which '
                    'are missing: put them back, or take a new work dir'
                )
            if isinstance(self._given, SearchAlgorithm):
                self.algorithm = self._given
            else:
                kept = {'storage': str(self.work_dir / JOURNAL), 'name': self.name, 'why_not': self.why_not}
                self.algorithm = made_algorithm(self._given, self.space, self.objectives, self.seed, kept)
            settle_paths(records, self.work_dir, self.name, self.config, self.overrides)
            for record in records:
                self.report.update(record)
            if any(record.epoch for record in records):
                self._early = None
            waiting = self._restore(records)
            self._told = max((record.told + 1 for record in records if record.told is not None), default=0)
            with self.executor:
                for record in [each for each in records if not each.has_ended]:
                    self._start(record, again=True)
                self._search(waiting, len(records))
            if self._why_not_on is not None:
                raise NotATrialsFault(self._why_not_on)
        finally:
            try:
                self.report.save(self.work_dir, self.name)
            finally:
                lock.release()
        return self.report

    def stop(self, number: int) -> None:
        """End the search as after the signal ``number``: running trials save and end, and it can resume later."""
        self.stop_signal = number

    # --- the search --------------------------------------------------------------------------------------------------

    def _search(self, waiting: Proposal | None, number: int) -> None:
        while True:
            while not self._is_ending and self.executor.running < self.executor.slots:
                proposal = waiting or self._propose()
                waiting = None
                if proposal is None:
                    break
                self._start(self._new_record(number, proposal))
                number += 1
            if not self.executor.running:
                return
            if self._is_ending and not self._is_stopping:
                self._is_stopping = True
                self.executor.stop()
            for ended in self.executor.wait(_WAIT):
                self._finish(self.report.get(self.name, ended.job.number), ended.result)

    @property
    def _is_ending(self) -> bool:
        return self.stop_signal is not None or self._why_not_on is not None

    def _propose(self) -> Proposal | None:
        """What the algorithm wants to try next; None: nothing, or nothing yet."""
        if self.algorithm.is_completed:
            return None
        found = allowed(self.algorithm, self._why_not, self.objectives)
        if found is None and not self.executor.running and not self.algorithm.is_completed:
            raise WrongValue(
                f'{type(self.algorithm).__name__}.search has proposed nothing, no trial is running, and is_completed '
                'is False: the search would wait for ever'
            )
        return found

    def _why_not(self, proposal: Proposal) -> str | None:
        # Those of Optuna ask themselves, so that a refused proposal is kept in their storage.
        if self.why_not is None or isinstance(self.algorithm, OptunaAlgorithm):
            return None
        return self.why_not(proposal)

    def _new_record(self, number: int, proposal: Proposal) -> Record:
        record = Record(
            step=self.name,
            number=number,
            hps=dict(proposal.hps),
            desc=proposal.desc,
            objectives=dict(self.objectives),
            performance=self.known(proposal),
            source=proposal.source,
            parent=proposal.parent,
            seed=derived_seed(self.seed, number),
            threads=self.threads,
            work_dir=trial_work_dir(self.work_dir, self.name, number),
            start=time.time(),
            asked=self._told,
        )
        record.command = self._command(record)
        record.save(folder_of(self.work_dir, number))
        return record

    def _start(self, record: Record, again: bool = False) -> None:
        self._known.setdefault(record.number, dict(record.performance))
        self.report.update(record)
        self._tell_change()
        self.executor.start(self._job(record, again), partial(self._report, record))

    def _report(self, record: Record, step: int, scores: dict[str, float]) -> bool:
        """A trial's scores after an evaluation; whether to prune it."""
        record.epoch, record.performance = step, {**record.performance, **scores}
        self._tell_change()
        first = next(iter(self.objectives))
        return first in scores and self.algorithm.report(record.number, step, scores[first])

    def _finish(self, record: Record, result: Result) -> None:
        """A trial's run has ended."""
        if result.status == 'stopped':
            if self._is_ending or self.executor.shares_signals:  # it resumes when the study does
                if self._why_not_on is None:
                    self.stop_signal = self.stop_signal or result.signal or signal.SIGINT
                return
            result.status = FAILED
            result.message = f'its process was stopped, but not by the study: {result.message}'
        if result.is_of_machine:
            self._why_not_on = self._why_not_on or (
                f'{self.name}: trial {record.number} could not run on this machine: {result.message}. It does not '
                'count as failed. Make room, or mend what the machine refuses; then run the same command again to '
                'repeat it and continue'
            )
            return
        known = self._known.pop(record.number)
        record.status, record.message, record.end = result.status, result.message, time.time()
        record.performance = {**(known if record.status == COMPLETED else record.performance), **result.scores}
        record.epoch, record.weights_file = result.step or record.epoch, result.weights_file
        record.moment, record.iter = result.moment, result.iter
        missing = record.check_scores()
        record.told = self._told
        self._told += 1
        record.command = self._command(record)
        record.save(folder_of(self.work_dir, record.number))
        self.algorithm.update(record)
        self.logger.info('Trial %d %s: %s', record.number, record.status, in_words(record))
        self._tell_change()
        self._note_early_error(record, result)
        if missing and not any(each.status == COMPLETED for each in self.report.of(self.name)):
            raise WrongKey(no_score(missing, list(record.performance)))  # nor will another trial give it

    def _note_early_error(self, record: Record, result: Result) -> None:
        """End the study if the config seems to fail whatever the values of its trials."""
        if record.status != FAILED or result.has_begun:
            self._early = None
        elif self._early is not None:
            self._early.append(record.message)
            if len(self._early) == _EARLY and len(set(self._early)) == 1:
                self._why_not_on = self._why_not_on or (
                    f'{self.name}: the first {_EARLY} trials have failed before their first iteration, all with the '
                    f'same error: {record.message}. Mend the config and run the same command again, which starts over. '
                    f'If the cause was elsewhere, remove {self.work_dir} first'
                )

    def _tell_change(self) -> None:
        """Keep the report's files and the listener up to date."""
        self.report.keep(self.work_dir, self.name)
        self.on_change(self.report)

    def _set_others_aside(self) -> None:
        """Move what a study of something else has left here to ``<work dir>.1`` …; write what this one is of."""
        path, now = self.work_dir / STUDY, json.loads(json.dumps(self._identity(), default=describe_identity))
        before = now
        if path.exists():
            before = parse_json_file(path, dict, 'if the search is the same as before, remove this file')
        changed = [key for key, value in now.items() if before.get(key) != value]
        if changed:
            folder = rename_aside(self.work_dir, (TRIALS, JOURNAL, REPORTS, TABLE, STUDY))
            self.logger.info(
                '%s starts over, since %s has changed; former trials: %s',
                self.name,
                ' and '.join(changed),
                folder,
            )
        if changed or not path.exists():
            write_atomically(path, json.dumps(now, indent=2).encode())

    def _identity(self) -> dict[str, Any]:
        """What is searched; with another value, former trials would be of no use."""
        given = self._given
        kind = type(given).__name__ if isinstance(given, SearchAlgorithm) else str(checked_algorithm(given)['type'])
        points = given.get('points') if isinstance(given, Mapping) else None  # of a grid
        return {
            'name': self.name,
            'config': Config.fromfile(self.config, import_custom_modules=False)._cfg_dict,
            'objectives': self.objectives,
            'search_space': self.space,
            'network': self.network,
            'overrides': self.overrides,
            'seed': self.seed,
            'search_algorithm': kind if points is None else f'{kind} with points={points}',
        }

    # --- the parts ---------------------------------------------------------------------------------------------------

    def _job(self, record: Record, again: bool = False) -> Job:
        return Job(
            number=record.number,
            config=self.config,
            overrides={**self.overrides, **overrides_of(self.changes(record.hps), record.desc, self.network)},
            work_dir=record.work_dir,
            seed=record.seed,
            objectives=dict(self.objectives),
            device=self.device,
            threads=record.threads,
            parent=record.parent,
            again=again,
        )

    def _command(self, record: Record) -> str:
        stop_after = record.epoch if record.status == 'pruned' else None
        return command_of(self._job(record), f'{record.work_dir}_again', stop_after)

    def _restore(self, records: list[Record]) -> Proposal | None:
        """Bring the algorithm to where it was; returns what was proposed and not recorded."""
        if isinstance(self.algorithm, OptunaAlgorithm):
            return self.algorithm.restore(records)
        replayed(self.algorithm, records, self._why_not)
        return None


def local_folder(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a work dir."""
    if '://' in str(path):
        raise WrongValue(
            f'the work dir of a search must be a folder of this machine, but got {str(path)!r}: a search locks it and '
            "keeps a journal there. Checkpoints of the trials may go to a URL: checkpoint_config's out_dir"
        )
    return Path(path).absolute()


def folder_of(study: Path, number: int) -> Path:
    """The folder of a trial in the work dir of a study."""
    return study / TRIALS / f'{number:04d}'


def trial_work_dir(study: Path, name: str, number: int) -> str:
    """The work dir of a trial of the step ``name``."""
    return str(folder_of(study, number) / f'{name}_{number:04d}')  # its name must be its own below an `out_dir`


def places_of(config: str | os.PathLike[str], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Each ``out_dir`` below which trials save, by its dotted key."""
    found = out_dirs(Config.fromfile(config, import_custom_modules=False))
    places = {f'{section.replace("[", ".").rstrip("]")}.out_dir': place for section, place, _ in found}
    return places | {key: value for key, value in overrides.items() if key.endswith('.out_dir')}


def settle_paths(
    records: Iterable[Record], study: Path, name: str, config: str | os.PathLike[str], overrides: Mapping[str, Any]
) -> None:
    """Let ``records`` name only files of the trials: a file may name any, or the former place of the study."""
    places = [place for place in places_of(config, overrides).values() if place is not None]
    for record in records:
        record.work_dir, named = trial_work_dir(study, name, record.number), record.weights_file or ''
        below = [join(local_path(each), Path(record.work_dir).name) for each in places]
        if not any(lies_in(named, each) for each in (record.work_dir, *below)):
            here = os.path.join(record.work_dir, os.path.basename(named))
            record.weights_file = here if lies_in(here, record.work_dir) and os.path.exists(here) else None


def allowed(
    algorithm: SearchAlgorithm, why_not: Callable[[Proposal], str | None], objectives: Mapping[str, str]
) -> Proposal | None:
    """The next proposal that is not refused; the algorithm gets refused ones as failed trials. None: there is none, or
    none yet.
    """
    reason = ''
    for _ in range(_ATTEMPTS):
        found = None if algorithm.is_completed else algorithm.search()
        if found is None:
            break
        proposal = as_proposal(found)
        refused = why_not(proposal)
        if refused is None:
            return proposal
        reason = refused
        algorithm.update(Record('', -1, proposal.hps, proposal.desc, dict(objectives), status=FAILED, message=reason))
    else:
        raise WrongValue(
            f'{_ATTEMPTS} proposals in a row were refused, the last one because {reason}: widen the space, or loosen '
            'the quota'
        )
    if reason:
        get_logger('runnerkit').info('The last proposals were refused, the very last one because %s', reason)
    return None


def replayed(
    algorithm: SearchAlgorithm, records: list[Record], why_not: Callable[[Proposal], str | None] = lambda proposal: None
) -> None:
    """Repeat the calls of `search` and `update` that have made ``records``."""
    ended = sorted((record for record in records if record.told is not None), key=lambda record: record.told or 0)
    for record in records:
        while ended and (ended[0].told or 0) < record.asked:
            algorithm.update(ended.pop(0))
        proposal = allowed(algorithm, why_not, record.objectives)
        if proposal and proposal.parent and Path(record.parent or '').name == Path(proposal.parent).name:
            record.parent = proposal.parent  # the study may have moved
        if proposal is None or not is_of(record, proposal):
            raise WrongValue(
                f'{type(algorithm).__name__} does not propose again what it proposed for trial {record.number} when '
                'the study began, so the study cannot go on: it must draw from self.rng alone, and be given the same '
                'arguments; or take a new work dir'
            )
    for record in ended:
        algorithm.update(record)


def no_score(missing: list[str], given: list[str]) -> str:
    """What to say if a run does not give the scores of ``missing`` objectives."""
    names = ' and '.join(map(repr, missing))
    if not given:
        return (
            f'objectives has {names}, but a trial gave no scores at all: its config needs data.val and '
            'evaluation=dict(interval=1)'
        )
    hint = ''.join(suggestion(name, given) for name in missing)
    return f'objectives has {names}, but a trial gave no such score{hint} (it gave {", ".join(given)})'


def describe_identity(value: Any) -> str:
    """``value`` as a text that is the same in another process: its ``repr`` without addresses."""
    return re.sub(' at 0x[0-9a-fA-F]+', '', repr(value))
