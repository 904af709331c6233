"""The runner whose unit is the epoch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from runnerkit.checkpoint.store import BY_EPOCH
from runnerkit.data.position import generator_states, loader_state, set_generator_states
from runnerkit.hooks.checkpoint import saves_by_epoch
from runnerkit.runner.base_runner import BaseRunner, Workflow
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.rollback import GoBack
from runnerkit.runner.workflow import check_workflow, epochs_in, first_training_loader, iters_in, length_of, unit_of
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.seed import preserved_rng


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner):
    """Trains by epochs: ``[('train', 2), ('val', 1)]`` is two epochs of training, one of validation, and so on.

    With ``max_iters`` it may stop inside an epoch.
    """

    _epoch_rng: Any = None  # the random states with which the running epoch began
    _train_loader: Any = None  # the loader of the last training epoch

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
        check_workflow(data_loaders, workflow, self)
        if self._max_epochs is None and not self._stops_by_iters:
            raise WrongValue(
                'max_epochs must be specified before run: EpochBasedRunner(…, max_epochs=12), or max_iters'
            )
        # Both are known before the first hook asks; train() follows the loader that it is given.
        if self._max_epochs is None:
            self._max_epochs = epochs_in(self._max_iters, first_training_loader(data_loaders, workflow, self))
        elif not self._stops_by_iters:
            self._max_iters = iters_in(self._max_epochs, first_training_loader(data_loaders, workflow, self))
        unit = {mode: unit_of(self, mode) for mode, _ in workflow}
        with self._running(workflow):
            if self._from_mmcv:
                self._correct_epoch(first_training_loader(data_loaders, workflow, self))
            for i, mode in self._units(workflow):
                try:
                    unit[mode](data_loaders[i], **kwargs)
                except GoBack as asked:
                    self._return_to(asked.checkpoint)

    def train(self, data_loader: Any, mode: str = 'train', **kwargs: Any) -> None:
        """Train one epoch, with ``model.<mode>_step``."""
        self.model.train()
        self.mode, self.data_loader, self._train_loader = mode, data_loader, data_loader
        if not self._stops_by_iters:
            self._max_iters = iters_in(self._max_epochs, data_loader)
        with self._rings('around_epoch'):
            self.call_hook('before_train_epoch')
            for self._inner_iter, self.data_batch in self._enter_epoch(data_loader):
                self._train_iter(kwargs)
                self.data_batch = None
                self._iter += 1
                if self._stop_reason is not None or (self._stops_by_iters and self._iter == self._max_iters):
                    self._epoch_is_cut = self._position() != length_of(data_loader)
                    break
            # An epoch that was stopped goes on later; one that the run's max_iters cuts short is over all the same.
            if not self._epoch_is_cut or self._stop_reason is None:
                self.call_hook('after_train_epoch')
        if not self._epoch_is_cut:
            self._epoch += 1

    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate one epoch: the runner's own hooks hear it, the losses are logged under ``val``.

        ``kwargs`` are for the training step and go no further, as in MMCV: a ``val_step`` need not take them.
        """
        with self.around_val():
            self._validate(data_loader, self._hook_table, 'val', self._epoch)
        self._unit_done = True

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

    # --- the position in the epoch -----------------------------------------------------------------------------------

    def _enter_epoch(self, data_loader: Any) -> Iterator[tuple[int, Any]]:
        """The running epoch's batches with their indices: all of them, or those that a resumed run has not seen."""
        at, self._entering = self._entering, None
        if at is None and self._epoch_rest:
            at = {'start': self._epoch_rest, 'rng': self._epoch_rng, 'state': loader_state(data_loader)}
        start = 0 if at is None else at['start']
        if at is not None and at['rng'] is not None:
            # A loader may draw its order from generators: it must find them as they were at the epoch's start.
            with preserved_rng():
                set_generator_states(data_loader, at['rng'])
                self._epoch_rng = generator_states(data_loader)
                batches = self._batches(data_loader, self._epoch, start, at['state']) if start else None
            if at.get('begun', start > 0):
                # What hooks have just drawn and cleared in before_train_epoch, they had before the save. Otherwise
                # they had not, nor had a validation that came first: then the moment, restored in before_run, is over.
                self._restore_moment()
            if batches is not None:
                self._epoch_start = self._iter - start
                self._inner_iter = start - 1  # the last one done, should none be left
                return enumerate(batches, start)
        self._epoch_rng = generator_states(data_loader)
        return enumerate(self._batches(data_loader, self._epoch))

    def _correct_epoch(self, data_loader: Any) -> None:
        """Go back into the epoch in which MMCV saved by iteration: its file calls that epoch done, and itself one
        iteration older than it is."""
        self._from_mmcv = False
        length = length_of(data_loader)
        if length and not saves_by_epoch(self.hooks) and self._iter + 1 < self._epoch * length:
            self._iter += 1
            self._epoch, start = divmod(self._iter, length)
            self._entering = {'start': start, 'rng': generator_states(data_loader), 'state': None}

    def _position(self) -> int:
        return self.completed_iters - self._epoch_start if self._epoch_is_open else 0

    def _loader_states(self) -> dict[str, Any]:
        if self._entering is not None:
            return self._entering
        start = self._position()
        if not start:
            rng = generator_states(self._train_loader)
            return {'start': 0, 'begun': self._epoch_is_open, 'rng': rng, 'state': None}
        return {'start': start, 'begun': True, 'rng': self._epoch_rng, 'state': loader_state(self._train_loader)}


@RUNNERS.register_module()
class Runner(EpochBasedRunner):
    """The name that `EpochBasedRunner` had before there was another one; it warns."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn('Runner was deprecated, please use EpochBasedRunner instead', DeprecationWarning, stacklevel=2)
        super().__init__(*args, **kwargs)
