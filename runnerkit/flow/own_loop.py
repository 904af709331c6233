"""A training whose loop its user writes, as plain Python: `loop` makes it survive any kill, and keeps its records."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from runnerkit.config import Config
from runnerkit.distributed import from_first_rank
from runnerkit.evaluation import number_of, rule_by_name
from runnerkit.flow.context import Context, Options
from runnerkit.flow.stages.defaults import fill_in
from runnerkit.flow.stages.instance import Instance
from runnerkit.flow.stages.startup import to_resume
from runnerkit.flow.stages.terminal import Terminal
from runnerkit.flow.work_dir.journal import JournalHook, recording_hooks
from runnerkit.flow.work_dir.record import config_of
from runnerkit.flow.work_dir.snapshot import take_over
from runnerkit.hooks import CheckpointHook, EvalHook, Hook
from runnerkit.hooks.hook import LoopLeft, Outcome
from runnerkit.optim.named import named_optimizers
from runnerkit.runner.epoch_based_runner import EpochBasedRunner
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.exit_codes import SIGNALLED
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import rng_state, set_rng_state

#: The key of a config that names the script with the loop.
SCRIPT = 'loop'

_LEFT = 'the loop was left before its end'


def loop(
    work_dir: str | os.PathLike[str],
    *,
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
    scheduler: Any = None,
    seed: int | None = None,
    save_best: str | None = None,
    checkpoint_config: Mapping[str, Any] | None = {'interval': 1, 'max_keep_ckpts': 3},  # noqa: B006 (never changed)
    log_config: Mapping[str, Any] | None = {'interval': 50},  # noqa: B006
    hooks: Sequence[Hook] = (),
    **named: Any,
) -> Loop:
    """Make a loop of your own survive any kill: it continues where the run in ``work_dir`` was, to the bit. ::

        run = runnerkit.loop('work_dirs/mine', model=net, optimizer=optimizer, scheduler=scheduler, seed=0)
        for epoch in run.epochs(30):
            for x, y in run.batches(train):
                loss = F.cross_entropy(net(x), y)
                optimizer.zero_grad(); loss.backward(); optimizer.step()
                run.log(loss=loss)
            scheduler.step()
            run.score(accuracy=evaluate(net, val))

    The states of everything that is handed over are loaded inside this call, if the work dir has a checkpoint. An
    iteration is done when the next batch is asked for, an epoch when the next epoch is: what follows the inner loop
    belongs to the epoch. The run is saved, and obeys SIGTERM and Ctrl-C, at these moments only.

    Args:
        work_dir: where logs, checkpoints and the report go.
        model: the network, or several by name.
        optimizer: the optimizer, or several by name.
        scheduler: a learning rate scheduler, or several by name. Your loop steps it.
        seed: seeds Python, numpy and torch in this call; None: with a random number, which the log names.
        save_best: the score whose best epoch is kept, as ``best_<score>_epoch_<n>.pth``. Its name tells whether more or
            less is better, as in `EvalHook`.
        checkpoint_config: arguments of `CheckpointHook`; by default each epoch is saved, and the last three are kept.
        log_config: ``interval`` in iterations, and ``hooks``; by default a line every 50 iterations.
        hooks: hooks to register; they are called at the same points as in other runs, without ``after_forward``,
            ``after_backward`` and ``after_step``.
        **named: anything else with ``state_dict`` and ``load_state_dict``, such as ``scaler=…``; saved by its name.

    Raises:
        TypeError: an object has no ``state_dict``, or is of a wrong kind.
        ValueError: the work dir belongs to a run of another kind, or its states do not fit.
        RuntimeError: a living run uses the work dir.
    """
    return Loop(
        os.fspath(work_dir),
        _one(model, 'model', nn.Module),
        None if optimizer is None else _one(optimizer, 'optimizer', Optimizer),
        {**_stateful('scheduler', scheduler), **{key: each for name in named for key, each in _stateful(name, named[name]).items()}},
        seed,
        save_best,
        {'checkpoint_config': checkpoint_config, 'log_config': log_config},
        hooks,
    )



class LoopRunner(EpochBasedRunner):
    """The runner of a `Loop`, which calls no step of the model."""

    keeps_random_states = True
    evaluates_on = 'val'

    def _check_step(self, model: Any, batch_processor: Any) -> None:
        """Nothing: the user computes the loss."""


class ScoreHook(EvalHook):
    """Takes the scores that the user gives, logs them, and keeps the best checkpoint."""

    def __init__(self, save_best: str | None) -> None:
        super().__init__(DataLoader([None]), save_best=save_best)  # type: ignore[arg-type]  # it is never read
        if save_best is not None:
            self._init_rule(None, save_best)
        self.given: dict[str, float] = {}

    def _should_evaluate(self, runner: Any) -> bool:
        return bool(self.given)

    def _score(self, runner: Any) -> float | None:
        scores, self.given = self.given, {}
        with runner.around_val() as found:
            found.update(scores)
        return self._record(runner, scores)


class Loop:
    """What `loop` returns. As a context manager it also knows how its block ended, as a notebook needs it.

    Attributes:
        runner: the runner that hooks get.
    """

    def __init__(
        self,
        work_dir: str,
        model: nn.Module,
        optimizer: Any,
        parts: Mapping[str, Any],
        seed: int | None,
        save_best: str | None,
        config: Mapping[str, Any],
        hooks: Sequence[Hook],
    ) -> None:
        cfg = Config({**_script(), 'seed': seed, **({'save_best': save_best} if save_best else {}), **config})
        self._context = context = Context(cfg, Options(work_dir=work_dir, auto_resume=True))
        self._at_end = context.closing
        self._run, self._epoch, self._iteration = ExitStack(), ExitStack(), ExitStack()
        self._is_open = False  # between the beginning and the end of `epochs`
        self._loader: Any = None  # of the open epoch
        with ExitStack() as after_error:
            after_error.callback(context.closing.close)
            self._prepare(model, optimizer, save_best, hooks)
            for name, part in parts.items():
                self.runner.register_part(name, part)
            self._resume(parts)
            after_error.pop_all()
        _living.add(self)

    def _prepare(self, model: nn.Module, optimizer: Any, save_best: str | None, hooks: Sequence[Hook]) -> None:
        """Open the work dir, and make the runner with its hooks."""
        context, cfg = self._context, self._context.cfg
        fill_in(cfg)
        instance = Instance(context)
        instance.start_processes(context)
        parameter = next(model.parameters(), None)
        context.device = torch.device('cpu') if parameter is None else parameter.device
        instance.open_work_dir(context)
        self._check_work_dir()
        instance.settle_seed(context)
        instance.describe(context)
        self.runner = context.runner = LoopRunner(
            model, optimizer=optimizer, work_dir=context.work_dir, logger=context.logger, meta=context.meta
        )
        context.model, context.optimizer, self.runner.timestamp = model, optimizer, context.timestamp
        self.runner.register_training_hooks(
            None, None, checkpoint_config=cfg.checkpoint_config, log_config=cfg.log_config, timer_config={'type': 'IterTimerHook'}
        )
        self._scores = ScoreHook(save_best)
        self.runner.register_hook(self._scores, priority='LOW')
        for hook in hooks:
            self.runner.register_hook(hook)
        for hook in recording_hooks(context):
            self.runner.register_hook(hook, priority='LOWEST')

    def _check_work_dir(self) -> None:
        """Refuse the work dir of a run by config."""
        work_dir = self._context.work_dir
        config = config_of(work_dir)
        if config is not None and SCRIPT not in Config.fromfile(config, import_custom_modules=False):
            raise WrongValue(
                f'the work dir {work_dir} holds a run of the config {config.name}, not one of a loop of your own: give '
                'loop another folder'
            )

    def _resume(self, parts: Mapping[str, Any]) -> None:
        """Load the states of the newest checkpoint, if there is one."""
        context, runner = self._context, self.runner
        context.resume_from = to_resume(context)
        if context.resume_from is None:
            return
        runner.resume(context.resume_from)
        states = runner.snapshots.own.get('parts', {})
        for name in parts.keys() & states.keys():
            _load(name, parts[name], states[name], context.resume_from)

    # --- where it is -------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The running epoch, from 0; after the last one, how many there were."""
        return int(self.runner.progress.epochs)

    @property
    def iter(self) -> int:
        """How many iterations are done, over all epochs."""
        return int(self.runner.progress.iters)

    @property
    def outcome(self) -> Outcome | None:
        """How the run has ended; None as long as it has not."""
        return self._context.outcome

    # --- the loop ----------------------------------------------------------------------------------------------------

    def epochs(self, n: int) -> Iterator[int]:
        """The epochs, from 0, that are left of ``n`` in all, the open one first.

        Raises:
            TypeError: ``n`` is no whole number.
            ValueError: ``n`` is less than 1.
            RuntimeError: other `epochs` are open, or the run has ended.
        """
        check_whole_number('n', n)
        if self._is_open:
            raise RuntimeError('two run.epochs(…) are open at once: a run has one loop over its epochs')
        if self.outcome is not None:
            raise RuntimeError(f'this run has ended ({self.outcome}): call runnerkit.loop again, which continues it')
        self.runner.plan.max_epochs = n
        if self.epoch >= n:
            text = '%s is complete: %d epochs are done, and epochs(%d) gives none. A larger number continues it'
            self._context.logger.info(text, self._context.work_dir, self.epoch, n)
        return self._epochs(n)

    def _epochs(self, n: int) -> Iterator[int]:
        self._is_open = True
        try:
            if self.runner.snapshots.resumed is not None:
                set_rng_state(self.runner.snapshots.own['rng'])
            while self.outcome is None and self.epoch < n:
                yield self.epoch
                self._end_epoch()
        except GeneratorExit:  # `break`, or an error that `fail` hears of later
            self._end(LoopLeft(_LEFT))
            raise
        except BaseException as error:
            self._end(error)
            raise
        finally:
            self._is_open = False
        self._end()

    def batches(self, loader: Any) -> Iterator[Any]:
        """The batches of ``loader`` in the open epoch, unchanged; in a resumed epoch those that are left.

        Raises:
            RuntimeError: no epoch is open, or it has had its batches.
        """
        if not self._is_open or self.outcome is not None:
            raise RuntimeError('run.batches(…) belongs into the loop over run.epochs(…)')
        if self._loader is not None:
            raise RuntimeError(
                'run.batches(…) was called before in this epoch: an epoch has one loader. Draw batches of others with '
                'iter(…) by yourself, and hand over what they draw from'
            )
        return self._batches(loader)

    def _batches(self, loader: Any) -> Iterator[Any]:
        runner = self.runner
        try:
            self._begin_epoch(loader)
            for runner.progress.inner_iter, runner.data_batch in runner.readers.batches(loader):
                self._iteration.enter_context(runner.hooks.around['around_iter'])
                runner.call_hook('before_train_iter')
                yield runner.data_batch
                self._end_iteration()
                if runner.stopping.reason is not None:
                    runner.readers.leave(loader)
                    break
        except GeneratorExit:
            raise  # the epoch may end here, or the loop
        except BaseException as error:
            self._end(error)
            raise
        if runner.stopping.reason is not None:
            self._end()

    def _begin_epoch(self, loader: Any) -> None:
        runner = self.runner
        if runner.stopping.signals is None:
            states = rng_state()  # what the epoch has drawn until here stays drawn
            from_first_rank(partial(take_over, self._context))
            self._run.enter_context(runner.running([loader], [('train', 1)]))
            set_rng_state(states)
        elif runner.readers.entries[0].dataloader is not loader:
            runner.open_readers([loader])
        self._loader, runner.mode, runner.data_loader = loader, 'train', loader
        runner.plan.follow(loader)
        runner.progress.begin_unit(0, 0)
        self._epoch.enter_context(runner.hooks.around['around_epoch'])
        runner.call_hook('before_train_epoch')

    def _end_iteration(self) -> None:
        runner = self.runner
        runner.call_hook('after_train_iter')
        self._iteration.close()
        runner.progress.iter, runner.progress.iter_is_done = runner.progress.iter + 1, False
        runner.data_batch = None

    def _end_epoch(self) -> None:
        runner = self.runner
        if self.outcome is not None:
            return
        if self._loader is None:
            raise RuntimeError('an epoch is over, and run.batches(loader) was not called in it: nothing was trained')
        if runner.data_batch is not None:  # the inner loop was left with `break`
            self._end_iteration()
        runner.log_buffer.mark()
        runner.call_hook('after_train_epoch')
        self._epoch.close()
        runner.progress.next_epoch()
        self._loader = None
        runner.stopping.boundary()
        if runner.stopping.reason is not None:
            self._end()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, error: BaseException | None = None) -> None:
        """End the run, however it ends."""
        if self.outcome is not None:
            return
        runner, context = self.runner, self._context
        if runner.stopping.signals is None and error is None:
            context.outcome = Outcome('completed')
            return
        about = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        try:
            for stack in (self._iteration, self._epoch, self._run):
                stack.__exit__(*about)
        finally:
            context.outcome = runner.outcome or Outcome.of(error or RuntimeError('it has not begun'))
            if not isinstance(error, LoopLeft):
                self.close()
        if runner.stop_signal is not None:
            raise SystemExit(SIGNALLED + runner.stop_signal)

    def fail(self, error: BaseException) -> None:
        """Note that ``error`` has left the loop, and close."""
        if self.outcome is None:
            self._end(error)
        elif isinstance(self.outcome.error, LoopLeft):
            self._context.outcome = outcome = Outcome.of(error)
            self._context.logger.error('Run %s', outcome)
            for hook in self.runner.hooks:
                if isinstance(hook, JournalHook):
                    hook.fail(outcome)
        self.close()

    def close(self) -> None:
        """Write the report, and let others use the work dir. The end of the run does so, or of the program if the loop
        was left before."""
        if self.outcome is None:
            self._end(LoopLeft(_LEFT))
        if self in _living:
            _living.discard(self)
            try:
                Terminal(self._context)(self._context)
            finally:
                self._context.closing.close()

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            self.fail(error)
        self.close()

    # --- what it reports ---------------------------------------------------------------------------------------------

    def log(self, **values: Any) -> None:
        """Log numbers or one-element tensors of the running iteration; lines have their averages. Reads no device."""
        self.runner.log_buffer.update(values)

    def score(self, **scores: Any) -> None:
        """Give scores of the open epoch; they are logged, and stand in its checkpoint, when the next one is asked for.

        With several processes every one that has a score calls it, and the mean counts.

        Raises:
            RuntimeError: no epoch is open.
            TypeError: a score is no number.
        """
        if not self._is_open:
            raise RuntimeError('run.score(…) belongs into the loop over run.epochs(…)')
        for name, value in scores.items():
            number = number_of(value)
            if number is None:
                raise WrongType(f'the score {name!r} must be a number, but got {value!r}')
            self._scores.given[name] = number

    def stop(self, reason: str) -> None:
        """End the loop behind the running iteration; in the part of an epoch after its batches, behind that epoch."""
        self.runner.stop(reason)


def _one(given: Any, what: str, kind: type) -> Any:
    """``given`` if it is of the ``kind``; several by name as one object with that state."""
    if isinstance(given, kind):
        return given
    named = given if isinstance(given, Mapping) else {}
    if not named or not all(isinstance(name, str) and isinstance(each, kind) for name, each in named.items()):
        raise WrongType(f'{what} must be of the class {kind.__name__}, or several in a dict by name, but got {given!r}')
    return nn.ModuleDict(named) if kind is nn.Module else dict(named)


def _stateful(name: str, given: Any) -> dict[str, Any]:
    """The objects that ``given`` is, by the names of their states in checkpoints."""
    if given is None:
        return {}
    named = {f'{name}.{key}': each for key, each in given.items()} if isinstance(given, Mapping) else {name: given}
    for key, each in named.items():
        if not all(callable(getattr(each, method, None)) for method in ('state_dict', 'load_state_dict')):
            raise WrongType(
                f'{key}={each!r} has no state_dict and load_state_dict, so no checkpoint can hold it: hand over only '
                'what has both'
            )
    return named


def _load(name: str, part: Any, state: Any, checkpoint: str) -> None:
    try:
        part.load_state_dict(state)
    except Exception as error:
        raise WrongValue(
            f'the state of {name} in {checkpoint} does not fit {type(part).__name__} ({error}): hand over the same kind '
            'of object as the run had, or give loop another work dir'
        ) from error


def _script() -> dict[str, str]:
    """The config's key for the running script; nothing in a notebook."""
    file = getattr(sys.modules['__main__'], '__file__', None)
    return {SCRIPT: f'{os.path.abspath(file)}:__main__'} if file else {SCRIPT: ''}


#: Those that have not been closed.
_living: weakref.WeakSet[Loop] = weakref.WeakSet()


def _note_error(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    for each in list(_living):
        each.fail(error)
    _former_hook(kind, error, traceback)


_former_hook, sys.excepthook = sys.excepthook, _note_error


@atexit.register
def _close_all() -> None:
    for each in list(_living):
        each.close()
