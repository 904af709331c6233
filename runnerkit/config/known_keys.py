"""Which keys the sections of a config have, without importing what reads them.

`tests/config/test_known_keys.py` holds these tables against the signatures of the readers.
"""

from __future__ import annotations

from runnerkit.config.key_meanings import MEANINGS
from runnerkit.config.key_meanings import TOP as TOP
from runnerkit.utils.signatures import LOADER_FUNCTIONS

#: The sections without which there is no run.
REQUIRED = ('model', 'data', 'optimizer', 'runner')

#: Top-level keys that the training tools of MMCV's downstream projects read, and that mean nothing here.
MMCV_TOOLS = (
    'opencv_num_threads',
    'mp_start_method',
    'omp_num_threads',
    'mkl_num_threads',
    'gpus',
    'gpu_ids',
    'gpu_id',
    'device',
    'launcher',
    'local_rank',
    'no_validate',
    'diff_seed',
    'ipu_replicas',
    'use_ddp_wrapper',
)

#: Top-level keys of other systems, by system; two of them make a config one of that system's.
FOREIGN = {
    'PaddleRec': ('workspace', 'mode', 'phase', 'dataset', 'hyper_parameters', 'debug', 'engine'),
    'Vega': (
        'general',
        'pipeline',
        'pipe_step',
        'search_algorithm',
        'search_space',
        'trainer',
        'evaluator',
        'dataset',
        'nas',
        'hpo',
        'fully_train',
    ),
    'MMEngine': (
        'default_hooks',
        'default_scope',
        'env_cfg',
        'log_processor',
        'optim_wrapper',
        'param_scheduler',
        'randomness',
        'resume',
        'train_dataloader',
        'val_dataloader',
        'test_dataloader',
        'val_evaluator',
        'test_evaluator',
        'val_cfg',
        'vis_backends',
        'visualizer',
    ),
}

#: Where a key belongs that is often written elsewhere.
BELONGS = {
    'epochs': 'runner.max_epochs',
    'num_epochs': 'runner.max_epochs',
    'max_epochs': 'runner.max_epochs',
    'max_iters': 'runner.max_iters',
    'total_iters': 'runner.max_iters',
    'lr': 'optimizer.lr',
    'learning_rate': 'optimizer.lr',
    'weight_decay': 'optimizer.weight_decay',
    'momentum': 'optimizer.momentum',
    'lr_scheduler': "lr_config, such as dict(policy='CosineAnnealing', min_lr=0)",
    'scheduler': "lr_config, such as dict(policy='CosineAnnealing', min_lr=0)",
    'paramwise_cfg': 'optimizer.paramwise_cfg',
    'grad_clip': 'optimizer_config.grad_clip',
    'batch_size': 'data.samples_per_gpu',
    'imgs_per_gpu': 'data.samples_per_gpu',
    'num_workers': 'data.workers_per_gpu',
    'samples_per_gpu': 'data.samples_per_gpu',
    'workers_per_gpu': 'data.workers_per_gpu',
    'shuffle': 'data.train_dataloader.shuffle',
    'drop_last': 'data.train_dataloader.drop_last',
    'sampler': 'data.train_dataloader.sampler',
    'prefetch_factor': 'data.train_dataloader.prefetch_factor',
    'max_batches': 'data.train_dataloader.max_batches',
    'steps_per_epoch': 'data.train_dataloader.max_batches',
    'limit_train_batches': 'data.train_dataloader.max_batches',
    'limit_val_batches': 'data.val_dataloader.max_batches',
    'limit_test_batches': 'data.test_dataloader.max_batches',
    'evaluate': 'evaluation',
    'save_best': 'evaluation.save_best',
    'hooks': 'custom_hooks',
    'callbacks': 'custom_hooks',
    'precision': "amp='bf16' (or 'fp16')",
    'train_cfg': 'model.train_cfg',
    'test_cfg': 'model.test_cfg',
    'plugin_dir': "custom_imports=dict(imports=['the.module'])",
}

SPLITS = ('train', 'val', 'test')

#: Keys that say the same; one of them is enough.
SAME = (('samples_per_gpu', 'batch_size'), ('workers_per_gpu', 'num_workers'))
_PAIRS = tuple(key for pair in SAME for key in pair)

_WARMUP = ('by_epoch', 'warmup', 'warmup_iters', 'warmup_ratio', 'warmup_by_epoch', 'optimizer')
_RUNNER = (
    'constructor',
    'max_epochs',
    'max_iters',
    'batch_processor',
    'model',
    'optimizer',
    'work_dir',
    'logger',
    'meta',
)
_UPDATE = ('grad_clip', 'detect_anomalous_params', 'cumulative_iters', 'amp', 'loss_scale', 'fused')
_UPDATE_FP16 = ('grad_clip', 'coalesce', 'bucket_size_mb', 'loss_scale', 'distributed', 'fused')
_CYCLE = ('target_ratio', 'cyclic_times', 'step_ratio_up', 'anneal_strategy', 'gamma', *_WARMUP)
_LEAST = ('min_lr', 'min_lr_ratio', *_WARMUP)
_LEAST_MOMENTUM = ('min_momentum', 'min_momentum_ratio', *_WARMUP)


#: The names of DistributedDataParallel in ``model_wrapper``: ours, MMCV's and torch's.
DDP = ('DDP', 'MMDistributedDataParallel', 'DistributedDataParallel')
_DDP = tuple(MEANINGS['DDP'])

_WITHOUT_DOCSTRING = (
    'log_config',
    'flow',
    'training',
    'fp16',
    'auto_scale_lr',
    'custom_keys',
    'grad_clip',
    'loss_scale',
    'schedule',
    'dist_params',
    'mp_policy',
)

#: The keys that readers of sections know; for a class, without ``type``.
KEYS: dict[str, tuple[str, ...]] = {
    **{name: tuple(MEANINGS[name]) for name in _WITHOUT_DOCSTRING},
    'data': (*_PAIRS, 'persistent_workers', 'pin_memory', 'seeded', *LOADER_FUNCTIONS),
    'dataloader': (
        *_PAIRS,
        'num_gpus',
        'shuffle',
        'drop_last',
        'persistent_workers',
        'round_up',
        'seeded',
        'sampler',
        'batch_sampler',
        'ranks',
        'prefetch_to',
        'max_batches',
        'collate_fn',
        'pin_memory',
        'timeout',
        'worker_init_fn',
        'multiprocessing_context',
        'generator',
        'prefetch_factor',
        'in_order',
    ),
    'custom_imports': ('imports', 'allow_failed_imports'),
    'paramwise_cfg': (
        'custom_keys',
        'bias_lr_mult',
        'bias_decay_mult',
        'norm_decay_mult',
        'dwconv_decay_mult',
        'dcn_offset_lr_mult',
        'bypass_duplicate',
    ),
    'EpochBasedRunner': _RUNNER,
    'IterBasedRunner': _RUNNER,
    'OptimizerHook': _UPDATE,
    'GradientCumulativeOptimizerHook': _UPDATE,
    'Fp16OptimizerHook': _UPDATE_FP16,
    'GradientCumulativeFp16OptimizerHook': (*_UPDATE_FP16, 'cumulative_iters'),
    'CheckpointHook': (
        'interval',
        'by_epoch',
        'save_optimizer',
        'out_dir',
        'max_keep_ckpts',
        'save_last',
        'sync_buffer',
        'file_client_args',
        'on_error',
        'async_save',
        'filename_tmpl',
        'meta',
        'create_symlink',
    ),
    'EvalHook': (
        'start',
        'interval',
        'by_epoch',
        'save_best',
        'rule',
        'test_fn',
        'greater_keys',
        'less_keys',
        'out_dir',
        'file_client_args',
        'hooks',
    ),
    'IterTimerHook': (),
    **dict.fromkeys(DDP, _DDP),
    'FSDP2': (
        'module_classes',
        'min_num_params',
        'mp_policy',
        'cpu_offload',
        'activation_checkpointing',
        'reshard_after_forward',
        'broadcast_buffers',
        'find_unused_parameters',
        'forward_methods',
    ),
    'ProfilerHook': (
        'by_epoch',
        'profile_iters',
        'activities',
        'schedule',
        'on_trace_ready',
        'record_shapes',
        'profile_memory',
        'with_stack',
        'with_flops',
        'json_trace_path',
        'parts',
    ),
    'FixedLrUpdaterHook': _WARMUP,
    'StepLrUpdaterHook': ('step', 'gamma', 'min_lr', *_WARMUP),
    'ExpLrUpdaterHook': ('gamma', *_WARMUP),
    'PolyLrUpdaterHook': ('power', 'min_lr', *_WARMUP),
    'InvLrUpdaterHook': ('gamma', 'power', *_WARMUP),
    'CosineAnnealingLrUpdaterHook': _LEAST,
    'LinearAnnealingLrUpdaterHook': _LEAST,
    'FlatCosineAnnealingLrUpdaterHook': ('start_percent', *_LEAST),
    'CosineRestartLrUpdaterHook': ('periods', 'restart_weights', *_LEAST),
    'CyclicLrUpdaterHook': _CYCLE,
    'OneCycleLrUpdaterHook': (
        'max_lr',
        'total_steps',
        'pct_start',
        'anneal_strategy',
        'div_factor',
        'final_div_factor',
        'three_phase',
        *_WARMUP,
    ),
    'StepMomentumUpdaterHook': ('step', 'gamma', 'min_momentum', *_WARMUP),
    'CosineAnnealingMomentumUpdaterHook': _LEAST_MOMENTUM,
    'LinearAnnealingMomentumUpdaterHook': _LEAST_MOMENTUM,
    'CyclicMomentumUpdaterHook': _CYCLE,
    'OneCycleMomentumUpdaterHook': (
        'base_momentum',
        'max_momentum',
        'pct_start',
        'anneal_strategy',
        'three_phase',
        *_WARMUP,
    ),
}

#: Readers in `KEYS` that hand other keys on: EvalHook to the data set's ``evaluate``.
OPEN = ('EvalHook', 'training')

#: Readers in `KEYS` that are functions of torch: a later version may know more.
OF_TORCH = ('grad_clip', 'loss_scale', 'schedule', 'dist_params')

#: Parts of sections that have a reader of their own, by the section's.
PARTS = {
    **{name: ('grad_clip', 'loss_scale') for name in KEYS if name.endswith('OptimizerHook')},
    'fp16': ('loss_scale',),
    'ProfilerHook': ('schedule',),
    'FSDP2': ('mp_policy',),
}

#: The constructor of optimizers that reads ``paramwise_cfg``.
OWN_CONSTRUCTOR = 'DefaultOptimizerConstructor'

#: The class that reads a section without ``type``; None where a section without it has no reader.
DEFAULT_READERS: dict[str, str | None] = {
    'runner': None,
    'optimizer_config': 'OptimizerHook',
    'checkpoint_config': 'CheckpointHook',
    'evaluation': 'EvalHook',
    'timer_config': 'IterTimerHook',
    'profiler_config': 'ProfilerHook',
    'model_wrapper': 'DDP',
}

#: How the classes of schedules end, by section: ``policy='step'`` is StepLrUpdaterHook.
SCHEDULES = {'lr_config': 'LrUpdaterHook', 'momentum_config': 'MomentumUpdaterHook'}
