"""Which keys the sections of a config have, without importing what reads them.

``known_keys.json`` is written by ``make docs`` from the readers' signatures and the tables of ``docs/config_keys.md``.
"""

from __future__ import annotations

import json
from pathlib import Path

#: The sections without which there is no run.
REQUIRED = ('model', 'data', 'optimizer', 'runner')

_MMCV_TOOLS = """
    opencv_num_threads mp_start_method omp_num_threads mkl_num_threads gpus gpu_ids gpu_id device launcher local_rank
    no_validate diff_seed ipu_replicas use_ddp_wrapper"""

#: Top-level keys that the training tools of MMCV's downstream projects read, and that mean nothing here.
MMCV_TOOLS = tuple(_MMCV_TOOLS.split())

_FOREIGN = {
    'PaddleRec': """
        workspace mode phase dataset hyper_parameters debug engine""",
    'Vega': """
        general pipeline pipe_step search_algorithm search_space trainer evaluator dataset nas hpo fully_train""",
    'MMEngine': """
        default_hooks default_scope env_cfg log_processor optim_wrapper param_scheduler randomness resume
        train_dataloader val_dataloader test_dataloader val_evaluator test_evaluator val_cfg vis_backends
        visualizer""",
}

#: Top-level keys of other systems, by system; two of them make a config one of that system's.
FOREIGN = {system: tuple(keys.split()) for system, keys in _FOREIGN.items()}

#: By the place of a key: the names under which it is often written elsewhere.
_BELONGS = {
    'runner.max_epochs': 'epochs num_epochs max_epochs',
    'runner.max_iters': 'max_iters total_iters',
    'optimizer.lr': 'lr learning_rate',
    'optimizer.weight_decay': 'weight_decay',
    'optimizer.momentum': 'momentum',
    "lr_config, such as dict(policy='CosineAnnealing', min_lr=0)": 'lr_scheduler scheduler',
    'optimizer.paramwise_cfg': 'paramwise_cfg',
    'optimizer_config.grad_clip': 'grad_clip',
    'data.batch_size': 'batch_size imgs_per_gpu samples_per_gpu',
    'data.workers': 'num_workers workers_per_gpu',
    'data.train_dataloader.shuffle': 'shuffle',
    'data.train_dataloader.drop_last': 'drop_last',
    'data.train_dataloader.sampler': 'sampler',
    'data.train_dataloader.prefetch_factor': 'prefetch_factor',
    'data.train_dataloader.max_batches': 'max_batches steps_per_epoch limit_train_batches',
    'data.val_dataloader.max_batches': 'limit_val_batches',
    'data.test_dataloader.max_batches': 'limit_test_batches',
    'evaluation': 'evaluate',
    'evaluation.save_best': 'save_best',
    'custom_hooks': 'hooks callbacks',
    "amp='bf16' (or 'fp16')": 'precision',
    'model.train_cfg': 'train_cfg',
    'model.test_cfg': 'test_cfg',
    "custom_imports=dict(imports=['the.module'])": 'plugin_dir',
}

#: Where a key belongs that is often written elsewhere.
BELONGS = {key: place for place, keys in _BELONGS.items() for key in keys.split()}

SPLITS = ('train', 'val', 'test')

#: Keys that say the same, by MMCV's name; one of them is enough.
SAME = {'samples_per_gpu': ('batch_size',), 'workers_per_gpu': ('workers', 'num_workers')}

#: The names of DistributedDataParallel in ``model_wrapper``: ours, MMCV's and torch's.
DDP = ('DDP', 'MMDistributedDataParallel', 'DistributedDataParallel')

#: The type of each key that the reader of a section knows, by the name of the reader, a run's is ``top``; for a
#: class, without ``type``.
TYPES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_suffix('.json').read_text(encoding='utf-8'))

#: Top-level keys that a run reads.
TOP = tuple(TYPES['top'])

#: Those of them that are sections whose name has five letters or more, so that a similar key cannot be meant.
SECTIONS = tuple(name for name, kind in TYPES['top'].items() if len(name) >= 5 and kind.startswith(('dict', 'list')))

#: The keys that readers of sections know.
KEYS = {reader: tuple(types) for reader, types in TYPES.items() if reader != 'top'}

#: Readers in `KEYS` that hand other keys on: EvalHook to the data set's ``evaluate``.
OPEN = ('EvalHook', 'training')

#: Readers in `KEYS` that are functions of torch: a later version may know more.
OF_TORCH = ('grad_clip', 'loss_scale', 'schedule', 'dist_params')

#: Parts of sections with another reader, by the reader of the section.
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
