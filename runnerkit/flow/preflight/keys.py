"""Checks of the config alone: values of a wrong type, keys that contradict each other or have no effect."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from runnerkit.config.keys import has_known_reader, unread_keys, wrong_values
from runnerkit.config.known_keys import SAME
from runnerkit.config.origin import Finding
from runnerkit.config.values import BOOL, NUMBER, WHOLE, right_value
from runnerkit.flow.preflight.plan import Plan, parts_of_optimizer
from runnerkit.flow.stages.defaults import EVALUATED, compile_options, is_experiment, splits_in, validates
from runnerkit.hooks import HOOKS
from runnerkit.nn.compiled import check_options
from runnerkit.runner import RUNNERS
from runnerkit.runner.workflow import check_entries
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.suggest import suggestion


def values(plan: Plan) -> Iterator[Finding]:
    """Values of a wrong type, numbers that are not finite, and the options of ``compile``."""
    if plan.cfg is not None:
        yield from wrong_values(plan.cfg)
    if plan.get('compile') is not None:
        try:
            check_options(compile_options(plan.cfg) or {})
        except (TypeError, ValueError) as error:
            yield plan.error(('compile',), one_line(error), 'Leave compile out to switch it off.')


def unread(plan: Plan) -> Iterator[Finding]:
    """Unknown keys, and the section of an `Experiment` for another runner."""
    if plan.cfg is not None:
        yield from unread_keys(plan.cfg)
    if plan.get('training') is not None and not is_experiment(plan.cfg):
        what = 'unused: the runner is not an Experiment'
        yield plan.warning(('training',), what, 'Leave it out, or name your Experiment as the type of runner.')


def workflow(plan: Plan) -> Iterator[Finding]:
    """The shape of ``workflow``, and data for each of its entries."""
    entries = plan.get('workflow')
    if entries is None:
        return
    way_out = "Give a list such as [('train', 1)], or [('train', 1), ('val', 1)]."
    try:
        check_entries(entries)
    except (TypeError, ValueError) as error:
        yield plan.error(('workflow',), one_line(error), way_out)
        return
    if not entries:
        yield plan.error(('workflow',), 'an empty workflow trains nothing', way_out)
    elif len(validates(entries, plan.get('data'))) == len(entries):
        yield plan.error(('workflow',), f'{entries!r} never trains, so the run never ends', way_out)
    elif any(mode == 'val' for mode, _ in entries) and not plan.get('data', 'val') and plan.get('data') is not None:
        what = "its 'val' entry validates on data.val, which is missing"
        yield plan.error(('workflow',), what, "Add data.val, or leave the 'val' entry out.")
    data, named = plan.get('data'), plan.get('runner', 'type')
    runner = RUNNERS.registered(named) if isinstance(named, str) else named
    there = splits_in(data) if isinstance(data, Mapping) else []
    for mode in dict.fromkeys(mode for mode, _ in entries) if isinstance(data, Mapping) else ():
        # Other modes may be steps of the model, which is not built yet.
        is_split = mode != 'val' and mode.partition('_')[0] in EVALUATED
        if is_split and mode not in there and not callable(getattr(runner, mode, None)):
            yield plan.error(
                ('workflow',),
                f'its {mode!r} entry validates on data.{mode}, which is missing (data has {", ".join(there)})'
                f'{suggestion(mode, there)}',
                f'Add data.{mode}, or leave the entry out.',
            )


def evaluation(plan: Plan) -> Iterator[Finding]:
    """``evaluation`` without data, and data without an evaluation."""
    if not isinstance(plan.get('data'), Mapping) or not plan.options.validate:
        return
    wanted, data = plan.get('evaluation'), plan.get('data', 'val')
    if isinstance(wanted, Mapping) and data is None:
        best = f', and save_best={wanted["save_best"]!r} keeps nothing' if wanted.get('save_best') else ''
        yield plan.error(
            ('evaluation',),
            f'there is no data.val to evaluate on: nothing is evaluated{best}',
            'Add data.val, or set evaluation=None (--no-validate for one run).',
        )
    validates_val = 'val' in validates(plan.get('workflow'), plan.get('data'))
    is_whole = plan.get('runner') is not None or plan.get('total_epochs') is not None  # not a part for ``_base_``
    if is_whole and data is not None and 'evaluation' not in plan.cfg and not validates_val:
        yield plan.warning(
            ('data', 'val'),
            "is never used: the config has no evaluation, and the workflow no 'val' entry",
            'Add evaluation=dict(interval=1), or set evaluation=None to hide this warning.',
        )


def keys_agree(plan: Plan) -> Iterator[Finding]:
    """Keys that exclude each other, and keys that others switch off."""
    get = plan.get
    if get('runner', 'max_epochs') is not None and get('runner', 'max_iters') is not None:
        what = 'max_epochs and max_iters both set the length of the run'
        yield plan.error(('runner', 'max_iters'), what, 'Keep one of them.')
    if (
        get('total_epochs') is not None
        and get('runner') is not None
        and get('total_epochs') != get('runner', 'max_epochs')
    ):
        what = 'is ignored, because runner sets the length of the run'
        yield plan.warning(('total_epochs',), what, 'Leave total_epochs out.')
    kept = get('checkpoint_config', 'max_keep_ckpts')
    if isinstance(kept, int) and kept < 1 and kept != -1:
        way_out = 'Write -1 to keep all, or 1 to keep the newest only.'
        yield plan.warning(('checkpoint_config', 'max_keep_ckpts'), 'a number below 1 keeps all checkpoints', way_out)
    if get('cudnn_benchmark') and (plan.options.deterministic or get('deterministic')):
        way_out = 'Leave cudnn_benchmark or deterministic out.'
        yield plan.warning(('cudnn_benchmark',), 'has no effect in a deterministic run', way_out)
    if not plan.options.validate and 'val' in validates(get('workflow'), get('data')):
        what = "--no-validate switches the evaluation off, but the workflow's 'val' entry still validates"
        yield plan.warning(('workflow',), what, "Leave the 'val' entry out, or --no-validate.")
    options = ('warmup_iters', 'warmup_ratio', 'warmup_by_epoch')
    for section in ('lr_config', 'momentum_config'):
        if get(section, 'warmup') is None and any(get(section, key) for key in options):
            what = 'no warm-up takes place: its length or ratio is given, but not warmup'
            way_out = f"Add warmup='linear' ('constant', 'exp'), or leave {', '.join(options)} out."
            yield plan.warning((section, 'warmup'), what, way_out)


def resuming(plan: Plan) -> Iterator[Finding]:
    """Keys and flags about resuming that exclude each other."""
    resumes, auto_resume, load_from = (
        getattr(plan.options, name) or plan.get(name) for name in ('resume_from', 'auto_resume', 'load_from')
    )
    if resumes and load_from:
        way_out = 'resume_from continues a run, load_from starts a new one from weights'
        what = 'is ignored, because the run resumes from resume_from'
        yield plan.warning(('load_from',), what, f'Leave one of them out: {way_out}.')
    if resumes and auto_resume:
        what = 'is ignored, because resume_from names the checkpoint'
        yield plan.warning(('auto_resume',), what, 'Leave one of them out.')
    if plan.get('checkpoint_config', 'save_optimizer') is False and auto_resume:
        what = 'save_optimizer=False leaves no checkpoint from which auto_resume can resume exactly'
        yield plan.warning(('checkpoint_config', 'save_optimizer'), what, 'Leave one of them out.')


def precision(plan: Plan) -> Iterator[Finding]:
    """``amp``, ``fp16`` and ``loss_scale`` that contradict each other."""
    get, updating = plan.get, 'optimizer_config'
    amp, fp16, own = get('amp'), get('fp16'), get(updating, 'amp')
    if own is not None and amp not in (None, own):
        yield plan.error((updating, 'amp'), 'differs from the top-level amp', 'Keep one of them.')
    if amp is not None and fp16 is not None and amp != 'fp16':
        way_out = "Keep amp='bf16' and set fp16=None, or leave amp out."
        yield plan.error(('fp16',), 'amp and fp16 ask for different precisions', way_out)
    elif amp is not None and get('fp16', 'loss_scale') is not None:
        way_out = 'Leave amp out, or write optimizer_config=dict(loss_scale=…).'
        yield plan.warning(
            ('fp16', 'loss_scale'), "is ignored with amp='fp16', which scales the loss dynamically", way_out
        )
    # MMCV's hooks for fp16 always scale the loss.
    is_plain = (get(updating, 'type') or 'OptimizerHook') == 'OptimizerHook'
    if get(updating, 'loss_scale') is not None and is_plain and not (own or amp or fp16):
        what = "has no effect without amp='fp16': the loss is not scaled"
        yield plan.warning((updating, 'loss_scale'), what, "Add amp='fp16', or leave loss_scale out.")


def without_workers(plan: Plan) -> Iterator[Finding]:
    """Options of worker processes in loaders that have none."""
    data = plan.get('data')
    if not isinstance(data, Mapping):
        return
    own = {key: each for key, each in data.items() if str(key).endswith('_dataloader') and isinstance(each, Mapping)}
    idle = {name: each for name, each in own.items() if not _workers(each, data)}
    options = ('persistent_workers', 'prefetch_factor')
    useless: list[tuple[Any, ...]] = [
        ('data', name, key) for name, each in idle.items() for key in options if each.get(key)
    ]
    if data.get('persistent_workers') and len(idle) == len(own) and not _workers(data, data):
        useless.append(('data', 'persistent_workers'))
    for path in useless:
        way_out = f'Set workers to at least 1, or leave {path[-1]} out.'
        yield plan.warning(path, 'has no effect without workers', way_out)


def _workers(loader: Mapping[str, Any], common: Mapping[str, Any]) -> Any:
    """The number of worker processes of a loader, by any name; its own, else the common one."""
    names = ('workers_per_gpu', *SAME['workers_per_gpu'])
    given = (part.get(key) for part in (loader, common) for key in names)
    return next((number for number in given if number is not None), 0)


def optimizer_numbers(plan: Plan) -> Iterator[Finding]:
    """Learning rates and clipping with which nothing, or nothing good, is learned."""
    for path, _, config in parts_of_optimizer(plan):
        lr = config.get('lr')
        if lr is None and 'lr' in config:
            yield plan.error((*path, 'lr'), 'is None', 'Give a number, or leave lr out.')
        if isinstance(lr, (int, float)) and not isinstance(lr, bool) and lr < 0:
            yield plan.error((*path, 'lr'), f'is {lr}: a negative learning rate raises the loss', f'Write {-lr!r}.')
        momentum = config.get('momentum')
        if isinstance(momentum, (int, float)) and momentum >= 1:
            what = f'with a momentum of {momentum}, updates grow without end'
            yield plan.error((*path, 'momentum'), what, 'Write 0.9 or so.')
    path = ('optimizer_config', 'grad_clip', 'max_norm')
    clip, max_norm = plan.get(*path[:2]), plan.get(*path)
    if isinstance(max_norm, (int, float)) and max_norm <= 0:
        what = f'clips every gradient to a norm of {max_norm}: the weights never change'
        yield plan.error(path, what, 'Give a positive number, or set grad_clip=None.')
    if isinstance(clip, Mapping) and 'max_norm' not in clip and has_known_reader(plan.cfg, 'optimizer_config'):
        way_out = 'Write grad_clip=dict(max_norm=35), or grad_clip=None.'
        yield plan.error(path[:2], 'has no max_norm', way_out)


#: What an annotated argument must be; as texts, since annotations are not evaluated.
_BY_ANNOTATION = {
    f'{name}{none}': kind
    for name, kind in (('int', WHOLE), ('float', NUMBER), ('bool', BOOL))
    for none in ('', ' | None')
}


def hook_arguments(plan: Plan) -> Iterator[Finding]:
    """Texts for numbers and booleans, by the annotations of a hook's constructor."""
    loggers = plan.get('log_config', 'hooks')
    items = list(plan.custom_hooks)
    items += [(('log_config', 'hooks', i), item) for i, item in enumerate(loggers if isinstance(loggers, list) else [])]
    for path, item in items:
        named = item.get('type') if isinstance(item, Mapping) else None
        # Paths and files are imported when the hook is built, not here.
        hook_type = HOOKS.registered(named) if isinstance(named, str) else named
        if not isinstance(hook_type, type):
            continue
        for name, parameter in inspect.signature(hook_type).parameters.items():
            kind = _BY_ANNOTATION.get(getattr(parameter.annotation, '__name__', str(parameter.annotation)))
            value = item.get(name)
            # The kinds of these are known without the class.
            known = path[0] == 'log_config' and name in ('interval', 'by_epoch', 'ignore_last', 'reset_flag')
            if kind is not None and isinstance(value, str) and not known:
                what = f'must be {kind.needed}, but got {value!r}'
                yield plan.error((*path, name), what, right_value(name, value, kind))
