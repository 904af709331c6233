"""The step of a pipeline that searches a space."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.flow.from_python import config_from
from runnerkit.nn import build_model
from runnerkit.registry import placed_errors
from runnerkit.search.algorithm import Proposal, SearchAlgorithm, as_proposal, as_type, checked_objectives, plain
from runnerkit.search.job import as_option, overrides_of
from runnerkit.search.optuna_algorithm import NAMES, made_algorithm
from runnerkit.search.pipe_step import PIPE_STEPS
from runnerkit.search.quota import COUNTED, Quota, counted
from runnerkit.search.space import Space, as_space, check_path
from runnerkit.search.study_step import StudyStep
from runnerkit.utils.exceptions import WrongKey, WrongValue, one_line
from runnerkit.utils.seed import preserved_rng
from runnerkit.utils.suggest import near_miss


@PIPE_STEPS.register_module()
class SearchPipeStep(StudyStep):
    """Searches a space; see `Study`."""

    KEYS = {
        'config': None,
        'objectives': None,
        'search_space': None,
        'network': 'model',
        'search_algorithm': 'TPE',
        'executor': 'Serial',
        'overrides': {},
        'quota': None,
        'seed': 0,
        'threads': 1,
    }
    REQUIRED = ('objectives', 'search_space')

    def check(self) -> None:
        """Also refuse a space that does not fit the config, and an algorithm that there is not."""
        super().check()
        objectives = checked_objectives(self.get('objectives'))
        cfg = self.base_config()._cfg_dict
        with placed_errors(self.cfg, 'objectives'):
            _refuse_misspelt(objectives, cfg)
        with placed_errors(self.cfg, 'search_space'):
            space = as_space(self.get('search_space'))
            if hasattr(space, 'check_config'):
                space.check_config(cfg)
            if isinstance(space, Space):
                for key, parameter in space.parameters.items():
                    for choice in getattr(parameter, 'choices', ()):
                        as_option(key, plain(choice))
        with placed_errors(self.cfg, 'search_algorithm'):
            algorithm = made_algorithm(self.get('search_algorithm'), space, objectives, self.get('seed'))
        if hasattr(space, 'describe'):
            with placed_errors(self.cfg, 'network'):
                check_path(self.network, cfg)
            with placed_errors(self.cfg, 'search_space'):
                self.refuse_unbuildable(algorithm, cfg)
        with placed_errors(self.cfg, 'quota'):
            self.quotas()
        self.executor()
        self.check_loggers()

    def refuse_unbuildable(self, algorithm: SearchAlgorithm, cfg: Any) -> None:
        """Refuse networks that cannot be built, as the first one that the algorithm proposes."""
        drawn = algorithm.search()
        if drawn is None:
            return
        first = as_proposal(drawn)
        import_modules_of(cfg)
        found = Config(cfg)
        found.merge_from_dict(overrides_of(first.hps, first.desc, self.network))
        with preserved_rng():
            try:
                build_model(found['model'])
            except Exception as error:
                raise WrongValue(
                    f'the network cannot be built from its description in the place of {self.network!r}, which the key '
                    f'network names: {type(error).__name__}: {one_line(error)}'
                ) from None

    def do(self) -> None:
        """Search, or go on."""
        algorithm = self.get('search_algorithm')
        quotas = self.quotas()
        for note in [] if self.translation is None else self.translation.notes:
            self.pipeline.logger.info('%s: %s', self.name, note)
        stands_for = NAMES.get(as_type(algorithm)['type'], ('', None, ''))[2]
        if stands_for:
            self.pipeline.logger.info('%s: %s', self.name, stands_for)
        why_not = partial(self.why_not, quotas) if quotas else None
        self.search(self.get('search_space'), self.get('objectives'), algorithm, why_not=why_not)

    def quotas(self) -> list[Quota]:
        """What networks may be tried."""
        given = self.get('quota')
        several = given if isinstance(given, list) else [] if given is None else [given]
        return [each if isinstance(each, Quota) else Quota(each) for each in several]

    def why_not(self, quotas: list[Quota], proposal: Proposal) -> str | None:
        """Why a proposal is not tried."""
        cfg = self.config_of(proposal)
        return next((reason for quota in quotas if (reason := quota.why_not_config(cfg)) is not None), None)

    def config_of(self, proposal: Proposal) -> Config:
        """The config of a trial."""
        chosen = overrides_of(self.changes(proposal.hps), proposal.desc, self.network)
        return config_from(self.config_file, {**self.overrides, **chosen})

    def known(self, proposal: Proposal) -> dict[str, float]:
        """``params`` and ``flops`` of the model, if they are objectives."""
        names = [name for name in COUNTED if name in self.get('objectives')]
        if not names or self.translation is not None:  # whose system counts them in the training
            return {}
        try:
            found = self.pipeline.in_its_units(counted(self.config_of(proposal)))
        except Exception as error:  # the trial is going to fail for the same reason, and says so
            self.pipeline.logger.warning('%s: the model of a trial cannot be counted: %s', self.name, error)
            return {}
        return {name: found[name] for name in names}


def _refuse_misspelt(objectives: Mapping[str, str], cfg: Mapping[str, Any]) -> None:
    """Refuse an objective that is almost the name of a metric; other scores may come from the data set."""
    metrics = (cfg.get('model') or {}).get('metrics')
    known = ['loss', *metrics] if isinstance(metrics, Mapping) and 'type' not in metrics else []
    for objective in objectives:
        name = objective.rpartition('/')[2]  # without the data set's
        if meant := near_miss(name, known):
            raise WrongKey(f'unknown score {objective!r}; did you mean {meant!r}?')
