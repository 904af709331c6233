"""The top-level keys of a config that a run knows."""

from __future__ import annotations

#: Keys that a run reads. Other keys belong to the user; they are only checked for misspellings of these.
KNOWN = (
    'model',
    'data',
    'optimizer',
    'optimizer_config',
    'lr_config',
    'momentum_config',
    'runner',
    'workflow',
    'checkpoint_config',
    'log_config',
    'evaluation',
    'custom_hooks',
    'custom_imports',
    'load_from',
    'resume_from',
    'auto_resume',
    'work_dir',
    'seed',
    'deterministic',
    'log_level',
    'num_threads',
    'fp16',
    'amp',
    'compile',
    'channels_last',
    'cudnn_benchmark',
    'tf32',
    'prefetch',
    'dist_params',
    'find_unused_parameters',
    'auto_scale_lr',
    'timer_config',
    'profiler_config',
)

#: Keys of the design that are not supported yet; a run warns about them.
LATER = ('model_wrapper', 'flow', 'pipeline')
