"""Configs in PaddleRec's shape (a list of runners, phases and data sets by name) as configs of runnerkit.

The shape is that of PaddleRec 1.8.5's yaml files. Sections of runnerkit may be added (``model``, ``evaluation``,
``custom_hooks`` …) and hold for every runner.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from runnerkit.config.config import Config
from runnerkit.config.config_dict import ConfigDict, as_config, set_origin
from runnerkit.config.origin import Origin, at, origin_of
from runnerkit.config.readers import ConfigReader, Run
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.suggest import near_miss, suggestion

#: By name: of an item of the context, a method, a module or a variable.
HINTS = {
    'env': 'context.cfg has the settings; the phases are context.workflow, and their data context.loaders',
    'envs': 'context.cfg has the settings: envs.get_global_env("runner.….epochs") is context.cfg.runner.max_epochs',
    'phase': 'the phases are context.workflow, and their data context.loaders',
    'model': 'the model is context.model, or unwrap(context.model) without its wrapper',
    'dataset': 'the data are in context.loaders, one for each phase',
    'exe': 'PyTorch has no executor: call the model, or context.runner.train(context.loaders[0])',
    'fleet': 'context.rank and context.world_size say what fleet does; start the processes with torchrun',
    'fluid': 'the weights are those of context.model (a torch.nn.Module); context.runner.save() saves them',
    'paddle': 'models are torch.nn.Modules here: import torch',
    'paddlerec': 'import the base of a stage from runnerkit.flow; context.cfg has the settings',
    '_run': 'a pass over a phase is context.runner.train(context.loaders[0])',
    '_executor_dataset_train': 'a pass over a phase is context.runner.train(context.loaders[0])',
    '_executor_dataloader_train': 'a pass over a phase is context.runner.train(context.loaders[0])',
}


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

#: Keys of `optimizer` in the hyper-parameters that are not arguments of its class.
OPTIMIZER = ('class', 'strategy', 'learning_rate')

#: Kinds of loaders there, all of which are one kind here.
LOADERS = ('DataLoader', 'QueueDataset')

_OPTIMIZERS = {'sgd': 'SGD', 'adam': 'Adam', 'adagrad': 'Adagrad'}


class PaddleRecReader(ConfigReader):
    """Reads configs whose ``runner`` is a list. The runs are those of the runners in ``mode``, in that order."""

    hints = HINTS

    def recognizes(self, cfg: Config) -> bool:
        """Whether ``runner`` is a list."""
        return isinstance(cfg.get('runner'), list | tuple)

    def read_runs(self, cfg: Config) -> list[Run]:
        """The runs of the runners that ``mode`` names."""
        return [*_Shape(cfg).runs()]


class _Shape:
    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.root: dict[str, Any] = cfg._cfg_dict
        self.runners = self.named('runner')
        self.phases = self.named('phase')
        self.datasets = self.named('dataset')

    def runs(self) -> Iterator[Run]:
        modes = self.names(self.root, 'mode', 'runner')
        if not modes and len(self.runners) != 1:
            held = ', '.join(self.runners) or 'none'
            raise WrongKey(f'the config has the runners {held}: say which in `mode`{at(self.root, "mode")}')
        modes = modes or list(self.runners)
        for mode in modes:
            sections, device = self.sections(mode)
            cfg = Config(as_config(_with_workspace(sections, self.workspace())), self.cfg.text, self.cfg.filename)
            yield Run(mode, cfg, device)

    def named(self, key: str) -> dict[str, Mapping[str, Any]]:
        """The parts of the list ``key`` by their names."""
        parts = self.root.get(key, [])
        if not isinstance(parts, list | tuple):
            raise WrongType(f'{key} must be a list of dicts, each with a name, but got {parts!r}{at(self.root, key)}')
        found: dict[str, Mapping[str, Any]] = {}
        for index, part in enumerate(parts):
            if not isinstance(part, Mapping) or not isinstance(part.get('name'), str):
                place = at(self.root, key, index)
                raise WrongType(f'{key} {index} must be a dict with a name, but got {part!r}{place}')
            if part['name'] in found:
                raise WrongValue(f'two parts of {key} have the name {part["name"]!r}{at(part, "name")}')
            found[part['name']] = part
        return found

    def names(self, part: Mapping[str, Any], key: str, kind: str, where: str = '') -> list[str] | None:
        """The names in ``part[key]``, one or a list, each that of a ``kind``; None if there is no such key."""
        given = part.get(key)
        if given is None:
            return None
        known = {'runner': self.runners, 'phase': self.phases, 'dataset': self.datasets}[kind]
        names, told, place = [given] if isinstance(given, str) else given, f'{key}{where}', at(part, key)
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise WrongType(f'{told} must be the name of a {kind}, or a list of names, but got {given!r}{place}')
        for name in names:
            if name not in known:
                meant = near_miss(kind, [key for key in self.root if key != kind])
                held = ', '.join(known) or f'none (its key is {kind!r}' + (f', not {meant!r})' if meant else ')')
                raise WrongKey(
                    f'{told} names no {kind} {name!r}{suggestion(name, known)}; the config has {held}{place}'
                )
        return list(names)

    def workspace(self) -> str:
        """The value of ``{workspace}``: the config's, else the folder of the config file."""
        own = self.root.get('workspace')
        return str(own) if own else os.path.dirname(os.path.abspath(self.cfg.filename or 'config.yaml'))

    def sections(self, name: str) -> tuple[ConfigDict, str | None]:
        """The sections of the run of one runner, and its device."""
        runner = self.runners[name]
        where = f'the runner {name!r}'
        self.check(runner, RUNNER, where, ELSEWHERE)
        kind = runner.get('class', 'train')
        if kind not in CLASSES:
            if 'cluster' in str(kind):
                way_out = 'give single_train or single_infer, and start several processes with torchrun'
            else:
                way_out = f'give {", ".join(CLASSES)}{suggestion(str(kind), CLASSES)}'
            raise WrongValue(f'{where} has the class {kind!r}, which is not there{at(runner, "class")}: {way_out}')
        trains = CLASSES[kind]
        found = {key: value for key, value in self.root.items() if key not in TOP}
        named = self.names(runner, 'phases', 'phase', f' of {where}')
        phases = [self.phases[each] for each in (self.phases if named is None else named)]
        for phase in phases:
            self.check(phase, PHASE, f'the phase {phase["name"]!r}', {})
        self.add_model(found, phases)
        self.add_data(found, phases, trains)
        paths = {stage: f'{stage}_class_path' for stage in STAGES}
        flow = {stage: runner[path] for stage, path in paths.items() if runner.get(path)}
        if trains:
            trainings = 1 if 'workflow' in self.root else max(1, sum(phase.get('mode') != 'val' for phase in phases))
            self.add_training(found, runner, where, trainings)
        else:
            if not runner.get('init_model_path'):
                place = at(runner, 'name')
                raise WrongKey(f'{where} needs init_model_path: the folder whose checkpoints it evaluates{place}')
            infer = {'type': 'Infer', 'checkpoints': runner['init_model_path']}
            flow = {'network': 'InferNetwork', 'startup': None, 'runner': infer, **flow}
        if flow:
            found['flow'] = _moved({**flow, **found.get('flow', {})}, runner, paths)
        stem = os.path.splitext(os.path.basename(self.cfg.filename or 'run'))[0]
        own = runner.get('save_checkpoint_path') if trains else None
        found.setdefault('work_dir', own or os.path.join('work_dirs', stem, *([name] if len(self.runners) > 1 else [])))
        return self.placed(found, runner), self.device(runner, where)

    def check(self, part: Mapping[str, Any], known: tuple[str, ...], where: str, others: Mapping[str, str]) -> None:
        for key in part:
            if key in others:
                raise WrongValue(f'{key} of {where} has no counterpart{at(part, key)}: {others[key]}')
            if key not in known:
                near = suggestion(str(key), known)
                raise WrongKey(f'{where} has no key {key!r}{at(part, key)}{near}; known are {", ".join(known)}')

    def placed(self, found: dict[str, Any], runner: Mapping[str, Any]) -> ConfigDict:
        """The sections, with the places of those that are put together from other parts."""
        places = {
            'model': (self.root, 'hyper_parameters'),
            'optimizer': (self.root.get('hyper_parameters'), 'optimizer'),
            'data': (self.root, 'dataset'),
            'workflow': (self.root, 'phase'),
            'runner': (runner, 'epochs'),
            'load_from': (runner, 'init_model_path'),
            'checkpoint_config': (runner, 'save_checkpoint_interval'),
            'log_config': (runner, 'print_interval'),
            'work_dir': (runner, 'save_checkpoint_path'),
            'flow': (runner, 'name'),
        }
        made, origin = _moved(found, self.root), origin_of(self.root)
        if origin is not None:
            keys = {
                key: known.place_of(name)
                for key, (part, name) in places.items()
                if (key in found and key not in self.root) or key == 'runner'
                if (known := origin_of(part)) is not None
            }
            set_origin(made, Origin(origin.places, {**origin.keys, **keys}, origin.added))
        return made

    def add_model(self, found: dict[str, Any], phases: list[Mapping[str, Any]]) -> None:
        """``model``: the class ``Model`` of the phases' file, with the hyper-parameters as its arguments."""
        files = list(dict.fromkeys(phase['model'] for phase in phases if phase.get('model')))
        if len(files) > 1:
            raise WrongValue(
                f'the phases have different models ({", ".join(map(str, files))}): write one that holds them, with a '
                'step for each phase (`<mode>_step`), and name the mode in the phase'
            )
        written = self.root.get('hyper_parameters') or {}
        given = dict(written)
        optimizer = given.pop('optimizer', None)
        if files:
            path = str(files[0])
            model = {'type': f'{path}:Model' if path.endswith('.py') else path, **given}
            found['model'] = _moved(model, written)
        if optimizer is not None:
            found['optimizer'] = self.optimizer(optimizer)
            found.setdefault('optimizer_config', {'fused': None})

    def optimizer(self, written: Any) -> ConfigDict:
        """The config of the optimizer, of which the hyper-parameters may say ``class`` and ``learning_rate``."""
        where = 'hyper_parameters.optimizer'
        if not isinstance(written, Mapping):
            raise WrongType(f'{where} must be a dict with a class, but got {written!r}')
        for key in written:
            meant = near_miss(str(key), OPTIMIZER)
            if meant is not None:
                raise WrongKey(f'{where} has no key {key!r}{at(written, key)}; did you mean {meant!r}?')
        arguments = {key: value for key, value in written.items() if key not in OPTIMIZER}
        if 'learning_rate' in written:
            arguments['lr'] = written['learning_rate']
        kind = str(written.get('class', 'SGD'))
        names = {'type': 'class', 'lr': 'learning_rate'}
        return _moved({'type': _OPTIMIZERS.get(kind.lower(), kind), **arguments}, written, names)

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
            where = f' of the phase {phase["name"]!r}'
            if not isinstance(name, str):
                raise WrongType(f'dataset_name{where} must be one name, but got {name!r}{at(phase, "dataset_name")}')
            self.names(phase, 'dataset_name', 'dataset', where)
            written = self.datasets[name]
            dataset = dict(written)
            loader = {key: dataset.pop(key) for key in LOADER if key in dataset}
            if 'thread_num' in phase:
                loader.setdefault('num_workers', phase['thread_num'] if phase['thread_num'] > 1 else 0)
            data[split] = _moved(self.dataset(dataset, written), written)
            if loader:
                data[f'{split}_dataloader'] = _moved(loader, written)
        if data:
            found['data'] = data
        if trains and phases:
            found.setdefault('workflow', workflow)

    def dataset(self, dataset: dict[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
        """The config of a data set: in PaddleRec's kinds of loaders, the class ``Reader`` of ``data_converter``."""
        name = dataset.pop('name')
        kind, file = dataset.pop('type', LOADERS[0]), dataset.pop('data_converter', None)
        own = dataset.pop('reader_class_name', 'Reader')
        if kind not in LOADERS:
            return {'type': kind, **dataset}
        if file is None:
            place = at(written, 'name')
            raise WrongKey(f'the dataset {name!r} needs data_converter: the file with its class {own}{place}')
        return {'type': f'{file}:{own}', **dataset}

    def add_training(self, found: dict[str, Any], runner: Mapping[str, Any], where: str, phases: int) -> None:
        """``runner``, ``load_from``, ``checkpoint_config`` and ``log_config`` of a runner that trains.

        An epoch there has one pass for each of the training ``phases``; an epoch of a Runner is one pass.
        """
        if 'epochs' not in runner:
            raise WrongKey(f'{where} needs epochs{at(runner, "name")}')
        epochs = {'type': 'EpochBasedRunner', 'max_epochs': _times(phases, runner['epochs'])}
        found['runner'] = _moved(epochs, runner, {'max_epochs': 'epochs'})
        if runner.get('init_model_path'):
            found['load_from'] = runner['init_model_path']
        if 'save_checkpoint_interval' in runner:
            interval = {'interval': _times(phases, runner['save_checkpoint_interval'])}
            found.setdefault('checkpoint_config', _moved(interval, runner, {'interval': 'save_checkpoint_interval'}))
        if 'save_step_interval' in runner:
            by_step = {'type': 'CheckpointHook', 'by_epoch': False, 'interval': runner['save_step_interval']}
            hook = _moved(by_step, runner, {'interval': 'save_step_interval'})
            found['custom_hooks'] = [*found.get('custom_hooks', []), hook]
        if 'print_interval' in runner:
            interval = {'interval': runner['print_interval']}
            found.setdefault('log_config', _moved(interval, runner, {'interval': 'print_interval'}))

    def device(self, runner: Mapping[str, Any], where: str) -> str | None:
        given = runner.get('device')
        device = None if given is None else str(given).lower()
        if device not in (None, 'cpu', 'gpu'):
            raise WrongValue(f'{where} has the device {given!r}{at(runner, "device")}: give cpu or gpu')
        gpus = str(runner.get('selected_gpus', '')).replace(' ', '')
        if device == 'cpu' or not (device or gpus):
            return device
        if ',' in gpus:
            raise WrongValue(
                f'{where} has selected_gpus={gpus!r}{at(runner, "selected_gpus")}: start one process for each GPU, '
                'with torchrun and --launcher pytorch'
            )
        return f'cuda:{gpus}' if gpus else 'cuda'


def _times(number: int, value: Any) -> Any:
    """``value``, if it is a whole number, so many times; other values are checked later."""
    return number * value if isinstance(value, int) and not isinstance(value, bool) else value


def _moved(values: Mapping[str, Any], written: Any, names: Mapping[str, str] | None = None) -> ConfigDict:
    """``values`` with the place of the dict that they were written in.

    Args:
        values: of a new section.
        written: the dict.
        names: what keys are called in it, where they have another name there.
    """
    made, origin = ConfigDict(), origin_of(written)
    dict.update(made, values)
    if origin is not None:
        moved = {key: origin.place_of(name) for key, name in (names or {}).items()}
        set_origin(made, Origin(origin.places, {**origin.keys, **moved}, origin.added))
    return made


def _with_workspace(value: Any, workspace: str) -> Any:
    """``value`` with ``{workspace}`` replaced in all texts."""
    if isinstance(value, Mapping):
        return _moved({key: _with_workspace(each, workspace) for key, each in value.items()}, value)
    if isinstance(value, list | tuple):
        return type(value)(_with_workspace(each, workspace) for each in value)
    return value.replace('{workspace}', workspace) if isinstance(value, str) else value
