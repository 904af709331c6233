"""A step of a config in Vega's shape (``dataset``, ``trainer``, ``model`` or ``search_space``) as a config of a run.

The names that have moved between Vega's versions (``optim`` and ``optimizer``, arguments with and without ``params``)
mean the same. A step may also have sections of runnerkit, which are copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from runnerkit.config.config_dict import ConfigDict, as_config, set_origin
from runnerkit.config.known_keys import TOP
from runnerkit.config.origin import Origin, at, dotted
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.suggest import suggestion

#: The sections of a step. Those of the search itself mean nothing to one training.
STEP = ('pipe_step', 'dataset', 'model', 'search_space', 'search_algorithm', 'trainer', 'evaluator')

#: What a training needs, and a step may leave to the step before.
NEEDED = ('dataset', 'trainer', 'model', 'search_space')

#: The keys of a trainer that have a counterpart, and their defaults; None for none. A callback reads them as
#: ``self.trainer.config``.
TRAINER: dict[str, Any] = {
    'type': 'Trainer',
    'epochs': 1,
    'seed': 0,
    'optimizer': None,
    'lr_scheduler': None,
    'loss': {'type': 'CrossEntropyLoss'},
    'metric': {'type': 'accuracy'},
    'report_freq': 10,
    'with_valid': True,
    'valid_interval': 1,
    'perfs_cmp_key': None,
    'perfs_cmp_mode': None,
    'grad_clip': None,
    'use_amp': False,
    'max_train_steps': None,
    'init_model_file': None,
    'limits': None,
    'callbacks': None,
    'disable_callbacks': None,
    'calc_params_each_epoch': False,
}

#: Other spellings of these keys.
SPELLINGS = {
    'optim': 'optimizer',
    'metrics': 'metric',
    'train_report_steps': 'report_freq',
}

#: Keys of a trainer that have no counterpart, and what to do instead.
ELSEWHERE = {
    'distributed': 'start several processes with torchrun and --launcher pytorch',
    'syncbn': 'use torch.nn.SyncBatchNorm in the model',
    'report_on_valid': 'the scores of each validation are reported',
    'is_detection_trainer': 'a callback may write it into logs',
    'mixup': 'mix the samples in a callback with make_batch',
    'with_train': 'evaluate with `runnerkit test`',
    'save_checkpoint': 'write checkpoint_config: ~ in the step for no checkpoints',
    'load_checkpoint': 'resume with --auto-resume',
    'enable_callbacks': 'name the callbacks in callbacks, and leave out others with disable_callbacks',
    'hps_file': 'change single values with --cfg-options',
    'hps_folder': 'change single values with --cfg-options',
    'script': 'a trial is a training by config here',
    'multi_task': 'write a model with one head a task',
}

#: The keys around the description of a network; those with a text have no counterpart.
MODEL = {
    'model_desc': '',
    'pretrained_model_file': '',
    'model_desc_file': 'write the description as model.model_desc',
    'models_folder': 'TrainPipeStep trains what the step before has found',
    'head': 'a network says which weights it takes',
}

#: Vega's default callbacks that are also callbacks here.
DEFAULT_CALLBACKS = ('ModelStatistics',)

#: The others: what they do is done without a callback, and so is left out otherwise.
STANDARD = {
    'ModelBuilder': 'the network is built from the section of the model',
    'RuntimeCallback': 'the log tells the time that is left',
    'MetricsEvaluator': 'with_valid: false leaves out the validation',
    'ModelCheckpoint': 'checkpoint_config: ~ in the step leaves out checkpoints',
    'PerformanceSaver': 'the scores are in the log, and in the report of a search',
    'LearningRateScheduler': 'without lr_scheduler there is none',
    'ProgressLogger': 'log_config in the step says what is logged',
    'ReportCallback': 'the scores of each validation are reported',
    'SearchAlgorithmCallbacks': 'register the callbacks by name',
    'DdpTorch': ELSEWHERE['distributed'],
    'Horovod': ELSEWHERE['distributed'],
    'Hccl': ELSEWHERE['distributed'],
}

#: What builds the network of a description with modules, each of which may be of a family.
NETWORK = 'runnerkit.compat.vega.networks.build_network'

#: What builds a data set, and tells it its mode.
DATASET = 'runnerkit.compat.vega.datasets.dataset_of_mode'

#: The parts of a data set's section, and the keys that are no arguments of its class.
SPLITS = ('train', 'val', 'test')
LOADER = ('batch_size', 'num_workers', 'shuffle', 'drop_last', 'pin_memory')

_MODES = {'max': 'greater', 'min': 'less'}


def config_of_step(step: Mapping[str, Any]) -> ConfigDict:
    """The config of the training that a step describes.

    Args:
        step: the section of a step. It is not changed. That of a `Config` knows the file and line of its keys, and so
            does the result.

    Raises:
        KeyError: a key is not known, or one is missing.
        TypeError: a part has another shape.
        ValueError: a part has no counterpart here, or two keys contradict each other.
    """
    return _Step(step).config()


def quota_of(step: Mapping[str, Any]) -> str | None:
    """What ``trainer.limits`` of a step allows, as a quota: ``'flops >= 0 and flops <= 10000000000'``; None for
    anything.

    Raises:
        KeyError: a limit that is not known.
        TypeError: one that is no pair of finite numbers.
    """
    found = _Step(step)
    limits = found.trainer['limits'] or {}
    found.check(limits, ('flop_range',), 'trainer', 'limits')
    bounds = limits.get('flop_range')
    if bounds is None:
        return None
    if not isinstance(bounds, list | tuple) or len(bounds) != 2 or not all(map(_is_finite_number, bounds)):
        raise WrongType(
            f'trainer.limits.flop_range must be two finite numbers, such as [0, 1e10], but got {bounds!r}'
            f'{found.at("trainer", "limits", "flop_range")}'
        )
    low, high = bounds
    return f'flops >= {low:.15g} and flops <= {high:.15g}'


def metrics_of_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """The configs of the metrics of a step by name; the first one decides which model is the best."""
    return _Step(step).metrics()


class _Step:
    def __init__(self, step: Mapping[str, Any]) -> None:
        self.step: Any = as_config(dict(step)) if not isinstance(step, ConfigDict) else step
        self.check(self.step, (*STEP, *TOP))
        self.trainer = self.trainer_settings()

    def at(self, *path: Any) -> str:
        """Where a key was written, for messages."""
        return at(self.step, *path)

    def check(self, part: Any, known: Iterable[str], *path: Any, others: Mapping[str, str] | None = None) -> None:
        where = dotted(path) or 'the step'
        if not isinstance(part, Mapping):
            raise WrongType(f'{where} must be a dict, but got {part!r}{self.at(*path)}')
        for key in part:
            if others is not None and key in others:
                raise WrongValue(f'{where}.{key} has no counterpart: {others[key]}{self.at(*path, key)}')
            if key not in known:
                raise WrongKey(f'{where} has no key {key!r}{suggestion(str(key), known)}{self.at(*path, key)}')

    def trainer_settings(self) -> dict[str, Any]:
        """The trainer's section by the keys of `TRAINER`, with their defaults."""
        given = self.step.get('trainer', {})
        self.check(given, (*TRAINER, *SPELLINGS), 'trainer', others=ELSEWHERE)
        found: dict[str, Any] = {}
        self.spelling: dict[str, str] = {}
        for written, value in given.items():
            key = SPELLINGS.get(written, written)
            if key in found:
                raise WrongValue(
                    f'trainer.{written} and trainer.{self.spelling[key]} mean the same: give one of them'
                    f'{self.at("trainer", written)}'
                )
            found[key], self.spelling[key] = value, written
        if found.get('type', 'Trainer') != 'Trainer':
            raise WrongValue(
                f'trainer.type must be Trainer, but got {found["type"]!r}: what is special of it can be a callback'
                f'{self.at("trainer", "type")}'
            )
        self.given = found
        return {**TRAINER, **found}

    def config(self) -> ConfigDict:
        """All sections of the run."""
        trainer = self.trainer
        found: dict[str, Any] = {
            'model': self.model(),
            'data': self.data(),
            'optimizer': self.of_trainer('optimizer'),
            'optimizer_config': {'fused': None},
            'runner': {'type': 'EpochBasedRunner', 'max_epochs': trainer['epochs']},
            'log_config': {'interval': trainer['report_freq']},
            'seed': trainer['seed'],
            'custom_imports': {'imports': ['runnerkit.compat.vega.names']},  # which registers the metrics and callbacks
        }
        if trainer['lr_scheduler'] is not None:
            found['lr_config'] = self.renamed(self.of_trainer('lr_scheduler'), 'policy')
        if trainer['grad_clip'] is not None:
            clip = trainer['grad_clip']
            found['optimizer_config']['grad_clip'] = clip if isinstance(clip, Mapping) else {'max_norm': clip}
        if trainer['use_amp']:
            found['amp'] = 'fp16'
        if self.validates():
            found['evaluation'] = self.evaluation()
        weights = trainer['init_model_file'] or (self.step.get('model') or {}).get('pretrained_model_file')
        if weights:
            found['load_from'] = weights
        callbacks = self.callbacks()
        if callbacks:
            # LOW is behind the validation, as the end of an epoch is in Vega.
            hook = {'type': 'VegaCallbacks', 'callbacks': callbacks, 'config': self.given, 'priority': 'LOW'}
            found['custom_hooks'] = [hook]
        return self.with_own(found)

    def with_own(self, found: dict[str, Any]) -> ConfigDict:
        """``found`` and the sections of runnerkit that stand in the step, which come first."""
        own = {key: value for key, value in self.step.items() if key in TOP and key not in STEP}
        merged = {**found, **own}
        if 'custom_hooks' in found and 'custom_hooks' in own:
            merged['custom_hooks'] = [*own['custom_hooks'], *found['custom_hooks']]
        if 'custom_imports' in own:
            imports = own['custom_imports'].get('imports') or []
            imports = [imports] if isinstance(imports, str) else imports
            ours = found['custom_imports']['imports']
            merged['custom_imports'] = {**own['custom_imports'], 'imports': [*imports, *ours]}
        result: ConfigDict = as_config(merged)
        set_origin(result, getattr(self.step, '_origin_', None))
        return result

    # --- one part by its name ----------------------------------------------------------------------------------------

    def of_trainer(self, key: str) -> ConfigDict:
        """The part of the trainer that is called ``key``."""
        value = self.trainer[key]
        if value is None:
            example = '{type: SGD, params: {lr: 0.1}}' if key == 'optimizer' else '{type: CrossEntropyLoss}'
            raise WrongKey(f'trainer needs {key}, such as {example}{self.at("trainer")}')
        if key == 'optimizer' and isinstance(value, list | tuple):
            raise WrongValue(
                f'trainer.{self.spelling[key]} is a list, which has no counterpart: several optimizers are for a model '
                f'that steps with each (docs/several_networks.md){self.at("trainer", self.spelling[key])}'
            )
        return self.part(value, 'trainer', self.spelling.get(key, key))

    def part(self, given: Any, *path: Any) -> ConfigDict:
        """``type`` (or ``name``) and arguments, which may be in ``params`` or next to it, as one dict."""
        where = dotted(path)
        given = {'type': given} if isinstance(given, str) else given
        if not isinstance(given, Mapping):
            raise WrongType(f'{where} must be a name, or a dict with a type, but got {given!r}{self.at(*path)}')
        kind = 'type' if 'type' in given else 'name'
        if not isinstance(given.get(kind), str):
            raise WrongKey(f'{where} needs type: the name of a class; it has {", ".join(given)}{self.at(*path)}')
        params = given.get('params') or {}
        if not isinstance(params, Mapping):
            raise WrongType(f'{where}.params must be a dict, but got {params!r}{self.at(*path, "params")}')
        others = {key: value for key, value in given.items() if key not in (kind, 'params')}
        twice = [key for key in others if key in params]
        if twice:
            raise WrongValue(f'{where} has {twice[0]} in params and next to it: give it once{self.at(*path, twice[0])}')
        found: ConfigDict = as_config({'type': given[kind], **others, **params})
        origin, inner = getattr(given, '_origin_', None), getattr(params, '_origin_', None)
        if origin is not None:
            places = {'type': origin.place_of(kind)}
            places.update({key: inner.place_of(key) for key in params} if inner is not None else {})
            set_origin(found, Origin(origin.places, places))
        return found

    @staticmethod
    def renamed(part: ConfigDict, key: str) -> ConfigDict:
        """``part`` with its ``type`` under the name ``key``."""
        found: ConfigDict = as_config({key: part['type'], **{each: part[each] for each in part if each != 'type'}})
        if part._origin_ is not None:
            set_origin(found, Origin(part._origin_.places, {**part._origin_.keys, key: part._origin_.place_of('type')}))
        return found

    # --- the sections ------------------------------------------------------------------------------------------------

    def model(self) -> dict[str, Any]:
        """The network with its loss and its metrics."""
        return {
            'type': 'Supervised',
            'model': self.network(),
            'loss': self.of_trainer('loss'),
            'metrics': self.metrics(),
        }

    def network(self) -> Any:
        """The network of ``model``, or of ``search_space``."""
        section = 'model' if self.step.get('model') is not None else 'search_space'
        desc = self.step.get(section)
        path: tuple[str, ...] = (section,)
        if desc is None or (section == 'search_space' and 'hyperparameters' in desc):
            raise WrongKey(f'the step needs model: the description of the network{self.at()}')
        if isinstance(desc, Mapping) and not MODEL.keys().isdisjoint(desc):
            self.check(desc, MODEL, section, others={key: instead for key, instead in MODEL.items() if instead})
        if isinstance(desc, Mapping) and desc.get('model_desc') is not None:
            desc, path = desc['model_desc'], (section, 'model_desc')
        if not isinstance(desc, Mapping) or 'modules' not in desc:
            return self.part(desc, *path)
        modules = desc['modules']
        if not isinstance(modules, list | tuple) or not modules:
            raise WrongType(f'{dotted(path)}.modules must be a list of names, but got {modules!r}{self.at(*path)}')
        missing = [name for name in modules if name not in desc]
        if missing:
            raise WrongKey(
                f'{dotted(path)} has no {missing[0]!r}, which is one of its modules'
                f'{suggestion(str(missing[0]), map(str, desc))}{self.at(*path, "modules")}'
            )
        networks = {name: self.part(desc[name], *path, name) for name in modules}
        return {'type': NETWORK, 'modules': [*modules], **networks}

    def metrics(self) -> dict[str, Any]:
        """The metrics by name; the first one decides which model is the best."""
        given, key = self.trainer['metric'], self.spelling.get('metric', 'metric')
        several = given if isinstance(given, list | tuple) else [] if given is None else [given]
        found: dict[str, Any] = {}
        for index, metric in enumerate(several):
            path = ('trainer', key, index) if isinstance(given, list | tuple) else ('trainer', key)
            part = self.part(metric, *path)
            if part['type'] in found:
                raise WrongValue(f'{dotted(path)}: there are two metrics {part["type"]!r}{self.at(*path)}')
            found[part['type']] = part
        return found

    def validates(self) -> bool:
        """Whether the training is validated."""
        return bool(self.trainer['with_valid'] and self.trainer['valid_interval'])

    def evaluation(self) -> dict[str, Any]:
        """``evaluation``: every ``valid_interval`` epochs, so that the last one is among them."""
        trainer = self.trainer
        epochs, interval, mode = trainer['epochs'], trainer['valid_interval'], trainer['perfs_cmp_mode']
        found = {'interval': interval, 'save_best': trainer['perfs_cmp_key'] or 'auto'}
        if isinstance(epochs, int) and isinstance(interval, int) and epochs % interval:
            found['start'] = epochs % interval
        if mode is not None:
            if mode not in _MODES:
                raise WrongValue(
                    f'trainer.perfs_cmp_mode must be max or min, but got {mode!r}{self.at("trainer", "perfs_cmp_mode")}'
                )
            found['rule'] = _MODES[mode]
        return found

    def data(self) -> dict[str, Any]:
        """``data``: a split for training, for validation, and for testing if there is one."""
        section = self.step.get('dataset')
        if section is None:
            raise WrongKey(f'the step needs dataset: a type, with common, train, val and test{self.at()}')
        self.check(section, ('type', 'common', *SPLITS), 'dataset')
        if not isinstance(section.get('type'), str):
            raise WrongKey(f'dataset needs type: the name of a class{self.at("dataset")}')
        splits = [each for each in SPLITS if each == 'train' or each in section or (each == 'val' and self.validates())]
        found: dict[str, Any] = {}
        for split in splits:
            if split == 'val' and not self.validates():
                continue
            settings = ConfigDict()
            origin = None
            for part in ('common', split):
                given = section.get(part) or {}
                self.check(given, given, 'dataset', part)  # only that it is a dict
                settings.update(given)
                own = getattr(given, '_origin_', None)
                origin = own if origin is None else origin if own is None else origin.changed_by(own, given)
            settings.pop('type', None)
            loader = {key: settings.pop(key) for key in LOADER if key in settings}
            set_origin(settings, origin)
            dataset: dict[str, Any] = {'type': DATASET, 'dataset': self.typed(settings, section), 'mode': split}
            if 'train_portion' in settings:
                dataset['train_portion'] = dataset['dataset'].pop('train_portion')
            if split not in section and split != 'train':
                dataset['needs_mode'] = True  # or it would be the training data
            found[split] = dataset
            if split == 'train' and self.trainer['max_train_steps'] is not None:
                loader['max_batches'] = self.trainer['max_train_steps']
            if loader:
                found[f'{split}_dataloader'] = loader
        return found

    def typed(self, settings: ConfigDict, section: Any) -> ConfigDict:
        """``settings`` with the type of the data set ``section``, and both places."""
        found: ConfigDict = as_config({'type': section['type'], **settings})
        origin, inner = getattr(section, '_origin_', None), settings._origin_
        if origin is not None:
            keys = {key: inner.place_of(key) for key in settings} if inner is not None else {}
            set_origin(found, Origin(origin.places, keys))
        return found

    def callbacks(self) -> list[Any]:
        """The callbacks by name, or as dicts with a ``type``; Vega's default ones first."""
        given, disabled = (_as_list(self.trainer[key]) for key in ('callbacks', 'disable_callbacks'))
        for name in disabled:
            if name in STANDARD:
                raise WrongValue(
                    f'trainer.disable_callbacks: {name} is no callback here: {STANDARD[name]}'
                    f'{self.at("trainer", "disable_callbacks")}'
                )
            if name not in DEFAULT_CALLBACKS:
                raise WrongValue(
                    f'trainer.disable_callbacks: {name!r} is no callback that is there by default, as '
                    f'{", ".join(DEFAULT_CALLBACKS)}{suggestion(str(name), DEFAULT_CALLBACKS)}'
                    f'{self.at("trainer", "disable_callbacks")}'
                )
        named = [each.get('type') if isinstance(each, Mapping) else each for each in given]
        return [name for name in DEFAULT_CALLBACKS if name not in (*disabled, *named)] + given


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _is_finite_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
