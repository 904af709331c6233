"""Checks of the config alone: values of a wrong type, keys that contradict each other or have no effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from runnerkit.config.findings import Finding
from runnerkit.config.keys import is_ours, unread_keys
from runnerkit.config.values import BOOL, NUMBER, WHOLE, non_finite, right_value, wrong_values
from runnerkit.flow.preflight.plan import Plan, parts_of_optimizer
from runnerkit.flow.stages.defaults import EVALUATED, is_experiment, splits_in, validates
from runnerkit.flow.stages.switches import check_mode
from runnerkit.hooks import HOOKS
from runnerkit.runner import RUNNERS
from runnerkit.runner.workflow import check_entries
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.suggest import suggestion


def values(plan: Plan) -> Iterator[Finding]:
    """Values of a wrong type, and numbers that are not finite."""
    if plan.cfg is not None:
        yield from wrong_values(plan.cfg)
        yield from non_finite(plan.cfg)


def unread(plan: Plan) -> Iterator[Finding]:
    """Unknown keys."""
    if plan.cfg is not None:
        yield from unread_keys(plan.cfg)


def training(plan: Plan) -> Iterator[Finding]:
    """The section of an `Experiment`, for another runner."""
    if plan.get('training') is not None and not is_experiment(plan.cfg):
        what = 'unused: the runner is not an Experiment'
        yield plan.warning(('training',), what, 'Leave it out, or name your Experiment as the type of runner.')


def modes(plan: Plan) -> Iterator[Finding]:
    """``amp``, ``fp16`` and ``compile``."""
    for key in ('amp', 'fp16', 'compile'):
        if plan.get(key) is not None:
            try:
                check_mode(key, plan.get(key))
            except (TypeError, ValueError) as error:
                on = "Write amp='bf16' (or 'fp16'), or leave amp out." if key == 'amp' else ''
                yield plan.error((key,), one_line(error), on or f'Leave {key} out to switch it off.')


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
        yield plan.error(
            ('workflow',),
            "its 'val' entry validates on data.val, which is missing",
            "Add data.val, or leave the 'val' entry out.",
        )
    yield from _missing_splits(plan, entries)


def _missing_splits(plan: Plan, entries: Any) -> Iterator[Finding]:
    """Entries whose names are those of splits to validate on, of which there are none. Other modes may be steps of the
    model, which is not built yet."""
    data, named = plan.get('data'), plan.get('runner', 'type')
    runner = RUNNERS.module_dict.get(named) if isinstance(named, str) else named
    if not isinstance(data, Mapping):
        return
    for mode in dict.fromkeys(mode for mode, _ in entries):
        is_split = mode != 'val' and mode.partition('_')[0] in EVALUATED
        if is_split and mode not in splits_in(data) and not callable(getattr(runner, mode, None)):
            there = splits_in(data)
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
    is_whole = plan.get('runner') is not None or plan.get('total_epochs') is not None  # not a part for ``_base_``
    if is_whole and data is not None and 'evaluation' not in plan.cfg and not _validates(plan):
        yield plan.warning(
            ('data', 'val'),
            "is never used: the config has no evaluation, and the workflow no 'val' entry",
            'Add evaluation=dict(interval=1), or set evaluation=None to hide this warning.',
        )


def _validates(plan: Plan) -> bool:
    """Whether the config's workflow has a 'val' entry."""
    return 'val' in validates(plan.get('workflow'), plan.get('data'))


Rule = tuple[tuple[Any, ...], Callable[[Plan], Any], str, str]


def _flag(plan: Plan, name: str) -> Any:
    """The command line's flag of that name, else the config's key."""
    return getattr(plan.options, name) or plan.get(name)


def _total_epochs_differ(plan: Plan) -> bool:
    total, own = plan.get('total_epochs'), plan.get('runner', 'max_epochs')
    return total is not None and plan.get('runner') is not None and total != own


def _fp16_is_ignored(plan: Plan) -> bool:
    return plan.get('amp') is not None and plan.get('fp16') is not None


def _loss_scale_is_ignored(plan: Plan) -> bool:
    config = plan.get('optimizer_config')
    if not isinstance(config, Mapping) or config.get('type', 'OptimizerHook') != 'OptimizerHook':
        return False  # MMCV's hooks for fp16 always scale it
    return config.get('loss_scale') is not None and not (config.get('amp') or plan.get('amp') or plan.get('fp16'))


def _warmup_is_missing(section: str) -> Callable[[Plan], bool]:
    options = ('warmup_iters', 'warmup_ratio', 'warmup_by_epoch')

    def missing(plan: Plan) -> bool:
        config = plan.get(section)
        return isinstance(config, Mapping) and config.get('warmup') is None and any(config.get(key) for key in options)

    return missing


def _keeps_all_by_chance(plan: Plan) -> bool:
    kept = plan.get('checkpoint_config', 'max_keep_ckpts')
    return isinstance(kept, int) and kept < 1 and kept != -1


#: Keys that exclude each other: the key, whether both are there, what follows, and the way out.
CONTRADICTIONS: tuple[Rule, ...] = (
    (
        ('runner', 'max_iters'),
        lambda plan: plan.get('runner', 'max_epochs') is not None and plan.get('runner', 'max_iters') is not None,
        'max_epochs and max_iters both set the length of the run',
        'Keep one of them.',
    ),
    (
        ('fp16',),
        lambda plan: _fp16_is_ignored(plan) and plan.get('amp') != 'fp16',
        'amp and fp16 ask for different precisions',
        "Keep amp='bf16' and set fp16=None, or leave amp out.",
    ),
    (
        ('optimizer_config', 'amp'),
        lambda plan: (
            plan.get('optimizer_config', 'amp') is not None
            and plan.get('amp') not in (None, plan.get('optimizer_config', 'amp'))
        ),
        'differs from the top-level amp',
        'Keep one of them.',
    ),
)

#: Keys that other keys switch off, in the same form.
WITHOUT_EFFECT: tuple[Rule, ...] = (
    (
        ('load_from',),
        lambda plan: _flag(plan, 'resume_from') and _flag(plan, 'load_from'),
        'is ignored, because the run resumes from resume_from',
        'Leave one of them out: resume_from continues a run, load_from starts a new one from weights.',
    ),
    (
        ('auto_resume',),
        lambda plan: _flag(plan, 'auto_resume') and _flag(plan, 'resume_from'),
        'is ignored, because resume_from names the checkpoint',
        'Leave one of them out.',
    ),
    (
        ('cudnn_benchmark',),
        lambda plan: plan.get('cudnn_benchmark') and _flag(plan, 'deterministic'),
        'has no effect in a deterministic run',
        'Leave cudnn_benchmark or deterministic out.',
    ),
    (
        ('fp16', 'loss_scale'),
        lambda plan: (
            _fp16_is_ignored(plan) and plan.get('amp') == 'fp16' and plan.get('fp16', 'loss_scale') is not None
        ),
        "is ignored with amp='fp16', which scales the loss dynamically",
        'Leave amp out, or write optimizer_config=dict(loss_scale=…).',
    ),
    (
        ('total_epochs',),
        _total_epochs_differ,
        'is ignored, because runner sets the length of the run',
        'Leave total_epochs out.',
    ),
    *(
        (
            (section, 'warmup'),
            _warmup_is_missing(section),
            'no warm-up takes place: its length or ratio is given, but not warmup',
            "Add warmup='linear' ('constant', 'exp'), or leave warmup_iters, warmup_ratio and warmup_by_epoch out.",
        )
        for section in ('lr_config', 'momentum_config')
    ),
    (
        ('checkpoint_config', 'max_keep_ckpts'),
        _keeps_all_by_chance,
        'a number below 1 keeps all checkpoints',
        'Write -1 to keep all, or 1 to keep the newest only.',
    ),
    (
        ('workflow',),
        lambda plan: not plan.options.validate and _validates(plan),
        "--no-validate switches the evaluation off, but the workflow's 'val' entry still validates",
        "Leave the 'val' entry out, or --no-validate.",
    ),
    (
        ('checkpoint_config', 'save_optimizer'),
        lambda plan: plan.get('checkpoint_config', 'save_optimizer') is False and _flag(plan, 'auto_resume'),
        'save_optimizer=False leaves no checkpoint from which auto_resume can resume exactly',
        'Leave one of them out.',
    ),
    (
        ('optimizer_config', 'loss_scale'),
        _loss_scale_is_ignored,
        "has no effect without amp='fp16': the loss is not scaled",
        "Add amp='fp16', or leave loss_scale out.",
    ),
)


def contradictions(plan: Plan) -> Iterator[Finding]:
    """Keys that exclude each other."""
    for path, holds, what, way_out in CONTRADICTIONS:
        if holds(plan):
            yield plan.error(path, what, way_out)


def without_effect(plan: Plan) -> Iterator[Finding]:
    """Keys that are ignored because of others."""
    for path, holds, what, way_out in WITHOUT_EFFECT:
        if holds(plan):
            yield plan.warning(path, what, way_out)


def without_workers(plan: Plan) -> Iterator[Finding]:
    """Options of worker processes in loaders that have none."""
    data = plan.get('data')
    if not isinstance(data, Mapping):
        return
    own = {key: each for key, each in data.items() if str(key).endswith('_dataloader') and isinstance(each, Mapping)}
    useless: list[tuple[str, ...]] = []
    for name, each in own.items():
        if not _workers(each, data):
            useless += [('data', name, key) for key in ('persistent_workers', 'prefetch_factor') if each.get(key)]
    if data.get('persistent_workers') and not any(_workers(each, data) for each in (data, *own.values())):
        useless.append(('data', 'persistent_workers'))
    for path in useless:
        way_out = f'Set workers_per_gpu to at least 1, or leave {path[-1]} out.'
        yield plan.warning(path, 'has no effect without workers', way_out)


def _workers(loader: Mapping[str, Any], common: Mapping[str, Any]) -> Any:
    """The number of worker processes of a loader, by either name; its own, else the common one."""
    given = (part.get(key) for part in (loader, common) for key in ('workers_per_gpu', 'num_workers'))
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
            yield plan.error(
                (*path, 'momentum'), f'with a momentum of {momentum}, updates grow without end', 'Write 0.9 or so.'
            )
    max_norm = plan.get('optimizer_config', 'grad_clip', 'max_norm')
    if isinstance(max_norm, (int, float)) and max_norm <= 0:
        yield plan.error(
            ('optimizer_config', 'grad_clip', 'max_norm'),
            f'clips every gradient to a norm of {max_norm}: the weights never change',
            'Give a positive number, or set grad_clip=None.',
        )
    clip = plan.get('optimizer_config', 'grad_clip')
    if isinstance(clip, Mapping) and 'max_norm' not in clip and is_ours(plan.cfg, 'optimizer_config'):
        yield plan.error(
            ('optimizer_config', 'grad_clip'),
            'has no max_norm',
            'Write grad_clip=dict(max_norm=35), or grad_clip=None.',
        )


#: What an annotated argument must be; as texts, since annotations are not evaluated.
_BY_ANNOTATION = {
    f'{name}{none}': kind
    for name, kind in (('int', WHOLE), ('float', NUMBER), ('bool', BOOL))
    for none in ('', ' | None')
}


def hook_arguments(plan: Plan) -> Iterator[Finding]:
    """Texts for numbers and booleans, by the annotations of a hook's constructor."""
    loggers = plan.get('log_config', 'hooks')
    items: list[tuple[tuple[Any, ...], Any]] = list(zip(plan.custom_paths, plan.custom_hooks, strict=True))
    items += [(('log_config', 'hooks', i), item) for i, item in enumerate(loggers if isinstance(loggers, list) else [])]
    for path, item in items:
        named = item.get('type') if isinstance(item, Mapping) else None
        # Paths and files are imported when the hook is built, not here.
        hook_type = HOOKS.module_dict.get(named) if isinstance(named, str) else named
        if not isinstance(hook_type, type):
            continue
        for name, parameter in inspect.signature(hook_type).parameters.items():
            kind = _BY_ANNOTATION.get(getattr(parameter.annotation, '__name__', str(parameter.annotation)))
            value = item.get(name)
            # The kinds of these are known without the class.
            known = path[0] == 'log_config' and name in ('interval', 'by_epoch', 'ignore_last', 'reset_flag')
            if kind is not None and isinstance(value, str) and not known:
                yield plan.error(
                    (*path, name), f'must be {kind.needed}, but got {value!r}', right_value(name, value, kind)
                )
