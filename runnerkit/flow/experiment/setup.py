"""How an experiment is set up: the steps before a training, each of which a subclass may override."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset, IterableDataset

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.integrity import training_state_problem
from runnerkit.checkpoint.loader import _load_checkpoint
from runnerkit.checkpoint.store import resolve_checkpoint
from runnerkit.config import Config
from runnerkit.data.kinds import is_empty
from runnerkit.distributed import from_first_rank, get_dist_info, init_dist
from runnerkit.fileio.paths import shown
from runnerkit.flow.experiment.validation import ValidHook
from runnerkit.flow.stages.defaults import KEPT, LOG_INTERVAL, optimizer_config
from runnerkit.flow.stages.instance import choose_device, claim_work_dir
from runnerkit.flow.stages.startup import newest
from runnerkit.flow.stages.wrapping import placed, wrapped
from runnerkit.flow.work_dir.previous_runs import files_of_a_run, rename_aside
from runnerkit.hooks import CheckpointHook
from runnerkit.hooks.logger import TensorboardLoggerHook
from runnerkit.log_files import free_timestamp
from runnerkit.optim.builder import drop_missing_fused
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import FSDP2, is_module_wrapper
from runnerkit.parallel.fsdp import hand_over
from runnerkit.registry import placed_errors
from runnerkit.runner import IterBasedRunner
from runnerkit.runner.builder import absolute_work_dir
from runnerkit.utils.env import collect_env, get_time_str
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.lock import FolderLock
from runnerkit.utils.logging import DETAIL, close_log_file, get_logger
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.paths import mkdir_or_exist
from runnerkit.utils.seed import set_random_seed
from runnerkit.utils.suggest import near_miss, suggestion
from runnerkit.version import __version__

#: The section ``training`` of an experiment's config, by default.
TRAINING = {'max_iteration': 900000, 'valid_interval': 1000, 'save_interval': 10000}
TRAINING_KEYS = (*TRAINING, 'log_interval')

#: What else of its config an experiment reads.
KNOWN_KEYS = [
    *('training', 'seed', 'deterministic', 'work_dir', 'log_level', 'log_config', 'checkpoint_config', 'evaluation'),
    *('lr_config', 'momentum_config', 'optimizer_config', 'amp', 'fp16', 'custom_hooks'),
    *('model_wrapper', 'find_unused_parameters', 'broadcast_buffers', 'sync_batchnorm'),
]


def experiment_config(config: Any) -> Config:
    """A copy of ``config`` with the defaults of its section ``training``."""
    if config is not None and not isinstance(config, (Config, Mapping)):
        raise WrongType(f'config must be a Config, a dict or None, but got {type(config)}: Experiment(config, args)')
    found = copy.deepcopy(config) if isinstance(config, Config) else Config(copy.deepcopy(dict(config or {})))
    training = found.get('training')
    if training is not None and not isinstance(training, Mapping):
        raise WrongType(f'training must be a dict such as dict(max_iteration=1000), but got {training!r}')
    found.training = {**TRAINING, **(training or {})}
    for name in TRAINING_KEYS:
        if name in found.training:
            check_whole_number(f'training.{name}', found.training[name], at_least=int(name != 'max_iteration'))
    check_whole_number('seed', found.get('seed'), at_least=0, or_none=True)
    return found


def problem_of_loader(loader: Any) -> str | None:
    """Why a run cannot read batches from ``loader`` again and again; None if it can."""
    kind = type(loader).__name__
    if isinstance(loader, (list, tuple)) and any(isinstance(each, DataLoader) for each in loader):
        return "a list of loaders: give a dict, dict(clean=…, noisy=…), and read with self.read_batch('noisy')"
    if isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        return f'the data set {kind}: give a loader, build_dataloader(dataset, batch_size=32, workers=2)'
    if hasattr(loader, '__next__'):
        return f'{kind}, an iterator, which ends after one pass: give what iter() was called with'
    return None if hasattr(loader, '__iter__') or hasattr(loader, '__getitem__') else repr(loader)


#: The steps of `ExperimentSetup.setup` that follow `setup_model`.
LAST = ('wrap_model', 'setup_hooks')


def as_step(name: str, step: Callable[..., None]) -> Callable[..., None]:
    """The step ``name``, noted. A subclass's `setup` begins with the seed and ends with what it has left out."""

    @wraps(step)
    def noted(self: Any) -> None:
        self._steps |= {name}
        if name == 'setup':
            self._check_construction()
            set_random_seed(self.seed, deterministic=bool(self.config.get('deterministic')))
        step(self)
        if name == 'setup':
            self._complete()

    return noted


#: The steps of `ExperimentSetup.setup` that the stages of a flow take care of.
STAGES_DO = [
    *('setup', 'set_device', 'init_parallel', 'setup_output_dir', 'dump_config'),
    *('setup_visualizer', 'setup_logger', 'setup_checkpointer'),
]


class ExperimentSetup(IterBasedRunner):
    """The part of an `Experiment` that prepares a training; see there."""

    _lock: FolderLock | None = None
    _is_set_up = False
    _steps: frozenset[str] = frozenset()  # those that were called
    _found: Collection[str] = ()  # what lay in the work dir
    _owns_work_dir = False  # not in a Flow, whose stages take care of it
    _checkpointer: CheckpointHook | None = None  # the one of save_interval
    _log_file: str | None = None
    _visualizer: Any = None  # one of the user's own

    def __init__(
        self,
        config: Any = None,
        args: Any = None,
        *,
        model: nn.Module | None = None,
        optimizer: Any = None,
        work_dir: str | os.PathLike[str] | None = None,
        logger: logging.Logger | None = None,
        meta: dict[str, Any] | None = None,
        max_iters: int | None = None,
    ) -> None:
        self.config = experiment_config(config)
        self.args = args
        if max_iters is not None:
            self.config.training['max_iteration'] = max_iters
        limit = self.config.training['max_iteration']
        parts: dict[str, Any] = {'model': model, 'optimizer': optimizer}  # None until setup_model
        super().__init__(**parts, work_dir=work_dir, logger=logger, meta=meta, max_iters=limit)
        self.train_loader: Any = None
        self.valid_loader: Any = None
        self.device = torch.device('cpu')
        self.seed = self.config.get('seed') or 0

    def _check_step(self, model: Any, batch_processor: Any) -> None:
        """Nothing: the step is ``train_batch``."""

    def option(self, name: str, default: Any = None) -> Any:
        """The value of the flag ``name`` in ``args``; ``default`` without such a flag."""
        found = self.args.get(name) if isinstance(self.args, Mapping) else getattr(self.args, name, None)
        return default if found is None else found

    # --- the steps ---------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        """Prepare a training: each step is a method, and may be overridden. `wrap_model` and `setup_hooks` also follow
        an overridden `setup` that calls `setup_model` last.
        """
        self._check_construction()
        if self._is_set_up:
            raise RuntimeError(f'{type(self).__name__}.setup has been called before: call it once')
        self._is_set_up = True
        with ExitStack() as after_error:
            after_error.callback(self.close)
            self.set_device()
            if self.parallel:
                self.init_parallel()
            self.setup_output_dir()
            self.dump_config()
            self.setup_visualizer()
            self.setup_logger()
            self.setup_checkpointer()
            self._build(loaders=True)
            self.setup_hooks()
            after_error.pop_all()

    def set_device(self) -> None:
        """Choose ``device``: that of ``--device`` (``gpu`` is ``cuda``), else a GPU if there is one."""
        name = self.option('device')
        name = name.replace('gpu', 'cuda') if isinstance(name, str) else name
        self.device = choose_device(name, int(os.environ.get('LOCAL_RANK', 0)), world_size=1)

    @property
    def parallel(self) -> bool:
        """Whether several processes train together."""
        return int(os.environ.get('WORLD_SIZE', self.option('nprocs', 1))) > 1

    def init_parallel(self) -> None:
        """Join the other processes, which ``main --nprocs`` or torchrun has started."""
        if not torch.distributed.is_initialized():
            init_dist('pytorch', backend='nccl' if self.device.type == 'cuda' else 'gloo')
        self._rank, self._world_size = get_dist_info()

    def setup_output_dir(self) -> None:
        """Create ``work_dir`` (``--output``, else the config's ``work_dir``, else ``work_dirs/<class>``) and lock it
        against other runs."""
        default = os.path.join('work_dirs', type(self).__name__)
        self.work_dir = absolute_work_dir(self.option('output') or self.config.get('work_dir') or default)
        mkdir_or_exist(self.work_dir)
        self._found = os.listdir(self.work_dir)
        self._owns_work_dir = True
        from_first_rank(self._claim)
        self.timestamp = from_first_rank(partial(free_timestamp, Path(self.work_dir), get_time_str()))

    def dump_config(self) -> None:
        """Write the config, with all changes and defaults, to ``config.yaml``."""
        from_first_rank(partial(self.config.dump, str(self._folder / 'config.yaml')))
        self.meta.update(config=self.config.pretty_text, exp_name=type(self).__name__)

    def setup_visualizer(self) -> None:
        """Log to TensorBoard, if it is installed and the config has no ``log_config``."""
        if 'log_config' not in self.config and find_spec('tensorboard') is not None:
            hooks = [{'type': 'TensorboardLoggerHook'}]
            self.register_logger_hooks({'interval': self._log_interval, 'hooks': hooks})

    @property
    def visualizer(self) -> Any:
        """TensorBoard's ``SummaryWriter``, for your pictures and sounds; or what you set here in
        `setup_visualizer`. On other ranks than the first, what is drawn goes nowhere.
        """
        if self._visualizer is not None:
            return self._visualizer
        hook = next((hook for hook in self.hooks if isinstance(hook, TensorboardLoggerHook)), None)
        if hook is None:
            raise AttributeError(
                'there is no visualizer, since nothing draws curves: pip install tensorboard and leave log_config out, '
                'name a TensorboardLoggerHook in it, or set self.visualizer in setup_visualizer'
            )
        if self.stopping.signals is None:
            raise AttributeError('the visualizer is open while run() runs: draw in train_batch, valid or a hook')
        return hook.writer or _DrawsNothing()

    @visualizer.setter
    def visualizer(self, visualizer: Any) -> None:
        self._visualizer = visualizer

    def setup_logger(self) -> None:
        """Log to the console and to ``<timestamp>.log``: a line every ``training.log_interval`` iterations, with the
        times of iterations; or what ``log_config`` says."""
        self._log_file = str(self._folder / f'{self.timestamp}.log')
        self.logger = self._open_log('w')
        env = '\n'.join(f'{key}: {value}' for key, value in collect_env().items())
        self.meta.update(env_info=env, runnerkit_version=__version__)
        self.logger.info('Environment:\n%s', env, extra=DETAIL)
        self.logger.info('Config:\n%s', self.config.pretty_text, extra=DETAIL)
        for name in self.config:
            if meant := near_miss(str(name), KNOWN_KEYS):
                text = '%s of the config is no key of a run, though your class may read it; did you mean %s?'
                self.logger.warning(text, name, meant)
        self.register_timer_hook({'type': 'IterTimerHook'})
        default = {'interval': self._log_interval, 'hooks': [{'type': 'TextLoggerHook'}]}
        self.register_logger_hooks(self.config.get('log_config', default))

    def setup_checkpointer(self) -> None:
        """Save a checkpoint every ``training.save_interval`` iterations and at the end, and keep the last three; or
        what ``checkpoint_config`` says (None: nothing)."""
        if 'checkpoint_config' in self.config:
            self.register_checkpoint_hook(self.config.checkpoint_config)
            return
        interval = self.config.training['save_interval']
        self._checkpointer = CheckpointHook(interval=interval, by_epoch=False, max_keep_ckpts=KEPT)
        self.register_checkpoint_hook(self._checkpointer)

    def setup_dataloader(self) -> None:
        """Set ``train_loader`` (one, or several in a dict by name) and ``valid_loader``."""
        raise self._not_written('setup_dataloader', 'set self.train_loader there')

    def setup_model(self) -> None:
        """Set ``model``, a module with all networks, and ``optimizer``, one or several in a dict by name."""
        raise self._not_written('setup_model', 'set self.model and self.optimizer there')

    @partial(as_step, 'wrap_model')
    def wrap_model(self) -> None:
        """Move the model to ``device``, and wrap it for data parallel training if there are several processes; of a
        ``ModuleDict`` each network, which are called one by one."""
        if self._world_size == 1:
            self.model.to(self.device)
        elif isinstance(self.model, nn.ModuleDict):
            for name, network in self.model.items():
                self.model[name] = self._wrapped(network)
        else:
            self.model = self._wrapped(self.model)

    def _wrapped(self, network: nn.Module) -> nn.Module:
        trains = any(parameter.requires_grad for parameter in network.parameters())
        if not trains or is_module_wrapper(network):
            return network.to(self.device)
        before = dict(network.named_parameters())
        made = wrapped(placed(network, self.config, self.device), self.config, self.device, self.logger)
        if isinstance(made, FSDP2):
            values = [*named_optimizers(self.optimizer).values(), *vars(self).values()]
            optimizers = list({id(each): each for each in values if isinstance(each, Optimizer)}.values())
            hand_over(optimizers, before, made)
            drop_missing_fused(optimizers)
        return made

    @partial(as_step, 'setup_hooks')
    def setup_hooks(self) -> None:
        """Register what the config says of ``lr_config``, ``momentum_config``, ``optimizer_config`` (or ``amp``) and
        ``custom_hooks``, and the validation."""
        config = self.config
        self.register_lr_hook(config.get('lr_config'))
        self.register_momentum_hook(config.get('momentum_config'))
        # Without any of these, train_batch updates.
        updates = any(config.get(key) is not None for key in ('optimizer_config', 'amp', 'fp16'))
        self.register_optimizer_hook(optimizer_config(config) if updates else None)
        with placed_errors(config, 'custom_hooks'):
            self.register_custom_hooks(config.get('custom_hooks'))
        with placed_errors(config, 'evaluation'):
            self.register_valid_hook(config.get('evaluation', {}))

    def register_valid_hook(self, evaluation: Any) -> None:
        """Register the call of ``valid`` every ``training.valid_interval`` iterations, if there is such a method."""
        if evaluation is not None and type(self).valid is ExperimentSetup.valid:
            meant = suggestion('valid', self._own_names())
            level = logging.WARNING if meant else logging.INFO
            self.logger.log(level, 'no validation: %s has no method valid%s', type(self).__name__, meant)
        elif evaluation is not None:
            options = {'interval': self.config.training['valid_interval'], **evaluation}
            self.register_hook(ValidHook(self.valid_loader, **options), priority='LOW')

    def valid(self) -> dict[str, Any] | None:
        """Validate: see `Experiment`."""
        raise self._not_written('valid')

    def resume_or_load(self) -> None:
        """Go on from a checkpoint, if there is one: that of ``--checkpoint_path``, else the newest intact one in the
        work dir. Of a file without a training state, the weights are loaded. Call it after `setup`, before ``run``.
        """
        self.check_model()
        given = self.option('checkpoint_path')
        stores = [] if self.work_dir is None else [Store(self.work_dir)]
        found = given or from_first_rank(partial(newest, stores))
        if found is None:
            self.logger.info('no checkpoint in %s: the run starts from the beginning', self.work_dir)
            return
        path = resolve_checkpoint(os.fspath(found))
        problem = training_state_problem(_load_checkpoint(path, 'cpu')) if given else None
        if problem is None:
            self.config_wins = True
            self.resume(path)
        else:
            self.logger.info('the weights of %s are loaded, and nothing else: %s', path, problem)
            self.load_checkpoint(path)

    def setup_in(self, context: Any) -> None:
        """Set up as a part of a `runnerkit.flow.Flow`, whose stages have done the rest: loaders and model, unless the
        config has sections for these."""
        self._check_construction()
        left_out = [name for name in STAGES_DO if getattr(type(self), name) is not getattr(ExperimentSetup, name)]
        if left_out:
            text = (
                'in a flow, its stages set up device, folder, log and checkpoints: these methods of %s are not called: '
                '%s. Say it in the config, put it into setup_hooks, or run the experiment by itself (setup, run)'
            )
            self.logger.warning(text, type(self).__name__, ', '.join(left_out))
        self.device, self.seed = context.device, context.seed
        self.timestamp = context.timestamp
        self._is_set_up = True
        if context.loaders:
            self.train_loader, self.valid_loader = context.loaders[0], context.val_loader
        self._build(loaders=not context.loaders)
        if not context.loaders:
            loaders = self.train_loaders
            context.loaders, context.workflow = list(loaders.values())[:1], [('train', 1)]
        context.model, context.optimizer, context.runner = self.model, self.optimizer, self

    # --- what they share ---------------------------------------------------------------------------------------------

    def _build(self, loaders: bool) -> None:
        """Loaders and model; each depends on the seed only, not on what the other has drawn."""
        deterministic = bool(self.config.get('deterministic'))
        if loaders:
            set_random_seed(self.seed, deterministic=deterministic)
            self.setup_dataloader()
        self.check_loaders()
        if self.model is None:
            set_random_seed(self.seed, deterministic=deterministic)
            self.setup_model()
            self.check_model()
            self.wrap_model()

    def _complete(self) -> None:
        """Call the steps that have to follow `setup_model` and were not called."""
        for name in LAST:
            if 'setup_model' in self._steps and name not in self._steps:
                self.check_model()
                getattr(self, name)()

    def _not_written(self, name: str, what: str = '') -> NotImplementedError:
        """The error of a method that the user's class lacks, with what it may be called there."""
        text = f'{type(self).__name__} must override {name}{what and ": " + what}'
        return NotImplementedError(text + suggestion(name, self._own_names()))

    def _own_names(self) -> list[str]:
        """The public names that the user's classes add."""
        classes = [kind for kind in type(self).__mro__ if not kind.__module__.startswith('runnerkit.')]
        names = [name for kind in classes for name in vars(kind) if not name.startswith('_')]
        return [name for name in names if not hasattr(ExperimentSetup, name)]

    def _check_construction(self) -> None:
        if 'train_loader' not in vars(self):
            raise RuntimeError(
                f'{type(self).__name__}.__init__ must call super().__init__(config, args) before anything else'
            )

    def check_model(self) -> None:
        """Refuse a run without a model."""
        self._check_construction()
        if self.model is None:
            raise RuntimeError(
                f'{type(self).__name__} has no model: call its setup() first, and set self.model in setup_model'
            )
        if not isinstance(self.model, nn.Module):
            raise WrongType(
                f'self.model must be a torch.nn.Module, but setup_model has set {type(self.model)}: put several '
                'networks into a torch.nn.ModuleDict'
            )

    def check_loaders(self) -> None:
        """Refuse a ``train_loader`` that is no loader, and no dict of them, and an empty ``valid_loader``."""
        for name, loader in self.train_loaders.items():
            problem = problem_of_loader(loader)
            if problem is not None:
                raise WrongType(f'self.train_loader{name and [name]} must be a loader, but got {problem}')
            if self._world_size > 1:
                from runnerkit.data.shares import warn_if_sampler_not_sharded

                warn_if_sampler_not_sharded(loader)
        if self.valid_loader is not None and is_empty(self.valid_loader):
            way_out = 'Set one with batches, or None if nothing is read from it'
            raise WrongValue(f'self.valid_loader is empty: got {self.valid_loader!r}. {way_out}')

    @property
    def train_loaders(self) -> dict[str, Any]:
        """The loaders to train on by name; a single one is called ``''``."""
        loaders = self.train_loader
        return dict(loaders) if isinstance(loaders, Mapping) else {'': NoBatches() if loaders is None else loaders}

    @property
    def _folder(self) -> Path:
        if self.work_dir is None:
            raise RuntimeError('there is no work dir yet: setup_output_dir must set self.work_dir')
        return Path(self.work_dir)

    @property
    def _log_interval(self) -> int:
        training = self.config.training
        return training.get('log_interval', max(1, min(LOG_INTERVAL, training['max_iteration'] // 10)))

    def _open_log(self, file_mode: str = 'a') -> logging.Logger:
        return get_logger('runnerkit', self._log_file, self.config.get('log_level', logging.INFO), file_mode)

    def _claim(self) -> None:
        """On rank 0: lock the work dir."""
        if self._lock is None:
            self._lock = claim_work_dir(self._folder)

    def close(self) -> None:
        """Let others use the work dir, and close the log file; the end of a run does so. It may be called again."""
        if self._log_file is not None:
            close_log_file(logging.getLogger('runnerkit'), self._log_file)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _set_aside(self) -> None:
        """On rank 0: rename the work dir of an earlier run to ``<work dir>.1``, ``.2`` …"""
        if files_of_a_run(self._folder):
            to = rename_aside(self._folder, {*self._found} - {'config.yaml'})
            text = 'the earlier run in %s is moved to %s (resume_or_load continues a run)'
            self.logger.info(text, shown(self._folder), shown(to))


class _DrawsNothing:
    """The visualizer of the other ranks."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


class NoBatches:
    """The loader of an experiment that has none."""

    def __iter__(self) -> Any:
        raise RuntimeError('there is no batch to read: set self.train_loader in setup_dataloader')
