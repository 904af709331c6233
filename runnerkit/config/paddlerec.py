"""Configs in PaddleRec's shape (a list of runners, phases and data sets by name) as configs of runnerkit.

The shape is that of PaddleRec 1.8.5's yaml files. Sections of runnerkit may stand beside it (``model``, ``evaluation``,
``custom_hooks`` …) and hold for every runner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from runnerkit.config.config import Config
from runnerkit.config.config_dict import as_config
from runnerkit.config.known_keys import TOP as KNOWN
from runnerkit.config.origin import written_at
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import near_miss, suggestion

#: The classes of runners, and whether they train.
CLASSES = {'train': True, 'single_train': True, 'infer': False, 'single_infer': False}

#: The stages that a runner can replace, each by the key ``<stage>_class_path``.
STAGES = ('instance', 'network', 'startup', 'runner', 'terminal')

#: Keys of a runner.
RUNNER = (
    'name',
    'class',
    'device',
    'selected_gpus',
    'epochs',
    'phases',
    'init_model_path',
    'save_checkpoint_interval',
    'save_checkpoint_path',
    'save_step_interval',
    'print_interval',
    *(f'{stage}_class_path' for stage in STAGES),
)

#: Keys of a runner that have no counterpart, and what to do instead.
ELSEWHERE = {
    **dict.fromkeys(
        ('fleet_mode', 'worker_num', 'server_num', 'distribute_strategy'),
        'there are no parameter servers here: start several processes with torchrun and --launcher pytorch',
    ),
    **dict.fromkeys(
        ('save_inference_interval', 'save_inference_path'), 'export the trained model with `runnerkit export`'
    ),
    'save_step_path': 'all checkpoints of a run go to its save_checkpoint_path',
    'init_pretraining_model_path': 'write init_model_path, which takes what fits',
    'runner_result_dump_path': 'the scores are in scores.json in the work dir',
}

#: Keys of a phase, and those of a data set that are not arguments of its class.
PHASE = ('name', 'model', 'dataset_name', 'thread_num', 'mode')
LOADER = ('batch_size', 'num_workers', 'shuffle', 'drop_last')

#: Top-level keys of the shape.
TOP = ('workspace', 'mode', 'debug', 'dataset', 'hyper_parameters', 'runner', 'phase')

#: Kinds of loaders there, all of which are one kind here.
LOADERS = ('DataLoader', 'QueueDataset')

_OPTIMIZERS = {'sgd': 'SGD', 'adam': 'Adam', 'adagrad': 'Adagrad'}


class Run(NamedTuple):
    """A runner of a config in PaddleRec's shape.

    Attributes:
        name: the runner's.
        cfg: the config of its run.
        device: ``'cpu'``, ``'cuda'`` …; None if the runner does not say.
    """

    name: str
    cfg: Config
    device: str | None


def is_paddlerec(cfg: Any) -> bool:
    """Whether a config has PaddleRec's shape: its ``runner`` is a list."""
    return isinstance(cfg.get('runner'), list | tuple)


def runs_of(cfg: Config) -> list[Run]:
    """The runs of a config in PaddleRec's shape: those of the runners that ``mode`` names, in that order.

    Raises:
        KeyError: a name or a key that is not known.
        TypeError: a part that has another shape.
        ValueError: what has no counterpart here.
    """
    return [*_Shape(cfg).runs()]


class _Shape:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.root: dict[str, Any] = cfg._cfg_dict
        self.runners = self.named('runner')
        self.phases = self.named('phase') if 'phase' in self.root else {}
        self.datasets = self.named('dataset') if 'dataset' in self.root else {}
        for key in self.root:
            meant = None if key in (*TOP, *KNOWN) else near_miss(str(key), TOP)
            if meant is not None and meant not in self.root:
                raise WrongKey(f'nobody reads {key!r}; did you mean {meant!r}?{self.at(key)}')

    def runs(self) -> Iterator[Run]:
        modes = self.root.get('mode')
        if modes is None:
            if len(self.runners) > 1:
                raise WrongKey(f'the config has the runners {", ".join(self.runners)}: say which in `mode`')
            modes = list(self.runners)
        modes = self.names('mode', modes, self.at('mode'))
        if not modes:
            raise WrongValue(f'there is nothing to run: name runners in mode{self.at("mode") or self.at("runner")}')
        for mode in modes:
            if mode not in self.runners:
                raise WrongKey(
                    f'mode names no runner {mode!r}{suggestion(mode, self.runners)}; the config has '
                    f'{", ".join(self.runners)}{self.at("mode")}'
                )
        for mode in modes:
            sections, device = self.sections(mode, alone=len(modes) == 1)
            cfg = Config(as_config(_filled(sections, self.workspace())), self.cfg.text, self.cfg.filename)
            yield Run(mode, cfg, device)

    def named(self, key: str) -> dict[str, Mapping[str, Any]]:
        """The parts of the list ``key`` by their names."""
        parts = self.root[key]
        if not isinstance(parts, list | tuple):
            raise WrongType(f'{key} must be a list of dicts, each with a name, but got {parts!r}{self.at(key)}')
        found: dict[str, Mapping[str, Any]] = {}
        for index, part in enumerate(parts):
            if not isinstance(part, Mapping) or not isinstance(part.get('name'), str):
                raise WrongType(f'{key} {index} must be a dict with a name, but got {part!r}{self.at(key, index)}')
            if part['name'] in found:
                raise WrongValue(f'two parts of {key} have the name {part["name"]!r}{self.at(key, index, "name")}')
            found[part['name']] = part
        return found

    @staticmethod
    def names(key: str, given: Any, place: str) -> list[str]:
        """``given``, one name or several, as a list."""
        names = [given] if isinstance(given, str) else given
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise WrongType(f'{key} must be a name or a list of names, but got {given!r}{place}')
        return [*names]

    def of(self, key: str, name: str, *path: Any) -> str:
        """Where a key of the part ``name`` in the list ``key`` was written, for messages."""
        index = next(index for index, part in enumerate(self.root[key]) if part['name'] == name)
        return self.at(key, index, *path)

    def at(self, *path: Any) -> str:
        """Where a key was written, for messages."""
        place = written_at(self.cfg, path)
        return f' ({place})' if place else ''

    def workspace(self) -> str:
        """What stands for ``{workspace}``: the config's, else the folder of the config file."""
        own = self.root.get('workspace')
        return str(own) if own else os.path.dirname(os.path.abspath(self.cfg.filename or 'config.yaml'))

    def sections(self, name: str, alone: bool) -> tuple[dict[str, Any], str | None]:
        """The sections of the run of one runner, and its device."""
        runner = self.runners[name]
        where = f'the runner {name!r}'
        self.check(runner, RUNNER, where, ELSEWHERE, 'runner')
        kind = runner.get('class', 'train')
        if kind not in CLASSES:
            way_out = 'start several processes with torchrun' if 'cluster' in str(kind) else ', '.join(CLASSES)
            raise WrongValue(
                f'{where} has the class {kind!r}, but there is only: {way_out}{suggestion(str(kind), CLASSES)}'
            )
        trains = CLASSES[kind]
        found = {key: value for key, value in self.root.items() if key not in TOP}
        phases = self.phases_of(runner, where)
        self.add_model(found, phases)
        self.add_data(found, phases, trains)
        flow = {stage: runner[f'{stage}_class_path'] for stage in STAGES if runner.get(f'{stage}_class_path')}
        if trains:
            self.add_training(found, runner, where)
        else:
            if not runner.get('init_model_path'):
                raise WrongKey(f'{where} needs init_model_path: the folder whose checkpoints it evaluates')
            infer = {'type': 'Infer', 'checkpoints': runner['init_model_path']}
            flow = {'network': 'InferNetwork', 'startup': None, 'runner': infer, **flow}
        if flow:
            found['flow'] = {**flow, **found.get('flow', {})}
        stem = os.path.splitext(os.path.basename(self.cfg.filename or 'run'))[0]
        own = runner.get('save_checkpoint_path') if trains else None
        found.setdefault('work_dir', own or os.path.join('work_dirs', stem, *([] if alone else [name])))
        return found, self.device(runner, where)

    def check(
        self, part: Mapping[str, Any], known: tuple[str, ...], where: str, others: Mapping[str, str], section: str
    ) -> None:
        for key in part:
            place = self.of(section, part['name'], key)
            if key in others:
                raise WrongValue(f'{key} of {where} has no counterpart: {others[key]}{place}')
            if key not in known:
                raise WrongKey(
                    f'{where} has no key {key!r}{suggestion(str(key), known)}; known are {", ".join(known)}{place}'
                )

    def phases_of(self, runner: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
        place = self.of('runner', runner['name'], 'phases')
        names = self.names(f'phases of {where}', runner.get('phases', list(self.phases)), place)
        for name in names:
            if name not in self.phases:
                raise WrongKey(f'{where} names no phase {name!r}{suggestion(str(name), self.phases)}{place}')
        found = [self.phases[name] for name in names]
        for phase in found:
            self.check(phase, PHASE, f'the phase {phase["name"]!r}', {}, 'phase')
        return found

    def add_model(self, found: dict[str, Any], phases: list[Mapping[str, Any]]) -> None:
        """``model``: the class ``Model`` of the phases' file, with the hyper-parameters as its arguments."""
        files = list(dict.fromkeys(phase['model'] for phase in phases if phase.get('model')))
        if len(files) > 1:
            raise WrongValue(
                f'the phases have different models ({", ".join(map(str, files))}): write one that holds them, with a '
                'step for each phase (`<mode>_step`), and name the mode in the phase'
            )
        hyper = self.root.get('hyper_parameters') or {}
        if not isinstance(hyper, Mapping):
            raise WrongType(f'hyper_parameters must be a dict, but got {hyper!r}{self.at("hyper_parameters")}')
        given = dict(hyper)
        optimizer = given.pop('optimizer', None)
        place = self.at('hyper_parameters', 'optimizer')
        if optimizer is not None and not isinstance(optimizer, Mapping):
            example = '{class: Adam, learning_rate: 0.001}'
            raise WrongType(
                f'hyper_parameters.optimizer must be a dict such as {example}, but got {optimizer!r}{place}'
            )
        for key, other, both in (
            ('model', "a phase's model", files),
            ('optimizer', 'hyper_parameters.optimizer', optimizer is not None),
        ):
            if both and found.get(key) is not None:
                raise WrongValue(f'{key} and {other} say the same: leave one of them out{self.at(key)}')
        if files:
            path = str(files[0])
            found['model'] = {'type': f'{path}:Model' if path.endswith('.py') else path, **given}
        if optimizer is not None:
            arguments = {key: value for key, value in optimizer.items() if key not in ('class', 'strategy')}
            if 'learning_rate' in arguments:
                arguments['lr'] = arguments.pop('learning_rate')
            kind = str(optimizer.get('class', 'SGD'))
            found['optimizer'] = {'type': _OPTIMIZERS.get(kind.lower(), kind), **arguments}

    def add_data(self, found: dict[str, Any], phases: list[Mapping[str, Any]], trains: bool) -> None:
        """``data`` and ``workflow``: a split for each phase."""
        data = dict(found.get('data', {}))
        workflow = []
        for phase in phases:
            name = phase.get('dataset_name')
            mode = phase.get('mode') or ('train' if len(phases) == 1 else f'train_{phase["name"]}')
            split = mode if trains else 'test' if len(phases) == 1 else f'test_{phase["name"]}'
            workflow.append([mode, 1])
            if name is None:
                continue
            if name not in self.datasets:
                place = self.of('phase', phase['name'], 'dataset_name')
                raise WrongKey(
                    f'the phase {phase["name"]!r} names no data set {name!r}{suggestion(str(name), self.datasets)}'
                    f'{place}'
                )
            dataset = dict(self.datasets[name])
            loader = {key: dataset.pop(key) for key in LOADER if key in dataset}
            if 'thread_num' in phase:
                threads = f'thread_num of the phase {phase["name"]!r}{self.of("phase", phase["name"], "thread_num")}'
                check_whole_number(threads, phase['thread_num'], at_least=0)
                loader.setdefault('num_workers', phase['thread_num'] if phase['thread_num'] > 1 else 0)
            data[split] = self.dataset(dataset)
            if loader:
                data[f'{split}_dataloader'] = loader
        if data:
            found['data'] = data
        if trains and phases:
            found.setdefault('workflow', workflow)

    def dataset(self, dataset: dict[str, Any]) -> dict[str, Any]:
        """The config of a data set: in PaddleRec's kinds of loaders, the class ``Reader`` of ``data_converter``."""
        name = dataset.pop('name')
        kind, file = dataset.pop('type', LOADERS[0]), dataset.pop('data_converter', None)
        own = dataset.pop('reader_class_name', 'Reader')
        if kind not in LOADERS:
            return {'type': kind, **dataset}
        if file is None:
            raise WrongKey(f'the data set {name!r} needs data_converter: the file with its class {own}')
        return {'type': f'{file}:{own}', **dataset}

    def add_training(self, found: dict[str, Any], runner: Mapping[str, Any], where: str) -> None:
        """``runner``, ``load_from``, ``checkpoint_config`` and ``log_config`` of a runner that trains."""
        if 'epochs' not in runner:
            raise WrongKey(f'{where} needs epochs')
        found['runner'] = {'type': 'EpochBasedRunner', 'max_epochs': runner['epochs']}
        if runner.get('init_model_path'):
            found['load_from'] = runner['init_model_path']
        if 'save_checkpoint_interval' in runner:
            found.setdefault('checkpoint_config', {'interval': runner['save_checkpoint_interval']})
        if 'save_step_interval' in runner:
            by_step = {'type': 'CheckpointHook', 'by_epoch': False, 'interval': runner['save_step_interval']}
            found['custom_hooks'] = [*found.get('custom_hooks', []), by_step]
        if 'print_interval' in runner:
            found.setdefault('log_config', {'interval': runner['print_interval']})

    def device(self, runner: Mapping[str, Any], where: str) -> str | None:
        given = runner.get('device')
        device = None if given is None else str(given).lower()
        if device not in (None, 'cpu', 'gpu'):
            raise WrongValue(f'{where} has the device {given!r}: give cpu or gpu')
        gpus = str(runner.get('selected_gpus', '')).replace(' ', '')
        if device == 'cpu' or not (device or gpus):
            return device
        if ',' in gpus:
            raise WrongValue(
                f'{where} has selected_gpus={gpus!r}: start one process for each GPU, with torchrun and '
                '--launcher pytorch'
            )
        return f'cuda:{gpus}' if gpus else 'cuda'


def _filled(value: Any, workspace: str) -> Any:
    """``value`` with ``{workspace}`` replaced in all texts."""
    if isinstance(value, Mapping):
        return {key: _filled(each, workspace) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_filled(each, workspace) for each in value)
    return value.replace('{workspace}', workspace) if isinstance(value, str) else value
