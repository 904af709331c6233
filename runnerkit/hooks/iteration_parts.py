"""Measures the parts of a training iteration: data, forward, backward, update, each hook, the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from runnerkit.utils.stopwatch import WALL, Clock, Stopwatch

Call = Callable[..., Any]

#: The parts that are not hooks. The time between two iterations is waiting for data, as for `IterTimerHook`.
DATA, FORWARD, BACKWARD, UPDATE, VALIDATION, ENGINE = 'data', 'forward', 'backward', 'update', 'validation', 'engine'


def clock_of(model: nn.Module) -> Clock:
    """A clock for the model's device: the host's, or events in the GPU's current stream, which nothing waits for."""
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.device.type != 'cuda':
        return WALL
    device = parameter.device

    def now() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    def seconds(start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    return Clock('time of the GPU; work of the host counts only while the GPU waits for it', now, seconds)


class IterationParts:
    """Tells a stopwatch when each part of an iteration begins and ends.

    - ``data``: from the end of an iteration's hooks until the next batch is there;
    - ``forward``: the model's step, unless a hook calls it;
    - ``backward``: `torch.autograd.backward`, called from anywhere;
    - ``update``: the rest of ``runner.update`` (clearing and clipping gradients, the optimizer's step), and optimizer
      steps outside it;
    - ``validation``: workflow entries that do not train, and evaluations that call the runner's hooks;
    - ``CheckpointHook.after_train_epoch`` and so on: a hook at a point; a second hook of the same class has ``#2``;
    - ``engine``: everything else.

    Args:
        watch: the stopwatch; it may be replaced at any time.
        passed: called with the point's name and the runner after all hooks of ``after_train_iter`` and
            ``after_train_epoch``.
    """

    def __init__(self, watch: Stopwatch, passed: Callable[[str, Any], None] | None = None) -> None:
        self.watch = watch
        self._passed = passed
        self._open: list[int | None] = []  # validations and optimizer steps, which begin and end in separate calls

    @contextmanager
    def of(self, runner: Any) -> Iterator[None]:
        """Measure ``runner`` inside this context, and restore everything afterwards."""
        model = runner.model
        names = [name for name in dir(model) if name.endswith('_step')]
        steps = [name for name in names if callable(step := getattr(model, name)) and not isinstance(step, nn.Module)]
        timed = [(model, name, FORWARD, ENGINE) for name in steps]
        if runner.batch_processor is not None:
            timed.append((runner, 'batch_processor', FORWARD, ENGINE))
        with ExitStack() as undo:
            for owner, name, part, within in [
                *timed,
                (torch.autograd, 'backward', BACKWARD, None),
                (runner, 'update', UPDATE, None),
            ]:
                undo.enter_context(_replaced(owner, name, self._timed(part, getattr(owner, name), within)))
            undo.callback(register_optimizer_step_pre_hook(lambda *_: self._begin(UPDATE)).remove)
            undo.callback(register_optimizer_step_post_hook(lambda *_: self._end()).remove)
            undo.enter_context(runner.hooks.replacing_calls(partial(self._calls_of, runner.hooks)))
            yield

    def _begin(self, part: str) -> None:
        self._open.append(self.watch.enter(part))

    def _end(self) -> None:
        self.watch.leave(self._open.pop())

    def _timed(self, part: str, call: Call, within: str | None = None) -> Call:
        """``call``, measured as ``part``; with ``within``, only if that part is the current one."""

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if within is not None and self.watch.current != within:
                return call(*args, **kwargs)
            with self.watch.part(part):
                return call(*args, **kwargs)

        return timed

    def _timed_ring(self, part: str, ring: Call) -> Call:
        """A hook's ring; entering and leaving it is measured as ``part``, its content is not."""

        @contextmanager
        def timed(runner: Any) -> Iterator[None]:
            with ExitStack() as stack:
                with self.watch.part(part):
                    manager = ring(runner)
                    manager.__enter__()
                stack.push(self._timed(part, manager.__exit__))
                yield

        return timed

    def _calls_of(self, hooks: Sequence[Any], point: str, methods: Sequence[tuple[Any, Call]]) -> list[Call]:
        """The calls at ``point``: the hooks' methods, each measured as a part, and the changes of the current part."""
        timed = self._timed_ring if point.startswith('around_') else self._timed
        calls = [timed(f'{_name(hook, hooks)}.{point}', method) for hook, method in methods]
        if point == 'before_train_iter':
            calls.insert(0, lambda runner: self.watch.change(ENGINE))
        elif point in ('before_val_epoch', 'before_val_iter'):
            calls.insert(0, lambda runner: self._begin(VALIDATION))
        elif point in ('after_val_iter', 'after_val_epoch'):
            calls.append(lambda runner: self._end())
        if self._passed is not None and point in ('after_train_iter', 'after_train_epoch'):
            calls.append(partial(self._passed, point))
        if point == 'after_train_iter':
            calls.append(lambda runner: self.watch.change(DATA))
        return calls


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    own = vars(owner).get(name)  # None if it belongs to the class
    setattr(owner, name, value)
    try:
        yield
    finally:
        delattr(owner, name) if own is None else setattr(owner, name, own)


def _name(hook: Any, hooks: Sequence[Any]) -> str:
    """The class of ``hook``, with a number if it is not the first of that class."""
    name = type(hook).__name__
    number = next((i for i, each in enumerate((h for h in hooks if type(h).__name__ == name), 1) if each is hook), 1)
    return name if number == 1 else f'{name}#{number}'
