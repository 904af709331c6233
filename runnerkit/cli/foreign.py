"""Flags and commands of other training tools, and what to write for them here.

The flags are those of MMEngine's and MMCV's tools, Lightning's CLI, Ultralytics, Hugging Face's Trainer, timm and
torchvision's reference scripts.
"""

from __future__ import annotations

#: By what to write instead, the flags: names without dashes, in lower case, underscores as dashes; a few short flags by
#: their spelling. VALUE is replaced by the value that was given. A hint is for the tools that have its flags; of
#: several hints for a flag, the first such one.
_HINTS = {
    '--cfg-options runner.max_epochs=VALUE': (
        'epochs epoch max-epochs num-epochs n-epochs num-train-epochs total-epochs'
    ),
    '--cfg-options runner.max_epochs=None runner.max_iters=VALUE': 'max-iters max-steps iters iterations steps',
    'timeout 8h runnerkit train … saves and ends the run after that time': 'max-time',
    'add an EarlyStoppingHook to custom_hooks in the config': 'patience early-stopping early-stopping-patience',
    '--cfg-options optimizer.lr=VALUE': 'lr lr0 learning-rate base-lr',
    '--cfg-options optimizer.momentum=VALUE; of Adam and AdamW, --cfg-options optimizer.betas=VALUE,0.999': 'momentum',
    '--cfg-options optimizer.weight_decay=VALUE': 'wd weight-decay',
    '--cfg-options optimizer._delete_=True optimizer.type=VALUE optimizer.lr=0.001 (and its other settings)': (
        'opt optim optimizer'
    ),
    '--cfg-options optimizer_config.grad_clip.max_norm=VALUE': 'clip-grad max-grad-norm gradient-clip-val',
    'gradients are clipped by norm: set optimizer_config.grad_clip in the config': 'gradient-clip-algorithm',
    '--cfg-options optimizer_config.cumulative_iters=VALUE': 'accumulate-grad-batches gradient-accumulation-steps',
    (
        '--cfg-options lr_config.policy=CosineAnnealing lr_config.min_lr=0.0 (or another policy: lr_config in '
        'docs/config_keys.md)'
    ): 'lr-scheduler lr-scheduler-type sched',
    (
        '--cfg-options lr_config.warmup=linear lr_config.warmup_iters=VALUE; if the config has no lr_config, '
        '--cfg-options lr_config.policy=Fixed lr_config.warmup=linear lr_config.warmup_iters=VALUE'
    ): 'warmup-steps',
    '--cfg-options data.batch_size=VALUE': 'batch batch-size bs train-batch-size per-device-train-batch-size',
    '--cfg-options data.num_workers=VALUE': 'workers num-workers dataloader-num-workers',
    'start that many processes: torchrun --nproc_per_node VALUE … --launcher pytorch': (
        'gpus ngpus num-gpus devices nproc-per-node world-size'
    ),
    '--gpu-id VALUE, or --device cuda:VALUE': 'gpu',
    (
        '--gpu-id VALUE uses one GPU; for several, start that many processes: torchrun --nproc_per_node N … '
        '--launcher pytorch'
    ): 'gpu-ids',
    'start torchrun on each of the VALUE nodes, with --launcher pytorch': 'num-nodes',
    '--device cuda or --device cpu (default: a GPU if there is one)': 'accelerator',
    '--device cuda': 'cuda',
    '--device cpu': 'cpu no-cuda use-cpu',
    'several processes use DDP: torchrun --nproc_per_node N … --launcher pytorch': 'strategy',
    '--cfg-options amp=bf16 (or amp=fp16)': 'amp precision',
    '--cfg-options amp=fp16': 'fp16 half',
    '--cfg-options amp=bf16': 'bf16',
    '--cfg-options tf32=True': 'tf32',
    '--cfg-options compile=True': 'compile torch-compile',
    '--cfg-options num_threads=VALUE': 'threads num-threads',
    'convert the model where it is built: torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)': (
        'sync-bn sync-batchnorm'
    ),
    '--cfg-options cudnn_benchmark=True': 'benchmark',
    'the config is the first argument, without a flag': 'config cfg config-file config-path -c',
    'it is a section of the config; set its keys with --cfg-options': 'model data',
    'callbacks are hooks: list them in custom_hooks in the config': 'callbacks',
    'runnerkit print-config CONFIG': 'print-config',
    '--cfg-options VALUE': 'cfg-option options opts override set',
    '--auto-resume for the newest checkpoint of the work dir, or --resume-from CHECKPOINT': (
        'resume resume-from-checkpoint ckpt-path -r'
    ),
    '--checkpoint VALUE': 'ckpt-path ckpt',
    '--load-from CHECKPOINT for the weights only, or --resume-from CHECKPOINT to continue a run': (
        'load weights pretrained init-checkpoint'
    ),
    '--work-dir VALUE': 'output output-dir out-dir save-dir log-dir default-root-dir project -o',
    '--dry-run runs one iteration of each mode': 'debug fast-dev-run num-sanity-val-steps',
    '--cfg-options data.train_dataloader.max_batches=VALUE': 'limit-train-batches steps-per-epoch',
    '--cfg-options data.val_dataloader.max_batches=VALUE': 'limit-val-batches',
    '--overfit N (the first N samples)': 'overfit-batches',
    'runnerkit profile CONFIG shows where the time goes': 'profile profiler',
    'runnerkit summary CONFIG, or --dry-run': 'enable-model-summary',
    '--cfg-options checkpoint_config=None keeps only the best one of evaluation.save_best': 'enable-checkpointing',
    'the bar is shown only if stderr is a terminal': 'enable-progress-bar',
    'runnerkit find-lr CONFIG': 'auto-lr-find',
    'add a NonFiniteHook to custom_hooks in the config: it stops at NaN and names the batch': 'detect-anomaly',
    'runnerkit test WORK_DIR evaluates its best checkpoint': 'eval-only evaluate test-only',
    'no flag is needed: the model or the data set computes the scores': 'eval',
    '--no-validate': 'no-val noval skip-validation',
    '--seed VALUE': 'random-seed seed-everything',
    '--cfg-options log_level=VALUE': 'log-level debug-level',
    '--cfg-options log_config.interval=VALUE': 'log-interval logging-steps print-freq log-every-n-steps',
    'add logger hooks to log_config.hooks in the config': 'logger',
    'add a WandbLoggerHook to log_config.hooks in the config': 'wandb',
    'add a TensorboardLoggerHook to log_config.hooks in the config': 'tensorboard',
    'add a MlflowLoggerHook to log_config.hooks in the config': 'mlflow',
    '--verbose': '-v',
    '--cfg-options checkpoint_config.interval=VALUE': 'save-period save-steps save-interval',
    '--cfg-options evaluation.interval=VALUE': 'eval-interval eval-steps val-interval check-val-every-n-epoch',
    '--cfg-options evaluation.by_epoch=False evaluation.interval=VALUE': 'val-check-interval',
    '--out FILE.json': 'json-out',
    '--out FILE.VALUE (the extension sets the format)': 'format',
    '--out FILE.onnx (the extension sets the format)': 'include',
    '--out VALUE': 'output-file',
    '--shape 3,VALUE,VALUE': 'imgsz img-size input-size',
    '--shape VALUE (of one sample, without the batch)': 'input-shape',
    '--out FILE is always compared with the model': 'verify',
    '--out FILE always takes batches of any size': 'dynamic-export',
    'the checkpoint is the second argument, without a flag: runnerkit test CONFIG CHECKPOINT': (
        'ckpt-path checkpoint ckpt'
    ),
}

#: What to write instead of a flag, by its name: the hints, of which the first that fits is used.
FLAGS: dict[str, list[str]] = {}
for _hint, _names in _HINTS.items():
    for _name in _names.split():
        FLAGS.setdefault(_name, []).append(_hint)

#: Sections of other tools' configs, in flags such as ``--lr_scheduler.gamma``, and ours.
SECTIONS = {'lr_scheduler': 'lr_config', 'scheduler': 'lr_config', 'optim': 'optimizer'}

_COMMANDS = {
    'train': 'fit run resume finetune',
    'test': 'eval evaluate val validate',
    'predict': 'infer inference detect',
    'publish': 'publish-model publish_model',
    'export': 'deploy onnx pytorch2onnx',
    'profile': 'benchmark',
    'find-lr': 'lr-find lr-finder',
    'print-config': 'show-config config',
}

#: Commands of other tools, by what they are called here.
COMMANDS = {name: ours for ours, names in _COMMANDS.items() for name in names.split()}
