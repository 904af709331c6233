"""Pipelines in Vega's shape: what its sections mean for the steps here."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from runnerkit.compat.vega.callbacks import UNITS as SCORE_UNITS
from runnerkit.compat.vega.config import NEEDED, config_of_step, metrics_of_step, quota_of
from runnerkit.compat.vega.metrics import MetricBase, objective_of
from runnerkit.compat.vega.networks import SearchSpace
from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.config.config_dict import ConfigDict, as_config, set_origin
from runnerkit.config.origin import at
from runnerkit.nn import METRICS
from runnerkit.search.algorithm import Proposal
from runnerkit.search.job import same
from runnerkit.search.optuna_algorithm import NAMES
from runnerkit.search.parameters import RandomSuggest, Suggest
from runnerkit.search.quota import Quota
from runnerkit.search.space import Space
from runnerkit.search.study_step import Translation
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.suggest import suggestion

#: Keys of a step that only Vega has.
MARKS = ('dataset', 'trainer', 'model')

#: Scores of which less is better where nothing says otherwise.
SMALLER = ('flops', 'params', 'latency', 'loss')

#: In what ``general.quota`` counts.
UNITS = {'flops': 1e6, 'params': 1e3}

#: Keys of ``general``; those with a text have no counterpart, and the text says what there is instead.
GENERAL: dict[str, str] = {
    'backend': '',
    'task': '',
    'quota': '',
    'parallel_search': '',
    'parallel_fully_train': '',
    'worker': '',
    'logger': 'the log has all that happens',
    'devices_per_trainer': 'a trial has one device',
    'skip_trainer_error': 'a failed trial is recorded, and the search continues',
    'clean_worker_dir': 'the work dirs of trials stay, since their checkpoints are used',
    'cluster': "write executor=dict(type='Ray', …) in the step",
    'requires': 'install packages before',
}

#: Keys of ``policy`` that have a counterpart, by kind of algorithm.
TRIALS = ('num_sample', 'num_samples')
PRUNER = {'eta': 'reduction_factor', 'min_epochs': 'min_resource'}

#: Keys of ``policy`` of Optuna's algorithms that have no counterpart.
ELSEWHERE = {
    'total_epochs': 'write num_samples: how many trials there are',
    'repeat_times': 'write a larger num_samples',
    'tuner': "BohbHpo draws with Optuna's TPE",
    'warmup_count': "Optuna's samplers have arguments for it, such as n_startup_trials",
    'random_samples': "Optuna's samplers begin at random by themselves",
}


def is_vega(section: Mapping[str, Any]) -> bool:
    """Whether the section of a step is in Vega's shape."""
    return 'config' not in section and any(key in section for key in MARKS)


class VegaPipeline:
    """Reads the pipeline of a config for sections in Vega's shape; see `runnerkit.search.pipeline`.

    Args:
        cfg: the config; references in the sections of the steps are replaced.
        names: of the steps.

    Attributes:
        work_dir: the folder that ``general.task`` names; None if it does not.
        steps: those in this shape that were translated, by name.

    Raises:
        KeyError: a reference names no section.
        TypeError: it names something else.
    """

    def __init__(self, cfg: Config, names: list[str]) -> None:
        self.general: Any = cfg.get('general') or {}
        self.work_dir = general_work_dir(self.general)
        self.steps: dict[str, VegaStep] = {}
        with_references(cfg, names)

    def translate(self, name: str, section: Mapping[str, Any]) -> Translation | None:
        """The section of the next step in the shape of this package; None if it is not in Vega's.

        Raises:
            KeyError: a key is unknown, or missing.
            TypeError: a part has another shape.
            ValueError: a part has no counterpart here.
        """
        if not is_vega(section):
            return None
        before = next(reversed(self.steps.values()), None)
        step = self.steps[name] = VegaStep(name, section, self.general, before)
        return Translation(step.settings(), step.overrides_of_values, step.notes, SCORE_UNITS)


def with_references(cfg: Any, names: list[str]) -> None:
    """Replace ``ref: nas.trainer`` in the steps' sections by that section; the other keys are merged into it.

    Raises:
        KeyError: there is no such section.
        TypeError: what is there is no section.
    """
    for name in names:
        for key, part in list(cfg[name].items()):
            if not isinstance(part, Mapping) or 'ref' not in part:
                continue
            found: Any = getattr(cfg, '_cfg_dict', cfg)
            for each in str(part['ref']).split('.'):
                if not isinstance(found, Mapping) or each not in found:
                    where = at(cfg, name, key, 'ref')
                    raise WrongKey(f'{name}.{key}: there is no section {part["ref"]!r}{where}')
                found = found[each]
            if not isinstance(found, Mapping):
                raise WrongType(f'{name}.{key}: ref must name a section, but {part["ref"]} is {found!r}')
            cfg[name][key] = {**copy.deepcopy(found), **{each: part[each] for each in part if each != 'ref'}}


class VegaStep:
    """A step in Vega's shape.

    Args:
        name: of the step.
        section: of the config.
        general: the section of that name.
        before: the step before in this shape, which gives what this one leaves out.

    Attributes:
        section: with what was left out.
        training: what of it is about its trainings.
        notes: what has no counterpart, for the log.
    """

    def __init__(
        self, name: str, section: Mapping[str, Any], general: Mapping[str, Any], before: VegaStep | None = None
    ) -> None:
        self.name, self.general, self.notes = name, general, checked_general(general)
        given: Any = section
        self.section: Any = copy.copy(given)
        if before is not None:
            for key in NEEDED:
                if key not in self.section and key in before.section:
                    self.section[key] = before.section[key]
        kept = {key: value for key, value in self.section.items() if key not in _OURS}
        training: ConfigDict = as_config(kept)
        set_origin(training, getattr(section, '_origin_', None))
        self.training = training

    @cached_property
    def config(self) -> ConfigDict:
        """The config of its trainings."""
        return config_of_step(self.training)

    @property
    def seed(self) -> int:
        """Of its search."""
        found: int = self.section.get('seed', (self.section.get('trainer') or {}).get('seed', 0))
        return found

    def settings(self) -> dict[str, Any]:
        """The section as `SearchPipeStep` and `TrainPipeStep` read it."""
        found: dict[str, Any] = {key: self.section[key] for key in _OURS if key in self.section}
        found |= {'config': self.config, 'network': 'model.model'}
        found['seed'] = self.seed
        executor = self.executor()
        if executor is not None:
            found.setdefault('executor', executor)
        if self.section['pipe_step'].get('type') == 'SearchPipeStep':
            given = self.section.get('search_algorithm')
            if not isinstance(given, Mapping):
                raise WrongKey(f'{self.name} needs search_algorithm: a type, with a policy')
            found['search_algorithm'], overrides = self.algorithm(given)
            found['search_space'] = None if self.section.get('search_space') is None else self.space()
            found['quota'] = [*([found['quota']] if 'quota' in found else []), *self.quotas()] or None
            found['overrides'] = {**overrides, **found.get('overrides', {})}
            found.setdefault('objectives', self.objectives(given))
        return found

    def executor(self) -> dict[str, Any] | None:
        """Where the trials run, as ``general`` says; None if it does not."""
        key = 'parallel_search' if 'search_algorithm' in self.section else 'parallel_fully_train'
        limit = (self.general.get('worker') or {}).get('timeout')
        if not self.general.get(key):
            if limit is not None:
                self.notes.append(f'general.worker.timeout has no effect without general.{key}: true')
            return None
        import torch

        count = torch.cuda.device_count()
        found: dict[str, Any] = {'type': 'Local', 'workers': max(count, 1) if count else 2}
        if count > 1:
            found['devices'] = list(range(count))
        return found if limit is None else {**found, 'limit': 3600.0 * limit}

    def algorithm(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The search algorithm, and what it changes in the config of the trials."""
        given = {key: value for key, value in given.items() if key != 'objective_keys'}
        policy, rest = dict(given.get('policy') or {}), {key: given[key] for key in given if key != 'policy'}
        name = rest.get('type')
        if not isinstance(name, str) or name not in NAMES:
            return given, {}
        rest.pop('codec', None)
        overrides: dict[str, Any] = {}
        pruner: dict[str, Any] = {}
        for key, value in policy.items():
            if key in TRIALS:
                rest['trials'] = value
            elif key == 'max_epochs':
                overrides['runner.max_epochs'] = value
            elif key in PRUNER and NAMES[name][1] is not None:
                pruner[PRUNER[key]] = value
            elif key in ELSEWHERE:
                self.notes.append(f'search_algorithm.policy.{key} has no counterpart: {ELSEWHERE[key]}')
            elif key == 'num_individual':
                rest['population_size'] = value
                rest['trials'] = value * policy.get('num_generation', 1)
            elif key != 'num_generation':
                known = (*TRIALS, 'max_epochs', *PRUNER, *ELSEWHERE, 'num_individual', 'num_generation')
                where = at(self.section, 'search_algorithm', 'policy', key)
                raise WrongKey(f'search_algorithm.policy has no key {key!r}{suggestion(str(key), known)}{where}')
        if pruner:
            rest['pruner'] = {'type': NAMES[name][1], **pruner}
        return rest, overrides

    def objectives(self, algorithm: Mapping[str, Any]) -> dict[str, str]:
        """The scores that count: ``objective_keys``, by default the first metric; of a metric's several scores, the
        first."""
        metrics = metrics_of_step(self.training)
        given = algorithm.get('objective_keys') or next(iter(metrics), None)
        if given is None:
            raise WrongKey(f'{self.name}: search_algorithm.objective_keys must name a score, since there is no metric')
        import_modules_of(self.training)
        found = {}
        for name in [given] if isinstance(given, str) else list(given):
            if name in metrics:
                metric = METRICS.build(dict(metrics[name]))
                found[_first_score(name, metric)] = objective_of(metric).lower()
            else:
                found[name] = 'min' if name in SMALLER else 'max'
        return found

    def quotas(self) -> list[Quota]:
        """What ``general.quota`` and ``trainer.limits`` allow."""
        found = []
        if self.general.get('quota'):
            found.append(Quota(self.general['quota'], units=UNITS))
        text = quota_of(self.training)
        return found if text is None else [*found, Quota(text)]

    def space(self) -> VegaSpace | SearchSpace:
        """What is searched: values, by the keys of the config here; or, where there are none, networks."""
        if 'hyperparameters' not in self.section['search_space']:
            network = self.config['model']['model']
            return SearchSpace(
                {key: value for key, value in network.items() if 'modules' not in network or key != 'type'}
            )
        return VegaSpace(Space.of(self.section['search_space']), self.changes)

    def changes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a space, by Vega's keys, as changes of the training's config.

        Raises:
            KeyError: a key leads nowhere.
            ValueError: the change removes keys of the config.
        """
        before = _by_dotted_key(self.config)
        cfg = Config(copy.deepcopy(dict(self.training)))
        cfg.merge_from_dict({self.place_of(key): value for key, value in values.items()})
        after = _by_dotted_key(config_of_step(cfg._cfg_dict))
        gone = [key for key in before if key not in after]
        if gone:
            keys = ', '.join(map(str, values))
            raise WrongValue(f'{keys} would take {gone[0]} out of the config, which no command line can')
        return {key: value for key, value in after.items() if key not in before or not same(before[key], value)}

    def overrides_of_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values as changes of the training's config; keys of that config itself stay as they are."""
        network = self.network()
        names = {key: key.partition('.')[0] for key in values}
        rest = {key: values[key] for key, name in names.items() if name in self.config and name not in network}
        own = {key: value for key, value in values.items() if key not in rest}
        return {**(self.changes(own) if own else {}), **rest}

    def network(self) -> Any:
        """The section that describes the network."""
        model = self.section.get('model')
        return self.section['search_space'] if model is None else model.get('model_desc', model)

    def place_of(self, key: str) -> str:
        """Where a key of the space lies in the section of the step."""
        first, _, rest = key.removeprefix('network.').partition('.')
        if first == 'trainer':
            spelled = self.section['trainer']
            name, dot, deeper = rest.partition('.')
            for one, other in (('optimizer', 'optim'), ('optim', 'optimizer')):
                if name == one and one not in spelled and other in spelled:
                    rest = f'{other}{dot}{deeper}'
            return f'trainer.{rest}'
        if first == 'dataset':
            part = rest.partition('.')[0]
            return key if part in ('common', 'train', 'val', 'test') else f'dataset.train.{rest}'
        model = self.section.get('model')
        place = 'search_space' if model is None else 'model.model_desc' if 'model_desc' in model else 'model'
        network = self.network()
        if rest and first not in network:
            known = ('trainer', 'dataset', *map(str, network))
            raise WrongKey(f'the key {key!r} leads nowhere in the step{suggestion(first, known)}')
        return f'{place}.{first}.{rest}' if rest else f'{place}.{first}'


class VegaSpace:
    """A space whose keys are those of Vega's sections.

    Args:
        space: by Vega's keys.
        changes: of the config, for values by these keys; it refuses those that lead nowhere.
    """

    def __init__(self, space: Space, changes: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        self.space, self.changes = space, changes

    def __repr__(self) -> str:
        return f'VegaSpace({self.space!r})'

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by Vega's keys."""
        return self.space.parameters

    def check_config(self, cfg: Any) -> None:
        """Refuse keys that lead nowhere, also of parameters that exist only under conditions.

        Args:
            cfg: not used: `changes` knows the config.

        Raises:
            Exception: what the changes of a wrong key raise.
        """
        suggest = RandomSuggest(random.Random(0))
        for key, parameter in self.space.parameters.items():
            self.changes({key: parameter.draw(key, suggest)})

    def draw(self, suggest: Suggest) -> Proposal:
        """Draw values; see `Space.draw`."""
        return Proposal(self.space.draw(suggest))


def checked_general(general: Mapping[str, Any]) -> list[str]:
    """What of ``general`` has no counterpart.

    Raises:
        KeyError: a key is not known.
        ValueError: the backend is not PyTorch.
    """
    if not isinstance(general, Mapping):
        raise WrongType(f'general must be a dict, but got {general!r}')
    for key in general:
        if key not in GENERAL:
            raise WrongKey(f'general has no key {key!r}{suggestion(str(key), GENERAL)}{at(general, key)}')
    if general.get('backend', 'pytorch') not in ('pytorch', 'p'):
        raise WrongValue(f'general.backend must be pytorch, but got {general["backend"]!r}')
    return [f'general.{key} has no counterpart: {GENERAL[key]}' for key in general if GENERAL[key]]


def general_work_dir(general: Mapping[str, Any]) -> str | None:
    """The folder that ``general.task`` names; None if it does not."""
    task = general.get('task') or {}
    if not task.get('local_base_path') and not task.get('task_id'):
        return None
    return os.path.join(task.get('local_base_path') or 'tasks', str(task.get('task_id') or ''))


#: Keys of a step here that may accompany Vega's.
_OURS = ('pipe_step', 'objectives', 'executor', 'overrides', 'quota', 'seed', 'threads', 'source', 'nums',
         'repeats', 'load_weights', 'hps')  # fmt: skip


def _first_score(name: str, metric: Any) -> str:
    """The name of a metric's score, or of the first of several; ``name`` is that of the metric in the config."""
    if not isinstance(metric, MetricBase):
        return name
    try:
        value = metric.summary()
    except Exception:  # one that cannot be summed up before a batch; a metric with several scores rarely is
        return name
    return str(next(iter(value), name)) if isinstance(value, Mapping) else name


def _by_dotted_key(value: Any, key: str = '') -> dict[str, Any]:
    """The values by dotted key; also those in lists of dicts, whose items are numbered."""
    if isinstance(value, Mapping):
        parts = {str(name): part for name, part in value.items()}
    elif isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value):
        parts = {str(index): part for index, part in enumerate(value)}
    else:
        return {key: value}
    found: dict[str, Any] = {}
    for name, part in parts.items():
        found |= _by_dotted_key(part, f'{key}.{name}'.lstrip('.'))
    return found
