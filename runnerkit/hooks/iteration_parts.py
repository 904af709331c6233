"""The parts of a training iteration, for a stopwatch: data, forward, backward, update, each hook, the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from runnerkit.hooks.hook import RINGS, Hook
from runnerkit.utils.stopwatch import Clock, Stopwatch, WallClock

Call = Callable[..., Any]

#: The parts that are no hook. Waiting for data is what lies between two iterations, as `IterTimerHook` counts it too.
DATA, FORWARD, BACKWARD, UPDATE, VALIDATION, ENGINE = 'data', 'forward', 'backward', 'update', 'validation', 'engine'


class CudaClock:
    """The timeline of a GPU, by events in its current stream: nothing waits for them.

    Args:
        device: whose.
    """

    description = "time on the GPU's timeline; what the host does while the GPU is busy takes none of it"

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def now(self) -> torch.cuda.Event:
        """The moment when the GPU is done with what it has been given until now."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        """The time between two moments; waits for the later one."""
        end.synchronize()
        return start.elapsed_time(end) / 1e3


def clock_of(model: torch.nn.Module) -> Clock:
    """That of the device where ``model`` is."""
    parameter = next(model.parameters(), None)
    on_gpu = parameter is not None and parameter.device.type == 'cuda'
    return CudaClock(parameter.device) if on_gpu else WallClock()  # type: ignore[union-attr]


class IterationParts:
    """Tells a stopwatch which part of an iteration begins and ends in a runner.

    - ``data``: from the end of an iteration's hooks until the next batch is there;
    - ``forward``: the model's step, where the iteration calls it and not a hook;
    - ``backward``: `torch.autograd.backward`, whoever calls it;
    - ``update``: the rest of ``runner.update`` (clearing and clipping gradients, the optimizer's step), and steps of
      optimizers that somebody makes past it;
    - ``validation``: entries of the workflow that do not train, and evaluations that call the runner's hooks;
    - ``CheckpointHook.after_train_epoch``: a hook at a point, and so on; of two of a class, the second has ``#2``;
    - ``engine``: what is left.

    Args:
        watch: what is told. Another one may take its place at any time.
        passed: called with a point's name and the runner when ``after_train_iter`` or ``after_train_epoch`` is over,
            after all its hooks.
        left_out: a hook that is called as ever: it measures, and is not to be measured.
    """

    def __init__(
        self, watch: Stopwatch, passed: Callable[[str, Any], None] | None = None, left_out: Hook | None = None
    ) -> None:
        self.watch = watch
        self._passed = passed
        self._left_out = left_out
        self._validations: list[int | None] = []  # those that go on

    @contextmanager
    def of(self, runner: Any) -> Iterator[None]:
        """While it is entered, the stopwatch is told of ``runner``'s iterations. Then everything is as before."""
        model = runner.model
        named = [name for name in dir(model) if name.endswith('_step') and callable(getattr(model, name))]
        steps = [name for name in named if not isinstance(getattr(model, name), nn.Module)]
        with ExitStack() as undo:
            for name in steps:
                undo.enter_context(self._timed_attribute(model, name, FORWARD, ENGINE))
            if runner.batch_processor is not None:
                undo.enter_context(self._timed_attribute(runner, 'batch_processor', FORWARD, ENGINE))
            undo.enter_context(self._timed_attribute(torch.autograd, 'backward', BACKWARD))
            undo.enter_context(self._timed_attribute(runner, 'update', UPDATE))
            undo.enter_context(self._optimizer_steps())
            undo.enter_context(runner.hooks.replacing_calls(partial(self._calls_of, runner.hooks)))
            yield

    def _timed(self, name: str, call: Call, within: str | None = None) -> Call:
        """``call``, which is a part of its own; where ``within`` is given, only in that part."""

        @wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            watch = self.watch
            if within is not None and watch.current != within:
                return call(*args, **kwargs)
            depth = watch.enter(name)
            try:
                return call(*args, **kwargs)
            finally:
                watch.leave(depth)

        return timed

    @contextmanager
    def _timed_attribute(self, owner: Any, name: str, part: str, within: str | None = None) -> Iterator[None]:
        own = vars(owner).get(name)  # None: it comes from the class
        setattr(owner, name, self._timed(part, getattr(owner, name), within))
        try:
            yield
        finally:
            delattr(owner, name) if own is None else setattr(owner, name, own)

    @contextmanager
    def _optimizer_steps(self) -> Iterator[None]:
        depths: list[int | None] = []
        before = register_optimizer_step_pre_hook(lambda *_: depths.append(self.watch.enter(UPDATE)))
        after = register_optimizer_step_post_hook(lambda *_: self.watch.leave(depths.pop()))
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _calls_of(self, hooks: Sequence[Hook], point: str, methods: Sequence[tuple[Hook, Call]]) -> list[Call]:
        """What is called at ``point``: the hooks' methods, each in its own part, between what begins and ends there."""
        timed = self._timed_ring if point in RINGS else self._timed
        calls = [
            method if hook is self._left_out else timed(f'{_name(hook, hooks)}.{point}', method)
            for hook, method in methods
        ]
        if point == 'before_train_iter':
            calls.insert(0, lambda runner: self.watch.change(ENGINE))
        elif point in ('before_val_epoch', 'before_val_iter'):
            calls.insert(0, lambda runner: self._validations.append(self.watch.enter(VALIDATION)))
        elif point in ('after_val_iter', 'after_val_epoch'):
            calls.append(lambda runner: self.watch.leave(self._validations.pop()))
        if self._passed is not None and point in ('after_train_iter', 'after_train_epoch'):
            calls.append(partial(self._passed, point))
        if point == 'after_train_iter':
            calls.append(lambda runner: self.watch.change(DATA))
        return calls

    def _timed_ring(self, name: str, ring: Call) -> Call:
        return lambda runner: _TimedRing(lambda call: self._timed(name, call), ring, runner)


def _name(hook: Hook, hooks: Sequence[Hook]) -> str:
    """The class of ``hook``, with a number where it is not the first of that class."""
    name = type(hook).__name__
    number = next((i for i, each in enumerate((h for h in hooks if type(h).__name__ == name), 1) if each is hook), 1)
    return name if number == 1 else f'{name}#{number}'


class _TimedRing(AbstractContextManager[Any]):
    """A hook's ring, of which entering and leaving count, and not what it is around."""

    def __init__(self, timed: Callable[[Call], Call], ring: Call, runner: Any) -> None:
        self._timed = timed
        self._ring = ring
        self._runner = runner

    def __enter__(self) -> Any:
        def enter() -> Any:
            self._manager = self._ring(self._runner)
            return self._manager.__enter__()

        return self._timed(enter)()

    def __exit__(self, *error: Any) -> Any:
        return self._timed(self._manager.__exit__)(*error)
