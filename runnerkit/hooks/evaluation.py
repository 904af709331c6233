"""The hooks that evaluate during training and keep the best checkpoint."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite, nan
from typing import Any

from torch.utils.data import DataLoader

from runnerkit import evaluation
from runnerkit.checkpoint import NotSavedError
from runnerkit.checkpoint.store import best_name, is_best
from runnerkit.data.given import is_loader
from runnerkit.data.kinds import length_of
from runnerkit.data.named import name_scores, with_name
from runnerkit.distributed import from_first_rank, get_dist_info
from runnerkit.evaluation import (
    GREATER_KEYS,
    LESS_KEYS,
    NO_SCORES,
    check_score_exists,
    metrics_of,
    names_of,
    number_of,
    rule_by_name,
    rule_of,
    scores_of_dataset,
)
from runnerkit.hooks.hook import HOOKS, VAL_POINTS, Hook, RunnerView, listens, overrides
from runnerkit.hooks.logger import LoggerHook, TextLoggerHook
from runnerkit.hooks.storage import StoringHook
from runnerkit.registry import build_from_cfg, find_function
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.logging import printable
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion


@HOOKS.register_module()
class EvalHook(StoringHook):
    """Evaluates every ``interval`` epochs or iterations, logs the scores, and keeps the best checkpoint.

    If the data set has a method ``evaluate``, it scores the model's predictions (MMCV's protocol). Otherwise the
    model's ``val_step`` returns losses, and the predictions for the model's metrics.

    Args:
        dataloader: the loader to evaluate on; or several by name, ``{'clean': …, 'noisy': …}``, whose scores are called
            ``clean/accuracy``, ``noisy/accuracy``. They are evaluated in turn.
        start: the first epoch or iteration (1-based) after which to evaluate; if it is already reached, evaluate
            once before training, too, unless ``interval`` leaves out the next one (as in MMCV). None: start with the
            first interval.
        interval: epochs or iterations between two evaluations, at least 1.
        by_epoch: True counts epochs, False iterations.
        save_best: the score that decides which checkpoint is the best; ``'auto'`` takes the first one. It must be
            among the evaluation's scores; with several loaders it begins with a name. The file is called
            ``best_<score>_<epoch|iter>_<n>.pth``. A model whose score is None, NaN or infinite, or
            whose weights are NaN or infinite, is never the best.
        rule: whether ``'greater'`` or ``'less'`` is better. None: as the metric declares, else by its name.
        test_fn: ``test_fn(model, loader) -> predictions``, instead of the loop; for data sets with ``evaluate``.
        greater_keys: parts of score names for which more is better.
        less_keys: parts of score names for which less is better.
        out_dir: save the best checkpoint to ``<out_dir>/<name of the work dir>`` instead of the work dir.
        file_client_args: arguments of `FileClient`, which deletes the former best; None: chosen by ``out_dir``, which
            may be a URL.
        hooks: hooks (or their configs) whose ``val`` points are called; see ``runner.evaluate``. In a config,
            registered hooks need not be listed here: the val points that they override themselves are called as well.
            With a data set that has ``evaluate`` there are no such points, and a warning says so.
        **eval_kwargs: passed to the data set's ``evaluate``.
    """

    rule_map: dict[str, Callable[[float, float], bool]] = {'greater': lambda x, y: x > y, 'less': lambda x, y: x < y}
    init_value_map = {'greater': -inf, 'less': inf}
    _default_greater_keys = list(GREATER_KEYS)
    _default_less_keys = list(LESS_KEYS)

    _named: Mapping[str, DataLoader[Any]] = {}  # empty for a single loader

    #: Whether registered hooks are called at the val points that they override themselves, in addition to ``hooks``.
    #: True for the evaluation of a config; MMCV's EvalHook calls none.
    calls_registered = False

    def __init__(
        self,
        dataloader: Any,
        start: int | None = None,
        interval: int = 1,
        by_epoch: bool = True,
        save_best: str | None = None,
        rule: str | None = None,
        test_fn: Callable[..., Any] | None = None,
        greater_keys: Sequence[str] | str | None = None,
        less_keys: Sequence[str] | str | None = None,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        hooks: Sequence[Any] = (),
        **eval_kwargs: Any,
    ) -> None:
        self._named = {} if is_loader(dataloader) else _checked_loaders(dataloader)
        check_whole_number('interval', interval)
        check_whole_number('start', start, at_least=0, or_none=True)
        if not isinstance(by_epoch, bool):
            raise WrongType(f'by_epoch must be True or False, but got {by_epoch!r}')
        if save_best is not None and not isinstance(save_best, str):
            raise WrongType(f"save_best must be a score's name, 'auto' or None, but got {save_best!r}")
        # While several are evaluated, the one at hand.
        self.dataloader: DataLoader[Any] = next(iter(self._named.values()), dataloader)
        self.start, self.interval, self.by_epoch = start, interval, by_epoch
        self.save_best = save_best
        self.given_rule = rule
        # Looked up in the module at this moment, because downstream code replaces these functions there.
        self.test_fn: Callable[..., Any] = find_function(test_fn, 'test_fn') or self._default_test_fn()
        self._is_default_test = test_fn is None
        self.greater_keys = _score_keys(greater_keys, self._default_greater_keys)
        self.less_keys = _score_keys(less_keys, self._default_less_keys)
        self.out_dir = out_dir
        self.file_client_args = file_client_args
        self.hooks = [hook if isinstance(hook, Hook) else build_from_cfg(hook, HOOKS) for hook in hooks]
        self.eval_kwargs = eval_kwargs
        self.initial_flag = True
        if eval_kwargs and not self._asks_dataset:
            known = list(inspect.signature(EvalHook.__init__).parameters)
            unknown = next(iter(eval_kwargs))
            dataset = type(getattr(self.dataloader, 'dataset', None)).__name__
            raise TypeError(
                f'EvalHook got an unexpected argument {unknown!r}, and {dataset} has no evaluate to hand it '
                f'to{suggestion(unknown, known)}'
            )
        self.best_ckpt_path: str | None = None
        self._messages: dict[str, Any] = {}  # of the run
        self._own_points: dict[Hook, Hook] = {}  # of each registered hook that is called
        self._candidates: list[float] | None = None  # scores of the running evaluation that decide; None outside
        self.rule: str | None = None
        self.key_indicator = save_best or ''
        if save_best not in (None, 'auto') and '' not in self.dataloaders:
            of, _, score = str(save_best).partition('/')
            if of not in self.dataloaders or not score:
                choices = ', '.join(f'{name}/{score or of}' for name in self.dataloaders)
                raise WrongValue(f'save_best={save_best!r} names none of the data sets; choose one of {choices}')
        if save_best is not None and (rule is not None or self._asks_dataset):
            self._init_rule(rule, save_best)

    @property
    def dataloaders(self) -> dict[str, DataLoader[Any]]:
        """The loaders by name; a single one is called ``''``."""
        return dict(self._named) or {'': self.dataloader}

    @property
    def _asks_dataset(self) -> bool:
        return any(map(self.asks_dataset_of, self.dataloaders.values()))

    def asks_dataset_of(self, loader: DataLoader[Any]) -> bool:
        """Whether the data set, or a subclass's own `evaluate`, scores the predictions."""
        replaced = getattr(self.evaluate, '__func__', None) is not EvalHook.evaluate
        return not self._is_default_test or hasattr(getattr(loader, 'dataset', None), 'evaluate') or replaced

    def _default_test_fn(self) -> Callable[..., Any]:
        return evaluation.single_gpu_test

    # --- when --------------------------------------------------------------------------------------------------------

    def before_run(self, runner: RunnerView) -> None:
        self._messages = messages = runner.meta.setdefault('hook_msgs', {})
        if self.hooks and self._asks_dataset:
            runner.logger.warning(
                'the hooks of this %s are never called (%s): predictions are handed to %s, without val points',
                type(self).__name__,
                ', '.join(type(hook).__name__ for hook in self.hooks),
                f'{type(self.dataloader.dataset).__name__}.evaluate',
            )
        if self.save_best is None:
            return
        self.claim_store(runner)
        self.best_ckpt_path = messages.get('best_ckpt')
        if self.rule is None and self.save_best != 'auto' and not self._asks_dataset:
            check_score_exists(runner.model, self.save_best, 'save_best')
            self._init_rule(self.given_rule or self._better(runner, self.save_best), self.save_best)

    def after_resume(self, runner: RunnerView) -> None:
        """Say that the best checkpoint is left behind in another folder."""
        self.best_ckpt_path = self._messages.get('best_ckpt')
        if self.save_best is not None and 'best_score' in self._messages and self.best_ckpt_path is None:
            runner.logger.warning(
                'the best checkpoint so far (score %s) is not there: the next one is saved when a score is better',
                self._messages['best_score'],
            )

    def before_train_iter(self, runner: RunnerView) -> None:
        if self.initial_flag and not self.by_epoch:
            self._begin(runner, runner.iter)

    def before_train_epoch(self, runner: RunnerView) -> None:
        if self.initial_flag and self.by_epoch:
            self._begin(runner, runner.epoch)

    def _begin(self, runner: RunnerView, done: int) -> None:
        """Evaluate once before the training if ``start`` is reached already."""
        self.initial_flag = False  # in the best checkpoint, too
        if self.start is not None and done >= self.start:
            (self.after_train_epoch if self.by_epoch else self.after_train_iter)(runner)
            for hook in _loggers(runner):
                hook.after_val_iter(runner)  # the training begins with an empty buffer

    def after_train_iter(self, runner: RunnerView) -> None:
        if self.by_epoch or not self._should_evaluate(runner):
            return
        # Loggers are called later and would mix training values with the scores. Let them log the training values now.
        for hook in _loggers(runner) if runner.completed_iters > runner.iter else ():
            hook.after_train_iter(runner)
        runner.log_buffer.clear()
        self._evaluate(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        if self.by_epoch and self._should_evaluate(runner):
            self._evaluate(runner)

    def _should_evaluate(self, runner: RunnerView) -> bool:
        """Whether to evaluate after this epoch (iteration)."""
        start, done = self.start or 0, (runner.epoch if self.by_epoch else runner.iter) + 1
        return done >= start and (done - start) % self.interval == 0

    # --- what --------------------------------------------------------------------------------------------------------

    def calls(self, hook: Hook, point: str) -> bool:
        """Whether the evaluations call ``hook`` at the val point ``point``."""
        if all(map(self.asks_dataset_of, self.dataloaders.values())):
            return False
        if any(hook is each for each in self.hooks):
            return listens(hook, point)
        # Not through a fallback: hooks that count iterations must not count those of evaluations.
        return self.calls_registered and hook.hears_evaluations and overrides(hook, point)

    def _called(self, runner: RunnerView) -> list[Hook]:
        """The hooks that an evaluation calls: registered ones, in their order, and then its own."""
        others = [hook for hook in runner.hooks if not any(hook is each for each in self.hooks)]
        called = [hook for hook in others if any(self.calls(hook, point) for point in VAL_POINTS)]
        for hook in called:
            if hook not in self._own_points:
                self._own_points[hook] = _OwnPoints(hook)
        return [*(self._own_points[hook] for hook in called), *self.hooks]

    def _evaluate(self, runner: RunnerView) -> None:
        # A subclass's _do_evaluate also sees the averaged weights (if there are any) in evaluation mode, and what it
        # writes to the log buffer's output becomes the runner's scores.
        candidates: list[float] = []
        with runner.around_val():
            self._candidates = candidates
            try:
                self._do_evaluate(runner)
            finally:
                self._candidates = None
        if self.save_best is None:
            return

        def decide() -> tuple[float | None, str, str | None]:
            best = candidates[-1] if candidates and self._is_best(runner, candidates[-1]) else None
            return best, self.key_indicator, self.rule

        # Perhaps only the first rank knows the score, and which one 'auto' has chosen.
        score, key, rule = from_first_rank(decide)
        if self.rule is None and rule is not None:
            self._init_rule(rule, key)
        if score is not None:
            self._keep_best(runner, score)

    def score_now(self, runner: RunnerView) -> dict[str, float]:
        """Evaluate now, and save nothing; returns the scores by name, the same on every rank."""
        runner.scores.clear()
        with runner.around_val():
            for self.dataloader in self.dataloaders.values():
                self._score(runner)
        return {name: score.value for name, score in runner.scores.items()}

    def _do_evaluate(self, runner: RunnerView) -> None:
        """Evaluate, log, and save the checkpoint if it is the best. Subclasses override this."""
        if not self._should_evaluate(runner):
            return
        first, output, decides = self.dataloader, runner.log_buffer.output, None
        lengths = [length_of(loader) for loader in self.dataloaders.values()]
        if None not in lengths and (runner.by_epoch or self._asks_dataset):
            # The text log names the number of batches, as MMCV's does; that of an iteration runner, the iteration.
            output['eval_iter_num'] = sum(filter(None, lengths))
        try:
            for self.dataloader in self.dataloaders.values():
                score = self._score(runner)
                decides = decides if score is None else score
        finally:
            self.dataloader = first
        if decides is None and len(self.dataloaders) > 1:
            scores = {name: value for name, value in output.items() if name not in NO_SCORES}
            decides = self._key_score(scores) if scores and self.save_best is not None else None
        if decides is not None:
            self._save_ckpt(runner, decides)

    def _score(self, runner: RunnerView) -> float | None:
        """Evaluate on the loader at hand; returns the score that ``save_best`` names, if it is among its scores."""
        if self.asks_dataset_of(self.dataloader):
            results = self._test(runner)
            return None if results is None else self.evaluate(runner, results)
        scores = runner.evaluate(self.dataloader, hooks=self._called(runner))
        return self._record(runner, {name: float(value) for name, value in scores.items()})

    def _test(self, runner: RunnerView) -> Any:
        """Return the model's predictions; None on the other ranks if the first rank has collected them."""
        if self._is_default_test and get_dist_info()[1] > 1:
            return evaluation.multi_gpu_test(runner.model, self.dataloader)
        return self.test_fn(runner.model, self.dataloader)

    def evaluate(self, runner: RunnerView, results: Any) -> float | None:
        """Let the data set score ``results``; returns the score that ``save_best`` names, if any."""
        dataset: Any = self.dataloader.dataset
        scores = dataset.evaluate(results, logger=runner.logger, **self.eval_kwargs)
        return self._record(runner, scores_of_dataset(self.dataloader, scores))

    def _record(self, runner: RunnerView, scores: Mapping[str, Any]) -> float | None:
        runner.log_buffer.output.update(scores)
        runner.log_buffer.ready = True
        if self.save_best is None:
            return None
        if not scores:
            # MMCV's words, because user code searches for them.
            warnings.warn(
                'Since `eval_res` is an empty dict, the behavior to save the best checkpoint will be skipped in this '
                'evaluation.',
                stacklevel=2,
            )
            return None
        if self.rule is None or self.key_indicator == 'auto':
            first = self._first_score(runner, scores) if self.save_best == 'auto' else self.save_best
            self._init_rule(self.given_rule or self._better(runner, first), first)
        if self.key_indicator not in scores and len(self.dataloaders) > 1:
            return None  # it may be among the others'
        return self._key_score(scores)

    def _key_score(self, scores: Mapping[str, Any]) -> float:
        key = self.key_indicator
        if key not in scores:
            raise KeyError(f'save_best={key!r}, but the evaluation gave {", ".join(map(str, scores))}')
        number = number_of(scores[key])
        if number is None:
            numbers = [name for name, score in scores.items() if number_of(score) is not None]
            raise WrongType(
                f'save_best={key!r} must name a number among the scores, but it is '
                f'{printable(repr(scores[key]), 200)}; the numbers are: {", ".join(map(str, numbers)) or "none"}'
            )
        return number

    def _better(self, runner: RunnerView, key: str) -> str:
        return rule_of(runner.model, key, self.greater_keys, self.less_keys)

    def _first_score(self, runner: RunnerView, scores: Mapping[str, Any]) -> str:
        asks = self.asks_dataset_of(self.dataloader)
        own = {} if asks else with_name(self.dataloader, metrics_of(runner.model))
        metrics = [name for key, metric in own.items() for name in (key, *names_of(metric)) if name in scores]
        return metrics[0] if metrics else next(iter(scores))

    # --- the best ----------------------------------------------------------------------------------------------------

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Decide whether greater or less is better for ``key_indicator``.

        Raises:
            KeyError: ``rule`` is unknown.
            ValueError: the rule cannot be inferred.
        """
        if rule is not None and rule not in self.rule_map:
            raise KeyError(f'rule must be greater, less or None, but got {rule}.')
        if rule is None and key_indicator != 'auto':
            rule = rule_by_name(key_indicator, self.greater_keys, self.less_keys)
        self.rule = rule
        self.key_indicator = key_indicator
        if rule is not None:
            self.compare_func = self.rule_map[rule]

    def _save_ckpt(self, runner: RunnerView, key_score: float) -> None:
        """Save the checkpoint if ``key_score`` is the best so far. The first rank's score counts; the others need not
        call this.

        During an evaluation the score is only stored: at its end all ranks decide and save together. At any other time
        the first rank saves alone, at once.
        """
        if self._candidates is not None:
            self._candidates.append(key_score)
        elif runner.rank == 0 and self._is_best(runner, key_score):
            self._keep_best(runner, key_score, alone=True)

    def _is_best(self, runner: RunnerView, score: float) -> bool:
        if not isfinite(score):
            runner.logger.warning('%s is %s, which is never the best', self.key_indicator, score)
            return False
        best = runner.meta.setdefault('hook_msgs', {}).get('best_score', nan)
        return self.compare_func(score, best if isfinite(best) else self.init_value_map[str(self.rule)])

    def _keep_best(self, runner: RunnerView, score: float, alone: bool = False) -> None:
        """Save the checkpoint, whose ``score`` is the best so far, on all ranks or on the first one ``alone``. The
        former best is deleted when the new one is safe."""
        unit, done = ('epoch', runner.epoch + 1) if self.by_epoch else ('iter', runner.iter + 1)
        store, name, former = self.store(runner), best_name(self.key_indicator, unit, done), self.best_ckpt_path
        path = self.best_ckpt_path = store.path(name)

        def failed(error: NotSavedError) -> None:
            self.best_ckpt_path = former
            if runner.rank == 0:
                runner.logger.error(
                    'the best checkpoint %s could not be saved: %s. The former one is kept, and training continues',
                    path,
                    error.strerror or error,
                )

        # The file itself says that it is the best. If it cannot be written, the score is reset as well, so that an
        # equally good one can be saved later.
        messages = {'best_score': score, 'best_ckpt': path}
        if not runner.save(
            store.place,
            name,
            create_symlink=False,
            file_client_args=self.file_client_args,
            messages=messages,
            on_error=failed,
            only_finite=True,
            caller=self,
            alone=alone,
        ):
            return
        key = self.key_indicator
        if runner.evaluates_on is None:
            text = f'Now best checkpoint is saved as {name}. Best {key} is {score:0.4f} at {done} {unit}.'
        else:
            text = f'New best {key} {score:.4f} ({unit.replace("iter", "iteration")} {done}), saved {name}'
        # A logger with its own ``log`` may write no remarks.
        shows_remarks = any(getattr(type(hook), 'log', None) is TextLoggerHook.log for hook in runner.hooks)
        if runner.evaluates_on and not alone and shows_remarks:
            runner.log_buffer.remarks[:] = [text]  # below the line with the scores, which comes later
        else:
            runner.logger.info('%s', text)
        # Delete the former best only if it is a best checkpoint in our own folder. Its path may come from a checkpoint
        # file, which could name anything; and the best of the run that this one resumed may be in another folder.
        if runner.rank == 0 and isinstance(former, str) and former != path:
            old = os.path.basename(former)
            if is_best(old) and former == store.path(old):
                self._delete_quietly(runner, old)

    def state_dict(self) -> dict[str, Any]:
        """Return the score that decides, its direction, and whether the first evaluation is over."""
        return {'initial_flag': self.initial_flag, 'key_indicator': self.key_indicator, 'rule': self.rule}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.initial_flag = state['initial_flag']
        key, rule = state['key_indicator'], state['rule']
        if self.save_best is None:
            return
        if self.save_best in ('auto', key) and (self.rule or self.given_rule or rule) == rule:
            if self.rule is None and rule is not None:
                self._init_rule(rule, key)
        else:  # the best so far is the best of another score
            self.best_ckpt_path = None
            for name in ('best_score', 'best_ckpt'):
                self._messages.pop(name, None)


@HOOKS.register_module()
class DistEvalHook(EvalHook):
    """`EvalHook` with the options of `multi_gpu_test`. (`EvalHook` itself also works with several processes.)

    Its arguments are those of `EvalHook`, in MMCV's order, and some more.

    Args:
        test_fn: ``test_fn(model, loader, tmpdir=…, gpu_collect=…) -> predictions``, None on all ranks but the first.
        broadcast_bn_buffer: whether a subclass's own evaluation should broadcast the statistics of batch norms first.
            Ours always broadcasts all buffers.
        tmpdir: a folder that all ranks see, for collecting results through files. None: ``.eval_hook`` in the work dir
            for a ``test_fn``; otherwise results are sent directly where that is possible.
        gpu_collect: collect results through GPU memory instead.
    """

    def __init__(
        self,
        dataloader: Any,
        start: int | None = None,
        interval: int = 1,
        by_epoch: bool = True,
        save_best: str | None = None,
        rule: str | None = None,
        test_fn: Callable[..., Any] | None = None,
        greater_keys: Sequence[str] | str | None = None,
        less_keys: Sequence[str] | str | None = None,
        broadcast_bn_buffer: bool = True,
        tmpdir: str | None = None,
        gpu_collect: bool = False,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        shared = (dataloader, start, interval, by_epoch, save_best, rule, test_fn, greater_keys, less_keys)
        super().__init__(*shared, out_dir, file_client_args, **kwargs)
        self.broadcast_bn_buffer = broadcast_bn_buffer
        self.tmpdir = tmpdir
        self.gpu_collect = gpu_collect

    def _default_test_fn(self) -> Callable[..., Any]:
        return evaluation.multi_gpu_test

    def _test(self, runner: RunnerView) -> Any:
        tmpdir = self.tmpdir
        if tmpdir is None and not self._is_default_test and runner.work_dir is not None:
            tmpdir = os.path.join(runner.work_dir, '.eval_hook')
        return self.test_fn(runner.model, self.dataloader, tmpdir=tmpdir, gpu_collect=self.gpu_collect)


def _loggers(runner: RunnerView) -> list[LoggerHook]:
    return [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]


class _OwnPoints(Hook):
    """The val points that ``hook`` overrides itself, without those that would fall back to another one."""

    def __init__(self, hook: Hook) -> None:
        self.runs_last, self.nests_runs = hook.runs_last, hook.nests_runs
        for point in VAL_POINTS:
            if overrides(hook, point):
                setattr(self, point, getattr(hook, point))


def _checked_loaders(loader: Any) -> dict[str, DataLoader[Any]]:
    """The loaders by name, each of which knows its own."""
    if not isinstance(loader, Mapping) or not all(map(is_loader, loader.values())):
        raise TypeError(f'dataloader must be a pytorch DataLoader, or several by name, but got {type(loader)}')
    if not loader or len({id(each) for each in loader.values()}) < len(loader):
        raise WrongValue(f'loaders by name must be one loader a name, but got {dict(loader)!r}')
    return {name: name_scores(each, name) for name, each in loader.items()}


def _score_keys(given: Sequence[str] | str | None, default: list[str]) -> list[str]:
    if given is None:
        return default
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise WrongType(f'greater_keys and less_keys must be names, but got {given!r}')
    return names
