"""The hook that saves checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from runnerkit.checkpoint import sweep_temporaries
from runnerkit.distributed import allreduce_params, barrier
from runnerkit.fileio.paths import is_url
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.hooks.storage import StoringHook
from runnerkit.utils.exceptions import check_keywords


@HOOKS.register_module()
class CheckpointHook(StoringHook):
    """Saves a checkpoint every ``interval`` epochs or iterations, and at the end.

    It comes after all other hooks of a point, so that evaluation and logs of the same moment are part of what is saved.

    Args:
        interval: epochs or iterations between two checkpoints; -1 saves only the last.
        by_epoch: which of the two. Files are called ``epoch_<n>.pth`` and ``iter_<n>.pth``.
        save_optimizer: whether the optimizers' states are saved; without them a run cannot be resumed exactly.
        out_dir: where to, instead of the work dir: the files then lie in ``<out_dir>/<name of the work dir>``.
        max_keep_ckpts: how many of them to keep; -1 keeps all. An old one is deleted when the new one is safe.
        save_last: whether the end of the run is saved whatever the interval.
        sync_buffer: average the model's buffers (BatchNorm's) over the ranks before saving.
        file_client_args: arguments of `FileClient`, which writes and deletes the files; None: as ``out_dir`` says,
            which may be a URL.
        **kwargs: handed to ``runner.save_checkpoint``, e.g. ``filename_tmpl`` or ``create_symlink``.
    """

    closes_point = True
    _saved_at = -1  # the count of iterations at the last save

    def __init__(
        self,
        interval: int = -1,
        by_epoch: bool = True,
        save_optimizer: bool = True,
        out_dir: str | None = None,
        max_keep_ckpts: int = -1,
        save_last: bool = True,
        sync_buffer: bool = False,
        file_client_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(interval, int):
            raise TypeError(f'interval must be a whole number (-1: only the last is saved), but got {interval!r}')
        self.interval = interval
        self.by_epoch = by_epoch
        self.save_optimizer = save_optimizer
        self.out_dir = out_dir
        self.max_keep_ckpts = max_keep_ckpts
        self.save_last = save_last
        self.sync_buffer = sync_buffer
        self.file_client_args = file_client_args
        self.args = kwargs

    def before_run(self, runner: RunnerView) -> None:
        check_keywords(self.args, runner.save_checkpoint, 'CheckpointHook', type(self).__init__)
        self._settle_out_dir(runner)
        client = self._client()
        if not client.allow_symlink:
            if self.args.get('create_symlink'):
                runner.logger.warning('create_symlink has no effect: %s has no links', client.name)
            self.args['create_symlink'] = False
        if runner.rank == 0 and not is_url(str(self.out_dir)) and os.path.isdir(str(self.out_dir)):
            swept = sweep_temporaries(str(self.out_dir))
            if swept:
                runner.logger.info('half-written files of a killed run are deleted: %s', ', '.join(swept))
        runner.logger.info('Checkpoints will be saved to %s by %s', self.out_dir, client.name)

    def after_train_epoch(self, runner: RunnerView) -> None:
        if not self.by_epoch:
            return
        if self.every_n_epochs(runner, self.interval) or (self.save_last and self._is_end_of_epochs(runner)):
            runner.logger.info('Saving checkpoint at %d epochs', runner.epoch + 1)
            self._synchronise(runner)
            self._save_checkpoint(runner)

    def after_train_iter(self, runner: RunnerView) -> None:
        if self.by_epoch:
            return
        if self.every_n_iters(runner, self.interval) or (self.save_last and self.is_last_iter(runner)):
            runner.logger.info('Saving checkpoint at %d iterations', runner.iter + 1)
            self._synchronise(runner)
            self._save_checkpoint(runner)

    def after_run(self, runner: RunnerView) -> None:
        # A run that was stopped on purpose has an end, too, which lies between two intervals.
        stopped = (runner.outcome or '').startswith('stopped')
        if self.save_last and stopped and self._saved_at != runner.completed_iters:
            runner.logger.info('Saving checkpoint at %d iterations', runner.completed_iters)
            self._synchronise(runner)
            self._write(runner, f'iter_{runner.completed_iters}.pth', {**self.args, 'filename_tmpl': 'iter_{iter}.pth'})

    def _is_end_of_epochs(self, runner: RunnerView) -> bool:
        """The last epoch; also one that the run's ``max_iters`` cuts short, which does not count as complete."""
        return self.is_last_epoch(runner) or runner.completed_epochs == runner.epoch

    def _synchronise(self, runner: RunnerView) -> None:
        if self.sync_buffer:
            allreduce_params(runner.model.buffers())

    def _save_checkpoint(self, runner: RunnerView) -> None:
        args = dict(self.args)
        if runner.by_epoch and not self.by_epoch:
            args.setdefault('filename_tmpl', 'iter_{iter}.pth')
        self._write(runner, self._filename(runner, runner.epoch + 1 if self.by_epoch else runner.iter + 1), args)
        if self.max_keep_ckpts > 0 and runner.rank == 0:
            self._delete_old(runner)

    def _write(self, runner: RunnerView, name: str, args: dict[str, Any]) -> None:
        """Save on rank 0, with what every rank needs to go on; no rank goes on before the file is there."""
        runner.meta.setdefault('hook_msgs', {})['last_ckpt'] = self._path(name)
        runner.gather_rank_states()
        if runner.rank == 0:
            runner.save_checkpoint(
                str(self.out_dir), save_optimizer=self.save_optimizer, **args, **self._storage_arguments()
            )
        barrier()
        self._saved_at = runner.completed_iters

    @property
    def _template(self) -> str:
        return self.args.get('filename_tmpl', 'epoch_{}.pth' if self.by_epoch else 'iter_{}.pth')

    def _filename(self, runner: RunnerView, number: int) -> str:
        return self._template.format(number, epoch=runner.completed_epochs, iter=runner.completed_iters)

    def _delete_old(self, runner: RunnerView) -> None:
        newest = runner.epoch + 1 if self.by_epoch else runner.iter + 1
        step = self.interval if self.interval > 0 else 1
        last_regular = newest // step * step
        # An end that lies between two intervals is kept beside the regular ones, and counts as one of them.
        first_old = last_regular - (self.max_keep_ckpts - (newest != last_regular)) * step
        for number in range(first_old, 0, -step):
            path = self._path(self._template.format(number, epoch=number, iter=number))
            if not self._delete(path):
                break


def saves_by_epoch(hooks: Iterable[Hook]) -> bool:
    """Whether none of the `CheckpointHook` among ``hooks`` saves by iteration."""
    return all(hook.by_epoch for hook in hooks if isinstance(hook, CheckpointHook))
