"""A training whose loop its user writes, as plain Python: `Loop` makes it survive any kill, and keeps its records."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from runnerkit.config import Config
from runnerkit.data.kinds import length_of
from runnerkit.data.loader_state import generator_state, is_generator, set_generator_state
from runnerkit.distributed import broadcast_object, from_first_rank
from runnerkit.evaluation import number_of
from runnerkit.flow.context import Context, Options
from runnerkit.flow.moment.passage import REPLAYING
from runnerkit.flow.stages.defaults import KEPT, LOG_INTERVAL, fill_in
from runnerkit.flow.stages.instance import Instance
from runnerkit.flow.stages.startup import to_resume
from runnerkit.flow.stages.terminal import Terminal
from runnerkit.flow.work_dir.journal import JournalHook, recording_hooks
from runnerkit.flow.work_dir.record import SCRIPT, config_of
from runnerkit.flow.work_dir.snapshot import take_over
from runnerkit.hooks import EvalHook, Hook
from runnerkit.hooks.hook import UPDATE_POINTS, LoopLeft, Outcome, listens
from runnerkit.optim.named import has_scheduler, named_optimizers
from runnerkit.optim.update import Update
from runnerkit.parallel.wrappers import foreign_parameters
from runnerkit.runner.epoch_based_runner import EpochBasedRunner
from runnerkit.utils.ending import SIGNALLED
from runnerkit.utils.exceptions import WrongType, WrongValue, one_line
from runnerkit.utils.logging import NOT_EXACT
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import rng_state, set_rng_state


class LoopRunner(EpochBasedRunner):
    """The runner of a `Loop`, which calls no step of the model."""

    keeps_random_states = True
    evaluates_on = 'val'
    way_to_step = 'Call loss.backward() and optimizer.step() for each batch of your loop.'

    def _check_step(self, model: Any, batch_processor: Any) -> None:
        """Nothing: the user computes the loss."""


class ScoreHook(EvalHook):
    """Takes the scores that the user gives, logs them, and keeps the best checkpoint."""

    def __init__(self, save_best: str | None) -> None:
        super().__init__(DataLoader([None]), save_best=save_best)  # type: ignore[arg-type]  # it is never read
        if save_best is not None:
            self._init_rule(None, save_best)
        self.given: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """Also the scores of the open epoch."""
        return {**super().state_dict(), 'given': dict(self.given)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take also the scores of the open epoch from a checkpoint."""
        super().load_state_dict(state)
        self.given = dict(state.get('given', {}))

    def after_train_epoch(self, runner: Any) -> None:
        """Evaluate on all ranks if the first one has scores."""
        self.given = broadcast_object(self.given)
        if self.save_best is not None and not self.given and runner.completed_epochs == 1:
            text = 'save_best=%r, but the first epoch has no score: call run.score(%s=…) in the loop over run.epochs(…)'
            runner.logger.warning(text, self.save_best, self.save_best)
        super().after_train_epoch(runner)

    def _should_evaluate(self, runner: Any) -> bool:
        return bool(self.given)

    def _score(self, runner: Any) -> float | None:
        scores, self.given = self.given, {}
        with runner.around_val() as found:
            found.update(scores)
        return self._record(runner, scores)


class LoopUpdate(Update):
    """What an optimizer that the user steps has not used yet: gradients that came, or changed, after its last step."""

    def _count_step(self, *about: Any) -> None:
        super()._count_step(*about)
        for group in self.optimizers[0].param_groups:  # a step after each backward: no call for each parameter
            for parameter in group['params']:
                if (grad := parameter.grad) is not None:
                    grad.used_version = grad._version

    def state_dict(self) -> dict[str, Any]:
        """All gradients, if one of them is unused."""
        gradients = [each.grad for each in self.parameters() if each.grad is not None]
        self.accumulated = int(any(getattr(each, 'used_version', None) != each._version for each in gradients))
        return super().state_dict()


class OwnGenerator:
    """A random generator of the user's, as a part of checkpoints."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, Any]:
        """Its state."""
        return generator_state(self._generator)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give it a state."""
        if not set_generator_state(self._generator, state):
            raise TypeError(f'the state is not that of a {type(self._generator).__name__}')


class EpochStart:
    """The random states with which the open epoch began, for what is drawn before its first batch.

    Args:
        generators: the user's, by name; those of Python, numpy and torch are added.
    """

    def __init__(self, generators: Mapping[str, OwnGenerator]) -> None:
        self._generators = generators
        self._states: dict[str, Any] = {}

    def begin(self) -> None:
        """An epoch begins."""
        self._states = {'': rng_state(), **{name: each.state_dict() for name, each in self._generators.items()}}

    def rewind(self) -> None:
        """Give the generators the states of the beginning."""
        set_rng_state(self._states[''])
        self.hand_out(self._states)

    def hand_out(self, states: Mapping[str, Any]) -> None:
        """Give the user's generators those of ``states`` that have their names."""
        for name in self._generators.keys() & states.keys():
            self._generators[name].load_state_dict(states[name])

    def state_dict(self) -> dict[str, Any]:
        """The states by name."""
        return {'states': self._states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take them from a checkpoint."""
        self._states = dict(state['states'])


class Loop:
    """Makes a custom loop survive any kill: it continues where the run in ``work_dir`` was, to the bit. ::

        run = runnerkit.loop('work_dirs/mine', model=net, optimizer=optimizer, scheduler=scheduler, seed=0)
        for epoch in run.epochs(30):
            for x, y in run.batches(train):
                loss = F.cross_entropy(net(x), y)
                optimizer.zero_grad(); loss.backward(); optimizer.step()
                run.log(loss=loss)
            scheduler.step()
            run.score(accuracy=evaluate(net, val))

    If the work dir has a checkpoint, the states of all that is handed over are loaded when this is built. An iteration
    is done when the next batch is asked for, an epoch when the next epoch is: what follows the inner loop belongs to
    the epoch. The run is saved, and obeys SIGTERM and Ctrl-C, at these moments only; of an epoch's last iteration, with
    the epoch. As a context manager, as a notebook needs it, it also knows how its block has ended.

    Args:
        work_dir: where logs, checkpoints and the report go.
        model: the network, or several by name.
        optimizer: the optimizer, or several by name.
        scheduler: a learning rate scheduler, or several by name. Your loop steps it.
        seed: seeds Python, numpy and torch here; None: with a random number, which the log names.
        save_best: the score whose best epoch is kept, as ``best_<score>_epoch_<n>.pth``. Its name tells whether more or
            less is better, as in `EvalHook`.
        checkpoint_config: arguments of `CheckpointHook`; None: nothing is saved.
        log_config: ``interval`` in iterations, and ``hooks``.
        hooks: hooks to register. ``after_forward``, ``after_backward`` and ``after_step`` are never called.
        **named: anything else with ``state_dict`` and ``load_state_dict``, such as ``scaler=…``, and random generators;
            saved by its name.

    Attributes:
        runner: what hooks get.

    Raises:
        TypeError: an object has no ``state_dict``, or is of a wrong kind.
        ValueError: the work dir belongs to a run of another kind, or its states do not fit.
        RuntimeError: a living run uses the work dir.
    """

    def __init__(
        self,
        work_dir: str | os.PathLike[str],
        *,
        model: nn.Module | Mapping[str, nn.Module],
        optimizer: Optimizer | Mapping[str, Optimizer] | None = None,
        scheduler: Any = None,
        seed: int | None = None,
        save_best: str | None = None,
        checkpoint_config: Mapping[str, Any] | None = {'interval': 1, 'max_keep_ckpts': KEPT},
        log_config: Mapping[str, Any] | None = {'interval': LOG_INTERVAL},
        hooks: Sequence[Hook] = (),
        **named: Any,
    ) -> None:
        given, replay = _checked(model=model, optimizer=optimizer, scheduler=scheduler, **named), REPLAYING.get()
        for each in list(_living):  # of this program, left before its end
            if each.outcome is not None and each._context.work_dir == Path(work_dir).absolute():
                each.close()
        file = getattr(sys.modules['__main__'], '__file__', None)
        config = {SCRIPT: f'{os.path.abspath(file)}:__main__' if file else '', 'seed': seed, 'save_best': save_best}
        cfg = Config({**config, 'checkpoint_config': checkpoint_config, 'log_config': log_config})
        options = (
            Options(work_dir=os.fspath(work_dir), auto_resume=True) if replay is None else replay.options(work_dir)
        )
        self._context: Context = Context(cfg, options)
        context = self._context
        self._replay = replay
        self._run, self._epoch, self._iteration = ExitStack(), ExitStack(), ExitStack()
        self._is_open = False  # within `epochs`
        self._loader: Any = None  # of the open epoch
        self._start = EpochStart({name: part for name, part in given.items() if isinstance(part, OwnGenerator)})
        with ExitStack() as after_error:
            after_error.callback(context.closing.close)
            self._prepare(given, save_best, [*hooks, *(() if replay is None else replay.hooks)])
            self._resume(given)
            after_error.pop_all()
        _living.add(self)

    def _prepare(self, given: Mapping[str, Any], save_best: str | None, hooks: Sequence[Hook]) -> None:
        """Open the work dir, and make the runner with its hooks."""
        context, cfg, instance = self._context, self._context.cfg, Instance(self._context)
        model, optimizer = given['model'], given.get('optimizer')
        fill_in(cfg)
        instance.start_processes(context)
        context.device = next((each.device for each in model.parameters()), torch.device('cpu'))
        config = config_of(context.options.work_dir or '')
        if config is not None and SCRIPT not in Config.fromfile(config, import_custom_modules=False):
            raise WrongValue(f'{config.parent} holds a run of the config {config.name}: give loop another work_dir')
        instance.open_work_dir(context)
        instance.settle_seed(context)
        instance.describe(context)
        self.runner = runner = context.runner = LoopRunner(
            model, optimizer=optimizer, work_dir=context.work_dir, logger=context.logger, meta=context.meta
        )
        context.model, context.optimizer, runner.timestamp = model, optimizer, context.timestamp
        self._optimizers = list(named_optimizers(optimizer).values())
        timer = {'type': 'IterTimerHook'}
        runner.register_training_hooks(None, None, cfg.checkpoint_config, cfg.log_config, timer_config=timer)
        self._scores = ScoreHook(save_best)
        runner.register_hook(self._scores, priority='LOW')
        for hook in hooks:
            runner.register_hook(hook)
        for hook in recording_hooks(context):
            runner.register_hook(hook, priority='LOWEST')
        for hook in hooks:
            if never := [point for point in UPDATE_POINTS if listens(hook, point)]:
                text = '%s.%s is never called: your loop makes its steps by itself'
                context.logger.warning(text, type(hook).__name__, never[0])
        for text in _missing(given):
            context.logger.warning('A resume of this run may not be exact. %s', text, extra=NOT_EXACT)

    def _resume(self, given: Mapping[str, Any]) -> None:
        """Load the states of the newest checkpoint, if there is one."""
        context, runner = self._context, self.runner
        parts = {name: part for name, part in given.items() if name not in ('model', 'optimizer')}
        parts['start of the epoch'] = self._start
        for name, part in parts.items():
            runner.register_part(name, part)
        for name, optimizer in named_optimizers(runner.optimizer).items():
            runner.updater.updates[name or None] = LoopUpdate([optimizer])
        context.resume_from = to_resume(context)
        if context.resume_from is None:
            return
        try:
            runner.resume(context.resume_from)
            runner.snapshots.load_added()
        except Exception as error:
            raise WrongValue(
                f'{context.resume_from} does not fit what was handed over ({one_line(error)}): hand over the same '
                'kinds of objects as that run did, or give loop another work_dir'
            ) from error

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
    def batches_done(self) -> int:
        """How many batches of the open epoch are done."""
        return int(self.runner.progress.batches)

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
            RuntimeError: other epochs are open, or the run has ended.
        """
        check_whole_number('n', n)
        if self._is_open:
            raise RuntimeError('two run.epochs(…) are open at once: a run has one loop over its epochs')
        if self.outcome is not None:
            raise RuntimeError(f'this run has ended ({self.outcome}): a new runnerkit.loop(…) continues it')
        self.runner.plan.max_epochs = n
        self._is_open = True
        return self._epochs(n)

    def _epochs(self, n: int) -> Iterator[int]:
        try:
            if self.epoch >= n:
                text = '%s has done %d epochs, so epochs(%d) gives none: a larger number continues it'
                self._context.logger.info(text, self._context.work_dir, self.epoch, n)
                if self._replay is None and self.runner.rank == 0:  # the run may have been killed before its report
                    Terminal(self._context).write_report(self._context)
            elif self.runner.snapshots.resumed is not None:  # for what the user draws before the first batch
                set_rng_state(self.runner.snapshots.own['rng'])
                if self.runner.progress.epoch_is_open:
                    self._start.rewind()
            while self.outcome is None and self.epoch < n:
                self._start.begin()
                yield self.epoch
                self._end_epoch()
        except GeneratorExit:  # `break`, or an error, with which `fail` is called later
            self._end(LoopLeft('the loop was left before its end'))
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
            raise RuntimeError('run.batches(…) was called before in this epoch: an epoch passes over one loader')
        return self._batches(loader)

    def _batches(self, loader: Any) -> Iterator[Any]:
        runner, length = self.runner, length_of(loader)
        try:
            self._begin_epoch(loader)
            for runner.progress.inner_iter, runner.data_batch in runner.readers.batches(loader):
                runner.progress.is_in_iter = True
                self._iteration.enter_context(runner.hooks.around['around_iter'])
                runner.call_hook('before_train_iter')
                yield runner.data_batch
                is_last = runner.progress.batches + 1 == length
                self._end_iteration(is_last)
                if runner.stopping.reason is not None and not is_last:
                    runner.readers.leave(loader)
                    self._end()
                    return
        except GeneratorExit:  # the epoch may end here, or the loop
            raise
        except BaseException as error:
            self._end(error)
            raise

    def _begin_epoch(self, loader: Any) -> None:
        runner = self.runner
        if runner.stopping.signals is None:
            states, is_inside = rng_state(), runner.progress.epoch_is_open
            if self._replay is None:
                from_first_rank(partial(take_over, self._context))
            else:
                self._run.enter_context(self._replay.guard(self._context))
            forgotten = register_optimizer_step_post_hook(self._notice_step)
            self._run.callback(forgotten.remove)
            self._run.enter_context(runner.running([loader], [('train', 1)]))
            if not is_inside:  # what the epoch has drawn until here stays drawn
                set_rng_state(states)
            elif runner.snapshots.resumed is not None:
                self._start.hand_out(runner.snapshots.own.get('parts', {}))
        elif runner.readers.entries[0].dataloader is not loader:
            runner.open_readers([loader])
        self._loader, runner.mode, runner.data_loader = loader, 'train', loader
        runner.plan.follow(loader)
        runner.progress.begin_unit(0, 0)
        self._epoch.enter_context(runner.hooks.around['around_epoch'])
        runner.call_hook('before_train_epoch')

    def _notice_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Warn once of an optimizer that was not handed over."""
        if not any(optimizer is each for each in self._optimizers):
            self._optimizers.append(optimizer)
            text = (
                'A resume of this run may not be exact. An optimizer (%s) steps that was not handed over: optimizer=…'
            )
            self._context.logger.warning(text, type(optimizer).__name__, extra=NOT_EXACT)

    def _end_iteration(self, is_last: bool) -> None:
        """The running iteration is done. What is saved of the last one of an epoch waits for what follows it there."""
        runner = self.runner
        runner.progress.waits_for_epoch = is_last
        runner.call_hook('after_train_iter')
        self._iteration.close()
        runner.progress.next_iter()
        runner.data_batch = None

    def _end_epoch(self) -> None:
        runner = self.runner
        if self.outcome is not None:
            return
        if self._loader is None:
            raise RuntimeError('an epoch is over, and run.batches(loader) was not called in it: nothing was trained')
        if runner.data_batch is not None:  # the inner loop was left with `break`
            self._end_iteration(is_last=True)
        runner.progress.waits_for_epoch = False
        runner.log_buffer.mark()
        runner.call_hook('after_train_epoch')
        self._epoch.close()
        runner.progress.next_epoch()
        self._loader = None
        runner.stopping.boundary()
        if runner.stopping.reason is not None:
            self._end()

    # --- what it reports ---------------------------------------------------------------------------------------------

    def log(self, **values: Any) -> None:
        """Log numbers or one-element tensors of the running iteration; lines have their averages. Reads no device."""
        self.runner.log_buffer.update(values)

    def score(self, **scores: Any) -> None:
        """Give scores of the open epoch; they are logged, and stand in its checkpoint, when the next one is asked for.

        With several processes, those of the first one count.

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
        """End the run behind the running iteration, which is saved; behind the epoch if it was its last one."""
        self.runner.stop(reason)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, error: BaseException | None = None) -> None:
        """End the run, however it ends."""
        if self.outcome is not None:
            return
        runner, context = self.runner, self._context
        about = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        try:
            for stack in (self._iteration, self._epoch, self._run):
                stack.__exit__(*about)
        finally:
            context.outcome = runner.outcome or (Outcome('completed') if error is None else Outcome.of(error))
            if not isinstance(error, LoopLeft):
                self.close()
        if runner.stop_signal is not None and error is None:
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
        """Write the report, and let others use the work dir; the end of the run does so. If the loop was left before,
        the end of the program does."""
        if self.outcome is None:
            self._end(LoopLeft('the program ended'))
        if self in _living:
            _living.discard(self)
            if self.outcome is not None and isinstance(self.outcome.error, LoopLeft):
                self._context.logger.info('Run %s', self.outcome)
            with self._context.closing:
                if self._replay is None:
                    Terminal(self._context)(self._context)

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            self.fail(error)
        self.close()


loop = Loop


def _checked(**given: Any) -> dict[str, Any]:
    """What is given, by the names of its states in checkpoints; several networks as one module."""
    found: dict[str, Any] = {}
    kinds = {'model': nn.Module, 'optimizer': Optimizer}
    for name, value in given.items():
        several = {name: value} if not isinstance(value, Mapping) else {f'{name}.{key}': value[key] for key in value}
        for key, each in several.items() if value is not None else ():
            if is_generator(each):
                several[key] = OwnGenerator(each)
            elif not all(callable(getattr(each, method, None)) for method in ('state_dict', 'load_state_dict')):
                raise WrongType(f'{key}={each!r} has no state_dict and load_state_dict, so a checkpoint cannot hold it')
            elif isinstance(each, Optimizer) and name != 'optimizer':
                raise WrongType(f'{key} is an optimizer: hand over all of them as optimizer=dict(…) by name')
            if not isinstance(each, kinds.get(name, object)):
                raise WrongType(f'{key} must be of the class {kinds[name].__name__}, but got {each!r}')
        if value is not None and name in kinds and isinstance(value, Mapping):
            found[name] = nn.ModuleDict(value) if name == 'model' else dict(value)
        else:
            found.update(several if value is not None else {})
    if 'model' not in found:
        raise WrongType('model must be a network, or several in a dict by name, but got None')
    return found


def _missing(given: Mapping[str, Any]) -> Iterator[str]:
    """What can be seen to belong to the run, and was not handed over."""
    for name, optimizer in named_optimizers(given.get('optimizer')).items():
        what = f'the optimizer {name}'.rstrip()
        if foreign_parameters(optimizer, given['model']):
            yield f'{what} changes parameters that model does not have: hand over all networks, model=dict(…) by name'
        is_handed_over = any(getattr(each, 'optimizer', None) is optimizer for each in given.values())
        if has_scheduler(optimizer) and not is_handed_over:
            yield f'a scheduler changes the rates of {what}, and was not handed over: scheduler=…'


#: Those that are not closed.
_living: set[Loop] = set()


def _fail_all(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    with ExitStack() as all_of_them:  # also if one of them raises
        all_of_them.callback(_former, kind, error, traceback)
        for each in list(_living):
            all_of_them.callback(each.fail, error)


_former, sys.excepthook = sys.excepthook, _fail_all


@atexit.register
def _close_all() -> None:
    for each in list(_living):
        each.close()
