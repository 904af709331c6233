"""The steps of a pipeline that train: a search, and the training of what it has found."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from operator import methodcaller
from typing import Any

import torch

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config import Config, refuse_unread_keys
from runnerkit.config.config import import_modules_of
from runnerkit.config.findings import PreflightError
from runnerkit.fileio.paths import shown
from runnerkit.flow.from_python import config_from
from runnerkit.nn import build_model
from runnerkit.registry import placed_errors
from runnerkit.search.algorithm import Proposal, SearchAlgorithm, plain
from runnerkit.search.benchmark import counted
from runnerkit.search.executors import EXECUTORS, Executor
from runnerkit.search.job import as_option, flattened, overrides_of
from runnerkit.search.networks import SearchSpace
from runnerkit.search.optuna_algorithm import NAMES
from runnerkit.search.pictures import draw_search
from runnerkit.search.pipe_step import PIPE_STEPS, NothingUsable, PipeStep
from runnerkit.search.prune_ea import PruneEA
from runnerkit.search.quota import COUNTED, Quota
from runnerkit.search.record import FAILED, PRUNED, Record
from runnerkit.search.space import Space, check_path
from runnerkit.search.study import Study, as_space, as_type, checked_objectives, made_algorithm
from runnerkit.search.vega_steps import VegaSpace
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue, one_line
from runnerkit.utils.logging import shortened
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import preserved_rng
from runnerkit.utils.suggest import suggestion

#: How many of a step's failed trials a message names.
_NAMED = 5


class StudyStep(PipeStep):
    """A step whose work is a `Study`."""

    study: Study | None = None

    @property
    def config_file(self) -> str:
        """The config file of its trials; of a section in Vega's shape, it is written into the step's folder."""
        if self.vega is not None:
            written = self.work_dir / 'config.py'
            text = Config(self.vega.config).pretty_text.encode()
            # Trials that run read it, so that it is written only if it differs, and at once.
            if not written.exists() or written.read_bytes() != text:
                write_atomically(written, methodcaller('write', text))
            return str(written)
        given = self.get('config')
        if given is None:
            raise WrongKey(f"{self.name} needs the key 'config'")
        if not isinstance(given, (str, os.PathLike)):
            raise WrongType(f'config must be the path of a config file, but got {given!r}')
        path = os.path.abspath(given)
        if not os.path.isfile(path):
            folder = os.path.dirname(path)
            names = os.listdir(folder) if os.path.isdir(folder) else []
            raise FileNotFoundError(
                f'config: there is no file {os.fspath(given)} (looked for from {os.getcwd()})'
                f'{suggestion(os.path.basename(path), names)}; a file that lies beside this config is '
                f"'{{{{ fileDirname }}}}/{os.path.basename(path)}'"
            )
        return path

    def content(self) -> Any:
        """The config of its trials; a section in Vega's shape has all of it."""
        if self.vega is not None:
            return None
        return Config.fromfile(self.config_file, import_custom_modules=False)._cfg_dict

    @property
    def network(self) -> str:
        """The dotted key of the network in the config."""
        if self.vega is not None:
            return 'model.model'
        return str(self.get('network'))

    @property
    def overrides(self) -> dict[str, Any]:
        """Changes of the config for all trials, by dotted key."""
        given = self.get('overrides')
        if not isinstance(given, Mapping):
            raise WrongType(f"overrides must be a dict such as {{'runner.max_epochs': 2}}, but got {given!r}")
        found: dict[str, Any] = {}
        for key, value in given.items():
            found |= flattened(str(key), value)
        return found

    def check(self) -> None:
        """Also refuse values of a wrong type, and those that no command line can repeat."""
        super().check()
        for key, least in (('seed', 0), ('threads', 1)):
            check_whole_number(key, self.get(key), least)
        for key, value in self.overrides.items():
            as_option(key, plain(value))

    def stop(self, number: int) -> None:
        """Stop the study."""
        if self.study is not None:
            self.study.stop(number)

    def base_config(self) -> Config:
        """The config of the trials, before anything of them is drawn."""
        cfg = config_from(self.config_file if self.vega is None else dict(self.vega.config), self.overrides)
        if 'pipeline' in cfg and 'model' not in cfg:
            raise WrongKey(f'config: {self.get("config")} is a search itself; give the config of one training')
        try:
            refuse_unread_keys(cfg)
        except PreflightError as error:
            # What a section overrides is given to the run as after --cfg-options; nobody has typed that here.
            raise WrongKey(f'{self.name}: {str(error).replace("(--cfg-options)", "(overrides)")}') from None
        return cfg

    def executor(self) -> Any:
        """Where the trials run."""
        found = as_type(self.get('executor'))
        if self.pipeline.workers is not None:
            kind = 'Local' if found['type'] == 'Serial' else found['type']
            found = {**found, 'type': kind, 'workers': self.pipeline.workers}
            found.pop('quiet', None)
        with placed_errors(self.cfg, 'executor'):
            built = EXECUTORS.build(found)
            if not isinstance(built, Executor):
                raise WrongType(f'executor must be an Executor, but {found["type"]} gives a {type(built).__name__}')
            devices = getattr(built, 'devices', None)
            if devices and not torch.cuda.is_available():
                raise WrongValue(f'devices is {devices!r}, but there is no GPU here: leave it out, to train on the CPU')
        return built

    def search(self, space: Any, objectives: Mapping[str, str], algorithm: Any, **more: Any) -> None:
        """Run a study.

        Args:
            space: see `Study`, as the next two.
            objectives: the scores that count.
            algorithm: what proposes trials.
            more: further arguments of `Study`.

        Raises:
            NothingUsable: no trial has completed.
        """
        study = Study(
            self.config_file,
            space,
            objectives,
            self.work_dir,
            algorithm,
            self.executor(),
            seed=self.get('seed'),
            name=self.name,
            device=self.pipeline.device,
            threads=self.get('threads'),
            overrides=self.overrides,
            network=self.network,
            report=self.report,
            on_change=self.pipeline.changed,
            known=self.known,
            **more,
        )
        self.study, self.slots = study, study.executor.slots
        if self.pipeline.stop_signal is not None:  # it came while the study was being made
            study.stop(self.pipeline.stop_signal)
        try:
            study.run()
        finally:
            self.study = None
        if study.stop_signal is not None:
            self.pipeline.stop_signal = study.stop_signal
            return
        self.finish(study)
        if not self.report.pareto_front(self.name):
            raise NothingUsable(self.why_nothing())

    def known(self, proposal: Proposal) -> dict[str, float]:
        """Scores of a proposal that are known before it is trained."""
        return {}

    def finish(self, study: Study) -> None:
        """Called when all trials have ended."""

    def why_nothing(self) -> str:
        """Why no trial can be used."""
        records = self.report.of(self.name)
        failed, pruned = ([each for each in records if each.status == status] for status in (FAILED, PRUNED))
        counts = [f'{len(group)} {word}' for group, word in ((failed, 'have failed'), (pruned, 'were pruned')) if group]
        said = f'. Trial {failed[0].number}: {failed[0].message}' if failed else ''
        way_out = f'. Ended trials are not repeated: to begin anew, remove {shown(self.work_dir)}' if records else ''
        return (
            f'{self.name}: none of {len(records)} trials has completed ({", ".join(counts) or "there was none"})'
            f'{said}{way_out}'
        )


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
        'storage': None,
    }
    REQUIRED = ('objectives', 'search_space')

    def check(self) -> None:
        """Also refuse a space that does not fit the config, and an algorithm that there is not."""
        super().check()
        objectives = checked_objectives(self.get('objectives'))
        cfg = self.base_config()._cfg_dict
        with placed_errors(self.cfg, 'search_space'):
            space = self.space()
            if isinstance(space, Space):
                space.check_config(cfg)
                for key, parameter in space.parameters.items():
                    for choice in getattr(parameter, 'choices', ()):
                        as_option(key, plain(choice))
            elif isinstance(space, VegaSpace):
                space.check_keys()
        with placed_errors(self.cfg, 'search_algorithm'):
            algorithm = made_algorithm(self.get('search_algorithm'), space, objectives, self.get('seed'))
            self.total = getattr(algorithm, 'trials', None)
        if isinstance(space, SearchSpace):
            with placed_errors(self.cfg, 'network'):
                check_path(self.network, cfg)
            with placed_errors(self.cfg, 'search_space'):
                self.refuse_unbuildable(algorithm, cfg)
        with placed_errors(self.cfg, 'quota'):
            self.quotas()
        storage = self.get('storage')
        if storage is not None and (not isinstance(storage, str) or '://' not in storage):
            raise WrongValue(
                "storage must be the URL of a database, such as 'sqlite:///study.db', or None for a journal in the "
                f'work dir, but got {storage!r}'
            )
        self.executor()

    def refuse_unbuildable(self, algorithm: SearchAlgorithm, cfg: Any) -> None:
        """Refuse a network of which no pruned one can be built, as the first one cannot.

        Raises:
            ValueError: it cannot be built.
        """
        first = algorithm.search() if isinstance(algorithm, PruneEA) else None
        if first is None:
            return
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
        for note in [] if self.vega is None else self.vega.notes:
            self.pipeline.logger.info('%s: %s', self.name, note)
        stands_for = NAMES.get(as_type(algorithm)['type'], ('', None, ''))[2]
        if stands_for:
            self.pipeline.logger.info('%s: %s', self.name, stands_for)
        why_not = partial(self.why_not, quotas) if quotas else None
        self.search(self.space(), self.get('objectives'), algorithm, storage=self.get('storage'), why_not=why_not)

    def finish(self, study: Study) -> None:
        """Draw the pictures of the search."""
        draw_search(self.report.of(self.name), self.work_dir, study.algorithm, self.pipeline.logger)

    def space(self) -> Any:
        """What is searched: values, or networks."""
        return as_space(self.get('search_space')) if self.vega is None else self.vega.space()

    def quotas(self) -> list[Quota]:
        """What networks may be tried."""
        text = self.get('quota')
        own = [] if text is None else [Quota(text)]
        return own if self.vega is None else own + self.vega.quotas()

    def why_not(self, quotas: list[Quota], proposal: Proposal) -> str | None:
        """Why a proposal is not tried."""
        cfg = self.config_of(proposal)
        return next((reason for quota in quotas if (reason := quota.why_not_config(cfg)) is not None), None)

    def config_of(self, proposal: Proposal) -> Config:
        """The config of a trial."""
        return config_from(
            self.config_file, {**self.overrides, **overrides_of(proposal.hps, proposal.desc, self.network)}
        )

    def known(self, proposal: Proposal) -> dict[str, float]:
        """``params`` and ``flops`` of the model, if they are objectives."""
        names = [name for name in COUNTED if name in self.get('objectives')]
        if not names or self.vega is not None:  # Vega's callback ModelStatistics counts, in other units
            return {}

        try:
            found = counted(self.config_of(proposal))
        except Exception as error:  # the trial is going to fail for the same reason, and says so
            self.pipeline.logger.warning('%s: the model of a trial cannot be counted: %s', self.name, error)
            return {}
        return {name: found[name] for name in names}


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
        self.base_config()
        self.executor()

    def do(self) -> None:
        """Train, or go on."""
        proposals = [each for each in self.proposals() for _ in range(self.get('repeats'))]
        self.total = len(proposals)
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
        if self.cfg.get('config') is not None or self.vega is not None:
            return super().config_file
        source = self.source()
        if not isinstance(source, StudyStep):
            raise WrongKey(f'config is needed: the step {source.name!r} has none that its records would belong to')
        return source.config_file

    @property
    def overrides(self) -> dict[str, Any]:
        """Those of the step whose models are trained, and the section's own."""
        own = self.cfg.get('config') is not None or self.vega is not None
        source = None if own else self.source()
        return {**(source.overrides if isinstance(source, StudyStep) else {}), **super().overrides}

    @property
    def network(self) -> str:
        """That of the section, else that of the step whose models are trained."""
        if self.vega is not None or self.cfg.get('network') is not None:
            return super().network
        source = None if self.get('hps') is not None else self.source()
        return source.network if isinstance(source, StudyStep) else 'model'

    def objectives(self) -> dict[str, str]:
        """What counts: by default what has counted in the search."""
        given = self.get('objectives')
        if given is not None:
            return checked_objectives(given)
        return dict(self.front()[0].objectives)

    def front(self) -> list[Record]:
        """The records to train: the front, or, of one objective, the best ``nums``.

        Raises:
            NothingUsable: there is none.
        """
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
        loads = self.get('load_weights')
        return [
            Proposal(record.hps, record.desc, record.weights_file if loads else None, record.uid)
            for record in self.front()
        ]

    def record_of(self, proposal: Proposal) -> Record | None:
        """The record of an earlier step that a proposal goes on with."""
        return next((each for each in self.report.all_records if each.uid == proposal.source), None)

    def known(self, proposal: Proposal) -> dict[str, float]:
        """What was counted of the model before."""
        source = self.record_of(proposal)
        return {} if source is None else {key: source.performance[key] for key in COUNTED if key in source.performance}


def failures(records: list[Record]) -> str:
    """The trials that have failed, in a few words: ``nas 2, 5``; empty if none has."""
    by_step: dict[str, list[str]] = {}
    for record in records:
        if record.status == FAILED:
            by_step.setdefault(record.step, []).append(str(record.number))
    return '; '.join(f'{step} {shortened(numbers, _NAMED)}' for step, numbers in by_step.items())
