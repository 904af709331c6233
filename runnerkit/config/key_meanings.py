"""What the keys of a config mean that no docstring describes, for `docs/config_keys.md` (``make docs``).

The keys of all other sections are the arguments of a class or function, whose docstring describes them.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """One key of a config. The texts are Markdown.

    Attributes:
        type: the kind of its value.
        default: what holds without it; ``'required'`` if there is no run without it.
        meaning: one line.
    """

    type: str
    default: str
    meaning: str


#: Top-level keys that a run reads.
TOP: dict[str, Key] = {
    'model': Key('dict', 'required', 'The model to train, by name, with its arguments.'),
    'data': Key('dict', 'required', 'The data sets, and how batches are loaded from them.'),
    'optimizer': Key('dict', 'required', 'The optimizer, by name; or several of them.'),
    'optimizer_config': Key(
        'dict or None',
        '`dict()`',
        'How weights are updated: clipping, accumulation, mixed precision. None: only by the model itself.',
    ),
    'lr_config': Key('dict', 'a constant rate', 'The learning-rate schedule, with its warm-up.'),
    'momentum_config': Key('dict', 'a constant momentum', 'The momentum schedule.'),
    'runner': Key('dict', 'required', 'How long the run is, in epochs or in iterations.'),
    'total_epochs': Key('int', '', "MMCV's older way to say `runner=dict(type='EpochBasedRunner', max_epochs=…)`."),
    'workflow': Key('list of pairs', "`[('train', 1)]`", 'Which splits of `data` take turns, and how long.'),
    'checkpoint_config': Key('dict or None', 'see below', 'When checkpoints are saved, and how many are kept.'),
    'log_config': Key('dict or None', 'see below', 'Where the log goes, and how often.'),
    'evaluation': Key(
        'dict', 'no evaluation', 'How often `data.val` is evaluated, and by which score the best checkpoint is chosen.'
    ),
    'custom_hooks': Key('list of dicts', '`[]`', 'Further hooks, of runnerkit or yours.'),
    'custom_imports': Key('dict', 'nothing', 'Modules or files to import first, for the classes that they register.'),
    'load_from': Key(
        'path or URL',
        'None',
        'A checkpoint, or only that of the network, from whose weights a new run starts; `--load-from`.',
    ),
    'resume_from': Key('path or URL', 'None', 'A checkpoint whose run is continued; `--resume-from`.'),
    'auto_resume': Key(
        'bool', 'False', 'Continue from the newest checkpoint in the work dir, if there is one; `--auto-resume`.'
    ),
    'work_dir': Key(
        'path or URL', '`work_dirs/<config>`', 'The folder for logs and checkpoints of the run; `--work-dir`.'
    ),
    'seed': Key('int', 'a random one, logged', 'The seed of everything random in the run, at least 0; `--seed`.'),
    'deterministic': Key('bool', 'False', 'Let cuDNN use deterministic algorithms only; `--deterministic`.'),
    'num_threads': Key('int', "torch's", "torch's CPU threads in each process."),
    'log_level': Key('str or int', "`'INFO'`", 'The least severe messages that the log shows.'),
    'fp16': Key('dict', 'None', "MMCV's mixed precision; `amp='fp16'` is the newer way."),
    'amp': Key('str', 'None', "Mixed precision: `'bf16'`, or `'fp16'` with a scaled loss."),
    'compile': Key('bool or dict', 'False', 'Let `torch.compile` compile the model, or some of its submodules.'),
    'channels_last': Key('bool', 'False', 'Store 4-D weights with their channels last.'),
    'cudnn_benchmark': Key('bool', "torch's", 'Let cuDNN measure which algorithm is the fastest.'),
    'tf32': Key('bool', "torch's", 'Allow TF32, or forbid it, for float32 products and convolutions on a GPU.'),
    'prefetch': Key('bool', 'False', 'Copy the next batch to the GPU during the current iteration.'),
    'dist_params': Key('dict', "`dict(backend='nccl')`", 'How the processes of a distributed run find each other.'),
    'find_unused_parameters': Key(
        'bool', 'False', 'Distributed runs: allow parameters that get no gradient in some iterations.'
    ),
    'broadcast_buffers': Key(
        'bool', 'True', "Distributed runs: all ranks take over rank 0's buffers in each iteration."
    ),
    'model_wrapper': Key(
        'dict', "`dict(type='DDP')`", 'The wrapper of the model in distributed runs: `DDP`, `FSDP2`, or your class.'
    ),
    'sync_batchnorm': Key(
        'bool', 'False', 'Distributed runs on GPUs: batch norms take their statistics over the batches of all ranks.'
    ),
    'auto_scale_lr': Key('dict', 'None', 'Scale the learning rate with the whole batch; `--auto-scale-lr`.'),
    'timer_config': Key('dict or None', "`dict(type='IterTimerHook')`", 'The hook that logs `time` and `data_time`.'),
    'profiler_config': Key('dict', 'None', "Run torch's profiler for some epochs or iterations."),
    'flow': Key('dict', 'the default stages', 'Your stages: what the program does around the training.'),
    'training': Key('dict', 'None', "An `Experiment`'s length, and how often it validates and saves."),
}

#: Keys by section, and further ones of sections whose other keys have docstrings.
MEANINGS: dict[str, dict[str, Key]] = {
    'splits': {
        'train': Key('dict or list', 'required', 'The data set of `train` entries of the workflow.'),
        'val': Key('dict or list', 'None', 'The data set that `evaluation` and `val` entries of the workflow use.'),
        'test': Key('dict or list', 'None', 'The data set of `runnerkit test` and `runnerkit predict`.'),
        '<name>': Key('dict or list', '', 'A split of any name, for the workflow, `test --split` and `predict`.'),
        '<split>_dataloader': Key('dict', '`dict()`', 'Settings for the loader of this split alone; they come first.'),
    },
    'data': {
        'samples_per_gpu': Key('int', '1', 'Samples in a batch on each device.'),
        'batch_size': Key('int', '', "torch's name for `samples_per_gpu`."),
        'workers_per_gpu': Key('int', '0', 'Processes that load, for each device; 0 loads in the main process.'),
        'num_workers': Key('int', '', "torch's name for `workers_per_gpu`."),
        'pin_memory': Key('bool', 'False', 'Load batches into pinned memory, from which a GPU copies faster.'),
        'collate_fn': Key('function or its name', "torch's", 'Makes a batch of a list of samples.'),
        'worker_init_fn': Key('function or its name', 'None', 'Called in each worker with its number before it loads.'),
    },
    'dataloader': {
        'shuffle': Key('bool', 'for training', 'A new order in every epoch.'),
        'round_up': Key('bool', 'for training', 'Give all ranks equally many samples, by repeating some.'),
        'timeout': Key('float', '0', 'Seconds after which a worker that delivers nothing is an error; 0: never.'),
        'multiprocessing_context': Key('str', "the system's", "How workers are started: `'fork'`, `'spawn'` …"),
        'generator': Key('object', "the loader's own", 'Where the seeds of the workers come from.'),
        'prefetch_factor': Key('int', '2', 'Batches that each worker loads ahead.'),
        'in_order': Key('bool', 'True', 'Whether batches of several workers keep their order (torch 2.6 or later).'),
    },
    'optimizer': {
        'type': Key('str', 'required', 'A class of `torch.optim`, or your class; the other keys are its arguments.'),
        'paramwise_cfg': Key('dict', 'None', 'Other learning rates and weight decays for some parameters, see below.'),
        'params': Key('list of str', 'None', "Patterns of the names of its parameters, `['generator.*']`; None: all."),
        'constructor': Key(
            'str', "`'DefaultOptimizerConstructor'`", 'Your class that makes parameter groups from the model.'
        ),
    },
    'custom_keys': {
        'lr_mult': Key('float', '1.0', 'Multiplies the learning rate of these parameters.'),
        'decay_mult': Key('float', '1.0', 'Multiplies their weight decay.'),
    },
    'runner': {
        'type': Key('str', 'required', "`'EpochBasedRunner'`, `'IterBasedRunner'`, or your class."),
        'constructor': Key('str', "`'DefaultRunnerConstructor'`", 'Your class that builds the runner.'),
        'model': Key('module', "the config's", 'Another model, from Python.'),
        'optimizer': Key('Optimizer or dict', "the config's", 'Another optimizer, or several by name, from Python.'),
        'work_dir': Key('path', "the run's", 'Another folder for what the runner writes.'),
        'logger': Key('Logger', "the run's", 'Another logger, from Python.'),
        'meta': Key('dict', "the run's", 'What every checkpoint remembers of the run, from Python.'),
    },
    'FixedLrUpdaterHook': {
        'policy': Key('str', 'required', 'The schedule, by name: see the tables below.'),
    },
    'training': {
        'max_iteration': Key('int', '900000', 'The number of training batches.'),
        'valid_interval': Key('int', '1000', 'Iterations between two validations.'),
        'save_interval': Key('int', '10000', 'Iterations between two checkpoints, without a `checkpoint_config`.'),
        'log_interval': Key('int', '50, or a tenth of a short run', 'Iterations between two log lines.'),
    },
    'flow': {
        'instance': Key('str or dict', "`'Instance'`", 'The first stage, such as a download.'),
        'network': Key('str or dict', "`'Network'`", 'Builds data, model and optimizer.'),
        'startup': Key('str, dict or None', "`'Startup'`", 'Loads weights.'),
        'runner': Key('str or dict', "`'Runner'`", 'Trains.'),
        'terminal': Key('str, dict or None', "`'Terminal'`", 'The last stage, however the run ended.'),
    },
    'fp16': {
        'loss_scale': Key('float, str or dict', '512.0', "As in `optimizer_config`: a factor, `'dynamic'`, or a dict."),
    },
    'auto_scale_lr': {
        'enable': Key('bool', 'False', 'Scale it also without `--auto-scale-lr`.'),
        'base_batch_size': Key('int', 'required', 'The whole batch, over all GPUs, that `optimizer.lr` is meant for.'),
    },
    'grad_clip': {
        'max_norm': Key(
            'float',
            'required',
            "The largest norm; larger gradients are scaled down to it. `float('inf')` only measures the norm.",
        ),
        'norm_type': Key('float', '2.0', "The kind of norm; `float('inf')` for the largest value."),
        'error_if_nonfinite': Key('bool', 'False', 'Whether a norm that is NaN or infinite is an error.'),
        'foreach': Key('bool', 'None', 'Whether to use the faster implementation; None: where there is one.'),
    },
    'loss_scale': {
        'init_scale': Key('float', '65536.0', 'The first factor.'),
        'growth_factor': Key('float', '2.0', 'Multiplies the factor after `growth_interval` good iterations.'),
        'backoff_factor': Key('float', '0.5', 'Multiplies the factor after gradients that are not finite.'),
        'growth_interval': Key('int', '2000', 'Iterations in a row without such gradients.'),
        'enabled': Key('bool', 'True', 'False switches scaling off.'),
    },
    'log_config': {
        'interval': Key('int', "the logger's own, 10", 'Iterations between two log lines, for all loggers below.'),
        'hooks': Key('list of dicts', "`[dict(type='TextLoggerHook')]`", 'The loggers, see the table below.'),
    },
    'custom_hooks': {
        'type': Key('str', 'required', 'The hook, by name; the other keys are its arguments.'),
        'priority': Key('str or int', "`'NORMAL'`", 'When it is called among the hooks of a point: 0 first, 100 last.'),
    },
    'schedule': {
        'wait': Key('int', 'required', 'Iterations of each cycle that are left out.'),
        'warmup': Key('int', 'required', 'Iterations after that in which the profiler runs and nothing is kept.'),
        'active': Key('int', 'required', 'Iterations after that which are recorded.'),
        'repeat': Key('int', '0', 'How many cycles; 0: to the end.'),
        'skip_first': Key('int', '0', 'Iterations before the first cycle.'),
        'skip_first_wait': Key('int', '0', 'Whether to leave out `wait` in the first cycle: 1 if so.'),
    },
    'compile': {
        'modules': Key('list of str', 'the whole model', 'The submodules to compile, by name.'),
        'dynamic': Key('bool or None', 'False', 'False compiles once for each shape, True once for all shapes.'),
        'mode': Key('str', 'None', "`'reduce-overhead'`, `'max-autotune'` …"),
        'backend': Key('str', "`'inductor'`", 'The compiler.'),
        'fullgraph': Key('bool', 'False', 'Whether code that cannot be compiled as a whole is an error.'),
        'options': Key('dict', 'None', 'Settings of the backend.'),
        'disable': Key('bool', 'False', 'Compile nothing.'),
    },
    'DDP': {
        'broadcast_buffers': Key('bool', 'True', "Whether all ranks take over rank 0's buffers in each iteration."),
        'find_unused_parameters': Key('bool', 'False', 'Allow parameters that get no gradient in some iterations.'),
        'bucket_cap_mb': Key('float', '25', 'The size of the buckets in which gradients are sent, in MiB.'),
        'gradient_as_bucket_view': Key('bool', 'False', 'Let gradients be views of the buckets, which saves memory.'),
        'static_graph': Key('bool', 'False', 'Promise that each iteration uses the same parameters.'),
        'init_sync': Key('bool', 'True', "Give all ranks rank 0's weights at the start."),
    },
    'mp_policy': {
        'param_dtype': Key('str', "the weights' own", "In which type units compute: `'bf16'`, `'fp16'`, `'fp32'`."),
        'reduce_dtype': Key('str', '`param_dtype`', 'In which type gradients are averaged.'),
        'output_dtype': Key('str', 'as computed', 'In which type the model returns its outputs.'),
        'cast_forward_inputs': Key('bool', 'True', 'Whether units cast their inputs to `param_dtype`.'),
    },
    'dist_params': {
        'backend': Key(
            'str',
            "`'nccl'`",
            "`'gloo'` works without GPUs. `'nccl'` means that of this machine's devices, whatever it is.",
        ),
        'join_within': Key('float', '300', 'Seconds that rank 0 waits at the start for the other processes.'),
        'end_within': Key(
            'float', '30', 'Seconds within which all processes are gone after one rank has failed or died.'
        ),
        'hang_after': Key(
            'float or None', '600', 'Seconds without an iteration after which a run that hangs is ended; None: never.'
        ),
        'port': Key('int', "from the job's id", 'The port of rank 0, for the launcher `slurm` only.'),
        'init_method': Key('str', "`'env://'`", 'The URL by which the processes meet.'),
        'timeout': Key('float', "torch's", 'Seconds that a rank waits for the others.'),
        'world_size': Key('int', "the launcher's", 'How many processes there are.'),
        'rank': Key('int', "the launcher's", 'The number of this process.'),
        'store': Key('object', 'None', 'A store of torch through which they meet, in place of a URL.'),
        'group_name': Key('str', "`''`", 'No effect in torch any more.'),
        'pg_options': Key('object', 'None', "Options of the backend's process group."),
        'device_id': Key('device', 'None', 'The GPU of this process.'),
    },
}
