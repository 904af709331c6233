"""Stage 2: the data, the model, and its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from runnerkit.config.pretty import refuse_marks
from runnerkit.data.given import is_loader
from runnerkit.data.named import class_names
from runnerkit.flow.context import Context
from runnerkit.flow.stages.defaults import compile_options, is_experiment, required_section, wrapper_of
from runnerkit.flow.stages.loading import load_data, loader_settings
from runnerkit.flow.stages.stage import STAGES, Stage
from runnerkit.flow.work_dir.resume import resume_from, resumes
from runnerkit.nn import build_model
from runnerkit.nn.compiled import compile_model
from runnerkit.optim import build_optimizer
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.steps import Steps
from runnerkit.parallel.wrappers import is_fsdp2
from runnerkit.registry import placed_errors
from runnerkit.runner import build_runner
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.seed import set_random_seed


class NetworkBase(Stage):
    """Build data, model and optimizer: a subclass overrides `build_network`, which may call the other methods."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        self.build_network(context)
        for name, way_out in (('model', 'build_model'), ('loaders', 'build_data')):
            if getattr(context, name) in (None, []):
                raise ValueError(
                    f'the stage {type(self).__name__} has not set context.{name}: set it in build_network, or call '
                    f'self.{way_out}(context) there'
                )
        classes = class_names(getattr(context.loaders[0], 'dataset', None))
        if classes is not None:
            context.meta['CLASSES'] = classes  # for the checkpoints

    def build_network(self, context: Context) -> None:
        """Set ``context.model`` and ``context.loaders``, and ``context.optimizer`` if a hook updates the weights.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(f'{type(self).__name__} must override build_network')

    def build_data(self, context: Context) -> None:
        """Build a loader for every workflow entry, and for the evaluation."""
        load_data(context)

    def build_model(self, context: Context) -> None:
        """Build and initialise the model. Its weights depend on the seed only, not on what data sets drew.

        A model that is given as an object keeps its weights, also as the network of a `Supervised`.
        """
        config = required_section(context.cfg, 'model')
        refuse_marks(config, 'model')
        inner = config.get('model') if isinstance(config, Mapping) and config.get('init_cfg') is None else config
        is_given = isinstance(inner, nn.Module)

        def build() -> Any:
            set_random_seed(context.seed)
            with placed_errors(context.cfg, 'model'):
                model: Any = build_model(config)
                if not is_given and hasattr(model, 'init_weights'):
                    model.init_weights()
            return model

        if context.world_size > 1 and wrapper_of(context.cfg) == 'FSDP2' and not is_given:
            from runnerkit.parallel.fsdp import build_without_weights

            model = build_without_weights(build, context.logger)
        else:
            model = build()
        wraps = context.world_size > 1 or context.cfg.get('model_wrapper') is not None or context.device.type == 'cuda'
        if wraps:
            from runnerkit.flow.stages.wrapping import placed, wrapped

            model = placed(model, context.cfg, context.device)
        else:
            model = model.to(context.device)
        if context.cfg.get('channels_last'):
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.dim() == 4:
                    tensor.data = tensor.data.to(memory_format=torch.channels_last)
        options = compile_options(context.cfg)
        if options is not None:
            with placed_errors(context.cfg, 'compile'):
                compile_model(model, **options)
        named = named_optimizers(context.cfg.get('optimizer'))
        given = [each for each in named.values() if isinstance(each, Optimizer)]
        before = dict(model.named_parameters()) if given else {}
        context.model = wrapped(model, context.cfg, context.device, context.logger) if wraps else model
        if given and is_fsdp2(context.model):
            from runnerkit.parallel.fsdp import hand_over

            hand_over(given, before, context.model)
        if context.cfg.get('channels_last') and isinstance(context.model, Steps):
            context.model.keep_strides = True
        if context.options.diff_seed:  # only now, so that all ranks have the same weights
            set_random_seed(context.seed, use_rank_shift=True)

    def build_optimizer(self, context: Context) -> None:
        """Build the optimizer.

        With ``--auto-scale-lr`` or ``auto_scale_lr.enable``, its learning rate is scaled with the batch size.
        """
        cfg = context.cfg
        config = required_section(cfg, 'optimizer')
        if context.options.auto_scale_lr or (cfg.get('auto_scale_lr') or {}).get('enable'):
            with placed_errors(cfg, 'auto_scale_lr'):
                if not isinstance(config, Mapping) or is_loader(cfg.data.get('train')):
                    raise WrongType('auto_scale_lr needs optimizer=dict(type=…, lr=…), and a data set as data.train')
                config = scaled_lr(config, cfg, context)
        with placed_errors(cfg, 'optimizer'):
            if context.model is None:  # an Experiment's setup_model makes both
                raise KeyError('optimizer needs a section model; if it is a custom section, rename it')
            context.optimizer = build_optimizer(context.model, config)


@STAGES.register_module()
class Network(NetworkBase):
    """The default: everything as the config says."""

    def build_network(self, context: Context) -> None:
        """Build the data, the model, the optimizer; an `Experiment` has what its config does not say."""
        parts = ('data', self.build_data), ('model', self.build_model), ('optimizer', self.build_optimizer)
        may_lack = is_experiment(context.cfg)
        for section, build in parts:
            if not (may_lack and context.cfg.get(section) is None):
                build(context)
        if may_lack:
            build_experiment(context)


def build_experiment(context: Context) -> None:
    """Build the config's `Experiment`, and what it sets up itself: a model and loaders that are not there yet."""
    own = {'config': context.cfg, 'args': context.options}
    with placed_errors(context.cfg, 'runner'):
        experiment = build_runner(context.cfg.runner, {**runner_arguments(context), **own})
    experiment.setup_in(context)


def runner_arguments(context: Context) -> dict[str, Any]:
    """The arguments of a runner's constructor that its config need not say."""
    return {
        'model': context.model,
        'optimizer': context.optimizer,
        'work_dir': str(context.work_dir),
        'logger': context.logger,
        'meta': context.meta,
    }


def scaled_lr(config: Any, cfg: Any, context: Context) -> Any:
    """The optimizer's config with its learning rate scaled by batch size over ``auto_scale_lr.base_batch_size``.

    Source: Goyal et al., "Accurate, Large Minibatch SGD", 2017 (the linear scaling rule).
    """
    base = (cfg.get('auto_scale_lr') or {}).get('base_batch_size')
    if not base:
        raise ValueError(
            '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=…) in the config: the batch size the lr is '
            'meant for'
        )
    samples = loader_settings(cfg.data, 'train')['samples_per_gpu']
    context.lr_scaled_for = samples, base
    batch = context.world_size * samples
    scaled = config.copy()
    scaled['lr'] = config['lr'] * batch / base
    context.logger.info(
        'lr scaled from %g to %g for a batch of %d instead of %d%s',
        config['lr'],
        scaled['lr'],
        batch,
        base,
        '; a resumed run keeps the number of ranks of its start' if resumes(context) or resume_from(context) else '',
    )
    return scaled
