"""The step of a pipeline that trains what an earlier one has found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runnerkit.search.algorithm import Proposal, SearchAlgorithm, checked_objectives
from runnerkit.search.pipe_step import PIPE_STEPS, NothingUsable
from runnerkit.search.quota import COUNTED
from runnerkit.search.record import Record
from runnerkit.search.study_step import StudyStep
from runnerkit.utils.exceptions import WrongKey, WrongType
from runnerkit.utils.numbers import check_whole_number


class Listed(SearchAlgorithm):
    """Tries a list of proposals, one after another.

    Args:
        proposals: the list.
        objectives: the scores that count.
    """

    def __init__(self, proposals: list[Proposal], objectives: dict[str, str]) -> None:
        super().__init__(None, objectives)
        self.proposals, self._next = proposals, 0

    def search(self) -> Proposal:
        """The next one."""
        self._next += 1
        return self.proposals[self._next - 1]

    @property
    def is_completed(self) -> bool:
        """Whether all have been proposed."""
        return self._next >= len(self.proposals)


@PIPE_STEPS.register_module()
class TrainPipeStep(StudyStep):
    """Trains the best of an earlier step with other settings: more epochs, several seeds."""

    KEYS = {
        'config': None,
        'source': None,
        'nums': None,
        'network': None,
        'hps': None,
        'objectives': None,
        'executor': 'Serial',
        'overrides': {},
        'load_weights': False,
        'repeats': 1,
        'seed': 0,
        'threads': 1,
    }

    def check(self) -> None:
        """Also refuse a config that there is not."""
        super().check()
        for key, least in (('nums', 1), ('repeats', 1)):
            check_whole_number(key, self.get(key), least, or_none=True)
        if not isinstance(self.get('load_weights'), bool):
            raise WrongType(f'load_weights must be True or False, but got {self.get("load_weights")!r}')
        hps = self.get('hps')
        several = [hps] if isinstance(hps, Mapping) else hps
        if hps is not None and not (isinstance(several, list) and all(isinstance(each, Mapping) for each in several)):
            raise WrongType(f"hps must be a dict such as {{'optimizer.lr': 0.1}}, or a list of them, but got {hps!r}")
        if hps is None:
            self.source()
        elif self.get('config') is None or self.get('objectives') is None:
            raise WrongKey('hps trains given values of a config: config and objectives are needed, too')
        self.check_loggers()
        self.executor()

    def do(self) -> None:
        """Train, or go on."""
        proposals = [each for each in self.proposals() for _ in range(self.get('repeats'))]
        objectives = self.objectives()
        # In the place of a space, for the study to notice when others are to be trained.
        sources = [self.record_of(each) for each in proposals]
        tried = [
            (each.hps, each.desc, each.source, source.seed if source is not None and each.parent else None)
            for each, source in zip(proposals, sources, strict=True)
        ]
        self.search(tried, objectives, Listed(proposals, objectives))

    @property
    def config_file(self) -> str:
        """That of the section, else that of the step whose models are trained."""
        if self.cfg.get('config') is not None:
            return super().config_file
        source = self.source()
        if not isinstance(source, StudyStep):
            raise WrongKey(f'config is needed: the step {source.name!r} has none that its records would belong to')
        return source.config_file

    @property
    def overrides(self) -> dict[str, Any]:
        """Those of the step whose models are trained, and the section's own."""
        source = None if self.cfg.get('config') is not None else self.source()
        return {**(source.overrides if isinstance(source, StudyStep) else {}), **super().overrides}

    @property
    def network(self) -> str:
        """That of the section, else that of the step whose models are trained."""
        if self.cfg.get('network') is not None:
            return super().network
        source = None if self.get('hps') is not None else self.source()
        return source.network if isinstance(source, StudyStep) else 'model'

    def changes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """As this step's section means them, else as that of the step whose models are trained does."""
        source = None if self.translation is not None or self.get('hps') is not None else self.source()
        return source.changes(values) if isinstance(source, StudyStep) else super().changes(values)

    def objectives(self) -> dict[str, str]:
        """What counts: by default what has counted in the search."""
        given = self.get('objectives')
        if given is not None:
            return checked_objectives(given)
        return dict(self.front()[0].objectives)

    def front(self) -> list[Record]:
        """The records to train: the front, or, of one objective, the best ``nums``."""
        source = self.source()
        found = self.report.choice(source.name, self.get('nums'))
        if not found:
            raise NothingUsable(
                f'{self.name}: the step {source.name} has no completed trial, so there is no model to train'
            )
        return found

    def proposals(self) -> list[Proposal]:
        """What to train."""
        given = self.get('hps')
        if given is not None:
            several = [given] if isinstance(given, Mapping) else list(given)
            return [Proposal(hps=dict(each)) for each in several]
        loads, records = self.get('load_weights'), self.front()
        bare = [record.uid for record in records if record.weights_file is None]
        if loads and bare:
            raise NothingUsable(
                f'{self.name}: load_weights begins with the weights of the trials, but {", ".join(bare)} have no '
                'checkpoint of the moment at which they were scored'
            )
        return [
            Proposal(record.hps, record.desc, record.weights_file if loads else None, record.uid) for record in records
        ]

    def record_of(self, proposal: Proposal) -> Record | None:
        """The record of an earlier step that a proposal continues."""
        return next((each for each in self.report.all_records if each.uid == proposal.source), None)

    def known(self, proposal: Proposal) -> dict[str, float]:
        """What was counted of the model before."""
        source = self.record_of(proposal)
        return {} if source is None else {key: source.performance[key] for key in COUNTED if key in source.performance}
