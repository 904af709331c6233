"""The hooks that evaluate while training, and keep the best checkpoint."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from torch.utils.data import DataLoader

from runnerkit import evaluation
from runnerkit.checkpoint import NotSavedError
from runnerkit.checkpoint.store import best_name
from runnerkit.distributed import broadcast_object
from runnerkit.evaluation import declared_rule, metrics_of
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.logger import LoggerHook
from runnerkit.hooks.storage import StoringHook
from runnerkit.registry import build_from_cfg
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.suggest import did_you_mean

#: What ``meta['hook_msgs']`` says of the best checkpoint.
BEST = ('best_score', 'best_ckpt')


@HOOKS.register_module()
class EvalHook(StoringHook):
    """Evaluates every ``interval`` epochs or iterations, logs the scores, and keeps the best checkpoint.

    A data set with a method ``evaluate`` is asked what the model's predictions are worth (MMCV's protocol); any other
    is run through the model's ``val_step``, which gives losses, and what the model's metrics need.

    Args:
        dataloader: what to evaluate on.
        start: the first epoch or iteration (1-based) to evaluate after; with one that is already reached, evaluate
            once before training. None: start with the first interval.
        interval: epochs or iterations between two evaluations, at least 1.
        by_epoch: which of the two.
        save_best: the score by which the best checkpoint is chosen; ``'auto'`` takes the first one. Needs
            ``dataloader``'s scores to hold it. The file is called ``best_<score>_<epoch|iter>_<n>.pth``.
        rule: ``'greater'`` or ``'less'`` is better. None: as the metric declares, else by its name.
        test_fn: ``test_fn(model, loader) -> predictions``, instead of the loop; for data sets with ``evaluate``.
        greater_keys: parts of names of which more is better.
        less_keys: parts of names of which less is better.
        out_dir: where the best checkpoint goes, instead of the work dir: to ``<out_dir>/<name of the work dir>``.
        file_client_args: arguments of `FileClient`, which deletes the former best; None: as ``out_dir`` says, which
            may be a URL.
        hooks: hooks (or their configs) that hear the evaluation's val points: a nested run.
        **eval_kwargs: handed to the data set's ``evaluate``.
    """

    rule_map: dict[str, Callable[[float, float], bool]] = {'greater': lambda x, y: x > y, 'less': lambda x, y: x < y}
    init_value_map = {'greater': -inf, 'less': inf}
    _default_greater_keys = ['acc', 'top', 'AR@', 'auc', 'precision', 'mAP', 'mDice', 'mIoU', 'mAcc', 'aAcc']
    _default_less_keys = ['loss']

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
        if not isinstance(dataloader, DataLoader):
            raise TypeError(f'dataloader must be a pytorch DataLoader, but got {type(dataloader)}')
        if not isinstance(interval, int):
            raise TypeError(f'interval must be a whole number, but got {interval!r}')
        if interval <= 0:
            raise ValueError(f'interval must be a positive number, but got {interval}')
        if start is not None and start < 0:
            raise ValueError(f'The evaluation start epoch {start} is smaller than 0')
        if not isinstance(by_epoch, bool):
            raise WrongType(f'by_epoch must be True or False, but got {by_epoch!r}')
        if save_best is not None and not isinstance(save_best, str):
            raise WrongType(f"save_best must be a score's name, 'auto' or None, but got {save_best!r}")
        self.dataloader = dataloader
        self.start, self.interval, self.by_epoch = start, interval, by_epoch
        self.save_best = save_best
        self.given_rule = rule
        # Found by their module's name, where others may have put something in their place.
        self.test_fn: Callable[..., Any] = test_fn or self._default_test_fn()
        self._is_default_test = test_fn is None
        self.greater_keys = _names(greater_keys, self._default_greater_keys)
        self.less_keys = _names(less_keys, self._default_less_keys)
        self.out_dir = out_dir
        self.file_client_args = file_client_args
        self.hooks = [hook if isinstance(hook, Hook) else build_from_cfg(hook, HOOKS) for hook in hooks]
        self.eval_kwargs = eval_kwargs
        self.initial_flag = True
        if eval_kwargs and not self._asks_dataset:
            known = list(inspect.signature(EvalHook.__init__).parameters)
            unknown = next(iter(eval_kwargs))
            raise TypeError(
                f'EvalHook got an unexpected argument {unknown!r}, and {type(dataloader.dataset).__name__} has no '
                f'evaluate to hand it to; {did_you_mean(unknown, known)}'.rstrip('; ')
            )
        self.best_ckpt_path: str | None = None
        self._former_best: tuple[str | None, dict[str, Any]] = (None, {})
        self._is_evaluating = self._has_new_best = False
        self.rule: str | None = None
        self.key_indicator = save_best or ''
        if save_best is not None and (rule is not None or self._asks_dataset):
            self._init_rule(rule, save_best)

    @property
    def _asks_dataset(self) -> bool:
        """Whether predictions are handed to the data set, or to a subclass's own `evaluate`."""
        replaced = getattr(self.evaluate, '__func__', None) is not EvalHook.evaluate
        return not self._is_default_test or hasattr(self.dataloader.dataset, 'evaluate') or replaced

    def _default_test_fn(self) -> Callable[..., Any]:
        return evaluation.single_gpu_test

    # --- when --------------------------------------------------------------------------------------------------------

    def before_run(self, runner: RunnerView) -> None:
        messages = runner.meta.setdefault('hook_msgs', {})
        if self.save_best is None:
            return
        self.claim_store(runner)
        self.best_ckpt_path = messages.get('best_ckpt')
        if self.rule is None and self.save_best != 'auto' and not self._asks_dataset:
            self._check_score_exists(runner)
            self._init_rule(self.given_rule or declared_rule(runner.model, self.save_best), self.save_best)

    def before_train_iter(self, runner: RunnerView) -> None:
        if self.by_epoch or not self.initial_flag:
            return
        if self.start is not None and runner.iter >= self.start:
            self.after_train_iter(runner)
        self.initial_flag = False

    def before_train_epoch(self, runner: RunnerView) -> None:
        if not self.by_epoch or not self.initial_flag:
            return
        if self.start is not None and runner.epoch >= self.start:
            self.after_train_epoch(runner)
        self.initial_flag = False

    def after_train_iter(self, runner: RunnerView) -> None:
        if self.by_epoch or not self._should_evaluate(runner):
            return
        # Loggers come later and would mix the training's numbers with the scores: they write down theirs first.
        for hook in runner.hooks:
            if isinstance(hook, LoggerHook):
                hook.after_train_iter(runner)
        runner.log_buffer.clear()
        self._evaluate(runner)

    def after_train_epoch(self, runner: RunnerView) -> None:
        if self.by_epoch and self._should_evaluate(runner):
            self._evaluate(runner)

    def _should_evaluate(self, runner: RunnerView) -> bool:
        """Whether this is an epoch (iteration) to evaluate after."""
        done = (runner.epoch if self.by_epoch else runner.iter) + 1
        if self.start is None:
            return done % self.interval == 0
        return done >= self.start and (done - self.start) % self.interval == 0

    # --- what --------------------------------------------------------------------------------------------------------

    def _evaluate(self, runner: RunnerView) -> None:
        # Whatever a subclass does in _do_evaluate, it sees the averaged weights where there are some, in evaluation
        # mode.
        with runner.around_val():
            self._is_evaluating = True
            try:
                self._do_evaluate(runner)
            finally:
                self._is_evaluating = False
            if self.save_best is not None and runner.world_size > 1:
                self._save_together(runner)

    def _do_evaluate(self, runner: RunnerView) -> None:
        """Evaluate, log, and save if it is the best; subclasses replace it."""
        if not self._should_evaluate(runner):
            return
        if self._asks_dataset:
            results = self._test(runner)
            runner.log_buffer.output['eval_iter_num'] = len(self.dataloader)
            key_score = None if results is None else self.evaluate(runner, results)
        else:
            scores = runner.evaluate(self.dataloader, hooks=self.hooks)
            key_score = self._record(runner, {name: float(value) for name, value in scores.items()})
        if self.save_best is not None and key_score is not None:
            self._save_ckpt(runner, key_score)

    def _test(self, runner: RunnerView) -> Any:
        """The model's predictions; None on all ranks but the first where that has collected them."""
        if self._is_default_test and runner.world_size > 1:
            return evaluation.multi_gpu_test(runner.model, self.dataloader)
        return self.test_fn(runner.model, self.dataloader)

    def evaluate(self, runner: RunnerView, results: Any) -> float | None:
        """Ask the data set what ``results`` are worth; returns the score that `save_best` watches, if any."""
        dataset: Any = self.dataloader.dataset
        return self._record(runner, dataset.evaluate(results, logger=runner.logger, **self.eval_kwargs))

    def _record(self, runner: RunnerView, scores: Mapping[str, Any]) -> float | None:
        for name, value in scores.items():
            runner.log_buffer.output[name] = value
        runner.log_buffer.ready = True
        if self.save_best is None:
            return None
        if not scores:
            # In the words of MMCV, by which users' code finds it.
            warnings.warn(
                'Since `eval_res` is an empty dict, the behavior to save the best checkpoint will be skipped in this '
                'evaluation.',
                stacklevel=2,
            )
            return None
        if self.rule is None or self.key_indicator == 'auto':
            first = self._first_score(runner, scores) if self.save_best == 'auto' else self.save_best
            self._init_rule(self.given_rule or declared_rule(runner.model, first), first)
        if self.key_indicator not in scores:
            raise KeyError(f'save_best={self.key_indicator!r}, but the evaluation gave {", ".join(scores)}')
        return scores[self.key_indicator]

    def _first_score(self, runner: RunnerView, scores: Mapping[str, Any]) -> str:
        metrics = [] if self._asks_dataset else [name for name in metrics_of(runner.model) if name in scores]
        return metrics[0] if metrics else next(iter(scores))

    def _check_score_exists(self, runner: RunnerView) -> None:
        metrics = list(metrics_of(runner.model))
        known = any(self.save_best == name or str(self.save_best).startswith(f'{name}_') for name in metrics)
        if metrics and not known and 'loss' not in str(self.save_best):
            raise ValueError(
                f"save_best={self.save_best!r} is none of the model's metrics ({', '.join(metrics)}) nor a loss; "
                f'{did_you_mean(str(self.save_best), metrics)}'.rstrip('; ')
            )

    # --- the best ----------------------------------------------------------------------------------------------------

    def _init_rule(self, rule: str | None, key_indicator: str) -> None:
        """Settle what is better for ``key_indicator``.

        Raises:
            KeyError: ``rule`` is no rule.
            ValueError: nothing says what is better.
        """
        if rule is not None and rule not in self.rule_map:
            raise KeyError(f'rule must be greater, less or None, but got {rule}.')
        if rule is None and key_indicator != 'auto':
            rule = self._rule_by_name(key_indicator)
        self.rule = rule
        self.key_indicator = key_indicator
        if rule is not None:
            self.compare_func = self.rule_map[rule]

    def _rule_by_name(self, key_indicator: str) -> str:
        key = key_indicator.lower()
        greater, less = ([name.lower() for name in names] for names in (self.greater_keys, self.less_keys))
        for rule, hit in (
            ('greater', key in greater),
            ('less', key in less),
            ('greater', any(name in key for name in greater)),
            ('less', any(name in key for name in less)),
        ):
            if hit:
                return rule
        raise ValueError(
            f'Cannot infer the rule for key {key_indicator}, thus a specific rule must be specified: '
            f"rule='greater' or rule='less'"
        )

    def _save_ckpt(self, runner: RunnerView, key_score: float) -> None:
        """Save the checkpoint if ``key_score`` is the best so far; the former best is deleted when the new one is
        safe. The first rank's score counts, and the others need not come here."""
        messages = runner.meta.setdefault('hook_msgs', {})
        best = messages.get('best_score', self.init_value_map[str(self.rule)])
        if runner.rank != 0 or not self.compare_func(key_score, best):
            return
        unit, done = ('epoch', runner.epoch + 1) if self.by_epoch else ('iter', runner.iter + 1)
        self._former_best = self.best_ckpt_path, {key: messages[key] for key in BEST if key in messages}
        self.best_ckpt_path = self.store(runner).path(best_name(self.key_indicator, unit, done))
        messages.update(best_score=key_score, best_ckpt=self.best_ckpt_path)
        if self._is_evaluating and runner.world_size > 1:
            self._has_new_best = True  # every rank has a part in the file: see _save_together
        else:
            self._write_best(runner, together=runner.world_size == 1)

    def _save_together(self, runner: RunnerView) -> None:
        """Let all ranks know what the first one found to be the best, and have their part in its file."""
        messages = runner.meta['hook_msgs']
        found = (self._has_new_best, self.key_indicator, self.rule, self.best_ckpt_path, messages.get('best_score'))
        is_new, key, rule, path, score = broadcast_object(found)
        self._has_new_best = False
        if rule is not None and self.rule is None:
            self._init_rule(rule, key)
        if is_new:
            self.best_ckpt_path = path
            messages.update(best_score=score, best_ckpt=path)
            self._write_best(runner, together=True)
            self.best_ckpt_path, best = broadcast_object(
                (self.best_ckpt_path, {key: messages.get(key) for key in BEST})
            )
            _set_best(messages, best)

    def _write_best(self, runner: RunnerView, together: bool) -> None:
        path, (former, messages) = str(self.best_ckpt_path), self._former_best
        name, store = os.path.basename(path), self.store(runner)

        def failed(error: NotSavedError) -> None:
            # The score goes back, too: one that is as good may be saved later.
            self.best_ckpt_path = former
            _set_best(runner.meta['hook_msgs'], messages)
            runner.logger.error(
                'the best checkpoint %s could not be saved: %s. The former one is kept, and training goes on',
                path,
                error.strerror or error,
            )

        storage = {} if self.file_client_args is None else {'file_client_args': self.file_client_args}
        if together:
            if runner.save(store.place, name, create_symlink=False, on_error=failed, **storage) is None:
                return
        else:
            try:
                runner.save_checkpoint(store.place, filename_tmpl=name, create_symlink=False, **storage)
            except NotSavedError as error:
                failed(error)
                return
        if runner.rank != 0:
            return
        runner.logger.info(
            'Now best checkpoint is saved as %s. Best %s is %0.4f at %s %s.',
            name,
            self.key_indicator,
            runner.meta['hook_msgs']['best_score'],
            *reversed(name.removesuffix('.pth').rsplit('_', 2)[1:]),
        )
        # One of the run that this one was resumed from, in another folder, is not ours to delete.
        if former is not None and former not in (path, name) and former == store.path(os.path.basename(former)):
            store.delete(os.path.basename(former))

    def state_dict(self) -> dict[str, Any]:
        return {'initial_flag': self.initial_flag, 'key_indicator': self.key_indicator, 'rule': self.rule}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.initial_flag = state['initial_flag']
        if self.rule is None and state['rule'] is not None:
            self._init_rule(state['rule'], state['key_indicator'])


def _set_best(messages: dict[str, Any], best: Mapping[str, Any]) -> None:
    """Let ``messages`` say of the best checkpoint what ``best`` says, and no more."""
    for key in BEST:
        messages.pop(key, None)
        if best.get(key) is not None:
            messages[key] = best[key]


@HOOKS.register_module()
class DistEvalHook(EvalHook):
    """`EvalHook` for several processes, which that serves, too: this one has the settings of `multi_gpu_test`.

    Args:
        dataloader: this rank's share of what to evaluate on, every ``world_size``-th sample.
        start: as in `EvalHook`, like all that are not named here.
        interval: as in `EvalHook`.
        by_epoch: as in `EvalHook`.
        save_best: as in `EvalHook`.
        rule: as in `EvalHook`.
        test_fn: ``test_fn(model, loader, tmpdir=…, gpu_collect=…) -> predictions``, None on all ranks but the first.
        greater_keys: as in `EvalHook`.
        less_keys: as in `EvalHook`.
        broadcast_bn_buffer: whether a subclass's own evaluation is to broadcast the statistics of batch norms first.
            Ours always does, with all other buffers.
        tmpdir: a folder that all ranks see, for collecting through files. None: ``.eval_hook`` in the work dir for
            a ``test_fn``; else not through files where the ranks can talk otherwise.
        gpu_collect: collect through the devices' memory instead.
        out_dir: as in `EvalHook`.
        file_client_args: as in `EvalHook`.
        hooks: as in `EvalHook`.
        **eval_kwargs: handed to the data set's ``evaluate``.
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
        hooks: Sequence[Any] = (),
        **eval_kwargs: Any,
    ) -> None:
        super().__init__(
            dataloader,
            start=start,
            interval=interval,
            by_epoch=by_epoch,
            save_best=save_best,
            rule=rule,
            test_fn=test_fn,
            greater_keys=greater_keys,
            less_keys=less_keys,
            out_dir=out_dir,
            file_client_args=file_client_args,
            hooks=hooks,
            **eval_kwargs,
        )
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


def _names(given: Sequence[str] | str | None, default: list[str]) -> list[str]:
    if given is None:
        return default
    names = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(name, str) for name in names):
        raise WrongType(f'greater_keys and less_keys must be names, but got {given!r}')
    return names
