"""The registered hooks in their order, and the calls of each point, which are compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache, wraps
from typing import Any

from runnerkit.checkpoint import NotSavedError
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import FALLBACKS, POINTS, RINGS, STAGES, VAL_POINTS, Hook, Priority, overrides
from runnerkit.utils.suggest import edit_distance, nearest

Call = Callable[[Any], Any]


class HookTable(list[Hook]):
    """A list of hooks, lowest priority number first, with the calls of every point.

    ``table.calls[point]`` is the list of the methods of the hooks that implement ``point``, between those of the
    engine's parts, which are not in the list. It is compiled at its first use and dropped at every change of the list.
    ``table.around[span]`` is the context of the hooks' rings in the same way. Any name is a point: at a custom one, the
    hooks that have such a method are called.

    Args:
        hooks: the hooks, in their order.
        runner: passed to the rings.

    Attributes:
        first: calls by point, before all hooks: parts of the engine that count.
        last: calls by point, after all hooks: parts that decide whether the run continues.
        calls_parts: False if a subclass's ``call_hook`` is wrapped in the calls of the parts.
        point: the point that a subclass's ``call_hook`` is calling.
        entered: the hooks whose ``before_run`` was called in this run; None before `enter` and after `leave`.
    """

    def __init__(self, hooks: Iterable[Hook] = (), runner: Any = None) -> None:
        super().__init__(hooks)
        self.runner = runner
        self.first: dict[str, list[Call]] = {}
        self.last: dict[str, list[Call]] = {}
        self.calls_parts = True
        self.entered: list[Hook] | None = None
        self.point: str | None = None
        self.calls: dict[str, list[Call]] = _Compiled(self.calls_at)
        self.around: dict[str, AbstractContextManager[None]] = _Compiled(self.rings_around)
        self._former: dict[str, list[Call]] = {}  # of points that may be running

    def with_hooks(self, hooks: Iterable[Hook]) -> HookTable:
        """A table of other hooks, with the same parts."""
        table = HookTable(hooks)
        vars(table).update({**vars(self), 'calls': table.calls, 'around': table.around})
        return table

    def forget_calls(self, *points: str) -> None:
        """Compile the calls of these points, by default of all, again at their next use."""
        for point in points or {**self.calls, **self.around}:
            if point in self.calls:
                self._former[point] = self.calls.pop(point)
            self.around.pop(point, None)

    def add_part(self, part: Any, is_last: bool = False) -> None:
        """Call the methods of ``part`` that are named like points, before all hooks or after them."""
        for point in CALLED:
            if point != 'after_resume' and hasattr(part, point):
                self.listen(point, getattr(part, point), is_last)

    def listen(self, point: str, call: Call, is_last: bool = False) -> None:
        """Call ``call`` at ``point``, before all hooks or after them, until `unlisten`."""
        (self.last if is_last else self.first).setdefault(point, []).append(call)
        self.forget_calls(point)

    def at_end(self, point: str, call: Call) -> None:
        """Call ``call`` once, at the end of ``point``, which may be running."""

        def once(runner: Any) -> None:
            self.unlisten(point, once)
            call(runner)

        running = self.calls.get(point) or self._former.get(point)
        self.listen(point, once, is_last=True)
        if running is not None:
            running.append(once)

    def unlisten(self, point: str, call: Call) -> None:
        """Stop calling ``call`` at ``point``."""
        for calls in (self.first.get(point, []), self.last.get(point, [])):
            if call in calls:
                calls.remove(call)
        self.forget_calls(point)

    def register(self, hook: Hook, priority: int) -> None:
        """Insert ``hook`` after the hooks with the same or a lower priority number."""
        check_method_names(type(hook))  # type: ignore[arg-type]  # a class is hashable
        hook.priority = priority  # type: ignore[attr-defined]
        behind = next((i for i in range(len(self), 0, -1) if priority >= priority_of(self[i - 1])), 0)
        self.insert(behind, hook)

    def dispatch_order(self) -> Iterator[Hook]:
        """The hooks in the order of their calls: by priority, but hooks that nest runs come after the others, and hooks
        that save the run's state last."""
        yield from (hook for hook in self if not (hook.runs_last or hook.nests_runs))
        yield from (hook for hook in self if hook.nests_runs and not hook.runs_last)
        yield from (hook for hook in self if hook.runs_last)

    def dispatch(self, point: str, runner: Any, *args: Any) -> None:
        """Call the hooks' methods of ``point`` in order, with ``runner`` and the point's other arguments."""
        for call in self.calls[point]:
            call(runner, *args)

    def enter(self, runner: Any) -> None:
        """Call ``before_run`` of every hook, also of hooks that are registered by then."""
        entered: list[Hook] = []
        self.entered = entered
        while waiting := [hook for hook in self if not any(hook is done for done in entered)]:
            entered.append(waiting[0])
            waiting[0].before_run(runner)

    def leave(self, runner: Any) -> None:
        """Call ``after_run`` of every part and every entered hook, even if one of them fails.

        Raises:
            BaseException: as in `call_each`.
        """
        entered, self.entered = {id(hook) for hook in self.entered or ()}, None
        hooks = [hook.after_run for hook in self.dispatch_order() if id(hook) in entered]
        first, last = self._parts('after_run')
        call_each([*first, *hooks, *last], runner)

    def _parts(self, point: str) -> tuple[Sequence[Call], Sequence[Call]]:
        calls_them = self.calls_parts or point in RINGS  # call_hook does not enter rings
        return (self.first.get(point, ()), self.last.get(point, ())) if calls_them else ((), ())

    def calls_at(self, point: str) -> list[Call]:
        """Compile the calls of ``point``."""
        if point == 'after_run':  # every call is made, even if others raise
            return [self.leave]
        methods = [_method(hook, point) for hook in self.dispatch_order()] if point != 'before_run' else [self.enter]
        first, last = self._parts(point)
        return [*first, *filter(None, methods), *last]

    def rings_around(self, span: str) -> AbstractContextManager[None]:
        """Compile the context of the rings around ``span``."""
        rings = self.calls[span]
        return _Rings(rings, self.runner) if rings else _NO_RINGS

    def info(self, validates: bool = True) -> str:
        """A table of the calls at each point, for the start of the log.

        Args:
            validates: whether the workflow has a ``'val'`` entry, which calls all hooks at the val points; without
                one, only hooks that evaluate call some.
        """
        blocks, evaluations = [], [hook for hook in self if isinstance(hook, EvalHook)]
        for stage in (*STAGES, *RINGS):
            callers = [hook for hook in self.dispatch_order() if _method(hook, stage) is not None]
            if stage in VAL_POINTS and not validates:
                callers = [hook for hook in callers if any(each.calls(hook, stage) for each in evaluations)]
            rows = [f'  ({priority_name(hook):<12}) {type(hook).__name__}' for hook in callers]
            if stage in VAL_POINTS:
                guests = [(each, hook) for each in evaluations for hook in each.hooks if hook not in self]
                rows += [f'  (evaluation  ) {type(hook).__name__}' for each, hook in guests if each.calls(hook, stage)]
            if rows:
                blocks.append('\n'.join([f'{stage}:', *rows]))
        return '\n'.join(blocks)


class _Compiled(dict[str, Any]):
    """Values by name that ``make`` makes at their first use."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._make(name)
        return value


def call_each(calls: Iterable[Call], runner: Any, point: str = 'after_run') -> None:
    """Make all ``calls`` of ``point``, even if some raise."""
    failures: list[BaseException] = []
    for call in calls:
        try:
            call(runner)
        except KeyboardInterrupt:
            raise
        except BaseException as failure:
            trace = None if isinstance(failure, NotSavedError) else failure  # whose message says everything
            name = type(getattr(call, '__self__', call)).__name__
            runner.logger.error('%s of %s failed', point, name, exc_info=trace)
            failures.append(failure)
    if failures:
        raise failures[0]


class _Rings:
    """Nested context managers of hooks, the first one outermost. Reentrant."""

    def __init__(self, rings: Sequence[Call], runner: Any) -> None:
        self._rings, self._runner = rings, runner
        self._open: list[ExitStack] = []

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for ring in self._rings:
                stack.enter_context(ring(self._runner))
            self._open.append(stack.pop_all())

    def __exit__(self, *exc_info: Any) -> bool | None:
        return self._open.pop().__exit__(*exc_info)


class _NoRings:
    """A null context without a Python call: every iteration enters one."""

    __enter__ = __exit__ = staticmethod(''.format)


_NO_RINGS: Any = _NoRings()


def _method(hook: Hook, point: str) -> Call | None:
    """The bound method of ``hook`` to call at ``point``; None if it would do nothing."""
    if point not in POINTS:
        return getattr(hook, point, None)
    if overrides(hook, point):
        return getattr(hook, point)
    general = FALLBACKS.get(point)
    return getattr(hook, general) if general is not None and overrides(hook, general) else None


def _forgets_calls(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    @wraps(method)
    def changed(self: HookTable, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        self.forget_calls()
        return result

    return changed


for _name in ('append', 'extend', 'insert', 'remove', 'pop', 'clear', 'sort', 'reverse'):
    setattr(HookTable, _name, _forgets_calls(_name))
for _name in ('__setitem__', '__delitem__', '__iadd__', '__imul__'):
    setattr(HookTable, _name, _forgets_calls(_name))


def priority_of(hook: Hook) -> int:
    """The priority of ``hook``; NORMAL if downstream code inserted it into the list by hand."""
    return getattr(hook, 'priority', Priority.NORMAL.value)


def priority_name(hook: Hook) -> str:
    """The name of the hook's priority, or its number between two named ones."""
    number = priority_of(hook)
    return next((band.name for band in Priority if band.value == number), str(number))


#: Every method of a hook that a runner calls, including the optional points.
CALLED = (
    *POINTS,
    *RINGS,
    'after_save',
    'after_roll_back',
    'after_resume',
    'after_log',
    'after_image',
    'while_waiting',
    'after_outcome',
)


@cache
def check_method_names(hook_type: type[Hook]) -> None:
    """Refuse a hook class with a method whose name is almost that of a point: it would never be called.

    The preflight (`runnerkit.flow.preflight.hooks`) warns about less similar names.
    """
    for name in dir(hook_type):
        if name.startswith('_') or hasattr(Hook, name) or name in CALLED or not callable(getattr(hook_type, name)):
            continue
        for meant in meant_points(name, at_most=2):
            raise ValueError(
                f'{hook_type.__name__}.{name} would never be called: a run has no such point. Did you mean {meant!r}? '
                '(If it is a helper, begin its name with an underscore.)'
            )


def meant_points(name: str, at_most: int | None = None) -> list[str]:
    """The points with names similar to ``name``, the nearest first."""
    if at_most is None:
        return nearest(name, CALLED)
    # Each difference changes one letter of each side at most; comparing the names in full is slow.
    close = [point for point in CALLED if len({*name} ^ {*point}) <= 2 * at_most]
    return [point for point in close if edit_distance(name, point) <= at_most]
