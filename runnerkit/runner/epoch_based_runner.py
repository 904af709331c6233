"""The runner whose unit is the epoch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runnerkit.checkpoint.store import BY_EPOCH
from runnerkit.data.kinds import length_of, named
from runnerkit.data.reader import Reader
from runnerkit.data.reader_state import ReaderState
from runnerkit.data.together import check_pass, in_step
from runnerkit.hooks.checkpoint import saves_by_epoch
from runnerkit.runner.base_runner import BaseRunner
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.rollback import GoBack
from runnerkit.runner.workflow import (
    Workflow,
    agree_on_lengths,
    check_workflow,
    epochs_in,
    first_training_loader,
    iters_in,
    trains,
    unit_of,
)
from runnerkit.utils.exceptions import WrongValue


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
        if max_epochs is not None:
            warnings.warn(
                'max_epochs in run is deprecated, please give it to the runner: EpochBasedRunner(…, max_epochs=…)',
                DeprecationWarning,
                stacklevel=2,
            )
            self._max_epochs = max_epochs
        self._prepare_run(data_loaders, workflow)
        unit = {mode: unit_of(self, mode) for mode, _ in workflow}
        with self._running(workflow):
            for i, mode in self._units(workflow):
                try:
                    unit[mode](data_loaders[i], **kwargs)
                    if not self._progress.epoch_is_open or self._stop_reason is None:
                        self._progress.units = self._unit + 1
                except GoBack as asked:
                    self._return_to(asked)

    def _prepare_run(self, data_loaders: list[Any], workflow: Workflow) -> None:
        """Check the workflow, and know the run's length and its readers."""
        check_workflow(data_loaders, workflow, self)
        agree_on_lengths(data_loaders, workflow, self)
        if self._max_epochs is None and not self._stops_by_iters:
            raise WrongValue(
                'max_epochs must be specified before run: EpochBasedRunner(…, max_epochs=12), or max_iters'
            )
        # Both are known before the first hook asks; train() follows the loader that it is given.
        if self._max_epochs is None:
            self._max_epochs = epochs_in(self._max_iters, first_training_loader(data_loaders, workflow, self))
        elif not self._stops_by_iters:
            self._max_iters = iters_in(self._max_epochs, first_training_loader(data_loaders, workflow, self))
        self._readers.open(data_loaders, Reader)

    def train(self, data_loader: Any, mode: str = 'train', **kwargs: Any) -> None:
        """Train one epoch, with ``model.<mode>_step``."""
        if self._own_loop is not None and not self._own_loop(True):
            return
        self.model.train()
        self.mode, self.data_loader = mode, data_loader
        reader = self._reader_of(data_loader)
        if not self._stops_by_iters:
            self._max_iters = self._last_iter(data_loader)
        with self._rings('around_epoch'):
            self.call_hook('before_train_epoch')
            for self._inner_iter, self.data_batch in self._enter_epoch(reader):
                self._train_iter(kwargs)
                self._iter += 1
                if self._stop_reason is not None or (self._stops_by_iters and self._iter == self._max_iters):
                    reader.remember(self.data_batch)
                    self.data_batch = None
                    if self._progress.batches == length_of(data_loader):
                        reader.exhaust()
                    break
                self.data_batch = None
            if not self._progress.batches:  # it would go on for ever, or train nothing in silence
                raise ValueError(
                    f'{named(data_loader)} gives no batches in epoch {self._epoch + 1}: generators and iterators '
                    'can be read only once; give a loader whose __iter__ starts over'
                )
            # A stopped epoch stays open for a resume; one that the run's max_iters cuts short is closed.
            if self._stop_reason is None or self._progress.batches == length_of(data_loader):
                self.log_buffer.mark()
                self.call_hook('after_train_epoch')
        self._epoch = self._progress.epochs

    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate one epoch: the runner's own hooks hear it, the losses are logged under ``val``.

        ``kwargs`` are for the training step and go no further, as in MMCV: a ``val_step`` need not take them.
        """
        if self._own_loop is not None and not self._own_loop(False):
            return
        with self.around_val() as found:
            found.update(self._validate(data_loader, self._hook_table, 'val', self._epoch))

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
            meta: what to remember beside the runner's own meta.
            create_symlink: whether ``latest.pth`` leads to it.
            file_client_args: for `runnerkit.fileio.FileClient`; by default ``out_dir`` says where it goes.

        Returns:
            The file's path.
        """
        return self._saver.write(out_dir, filename_tmpl, save_optimizer, meta, create_symlink, file_client_args)

    # --- the place in the epoch --------------------------------------------------------------------------------------

    def _enter_epoch(self, reader: Reader) -> Iterator[tuple[int, Any]]:
        """The running epoch's batches with their indices: all of them, or those that are left of an open one."""
        # What hooks have drawn and cleared in before_train_epoch, they had before the save.
        is_resumed, self._is_inside = self._is_inside, False
        self._inner_iter = self._progress.batches - 1  # the last one done, should none be left
        if is_resumed and not reader.is_to_enter:
            self._restore_moment()
        moves = reader.is_to_enter
        batches = reader.batches(self._epoch)
        if moves:
            self._restore_moment()
        start = self._progress.batches
        unseen = reader.left_out - start if moves else 0  # of another loader than the one that was counted
        return chain(enumerate(in_step(reader.dataloader, batches), start), self._end_of_pass(reader, unseen))

    def _end_of_pass(self, reader: Reader, unseen: int) -> Iterator[tuple[int, Any]]:
        """No more batches: look whether the pass has given as many as it should, ``unseen`` of which were not counted
        as batches of the epoch."""
        check_pass(reader.dataloader, self._progress.batches + unseen)
        yield from ()

    def _last_iter(self, data_loader: Any) -> int | None:
        """How many iterations the run will have: those before the running epoch, and all that come. Earlier epochs may
        have had other lengths, with another number of ranks."""
        whole, progress = iters_in(self._max_epochs, data_loader), self._progress
        if whole is None or sum(trains(mode, self) for mode, _ in self._workflow) != 1:
            return whole
        before = self._iter - progress.batches if progress.epoch_is_open else self._iter
        return whole + before - self._epoch * len(data_loader)

    def _go_to_counts(self) -> None:
        """Go back into the epoch in which MMCV saved by iteration: its file calls that epoch done, and itself one
        iteration older than it is."""
        loader = first_training_loader([reader.dataloader for reader in self._readers.entries], self._workflow, self)
        length, progress = length_of(loader), self._progress
        if length and not saves_by_epoch(self.hooks) and self._iter + 1 < self._epoch * length:
            self._iter += 1
            self._epoch, start = divmod(self._iter, length)
            progress.load_state_dict({'epochs': self._epoch, 'iters': self._iter, 'batches': start})
            progress.epoch_is_open = start > 0
            self._reader_of(loader).load(ReaderState.at(loader, self._epoch, start))

    def _state_of(self, reader: Reader) -> ReaderState:
        progress, loader = self._progress, reader.dataloader
        is_inside = progress.epoch_is_open and progress.batches > 0 and reader is self._reader_of(self.data_loader)
        if is_inside and not reader.is_open and not reader.is_to_enter:  # a loop of a subclass's own reads it
            found = ReaderState.at(loader, self._epoch, progress.batches)
            return replace(reader.state(), epoch=found.epoch, begun=True, batches=found.batches, samples=found.samples)
        if reader.is_open and self._progress.epoch_is_open:
            is_read = reader.dataloader is self.data_loader  # not within an evaluation
            waits = is_read and self.data_batch is not None and progress.iters == self._iter
            last_batch = self.data_batch if is_read and not waits else None
            return reader.state(progress.batches - reader.left_out, last_batch, waits)
        return reader.state()


@RUNNERS.register_module()
class Runner(EpochBasedRunner):
    """The name that `EpochBasedRunner` had before there was another one; it warns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn('Runner was deprecated, please use EpochBasedRunner instead', DeprecationWarning, stacklevel=2)
        super().__init__(*args, **kwargs)
