"""Wrappers around the methods that the user of an experiment writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from runnerkit.distributed import reduce_named_sums
from runnerkit.hooks.logger import LoggerHook
from runnerkit.log_buffer import LogBuffer
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.report import scope as report_scope


def as_outputs(returned: Any, name: str) -> dict[str, Any]:
    """What a runner keeps of what ``train_batch`` has returned: its numbers are logged.

    Raises:
        TypeError: it is neither None nor a dict.
    """
    if returned is None:
        return {}
    if not isinstance(returned, dict):
        raise TypeError(f'{name}.train_batch must return None or a dict such as dict(loss=loss), but got {returned!r}')
    if 'log_vars' in returned:
        return {'num_samples': 1, **returned}
    logged = {key: value for key, value in returned.items() if key != 'num_samples' and _is_number(value)}
    return {'num_samples': 1, **returned, 'log_vars': logged}


def _is_number(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1
    return isinstance(plain_number(value), (int, float))


def by_name(args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Experiment.save`."""
    return {**dict(zip(('out_dir', 'filename_tmpl'), args, strict=False)), **options}


def with_options(save: Callable[..., Any]) -> Callable[..., Any]:
    """``save`` of a subclass without the options that it does not take; the base's ``save`` gets them."""
    parameters = inspect.signature(save).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    @wraps(save)
    def saved(self: Any, *args: Any, **options: Any) -> Any:
        given, former = by_name(args, options), self._save_options
        taken = {name: value for name, value in given.items() if takes_all or name in parameters}
        self._save_options = {**former, **{name: value for name, value in given.items() if name not in taken}}
        self._saved_to = None
        try:
            returned = save(self, **taken)
        finally:
            self._save_options = former
        return self._saved_to if returned is None else returned

    return saved


def as_evaluation(valid: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """``valid`` of a subclass, run as an evaluation."""

    @wraps(valid)
    def evaluated(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self._is_validating:  # one of a subclass calls that of its base
            return valid(self, *args, **kwargs)
        self.check_model()
        log, self.log_buffer, self._is_validating = self.log_buffer, LogBuffer(), True
        try:
            with self.around_val() as found, report_scope(self.log_buffer), torch.no_grad():
                self.mode = 'val'
                with self._noted('valid_loader', 'setup_dataloader'):
                    returned = valid(self, *args, **kwargs)
                if returned is not None and not isinstance(returned, Mapping):
                    name = type(self).__name__
                    raise TypeError(f'{name}.valid must return None or a dict of scores, but got {returned!r}')
                self.log_buffer.update(dict(returned or {}))
                self.log_buffer.average(reduce=reduce_named_sums)
                scores = dict(self.log_buffer.output)
                found.update(scores)
        finally:
            self.log_buffer, self._is_validating = log, False
        if self.lifecycle.own_loop is not None and scores:  # else the hook that has called it hands them to the loggers
            log.output.update(scores)
            log.ready = True
            for hook in self.hooks:
                if isinstance(hook, LoggerHook):
                    hook.after_val_iter(self)
            log.clear_output()
        return scores

    return evaluated
