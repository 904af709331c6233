"""Runs inside a run: the outer run ends the inner one, and its checkpoints hold both."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch

from runnerkit.checkpoint import ema_name
from runnerkit.checkpoint.content import checkpoint_of, weights_on_cpu
from runnerkit.distributed import from_first_rank
from runnerkit.optim.update import device_type_of
from runnerkit.parallel import unwrap
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.seed import rng_state, seed_generators, set_rng_state

#: The prefix of an inner run's reason to end that is the outer run's.
OUTER = 'the run around it has been asked to end: '

#: The runner whose run began last.
INNERMOST: ContextVar[Any] = ContextVar('runnerkit_innermost_run', default=None)


class OuterRunEnding(Exception):
    """A nested run ends, or does not begin, because the run around it ends.

    `Nest.nested` catches it. At the begin of a second nested run it reaches `call_hook`, and the remaining hooks of the
    point are called in the resumed run.
    """


class _Span:
    """The span of one nested run.

    Args:
        name: its name in checkpoints.
        model: the outer run's.
        at: the point at which it is opened by a hook that ``nests_runs``.

    Attributes:
        rng: the outer run's random states.
        gradients: its parameters, each with its gradient.
        modes: its modules, each with whether it is in training mode.
        child: the nested runner, from the start of its run.
        left_at: this rank's part of the child's state, if it was cut short.
    """

    def __init__(self, name: str, model: torch.nn.Module, at: str | None) -> None:
        self.name, self.at = name, at
        self.rng = rng_state()
        self.gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        self.modes = [(module, module.training) for module in model.modules()]
        self.child: Any = None
        self.left_at: dict[str, Any] | None = None

    @contextmanager
    def outer_gradients(self) -> Iterator[None]:
        """In it, the outer run's parameters have their gradients of before the span."""
        inner = [(parameter, parameter.grad) for parameter, _ in self.gradients]
        _set_gradients(self.gradients)
        try:
            yield
        finally:
            _set_gradients(inner)

    def end(self) -> None:
        """Restore the random states, gradients and modes of the outer run."""
        set_rng_state(self.rng)
        _set_gradients(self.gradients)
        for module, mode in self.modes:
            module.training = mode


class Nest:
    """The part of the engine for runs inside a run.

    Args:
        runner: the outer run's.

    Attributes:
        parent: the run around this one, whose hook called ``run``; or None.
        inner: the runner of the nested run, or None.
        span: the span of the nested run that is open or was cut short.
        unfinished: nested runs by name that were open in the resumed checkpoint and have not continued yet.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.parent: Any = None
        self.inner: Any = None
        self.span: _Span | None = None
        self.unfinished: Mapping[str, Any] = {}
        self._point: str | None = None  # at which a hook that nests runs is being called

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        """The span of a call, at ``point``, of a hook that nests runs."""
        self._point = point
        try:
            yield
        finally:
            self._point = None

    @contextmanager
    def nested(self, name: str) -> Iterator[None]:
        """The span of a nested run, for hooks; a resumed run continues it. ::

            with runner.nested('probe'):
                child = EpochBasedRunner(model, optimizer=optimizer, max_epochs=5)
                child.run([loader], [('train', 1)])

        Build and run one runner in a span. The span seeds the random generators by the name and the moment, and at its
        end restores them, the gradients and the training modes of this run's model. A nested run that does not change
        this run's weights and buffers does not change the training.

        Checkpoints of this run that are saved in the span hold the nested one: its model (without tensors of this run's
        model), optimizer, hooks, counters and data positions. A resumed run calls the hooks' ``after_resume`` before
        its first iteration. If the name is in `unfinished`, the hook opens the span there again and builds the same
        runner, which continues; then the later hooks of ``after_train_iter`` or ``after_train_epoch`` are called. Such
        a hook sets ``nests_runs``; `NestedRunHook` does all of this.

        If this run is asked to end, by a signal or by `stop`, the nested run ends after its running iteration, and the
        rest of the span is skipped. No other nested run begins then: its hook and the later ones are called when this
        run is resumed.

        Args:
            name: unique among the nested runs.

        Raises:
            RuntimeError: there is no run, or a span is open.
        """
        if INNERMOST.get() is not self._runner:
            raise RuntimeError(
                f'nested({name!r}) is the span of a run inside this one: open it in a hook, while this runner runs'
            )
        if self.span is not None and self.span.left_at is not None:
            raise OuterRunEnding
        if self.span is not None:
            raise RuntimeError(
                f'nested({name!r}) is opened inside nested({self.span.name!r}): a run that is nested deeper belongs '
                'to a hook of the nested runner'
            )
        runner = self._runner
        span = self.span = _Span(name, runner.model, self._point)
        try:
            seed_generators(from_first_rank(partial(_seed, span.rng, f'{name} {runner.completed_iters}')))
            _set_gradients([(parameter, None) for parameter, _ in span.gradients])
            # Hooks are called under the autocast of an iteration, and under no_grad in a validation.
            with torch.enable_grad(), torch.autocast(device_type_of(runner.model.parameters()), enabled=False):
                yield
        except OuterRunEnding:
            span.left_at = span.child.snapshots.rank_state()
            runner.stopping.end_with(span.child.stopping)
        finally:
            span.end()
            if span.left_at is None:
                self.span = None

    @property
    def position(self) -> tuple[int, ...]:
        """How many training iterations are done, in this run, in the open nested run, and so on."""
        child = None if self.span is None else self.span.child
        done = self._runner.completed_iters
        return (done,) if child is None else (done, *child.position)

    # --- the inner run -----------------------------------------------------------------------------------------------

    @contextmanager
    def as_innermost(self) -> Iterator[None]:
        """The span of this run: runs that begin in it are nested."""
        outer = INNERMOST.get()
        self.parent = outer
        token = INNERMOST.set(self._runner)
        try:
            if outer is not None:
                outer.nest.take_in(self._runner)
            yield
        finally:
            INNERMOST.reset(token)
            if outer is not None:
                outer.nest.take_in(None)

    def take_in(self, child: Any) -> None:
        """The runner ``child`` begins to run inside this run; None: it has ended."""
        self.inner, span = child, self.span
        if child is None or span is None or span.left_at is not None:
            return
        if span.child is not None:
            raise RuntimeError(
                f'two runs in nested({span.name!r}): a resumed run could not tell which of them to continue. Give '
                'each run its own span and name'
            )
        span.child = child
        if span.name in self.unfinished:
            waiting = dict(self.unfinished)
            state = waiting.pop(span.name)
            self.unfinished = waiting
            name = f'the nested run {span.name!r}'
            shared = unwrap(child.model).state_dict()  # those of the outer run's model are loaded already
            child.snapshots.continue_from({**state, 'state_dict': {**shared, **state['state_dict']}}, name)

    def check_ending(self) -> None:
        """This run ended only because the one around it ends.

        Raises:
            OuterRunEnding: a resumed run continues it.
        """
        span = self.parent.nest.span
        if span is not None and span.child is self._runner:
            raise OuterRunEnding
        self.parent.logger.warning(
            'a nested run was cut short after %d iterations, and a resume will not continue it: run it in a span, with '
            "runner.nested('a name')",
            self._runner.completed_iters,
            extra=NOT_EXACT,
        )

    # --- in checkpoints ----------------------------------------------------------------------------------------------

    def common_state(self) -> dict[str, Any]:
        """The part of a checkpoint of the open nested run that all ranks share."""
        span = self.span
        return {} if span is None or span.child is None else {'nested': {span.name: self._content_of(span)}}

    def _content_of(self, span: _Span) -> dict[str, Any]:
        """A checkpoint of the nested run without tensors of this run's model and without the ranks' states."""
        child = span.child
        shared = {_place(value) for value in unwrap(self._runner.model).state_dict().values()} - {None}
        # Averages go into the nested part of the file only: this run's weights must not change here.
        with child.hooks.around['around_save']:
            content = checkpoint_of(
                child.model,
                optimizer=child.optimizer,
                meta={**child.meta, 'epoch': child.completed_epochs, 'iter': child.completed_iters},
                state=child.snapshots.common_state(),
            )
            weights = content['state_dict']
            own = {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in weights.items()
                if _place(value) not in shared or ema_name(name) in weights
            }
        return weights_on_cpu({**content, 'state_dict': own, 'at': span.at})

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """In it, gradients and random states are those of this run, not of a nested one."""
        span = self.span
        if span is None or span.child is None:
            yield
            return
        inner = rng_state()
        set_rng_state(span.rng)
        try:
            with span.outer_gradients():
                yield
        finally:
            set_rng_state(inner)

    def state_dict(self) -> dict[str, Any]:
        """This rank's part of the state of the open nested run."""
        span = self.span
        if span is None or span.child is None:
            return {}
        inner = span.child.snapshots.rank_state() if span.left_at is None else span.left_at
        return {'nested': {span.name: inner}}

    def load_state_dict(self, own: Mapping[str, Any]) -> None:
        """Note the nested runs that were open in the resumed checkpoint."""
        self.span, self.unfinished = None, _nested_in(self._runner.snapshots.resumed)

    def resume_inner(self) -> None:
        """At the start of a resumed run, let the hooks continue the nested runs that were open."""
        runner, span = self._runner, self.span
        resumed = runner.snapshots.resumed
        if span is not None and span.left_at is not None:  # cut short, and this runner runs again
            ranks = [{'nested': {span.name: span.left_at}}] * runner.world_size
            self.unfinished = _nested_in({'nested': {span.name: self._content_of(span)}, 'ranks': ranks})
            self.span = None
        elif resumed is None:
            return
        names = ', '.join(self.unfinished)
        if names:
            runner.logger.info('the checkpoint was saved inside a nested run, which continues first: %s', names)
        at = next((content.get('at') for content in self.unfinished.values()), None)
        with runner.progress.as_at(at), suppress(OuterRunEnding):
            self._resume_hooks(at)
        if names:
            # Keep what that has logged when the moment of this run is restored once more.
            for rank in (resumed or {}).get('ranks', ()):
                rank['log_buffer'] = runner.train_log.state_dict()
        for name in self.unfinished:
            runner.logger.warning(
                'no hook continues the nested run %r, in which the checkpoint was saved: the resume is not '
                'exact. Such a hook also opens runner.nested(%r) in after_resume',
                name,
                name,
                extra=NOT_EXACT,
            )
        self.unfinished = {}

    def _resume_hooks(self, at: str | None) -> None:
        """Call ``after_resume``, and if a nested run continued in it, the later hooks of the point ``at``."""
        runner, nests = self._runner, None
        for hook in [*runner.hooks.dispatch_order()]:
            waiting = self.unfinished
            if hasattr(hook, 'after_resume'):
                hook.after_resume(runner)
            nests = nests if self.unfinished is waiting else hook
        if nests is not None and at in _MADE_UP_FOR:
            runner.hooks.dispatch_behind(nests, at, runner)


#: Points of which a resumed run calls the hooks after a nested run.
_MADE_UP_FOR = ('after_train_iter', 'after_train_epoch')


def _nested_in(resumed: Mapping[str, Any]) -> dict[str, Any]:
    """The nested runs in a resumed state, each like the content of a checkpoint."""
    found = {}
    for name, content in resumed.get('nested', {}).items():
        ranks = [rank['nested'][name] for rank in resumed['ranks'] if name in rank.get('nested', {})]
        found[name] = {**content, 'runnerkit': {**content['runnerkit'], 'ranks': ranks}}
    return found


def _set_gradients(pairs: list[tuple[torch.nn.Parameter, torch.Tensor | None]]) -> None:
    for parameter, gradient in pairs:
        parameter.grad = gradient


def _place(value: Any) -> tuple[torch.device, int, torch.Size] | None:
    """Where a tensor is in memory; None for other states of modules."""
    return (value.device, value.data_ptr(), value.shape) if isinstance(value, torch.Tensor) else None


def _seed(state: Mapping[str, Any], name: str) -> int:
    """A seed for the nested run ``name``, a name that no other one has, if the random states are ``state``."""
    return zlib.crc32(name.encode(), zlib.crc32(state['torch'].numpy().tobytes()))
