"""One batch of each validation set, through the step and the metrics, before the first epoch; it leaves no trace."""

from __future__ import annotations

import copy
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from runnerkit.config.origin import Finding
from runnerkit.data.kinds import length_of
from runnerkit.data.loader_state import RandomStates, generator_state, is_generator, set_generator_state
from runnerkit.data.sampler import EpochBatchSampler, EpochSampler
from runnerkit.evaluation import evaluation_mode, metrics_of
from runnerkit.flow.preflight.plan import Path, Plan
from runnerkit.hooks import EvalHook
from runnerkit.hooks.hook import RINGS, VAL_POINTS, Hook, listens
from runnerkit.log_buffer import LogBuffer
from runnerkit.nn.failures import note_metric
from runnerkit.parallel.scatter_gather import to_device
from runnerkit.parallel.steps import check_outputs, check_samples, required_output
from runnerkit.parallel.wrappers import is_fsdp2
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.report import scope as report_scope
from runnerkit.utils.user_files import is_ours

#: Samplers that give indices of the data set, so that the first samples make a batch as well.
_OF_INDICES = (EpochSampler, SequentialSampler, RandomSampler, DistributedSampler, WeightedRandomSampler)

#: What a metric calls the number of columns that it expects of the network.
_COLUMNS = ('num_classes', 'num_labels')

#: Where metrics are that compute from numbers alone, without a network or a file.
_COMPUTED = ('torchmetrics.classification.', 'torchmetrics.regression.')

_OFF = 'To start without this check: check_validation=False.'

#: How deep objects in a data set are copied, and how many items of a container are looked at.
_DEPTH, _ITEMS = 4, 100


def validation_batch(plan: Plan) -> Iterator[Finding]:
    """A step or a metric that fails with a batch of a validation set, as it would after the first epoch."""
    if not _can_be_made(plan):
        return
    seen: set[int] = set()
    for path, loader, asks in _loaders(plan):
        if id(loader) in seen or not _gives_first_samples(loader):
            continue
        seen.add(id(loader))
        found: list[Finding] = []
        with suppress(_LeftOut), _no_trace(plan, loader):
            found += _try(plan, path, loader, asks)
        yield from found


class _LeftOut(Exception):
    """The check cannot be made without a trace, or says nothing about the training."""


def _can_be_made(plan: Plan) -> bool:
    """Whether one process, without the hooks, computes what an evaluation would compute."""
    runner = plan.runner
    if plan.cfg is None or plan.get('check_validation') is False or plan.get('compile'):
        return False
    if runner.world_size > 1 or is_fsdp2(runner.model) or not is_ours(type(runner).run_iter.__module__):
        return False
    if plan.is_experiment:  # which validates by itself
        return False
    own = [hook for hook in plan.hooks if not is_ours(type(hook).__module__)]
    own += [hook for evaluation in plan.hooks_of(EvalHook) for hook in evaluation.hooks]
    if any(_takes_part(hook) for hook in own):
        return False
    tensors = [*plan.model.parameters(), *plan.model.buffers()]
    return not any(is_lazy(each) or each.is_meta for each in tensors)


def _takes_part(hook: Hook) -> bool:
    """Whether ``hook`` may change what an evaluation computes."""
    return any(hasattr(hook, ring) for ring in RINGS) or any(listens(hook, point) for point in VAL_POINTS)


def _loaders(plan: Plan) -> Iterator[tuple[Path, Any, bool]]:
    """Each loader that is evaluated on in the usual way, with its place, and whether its data set has ``evaluate``."""
    for hook in plan.hooks_of(EvalHook):
        kind = type(hook)
        is_usual = kind._do_evaluate is EvalHook._do_evaluate and kind._score is EvalHook._score
        if is_usual and kind.evaluate is EvalHook.evaluate and hook._is_default_test:
            for name, loader in hook.dataloaders.items():
                yield _place(plan, name), loader, hook.asks_dataset_of(loader)
    for (mode, _), loader in zip(plan.workflow, plan.loaders, strict=False):
        if mode == 'val':
            yield _place(plan, getattr(loader, 'name', '')), loader, False


def _place(plan: Plan, name: Any) -> Path:
    if isinstance(name, str) and name and plan.get('data', 'val', name) is not None:
        return ('data', 'val', name)
    return ('data', 'val')


def _gives_first_samples(loader: Any) -> bool:
    """Whether the first samples of the data set are a batch such as ``loader`` gives."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    batching = loader.batch_sampler
    is_plain = type(batching) in (BatchSampler, EpochBatchSampler) and type(batching.sampler) in _OF_INDICES  # type: ignore[union-attr]
    return is_plain and not loader.worker_init_fn and bool(length_of(loader.dataset))


# --- the batch -------------------------------------------------------------------------------------------------------


def _try(plan: Plan, path: Path, loader: Any, asks: bool) -> Iterator[Finding]:
    dataset, generators = _apart(loader.dataset)
    states = [(each, generator_state(each)) for each in generators]
    try:
        try:
            batch = _first_batch(loader, dataset)
        except Exception as error:
            of = f'{type(loader.dataset).__name__}: a batch of its first samples cannot be made'
            yield plan.warning(path, f'{of}: {_told(error)}', f'Correct the data set. {_OFF}')
            return
        try:
            outputs = _step(plan, batch, asks)
        except (torch.OutOfMemoryError, _LeftOut):
            raise _LeftOut from None
        except Exception as error:
            tell = plan.error if _is_sure(error, plan.model) else plan.warning
            what = f'{type(plan.model).__name__} fails with the first validation batch: {_told(error)}'
            yield tell(('model',), what, f'Correct the model, or the data of {".".join(map(str, path))}. {_OFF}')
            return
        if not asks:
            yield from _metrics(plan, outputs)
    finally:
        for generator, state in states:
            set_generator_state(generator, state)


def _first_batch(loader: Any, dataset: Any) -> Any:
    indices = list(range(min(len(dataset), loader.batch_sampler.batch_size)))
    several = getattr(dataset, '__getitems__', None)
    return loader.collate_fn(several(indices) if several else [dataset[index] for index in indices])


def _step(plan: Plan, batch: Any, asks: bool) -> Any:
    """What an evaluation computes of ``batch``, as `BaseRunner.run_iter` and `single_gpu_test` do."""
    runner, log = plan.runner, LogBuffer()
    if runner.batch_device is not None and not asks:
        batch = to_device(batch, runner.batch_device)
    with report_scope(log):
        if asks and not isinstance(batch, Mapping):
            raise _LeftOut
        if asks:
            return runner.model(return_loss=False, **batch)
        if runner.batch_processor is not None:
            outputs = runner.batch_processor(runner.model, batch, train_mode=False)
        else:
            outputs = runner.model.val_step(batch, *([runner.optimizer] if runner.by_epoch else []))
    name = type(plan.model).__name__
    check_outputs(outputs, name)
    if 'log_vars' in outputs:
        samples = required_output('num_samples', outputs, name)
        check_samples(samples, name)
        log.update(outputs['log_vars'], samples)
    return outputs


def _is_sure(error: Exception, model: nn.Module) -> bool:
    """Whether the training cannot prevent ``error``: a layer of torch's, or `Supervised` itself, does not get what it
    needs. Steps and networks of the user's own may need what training or hooks make first."""
    modules = {id(module): module for module in model.modules()}
    owners = [frame.f_locals.get('self') for frame, _ in traceback.walk_tb(error.__traceback__)]
    inside = [owner for owner in owners if id(owner) in modules]
    innermost = inside[-1] if inside else None
    return type(innermost).__module__.startswith(('torch.nn.', 'runnerkit.nn.supervised', 'runnerkit.nn.pairs'))


def _metrics(plan: Plan, outputs: Mapping[str, Any]) -> Iterator[Finding]:
    metrics = metrics_of(plan.model)
    missing = [key for key in ('preds', 'target') if key not in outputs]
    if metrics and missing:
        what = f'{type(plan.model).__name__} has metrics, but its val_step returned no {" and no ".join(missing)}'
        yield plan.error(('model',), what, f'Return {" and ".join(missing)} from val_step.')
        return
    for name, metric in metrics.items():
        preds, target = outputs['preds'], outputs['target']
        trial = partial(_update, metric, target=target)
        try:
            trial(preds)
        except torch.OutOfMemoryError:
            continue
        except Exception as error:
            # An untrained network may give values that a metric refuses: then other values of this shape pass.
            if isinstance(preds, Tensor) and preds.is_floating_point() and _passes(trial, torch.rand_like(preds)):
                continue
            key = next((key for key in _COLUMNS if isinstance(getattr(metric, key, None), int)), '')
            path = (
                ('model', 'metrics', name) if plan.get('model', 'metrics', name) is not None else ('model', 'metrics')
            )
            columns = preds.shape[1] if isinstance(preds, Tensor) and preds.dim() > 1 else None
            if key and columns not in (None, getattr(metric, key)) and preds.is_floating_point():
                wanted = getattr(metric, key)
                what = f'the network has {columns} outputs, the metric {name!r} expects {wanted}'
                other = f'write {key}={columns}'
                if columns == 1:
                    other = 'use a metric of one output: BinaryAccuracy for two classes, MeanAbsoluteError for numbers'
                way_out = f'Give the last layer {wanted} outputs, or {other}.'
            else:
                note_metric(error, name, metric, preds, target)
                what = f'the metric {name!r} fails with the first validation batch: {_told(error)}'
                way_out = f'Change the metric, or what it gets. {_OFF}'
                if type(metric).__name__.startswith('Binary') and columns not in (None, 1):
                    way_out = f'Use the Multiclass metric with num_classes={columns}, or give the network one output.'
            yield plan.error(path, what, way_out)


def _update(metric: Any, preds: Any, target: Any) -> None:
    """Update a copy of ``metric``, on the device of ``preds``, and compute it if that is cheap.

    Metrics of curves, such as `BinaryAUROC`, take any shape, and fail only when they compute.
    """
    try:
        trial = copy.deepcopy(metric)
    except Exception:
        raise _LeftOut from None
    trial.reset()
    if isinstance(preds, Tensor) and trial.device != preds.device:
        trial.to(preds.device)
    trial.update(preds, target)
    if not type(metric).__module__.startswith(_COMPUTED):
        return
    try:
        trial.cpu().compute()  # on a GPU, a wrong index would end the process
    except IndexError as error:
        if 'size 0' not in str(error):  # of the first samples, all may be ignored
            raise
    except Exception:
        return  # such as of too few samples


def _passes(trial: Callable[[Any], None], preds: Any) -> bool:
    try:
        trial(preds)
    except Exception:
        return False
    return True


def _told(error: Exception) -> str:
    return f'{type(error).__name__}: {one_line(error)}'


# --- no trace --------------------------------------------------------------------------------------------------------


@contextmanager
def _no_trace(plan: Plan, loader: Any) -> Iterator[None]:
    """In it, the model evaluates without gradients; afterwards random generators, the model's modes, buffers, counters
    and other attributes, and the warnings that were already shown are as before."""
    random, modules = RandomStates([*plan.loaders, loader]), list(plan.runner.model.modules())
    try:
        before = [(_copies(vars(module)), _copies(module._buffers)) for module in modules]
    except (RuntimeError, TypeError, NotImplementedError):  # tensors of a kind that has no copies
        raise _LeftOut from None
    with ExitStack() as stack:
        stack.callback(random.restore)
        for module, (attributes, buffers) in zip(modules, before, strict=True):
            stack.callback(_restore, module._buffers, buffers)
            stack.callback(_restore, vars(module), attributes)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter('ignore')
        stack.enter_context(_autocast(plan))
        stack.enter_context(evaluation_mode(plan.runner.model))
        stack.enter_context(torch.no_grad())
        yield


def _autocast(plan: Plan) -> AbstractContextManager[Any]:
    amp = plan.get('optimizer_config', 'amp') or plan.get('amp') or ('fp16' if plan.get('fp16') is not None else None)
    device = next((each.device.type for each in plan.model.parameters()), 'cpu')
    dtype = {'bf16': torch.bfloat16, 'fp16': torch.float16}.get(amp) if isinstance(amp, str) else None
    return torch.autocast(device, dtype) if dtype is not None else nullcontext()


def _copies(values: Mapping[str, Any]) -> dict[str, tuple[Any, Any, int]]:
    """Each of ``values``, a copy of it if it can change, and of a tensor the number of its changes."""
    found: dict[str, tuple[Any, Any, int]] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            found[name] = value, value.detach().clone(), value._version
        else:
            found[name] = value, copy.copy(value) if type(value) in (list, dict, set) else None, 0
    return found


def _restore(values: dict[str, Any], before: Mapping[str, tuple[Any, Any, int]]) -> None:
    for name in [name for name in values if name not in before]:
        del values[name]
    for name, (value, copied, version) in before.items():
        if isinstance(value, Tensor):
            if value._version != version:
                with torch.no_grad():
                    value.copy_(copied)
        elif type(value) is list:
            value[:] = copied
        elif copied is not None:
            value.clear()
            value.update(copied)
        values[name] = value


def _apart(dataset: Any) -> tuple[Any, list[Any]]:
    """A copy of ``dataset`` that shares its samples, and the generators in it.

    What the samples change in it (caches, counters, files that workers are to open themselves) is the copy's.
    """
    generators: list[Any] = []
    try:
        return _copied(dataset, {}, generators, _DEPTH), generators
    except Exception:
        raise _LeftOut from None


def _copied(value: Any, memo: dict[int, Any], generators: list[Any], depth: int) -> Any:
    if id(value) in memo:
        return memo[id(value)]
    again = partial(_copied, memo=memo, generators=generators, depth=depth - 1)
    new = value
    if is_generator(value):
        generators.append(value)
    elif type(value) in (list, dict, set):
        memo[id(value)] = new = copy.copy(value)
        if depth and len(value) <= _ITEMS and type(value) is not set:
            for key, each in list(enumerate(value)) if type(value) is list else list(value.items()):
                new[key] = again(each)
    elif depth and _is_copied(value):
        memo[id(value)] = new = copy.copy(value)
        for name, each in list(vars(value).items()) if new is not value else ():  # there is one of some objects
            vars(new)[name] = again(each)
    memo[id(value)] = new
    return new


def _is_copied(value: Any) -> bool:
    is_function = type(value).__module__ == 'builtins' or callable(getattr(value, '__wrapped__', None))
    return not (is_function or isinstance(value, type | Tensor | nn.Module)) and hasattr(value, '__dict__')
