"""Optuna's samplers and pruners as search algorithms, by name."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnerkit.search.algorithm import (
    SEARCH_ALGORITHMS,
    Proposal,
    SearchAlgorithm,
    as_proposal,
    as_type,
    derived_seed,
    is_of,
)
from runnerkit.search.record import COMPLETED, PRUNED, Record
from runnerkit.search.space import Forbidden, combinations_of
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue, check_keywords
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion

if TYPE_CHECKING:
    from runnerkit.search.journal import Journal

#: Not a sampler of Optuna's: the space's own configurations, one after another.
GRID = 'grid'

#: Names of algorithms: the sampler and the pruner of Optuna that they are. Where Optuna has another algorithm of the
#: same kind, the text says which.
NAMES: dict[str, tuple[str, str | None, str]] = {
    'RandomSearch': ('RandomSampler', None, ''),
    'GridSearch': (GRID, None, ''),
    'QMC': ('QMCSampler', None, ''),
    'TPE': ('TPESampler', None, ''),
    'GP': ('GPSampler', None, ''),
    'CMAES': ('CmaEsSampler', None, ''),
    'NSGA2': ('NSGAIISampler', None, ''),
    'NSGA3': ('NSGAIIISampler', None, ''),
    'AshaHpo': ('RandomSampler', 'SuccessiveHalvingPruner', ''),
    'HyperBand': ('RandomSampler', 'HyperbandPruner', ''),
    'BohbHpo': ('TPESampler', 'HyperbandPruner', ''),
    'BayesSearch': ('GPSampler', None, "Optuna's Gaussian process replaces Vega's BayesSearch"),
    'EvolutionAlgorithm': ('NSGAIISampler', None, "Optuna's NSGA-II replaces Vega's EvolutionAlgorithm"),
}

#: Pruners by name.
PRUNERS = {
    'ASHA': 'SuccessiveHalvingPruner',
    'Hyperband': 'HyperbandPruner',
    'Median': 'MedianPruner',
    'Percentile': 'PercentilePruner',
    'Patient': 'PatientPruner',
    'Threshold': 'ThresholdPruner',
    'Wilcoxon': 'WilcoxonPruner',
}

#: Samplers that are one sequence for the whole study; where in it they are is kept in Optuna's storage.
SEQUENCES = ('QMCSampler',)

#: Names of Vega's that have no counterpart, and why.
DECLINED = {
    'BossHpo': 'BOSS has no implementation in Optuna; BohbHpo or AshaHpo stop bad trials early as well',
    'HeboAdaptor': 'HEBO is another package; GP is the Gaussian process of Optuna',
    'PBTHpo': 'population-based training changes values within a run, which then could not be repeated from its config',
}

#: The file of the storage in a study's work dir.
JOURNAL = 'optuna.journal'

#: What the storage remembers of a trial: its number, why it was refused, and what was answered to its reports.
_NUMBER, _REJECTED, _PRUNE = 'trial', 'rejected', 'prune at'


class OptunaAlgorithm(SearchAlgorithm):
    """Search with a sampler of Optuna, and prune with one of its pruners.

    The sampler of each trial is seeded from the study's seed and the trial's number, so that a study which is continued
    draws what an undisturbed one would. All is kept in Optuna's storage, which its own tools can read.

    Args:
        space: the space to search.
        objectives: the scores that count, each with ``'max'`` or ``'min'``.
        seed: of the study.
        codec: not used.
        sampler: a class of ``optuna.samplers``, by name; with ``sampler_args``.
        pruner: a name of `PRUNERS`, a class of ``optuna.pruners`` by name, or a dict of its arguments with ``type``.
        trials: how many trials are proposed; None, for a grid alone: all.
        points: of a grid, how many values of each number are tried; None: all whole numbers.
        attempts: how often in a row a proposal may be refused.
        storage: the path of a journal; None keeps everything in memory.
        name: of the study in the storage.
        why_not: ``why_not(proposal) -> reason``: refuses a proposal; None accepts it.
        **sampler_args: arguments of the sampler.
    """

    def __init__(
        self,
        space: Any,
        objectives: dict[str, str],
        seed: int = 0,
        codec: Any = None,
        sampler: str = 'TPESampler',
        pruner: str | Mapping[str, Any] | None = None,
        trials: int | None = None,
        points: int | None = None,
        attempts: int = 100,
        storage: str | None = None,
        name: str = 'search',
        why_not: Callable[[Proposal], str | None] | None = None,
        **sampler_args: Any,
    ) -> None:
        super().__init__(space, objectives, seed, codec)
        optuna = self._optuna = import_optuna()
        for argument, value in (('trials', trials), ('points', points), ('attempts', attempts)):
            check_whole_number(argument, value, or_none=argument != 'attempts')
        self.attempts, self.why_not = attempts, why_not or (lambda proposal: None)
        self._sampler, self._sampler_args = sampler, sampler_args
        self._grid = (
            [answers for answers, _ in islice(combinations_of(space, points), trials)] if sampler == GRID else None
        )
        self.trials = len(self._grid) if self._grid is not None else 10 if trials is None else trials
        if pruner is not None and len(self.objectives) > 1:
            raise WrongValue(
                f'a pruner compares one objective, but there are {len(self.objectives)} '
                f'({", ".join(self.objectives)}): leave out the pruner, or all objectives but one'
            )
        opened, self._journal = opened_storage(storage)
        self.study = optuna.create_study(
            storage=opened,
            sampler=self._make_sampler(0),
            pruner=make_pruner(pruner, optuna),
            study_name=name,
            load_if_exists=True,
            directions=['maximize' if rule == 'max' else 'minimize' for rule in self.objectives.values()],
        )
        self._open: dict[int, Any] = {}  # Optuna's trials that run, by our number
        self._count = sum(_NUMBER in trial.user_attrs for trial in self.study.get_trials(deepcopy=False))

    # --- the calls of a study ----------------------------------------------------------------------------------------

    def search(self) -> Proposal | None:
        """The next trial's values."""
        reasons = []
        for _ in range(self.attempts):
            if self.is_completed:
                break
            with self._together():
                number = len(self.study.get_trials(deepcopy=False))
                if self._grid is not None:
                    self.study.enqueue_trial(self._grid[number])
                self.study.sampler = self._make_sampler(number)
                trial = self.study.ask()
                try:
                    proposal = as_proposal(self.space.draw(trial))
                    reason = self.why_not(proposal)
                except Forbidden as error:
                    proposal, reason = Proposal(), str(error)
                if reason is None:
                    trial.set_user_attr(_NUMBER, self._count)
                    self._open[self._count] = trial
                    self._count += 1
                else:
                    reasons.append(reason)
                    trial.set_user_attr(_REJECTED, reason)
                    self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            if reason is None:
                if self._journal is not None:
                    self._journal.sync()  # before the study writes the record of this trial
                return proposal
        if not reasons:
            return None
        raise WrongValue(
            f'{len(reasons)} proposals in a row were refused, the last one because {reasons[-1]}: widen the space, or '
            'loosen what is forbidden or the quota'
        )

    def update(self, record: Record) -> None:
        """Tell Optuna how a trial has ended."""
        states, trial = self._optuna.trial.TrialState, self._open.pop(record.number, None)
        if trial is None:
            return
        completed = record.status == COMPLETED and record.values is not None
        state = states.COMPLETE if completed else states.PRUNED if record.status == PRUNED else states.FAIL
        self.study.tell(trial, record.values if completed else None, state)

    def report(self, number: int, step: int, value: float) -> bool:
        """Whether the pruner ends the trial."""
        if len(self.objectives) > 1:
            return False
        trial, key = self._open[number], f'{_PRUNE} {step}'
        # A run that resumes after a kill asks again. The pruner's answer may differ by then.
        if key not in trial.user_attrs:
            with self._together():  # the pruner, too, notes that it was asked
                trial.report(value, step)
                trial.set_user_attr(key, bool(trial.should_prune()))
        return bool(trial.user_attrs[key])

    @property
    def is_completed(self) -> bool:
        """Whether all trials are proposed, or a grid is exhausted."""
        if self._grid is not None:
            return len(self.study.get_trials(deepcopy=False)) >= len(self._grid)
        return self._count >= self.trials

    # --- going on ----------------------------------------------------------------------------------------------------

    def restore(self, records: list[Record]) -> Proposal | None:
        """Return to where a study was when it wrote ``records``."""
        known = {record.number: record for record in records}
        stored = {each.user_attrs[_NUMBER]: each for each in self.study.get_trials() if _NUMBER in each.user_attrs}
        if stored.keys() not in ({*known}, {*known, len(known)}):
            raise WrongValue(
                f'the storage of the study {self.study.study_name!r} has {len(stored)} trials, but the work dir has '
                f'records of {len(known)}: they are not of the same search, or files were deleted. Take a new work dir'
            )
        waiting = None
        # What these have drawn is stored; a sequence would move on if it were asked again.
        self.study.sampler = self._optuna.samplers.RandomSampler()
        for number, frozen in stored.items():
            trial, record = self._optuna.trial.Trial(self.study, frozen._trial_id), known.get(number)
            proposal = as_proposal(self.space.draw(trial))
            is_open = frozen.state == self._optuna.trial.TrialState.RUNNING
            if record is not None:
                self._check_same(record, proposal, is_open)
            if is_open:
                self._open[number] = trial
                if record is None:
                    waiting = proposal
                elif record.has_ended:
                    self.update(record)
        return waiting

    def _check_same(self, record: Record, proposal: Proposal, is_open: bool) -> None:
        """Refuse a record of something else than what the storage has drawn: its values would become config."""
        has_values = record.hps or record.desc is not None or record.parent  # one without any changes no config
        if not (is_open or record.has_ended) or (has_values and not is_of(record, proposal)):
            raise WrongValue(
                f'the record of trial {record.number} is not of what the storage of the study '
                f'{self.study.study_name!r} has drawn: put back copies of both, or take a new work dir'
            )

    def _together(self) -> AbstractContextManager[None]:
        """In it, entries of the journal are written at once; a database has no such thing."""
        return nullcontext() if self._journal is None else self._journal.together()

    def _make_sampler(self, number: int) -> Any:
        """The sampler of Optuna's trial ``number``."""
        samplers, seed, more = self._optuna.samplers, derived_seed(self.seed, number), {}
        if self._sampler == GRID:
            return samplers.RandomSampler(seed)
        if self._sampler in SEQUENCES:  # its first trial is drawn independently
            seed, more = self.seed, {'independent_sampler': samplers.RandomSampler(seed)}
        kind = getattr(samplers, str(self._sampler), None)
        if kind is None:
            raise WrongKey(f'optuna.samplers has no {self._sampler!r}{suggestion(str(self._sampler), dir(samplers))}')
        check_keywords(self._sampler_args, kind, 'a search algorithm', OptunaAlgorithm)
        return _built(kind, {'seed': seed, **more, **self._sampler_args})


def import_optuna() -> Any:
    """The package optuna."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError(f'a search needs optuna: pip install optuna scipy cmaes ({error})') from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def opened_storage(place: str | None) -> tuple[Any, Journal | None]:
    """Optuna's storage in the journal at the path ``place``, and that journal; None for the memory."""
    if place is None:
        return None, None
    from optuna.storages import JournalStorage

    from runnerkit.search.journal import Journal

    # The study holds the lock of its work dir, so a lock that lies there is that of a process which was killed.
    for lock in Path(place).parent.glob(f'{Path(place).name}.lock*'):
        lock.unlink()
    os.makedirs(os.path.dirname(place) or '.', exist_ok=True)
    journal = Journal(place)
    return JournalStorage(journal), journal


def make_pruner(config: str | Mapping[str, Any] | None, optuna: Any) -> Any:
    """A pruner of Optuna: by its name in `PRUNERS`, by its own, or with arguments in a dict."""
    if config is None:
        return optuna.pruners.NopPruner()
    args = {'type': config} if isinstance(config, str) else dict(config) if isinstance(config, Mapping) else {}
    if not isinstance(args.get('type'), str):
        raise WrongType(f"pruner must be a name such as 'ASHA', or a dict with the key 'type', but got {config!r}")
    name = args.pop('type')
    kind = getattr(optuna.pruners, PRUNERS.get(name, name), None)
    if kind is None:
        raise WrongKey(f'there is no pruner {name!r}{suggestion(name, [*PRUNERS, *PRUNERS.values()])}')
    if args.get('wrapped_pruner') is not None:
        args['wrapped_pruner'] = make_pruner(args['wrapped_pruner'], optuna)
    check_keywords(args, kind, f'the pruner {name}')
    return _built(kind, args)


def _built(kind: Any, args: dict[str, Any]) -> Any:
    """A sampler or a pruner of Optuna's."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', category=import_optuna().exceptions.ExperimentalWarning)
        try:
            return kind(**args)
        except TypeError as error:
            raise WrongType(f'{kind.__name__} of Optuna: {error}') from None


for _name, (_sampler, _pruner, _stands_for) in NAMES.items():

    def _make(*args: Any, _sampler: str = _sampler, _pruner: str | None = _pruner, **kwargs: Any) -> OptunaAlgorithm:
        defaults = {'sampler': _sampler, **({} if _pruner is None else {'pruner': _pruner})}
        return OptunaAlgorithm(*args, **{**defaults, **kwargs})

    _make.__name__ = _make.__qualname__ = _name  # as messages call it
    SEARCH_ALGORITHMS.register_module(_name, module=_make)


def checked_algorithm(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """The section of an algorithm as a dict with ``type``."""
    found = as_type(config)
    name = found['type']
    if name in DECLINED:
        raise WrongKey(f'the search algorithm {name} is not built: {DECLINED[name]}')
    if isinstance(name, str) and SEARCH_ALGORITHMS.get(name) is None:
        names = SEARCH_ALGORITHMS.names()
        raise WrongKey(f'there is no search algorithm {name!r}{suggestion(name, names)} (there are {", ".join(names)})')
    return found


def made_algorithm(
    config: str | Mapping[str, Any],
    space: Any,
    objectives: Mapping[str, str],
    seed: int,
    optuna: Mapping[str, Any] | None = None,
) -> SearchAlgorithm:
    """The algorithm that a section means."""
    found = checked_algorithm(config)
    kind = SEARCH_ALGORITHMS.get(found['type'])
    is_of_optuna = getattr(kind, '__module__', '') == OptunaAlgorithm.__module__
    if is_of_optuna and not hasattr(space, 'draw'):
        raise WrongType(
            f'{found["type"]} chooses values, but search_space describes a network: name the values to choose '
            '(in `parameters`, or in `hyperparameters` as Vega does), or take PruneEA'
        )
    more = dict(optuna or {}) if is_of_optuna else {}
    for key in ('storage', 'name', 'why_not'):
        if is_of_optuna and key in found:
            raise WrongKey(
                f"search_algorithm.{key} is the study's own, which keeps {JOURNAL} in its work dir: remove it"
            )
    made: SearchAlgorithm = SEARCH_ALGORITHMS.build(
        {'space': space, 'objectives': dict(objectives), 'seed': seed, **more, **found}
    )
    return made
