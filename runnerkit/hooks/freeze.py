"""The hook that keeps a part of the model as it is, for a while or for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel

from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.optim.default_constructor import as_patterns, chosen_parameters, matches
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import FSDP2, named_modules, named_parameters, unwrap
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number


@HOOKS.register_module()
class FreezeHook(Hook):
    """Freezes the parameters that match a pattern: ``FreezeHook(['backbone.*'], until=3)`` for the first three epochs.

    A frozen parameter does not require gradients, so that nothing is computed for it, and the optimizer leaves it and
    its state alone: neither momentum nor weight decay moves it. Batch norms in a frozen part are in evaluation mode:
    they use their running statistics and do not update them. Other layers, such as dropout, stay in training mode.

    ``FreezeHook(except_=['head.*'])`` freezes all but the head.

    `DistributedDataParallel` and `FSDP2` need gradients of all parameters, so these are computed, and dropped before
    the optimizer's step. The weights are the same, but no time is saved.

    What is frozen follows from the run's position alone, so a resumed run continues as if it had not been interrupted.
    Parameters that did not require gradients before are left alone. After the run all of them are as they were. With
    several of these hooks, a parameter is frozen as long as one of them freezes it.

    Args:
        patterns: shell patterns over the whole names of parameters, in which ``*`` also matches dots; by default, all.
        until: how many epochs (iterations) of the run these parameters are frozen; None: to its end.
        by_epoch: True counts epochs, False iterations.
        except_: patterns of parameters that are trained although ``patterns`` match them.
    """

    needs_training = True

    def __init__(
        self,
        patterns: Sequence[str] | str = '*',
        until: int | None = None,
        by_epoch: bool = True,
        except_: Sequence[str] | str | None = None,
    ) -> None:
        self.patterns = as_patterns(patterns, 'patterns')
        self.except_ = [] if except_ is None else as_patterns(except_, 'except_')
        check_whole_number('until', until, or_none=True, hint='None freezes to the end of the run')
        if not isinstance(by_epoch, bool):
            raise WrongType(f'by_epoch must be True or False, but got {by_epoch!r}')
        self.until, self.by_epoch = until, by_epoch
        self._is_on = False
        self._drops_gradients = False
        self._parameters: list[nn.Parameter] = []
        self._norms: list[nn.Module] = []
        self._handles: list[Any] = []

    def before_run(self, runner: RunnerView) -> None:
        model = unwrap(runner.model)
        names, parameters = check_patterns(self.patterns, model, self.except_), named_parameters(model)
        held = self._held_by_others(runner)
        self._parameters = [
            parameters[name] for name in names if parameters[name].requires_grad or id(parameters[name]) in held
        ]
        self._norms = [
            module
            for name, module in named_modules(model, remove_duplicate=False).items()
            if isinstance(module, _NormBase) and all(self._chooses(f'{name}.{leaf}') for leaf in ('weight', 'bias'))
        ]
        wrappers = (DistributedDataParallel, FSDP2)
        self._drops_gradients = any(isinstance(part, wrappers) for part in runner.model.modules())
        if self._drops_gradients:
            optimizers = named_optimizers(runner.optimizer).values() if runner.optimizer is not None else ()
            self._handles = [each.register_step_pre_hook(self._drop) for each in optimizers]
        self._follow(runner)

    def before_train_iter(self, runner: RunnerView) -> None:
        self._follow(runner)

    def after_backward(self, runner: RunnerView) -> None:
        if self._drops_gradients:
            self._drop()

    def after_run(self, runner: RunnerView) -> None:
        if self._is_on:
            self._freeze(runner, False)
        for handle in self._handles:
            handle.remove()
        self._handles, self._parameters, self._norms = [], [], []

    def _chooses(self, name: str) -> bool:
        return matches(self.patterns, name) and not matches(self.except_, name)

    def _follow(self, runner: RunnerView) -> None:
        """Freeze or thaw, as it should be at the run's position."""
        is_due = self.until is None or (runner.epoch if self.by_epoch else runner.iter) < self.until
        if is_due != self._is_on:
            what, patterns = 'frozen' if is_due else 'trained again', ', '.join(self.patterns)
            but = f', except {", ".join(self.except_)}' if self.except_ else ''
            runner.logger.info('%d parameters are %s: %s%s', len(self._parameters), what, patterns, but)
            self._freeze(runner, is_due)
        for norm in self._norms if self._is_on else ():
            norm.training = False  # which a call of ``model.train()`` has ended

    def _freeze(self, runner: RunnerView, is_on: bool) -> None:
        self._is_on = is_on
        held = self._held_by_others(runner)
        for parameter in self._parameters:
            if is_on:
                parameter.grad = None
            if not self._drops_gradients and (is_on or id(parameter) not in held):
                parameter.requires_grad = not is_on  # the method refuses lazy parameters
        for norm in self._norms:
            norm.training = not is_on and id(norm) not in held and runner.model.training

    def _held_by_others(self, runner: RunnerView) -> set[int]:
        """The parameters and norms that other hooks of this kind freeze now."""
        others = (hook for hook in runner.hooks if isinstance(hook, FreezeHook) and hook is not self and hook._is_on)
        return {id(each) for hook in others for each in (*hook._parameters, *hook._norms)}

    def _drop(self, *_: Any) -> None:
        if self._is_on:
            for parameter in self._parameters:
                parameter.grad = None


def check_patterns(patterns: Sequence[str], model: nn.Module, except_: Sequence[str] = ()) -> list[str]:
    """Return the names of the parameters of ``model`` that ``patterns`` match and ``except_`` do not."""
    kept = chosen_parameters(except_, model)
    chosen = [name for name in chosen_parameters(patterns, model) if name not in kept]
    trained = [name for name, parameter in named_parameters(model).items() if parameter.requires_grad]
    if trained and all(name in chosen for name in trained):
        raise WrongValue(
            f'the patterns {", ".join(map(repr, patterns))} match all parameters of {type(model).__name__}: nothing '
            "would be trained; leave out those that should be, or name them in except_, as in except_=['head.*']"
        )
    if not chosen:
        raise WrongValue(f'except_ {", ".join(map(repr, except_))} leaves no parameter to freeze; name only the head')
    return chosen
