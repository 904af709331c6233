"""The runner whose unit is the iteration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from runnerkit.checkpoint.store import BY_ITER
from runnerkit.data.reader import Reader
from runnerkit.hooks.registration import HookConfig
from runnerkit.runner.base_runner import BaseRunner
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.plan import Plan
from runnerkit.runner.snapshots import RollBackRequest
from runnerkit.runner.workflow import Workflow
from runnerkit.utils.waiting import WaitEnded


@RUNNERS.register_module()
class IterBasedRunner(BaseRunner):
    """Trains by iterations: ``[('train', 100), ('val', 10)]`` is a hundred training batches, ten of validation, and
    so on.

    ``max_epochs`` counts passes over the first training loader. Generic ``before_epoch`` and ``after_epoch`` are
    called once, around the whole run; train and val epoch points are not.
    """

    by_epoch = False

    def run(self, data_loaders: list[Any], workflow: Workflow, max_iters: int | None = None, **kwargs: Any) -> None:
        """Run ``workflow`` over ``data_loaders`` until ``max_iters`` is reached; over streams, it may be None.

        Args:
            data_loaders: one for each entry of ``workflow``.
            workflow: pairs of a mode and how many iterations of it; repeated until the run is done, cut where it is.
            max_iters: MMCV's old place to say it; better when the runner is built.
            **kwargs: handed to the model's step.
        """
        self._set_old_limit('max_iters', max_iters)
        progress, readers = self.progress, self.readers
        with self.running(data_loaders, workflow) as plan:
            for entry, unit in plan:  # from where the run is, until it is done or asked to stop
                if unit != self.validate_entry:
                    progress.inner_iter = progress.unit
                try:
                    unit(readers.entries[entry], **kwargs)
                except RollBackRequest as asked:
                    self.snapshots.return_to(asked)
                except WaitEnded as ended:  # the next boundary stops the run, or another iteration waits again
                    progress.leave_unit()
                    if ended.reason is not None:
                        self.stop(ended.reason)

    @contextmanager
    def running(self, data_loaders: list[Any], workflow: Workflow) -> Iterator[Plan]:
        """As in every runner; the whole run is one epoch for the hooks' generic points."""
        with super().running(data_loaders, workflow) as plan, self.hooks.around['around_epoch']:
            self.model.train()
            self.call_hook('before_epoch')
            self.start_readers()
            yield plan
            if self.stopping.reason is None:
                self.call_hook('after_epoch')

    def train(self, data_loader: Reader, mode: str = 'train', **kwargs: Any) -> None:
        """Train one iteration, with ``model.<mode>_step``."""
        if self.lifecycle.own_loop is not None and self.lifecycle.skips(trains=True):
            return
        if not self.model.training:  # train() walks over all modules: only after user code called eval()
            self.model.train()
        if data_loader not in self.readers.entries:
            self.readers.of(data_loader)
        self.mode, self.data_loader, progress = mode, data_loader, self.progress
        self.data_batch = next(data_loader)
        progress.epoch = data_loader.epoch
        progress.is_in_iter = True
        with self.hooks.around['around_iter']:
            self.call_hook('before_train_iter')
            self.run_iter(self.data_batch, train_mode=True, **kwargs)
            self.call_hook('after_train_iter')
        self.data_batch = None
        progress.next_iter()
        progress.inner_iter += 1

    def validate_entry(self, data_loader: Reader, **kwargs: Any) -> None:
        """Validate the batches of an entry: they are one evaluation, whose rings are entered once."""
        progress = self.progress
        n = self.plan.workflow[progress.entry][1]
        with self.around_val():
            while progress.unit < n:
                progress.begin_unit(progress.entry, progress.unit)
                progress.inner_iter = progress.unit
                self.val(data_loader, **kwargs)
                progress.end_unit()
        progress.inner_iter = n
        self.snapshots.saver.make_moved(self)

    def val(self, data_loader: Reader, **kwargs: Any) -> None:
        """Validate one batch; the entry's last one logs the averages and scores of all its batches, in a custom loop
        each one its own."""
        if self.lifecycle.skips(trains=False):
            return
        progress, workflow = self.progress, self.plan.workflow
        k = progress.inner_iter if self.lifecycle.own_loop is None else 0
        n = workflow[progress.entry][1] if workflow and self.lifecycle.own_loop is None else k + 1
        self.evaluator.validate_batch(data_loader, k, n, **kwargs)
        progress.inner_iter += 1

    def save_checkpoint(  # type: ignore[override]  # MMCV's two runners differ in their arguments' order
        self,
        out_dir: str,
        filename_tmpl: str = BY_ITER,
        meta: Mapping[str, Any] | None = None,
        save_optimizer: bool = True,
        create_symlink: bool = True,
        file_client_args: dict[str, Any] | None = None,
    ) -> str:
        """As `EpochBasedRunner.save_checkpoint`; in ``filename_tmpl``, ``{}`` and ``{iter}`` are the completed training
        iterations, ``{epoch}`` the completed passes."""
        return self.snapshots.saver.save_checkpoint(
            out_dir, filename_tmpl, save_optimizer, meta, create_symlink, file_client_args
        )

    def register_training_hooks(  # type: ignore[override]  # as above
        self,
        lr_config: HookConfig,
        optimizer_config: HookConfig = None,
        checkpoint_config: HookConfig = None,
        log_config: Mapping[str, Any] | None = None,
        momentum_config: HookConfig = None,
        custom_hooks_config: list[Any] | HookConfig = None,
        timer_config: HookConfig = {'type': 'IterTimerHook'},  # noqa: B006 (never changed)
    ) -> None:
        """Register the standard hooks of a training, by iteration where they do not say otherwise; see
        `BaseRunner`'s."""
        super().register_training_hooks(
            lr_config,
            optimizer_config,
            checkpoint_config,
            log_config,
            momentum_config,
            timer_config,
            custom_hooks_config,
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.has_own_train = cls.train is not IterBasedRunner.train
