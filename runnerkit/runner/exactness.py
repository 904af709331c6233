"""When a run can be saved so that it continues exactly."""

from __future__ import annotations

from typing import Any

from runnerkit.checkpoint.conditions import only_looks_on
from runnerkit.hooks.evaluation import EvalHook
from runnerkit.hooks.hook import Hook, listens
from runnerkit.utils.user_files import is_ours

#: Points in whose middle a user's hook may save, called while another point is.
_INNER = ('after_forward', 'after_backward', 'after_step')


def why_not_exact(runner: Any, caller: Any = None) -> str | None:
    """Why a run could not continue exactly from a checkpoint that is saved now, by the hook ``caller``; None if it
    could: between two iterations, and at the end of a point."""
    progress = runner.progress
    if runner.snapshots.is_waiting:
        return 'before the state of the resumed run was restored'
    if runner.stopping.signals is None or runner.outcome is not None:  # no run, or its end
        return None
    if runner.lifecycle.inner is not None:
        return 'inside a nested run'
    if runner.evaluator.is_open:
        return 'inside an evaluation'
    if progress.waits_for_epoch:
        return 'before the end of the epoch'
    if progress.iter_is_done:
        return _why_not_at_end(runner, 'after_train_iter', caller)
    if progress.epoch_is_done:
        return _why_not_at_end(runner, 'after_train_epoch', caller)
    if progress.is_in_iter:
        return 'inside an iteration' if caller is None else _why_not_again(runner, 'before_train_iter')
    if progress.epoch_is_open and not progress.batches:
        return _why_not_again(runner, 'before_train_epoch')
    return None


def in_entry(runner: Any) -> bool:
    """Whether an evaluation is running that is an entry of the workflow, at whose end a save is exact."""
    progress = runner.progress
    trains = progress.is_in_iter or progress.iter_is_done or progress.epoch_is_open or progress.epoch_is_done
    is_entry = runner.by_epoch or runner.lifecycle.own_loop is None  # a user's loop by iteration has batches only
    return runner.evaluator.is_open and is_entry and not trains


def boundary(runner: Any, caller: Any = None) -> str | None:
    """The point at whose end a save can be exact that cannot be so now, unless an evaluation of the workflow ends
    before; None if it is made now: a hook ``caller`` chose its point, and outside a run no point comes."""
    progress, hooks = runner.progress, runner.hooks
    if progress.waits_for_epoch:
        return 'after_train_epoch'
    if caller is not None and runner.lifecycle.inner is None:
        return None
    if runner.snapshots.is_waiting:
        return 'before_run' if hooks.entered is not None or hooks.point == 'before_run' else None
    return 'after_train_epoch' if progress.epoch_is_done and not progress.iter_is_done else 'after_train_iter'


def _why_not_again(runner: Any, point: str) -> str | None:
    """Of a point that a resumed run calls again: its users' hooks may change the run twice."""
    again = [type(hook).__name__ for hook in _acting(runner, point) if not is_ours(type(hook).__module__)]
    return f'in {point}, where a resumed run calls {", ".join(again)} again' if again else None


def _why_not_at_end(runner: Any, point: str, caller: Hook | None) -> str | None:
    """Of a point that a resumed run does not call again: the hooks after the one that saves are left out."""
    acting = _acting(runner, point, caller)
    if caller is not None:
        left_out = acting[acting.index(caller) + 1 :] if caller in acting else ()
        names = ', '.join(type(hook).__name__ for hook in left_out)
        return f'in {point}, before the run called {names} there' if names else None
    # Which hook saves is unknown: exact is only the last one, if no other is a user's.
    users = [hook for hook in runner.hooks if not is_ours(type(hook).__module__)]
    is_last = len(users) == 1 and acting[-1:] == users and not any(listens(users[0], inner) for inner in _INNER)
    return None if is_last else f'in {point}, among hooks that may change the run'


def _acting(runner: Any, point: str, caller: Hook | None = None) -> list[Hook]:
    """The hooks that may change the run if ``point`` calls them never or twice, and ``caller``, in their order."""

    def acts(hook: Hook) -> bool:
        if hook.runs_last or only_looks_on(type(hook).__name__) or not listens(hook, point):
            return False
        if isinstance(hook, EvalHook) and point.startswith('after_'):
            return hook.by_epoch == (point == 'after_train_epoch') and hook._should_evaluate(runner)
        return True

    return [hook for hook in runner.hooks.dispatch_order() if hook is caller or acts(hook)]
