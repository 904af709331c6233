"""The runner whose unit is the epoch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from runnerkit.checkpoint.store import BY_EPOCH
from runnerkit.runner.base_runner import BaseRunner
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.snapshots import RollBackRequest
from runnerkit.runner.workflow import Workflow


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner):
    """Trains by epochs: ``[('train', 2), ('val', 1)]`` is two epochs of training, one of validation, and so on.

    With ``max_iters`` it may stop inside an epoch.
    """

    def run(self, data_loaders: list[Any], workflow: Workflow, max_epochs: int | None = None, **kwargs: Any) -> None:
        """Run ``workflow`` over ``data_loaders`` until ``max_epochs`` or ``max_iters`` is reached.

        Args:
            data_loaders: one for each entry of ``workflow``.
            workflow: pairs of a mode and how many epochs of it; repeated until the run is done.
            max_epochs: MMCV's old place to say it; better when the runner is built.
            **kwargs: handed to the model's training steps.
        """
        self._set_old_limit('max_epochs', max_epochs)
        with self.running(data_loaders, workflow) as plan:
            for entry, unit in plan:  # from where the run is, until it is done or asked to stop
                try:
                    unit(data_loaders[entry], **kwargs)
                except RollBackRequest as asked:
                    self.snapshots.return_to(asked)

    def train(self, data_loader: Any, mode: str = 'train', **kwargs: Any) -> None:
        """Train one epoch, or what is left of it, with ``model.<mode>_step``."""
        if self.lifecycle.skips(trains=True):
            return
        self.model.train()
        self.mode, self.data_loader, progress, plan = mode, data_loader, self.progress, self.plan
        plan.follow(data_loader)
        with self.hooks.around['around_epoch']:
            self.call_hook('before_train_epoch')
            for progress.inner_iter, self.data_batch in self.readers.batches(data_loader):
                progress.is_in_iter = True
                with self.hooks.around['around_iter']:
                    self.call_hook('before_train_iter')
                    self.run_iter(self.data_batch, train_mode=True, **kwargs)
                    self.call_hook('after_train_iter')
                progress.next_iter()
                self.data_batch = None
                if self.stopping.reason is not None or (plan.by_iters and progress.iter == plan.max_iters):
                    self.readers.leave(data_loader)
                    break
            if plan.epoch_is_over:
                self.log_buffer.mark()
                self.call_hook('after_train_epoch')
        progress.next_epoch()

    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate one epoch: the val points of the runner's own hooks are called, the losses are logged under ``val``.

        ``kwargs`` are for the training step and go no further, as in MMCV: a ``val_step`` need not take them.
        """
        if self.lifecycle.skips(trains=False):
            return
        with self.around_val() as found:
            found.update(self.evaluator.validate(data_loader, self.hooks, 'val', self.progress.epoch))
        self.progress.end_unit()
        self.snapshots.saver.make_moved(self)

    def save_checkpoint(
        self,
        out_dir: str,
        filename_tmpl: str = BY_EPOCH,
        save_optimizer: bool = True,
        meta: Mapping[str, Any] | None = None,
        create_symlink: bool = True,
        file_client_args: dict[str, Any] | None = None,
    ) -> str:
        """Write everything that resuming needs of this rank to a file in ``out_dir``; waits for no other rank.

        In distributed runs, `save` is what keeps the states of all ranks.

        Args:
            out_dir: a folder or a URL.
            filename_tmpl: ``{}`` is the epoch that is running or was completed last, from 1; ``{epoch}`` and
                ``{iter}`` are the completed counts.
            save_optimizer: whether the optimizers' states are part of it.
            meta: stored in addition to the runner's meta.
            create_symlink: whether ``latest.pth`` leads to it.
            file_client_args: for `runnerkit.fileio.FileClient`; by default ``out_dir`` says where it goes.

        Returns:
            The file's path.
        """
        return self.snapshots.saver.save_checkpoint(
            out_dir, filename_tmpl, save_optimizer, meta, create_symlink, file_client_args
        )


@RUNNERS.register_module()
class Runner(EpochBasedRunner):
    """The name that `EpochBasedRunner` had before there was another one; it warns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn('Runner was deprecated, please use EpochBasedRunner instead', DeprecationWarning, stacklevel=2)
        super().__init__(*args, **kwargs)
