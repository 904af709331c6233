"""Flags and commands of other training tools, and what stands for them here.

The flags are those of MMEngine's and MMCV's tools, Lightning's CLI, Ultralytics, Hugging Face's Trainer, timm and
torchvision's reference scripts.
"""

from __future__ import annotations

_EPOCHS = '--cfg-options runner.max_epochs=VALUE'
_ITERS = '--cfg-options runner.max_epochs=None runner.max_iters=VALUE'
_LR = '--cfg-options optimizer.lr=VALUE'
_BATCH = '--cfg-options data.batch_size=VALUE'
_WORKERS = '--cfg-options data.num_workers=VALUE'
_PROCESSES = 'start that many processes: torchrun --nproc_per_node VALUE … --launcher pytorch'
_CONFIG = 'the config is the first argument, without a flag'
_RESUME = '--auto-resume for the newest checkpoint of the work dir, or --resume-from CHECKPOINT'
_WEIGHTS = '--load-from CHECKPOINT for the weights only, or --resume-from CHECKPOINT to continue a run'
_CHECKPOINT = 'the checkpoint is the second argument, without a flag: runnerkit test CONFIG CHECKPOINT'
_WORK_DIR = '--work-dir VALUE'
_ACCUMULATE = '--cfg-options optimizer_config.cumulative_iters=VALUE'
_SYNC_BN = 'convert the model where it is built: torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)'
_EARLY = 'add an EarlyStoppingHook to custom_hooks in the config'
_IN_CONFIG = 'it is a section of the config; set its keys with --cfg-options'
_WARMUP = (
    '--cfg-options lr_config.warmup=linear lr_config.warmup_iters=VALUE; if the config has no lr_config, '
    '--cfg-options lr_config.policy=Fixed lr_config.warmup=linear lr_config.warmup_iters=VALUE'
)
_OPTIMIZER = '--cfg-options optimizer._delete_=True optimizer.type=VALUE optimizer.lr=0.001 (and its other settings)'
_SCHEDULE = (
    '--cfg-options lr_config.policy=CosineAnnealing lr_config.min_lr=0.0 (or another policy: lr_config in '
    'docs/config_keys.md)'
)
_DRY_RUN = '--dry-run runs one iteration of each mode'
_AMP = '--cfg-options amp=bf16 (or amp=fp16)'

#: What to write instead of a flag, by its name without dashes, in lower case, underscores as dashes; a few short flags
#: by their spelling. VALUE stands for the value that was given. A hint is used by the tools that have its flags; of
#: several hints, the first such one.
FLAGS: dict[str, str | tuple[str, ...]] = {
    # how long
    'epochs': _EPOCHS,
    'epoch': _EPOCHS,
    'max-epochs': _EPOCHS,
    'num-epochs': _EPOCHS,
    'n-epochs': _EPOCHS,
    'num-train-epochs': _EPOCHS,
    'total-epochs': _EPOCHS,
    'max-iters': _ITERS,
    'max-steps': _ITERS,
    'iters': _ITERS,
    'iterations': _ITERS,
    'steps': _ITERS,
    'max-time': 'timeout 8h runnerkit train … saves and ends the run after that time',
    'patience': _EARLY,
    'early-stopping': _EARLY,
    'early-stopping-patience': _EARLY,
    # optimizer
    'lr': _LR,
    'lr0': _LR,
    'learning-rate': _LR,
    'base-lr': _LR,
    'momentum': '--cfg-options optimizer.momentum=VALUE; of Adam and AdamW, --cfg-options optimizer.betas=VALUE,0.999',
    'wd': '--cfg-options optimizer.weight_decay=VALUE',
    'weight-decay': '--cfg-options optimizer.weight_decay=VALUE',
    'opt': _OPTIMIZER,
    'optim': _OPTIMIZER,
    'optimizer': _OPTIMIZER,
    'clip-grad': '--cfg-options optimizer_config.grad_clip.max_norm=VALUE',
    'max-grad-norm': '--cfg-options optimizer_config.grad_clip.max_norm=VALUE',
    'gradient-clip-val': '--cfg-options optimizer_config.grad_clip.max_norm=VALUE',
    'gradient-clip-algorithm': 'gradients are clipped by norm: set optimizer_config.grad_clip in the config',
    'accumulate-grad-batches': _ACCUMULATE,
    'gradient-accumulation-steps': _ACCUMULATE,
    'lr-scheduler': _SCHEDULE,
    'lr-scheduler-type': _SCHEDULE,
    'sched': _SCHEDULE,
    'warmup-steps': _WARMUP,
    # data
    'batch': _BATCH,
    'batch-size': _BATCH,
    'bs': _BATCH,
    'train-batch-size': _BATCH,
    'per-device-train-batch-size': _BATCH,
    'workers': _WORKERS,
    'num-workers': _WORKERS,
    'dataloader-num-workers': _WORKERS,
    # devices, processes, precision
    'gpus': _PROCESSES,
    'ngpus': _PROCESSES,
    'num-gpus': _PROCESSES,
    'devices': _PROCESSES,
    'nproc-per-node': _PROCESSES,
    'world-size': _PROCESSES,
    'gpu': '--gpu-id VALUE, or --device cuda:VALUE',
    'gpu-ids': '--gpu-id VALUE uses one GPU; for several, ' + _PROCESSES.replace('VALUE', 'N'),
    'num-nodes': 'start torchrun on each of the VALUE nodes, with --launcher pytorch',
    'accelerator': '--device cuda or --device cpu (default: a GPU if there is one)',
    'cuda': '--device cuda',
    'cpu': '--device cpu',
    'no-cuda': '--device cpu',
    'use-cpu': '--device cpu',
    'strategy': 'several processes use DDP: torchrun --nproc_per_node N … --launcher pytorch',
    'amp': _AMP,
    'fp16': '--cfg-options amp=fp16',
    'bf16': '--cfg-options amp=bf16',
    'half': '--cfg-options amp=fp16',
    'precision': _AMP,
    'tf32': '--cfg-options tf32=True',
    'compile': '--cfg-options compile=True',
    'torch-compile': '--cfg-options compile=True',
    'threads': '--cfg-options num_threads=VALUE',
    'num-threads': '--cfg-options num_threads=VALUE',
    'sync-bn': _SYNC_BN,
    'sync-batchnorm': _SYNC_BN,
    'benchmark': '--cfg-options cudnn_benchmark=True',
    # files
    'config': _CONFIG,
    'cfg': _CONFIG,
    'config-file': _CONFIG,
    'config-path': _CONFIG,
    '-c': _CONFIG,
    'model': _IN_CONFIG,
    'data': _IN_CONFIG,
    'callbacks': 'callbacks are hooks: list them in custom_hooks in the config',
    'print-config': 'runnerkit print-config CONFIG',
    'cfg-option': '--cfg-options VALUE',
    'options': '--cfg-options VALUE',
    'opts': '--cfg-options VALUE',
    'override': '--cfg-options VALUE',
    'set': '--cfg-options VALUE',
    'resume': _RESUME,
    'resume-from-checkpoint': _RESUME,
    'ckpt-path': (_RESUME, '--checkpoint VALUE', _CHECKPOINT),
    '-r': _RESUME,
    'load': _WEIGHTS,
    'weights': _WEIGHTS,
    'pretrained': _WEIGHTS,
    'init-checkpoint': _WEIGHTS,
    'output': _WORK_DIR,
    'output-dir': _WORK_DIR,
    'out-dir': _WORK_DIR,
    'save-dir': _WORK_DIR,
    'log-dir': _WORK_DIR,
    'default-root-dir': _WORK_DIR,
    'project': _WORK_DIR,
    '-o': _WORK_DIR,
    # how it runs
    'debug': _DRY_RUN,
    'fast-dev-run': _DRY_RUN,
    'limit-train-batches': '--cfg-options data.train_dataloader.max_batches=VALUE',
    'limit-val-batches': '--cfg-options data.val_dataloader.max_batches=VALUE',
    'steps-per-epoch': '--cfg-options data.train_dataloader.max_batches=VALUE',
    'overfit-batches': '--overfit N (the first N samples)',
    'profile': 'runnerkit profile CONFIG shows where the time goes',
    'profiler': 'runnerkit profile CONFIG shows where the time goes',
    'enable-model-summary': 'runnerkit summary CONFIG, or --dry-run',
    'enable-checkpointing': '--cfg-options checkpoint_config=None keeps only the best one of evaluation.save_best',
    'enable-progress-bar': 'the bar is shown only if stderr is a terminal',
    'num-sanity-val-steps': _DRY_RUN,
    'auto-lr-find': 'runnerkit find-lr CONFIG',
    'detect-anomaly': 'add a NonFiniteHook to custom_hooks in the config: it stops at NaN and names the batch',
    'eval-only': 'runnerkit test WORK_DIR evaluates its best checkpoint',
    'evaluate': 'runnerkit test WORK_DIR evaluates its best checkpoint',
    'test-only': 'runnerkit test WORK_DIR evaluates its best checkpoint',
    'eval': 'no flag is needed: the model or the data set computes the scores',
    'no-val': '--no-validate',
    'noval': '--no-validate',
    'skip-validation': '--no-validate',
    'random-seed': '--seed VALUE',
    'seed-everything': '--seed VALUE',
    'log-level': '--cfg-options log_level=VALUE',
    'debug-level': '--cfg-options log_level=VALUE',
    'log-interval': '--cfg-options log_config.interval=VALUE',
    'logging-steps': '--cfg-options log_config.interval=VALUE',
    'print-freq': '--cfg-options log_config.interval=VALUE',
    'log-every-n-steps': '--cfg-options log_config.interval=VALUE',
    'logger': 'add logger hooks to log_config.hooks in the config',
    'wandb': 'add a WandbLoggerHook to log_config.hooks in the config',
    'tensorboard': 'add a TensorboardLoggerHook to log_config.hooks in the config',
    'mlflow': 'add a MlflowLoggerHook to log_config.hooks in the config',
    '-v': '--verbose',
    'save-period': '--cfg-options checkpoint_config.interval=VALUE',
    'save-steps': '--cfg-options checkpoint_config.interval=VALUE',
    'save-interval': '--cfg-options checkpoint_config.interval=VALUE',
    'eval-interval': '--cfg-options evaluation.interval=VALUE',
    'eval-steps': '--cfg-options evaluation.interval=VALUE',
    'val-interval': '--cfg-options evaluation.interval=VALUE',
    'check-val-every-n-epoch': '--cfg-options evaluation.interval=VALUE',
    'val-check-interval': '--cfg-options evaluation.by_epoch=False evaluation.interval=VALUE',
    # testing
    'checkpoint': _CHECKPOINT,
    'ckpt': ('--checkpoint VALUE', _CHECKPOINT),
    'json-out': '--out FILE.json',
    # exporting
    'format': '--out FILE.VALUE (the extension sets the format)',
    'include': '--out FILE.onnx (the extension sets the format)',
    'output-file': '--out VALUE',
    'imgsz': '--shape 3,VALUE,VALUE',
    'img-size': '--shape 3,VALUE,VALUE',
    'input-size': '--shape 3,VALUE,VALUE',
    'input-shape': '--shape VALUE (of one sample, without the batch)',
    'verify': '--out FILE is always compared with the model',
    'dynamic-export': '--out FILE always takes batches of any size',
}

#: Sections of other tools' configs, in flags such as ``--lr_scheduler.gamma``, and ours.
SECTIONS = {'lr_scheduler': 'lr_config', 'scheduler': 'lr_config', 'optim': 'optimizer'}

#: Commands of other tools, by what they are called here.
COMMANDS = {
    'fit': 'train',
    'run': 'train',
    'resume': 'train',
    'finetune': 'train',
    'eval': 'test',
    'evaluate': 'test',
    'val': 'test',
    'validate': 'test',
    'infer': 'predict',
    'inference': 'predict',
    'detect': 'predict',
    'publish-model': 'publish',
    'publish_model': 'publish',
    'deploy': 'export',
    'onnx': 'export',
    'pytorch2onnx': 'export',
    'benchmark': 'profile',
    'lr-find': 'find-lr',
    'lr-finder': 'find-lr',
    'show-config': 'print-config',
    'config': 'print-config',
}
