"""The runner whose unit is the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from runnerkit.runner.base_runner import BaseRunner, Workflow
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.workflow import check_workflow, epochs_in, first_training_loader, iters_in, length_of, unit_of
from runnerkit.utils.seed import preserved_rng, rng_state, set_rng_state


@RUNNERS.register_module()
class EpochBasedRunner(BaseRunner):
    """Trains by epochs: ``[('train', 2), ('val', 1)]`` is two epochs of training, one of validation, and so on.

    With ``max_iters`` it may stop inside an epoch.
    """

    _consumed = 0  # batches done in the running epoch
    _epoch_rng: Any = None  # the random states with which it began

    def run(self, data_loaders: list[Any], workflow: Workflow, max_epochs: int | None = None, **kwargs: Any) -> None:
        """Run ``workflow`` over ``data_loaders`` until ``max_epochs`` or ``max_iters`` is reached.

        Args:
            data_loaders: one for each entry of ``workflow``.
            workflow: pairs of a mode and how many epochs of it; repeated until the run is done.
            max_epochs: MMCV's old place to say it; better when the runner is built.
            **kwargs: handed to the model's step.
        """
        if max_epochs is not None:
            self._max_epochs = max_epochs
        check_workflow(data_loaders, workflow, self)
        if self._max_epochs is None and not self._stops_by_iters:
            raise ValueError(
                'max_epochs must be specified before run: EpochBasedRunner(…, max_epochs=12), or max_iters'
            )
        # Both are known before the first hook asks; train() follows the loader that it is given.
        if self._max_epochs is None:
            self._max_epochs = epochs_in(self._max_iters, data_loaders, workflow)
        elif not self._stops_by_iters:
            self._max_iters = iters_in(self._max_epochs, first_training_loader(data_loaders, workflow))
        unit = {mode: unit_of(self, mode) for mode, _ in workflow}
        with self._running(workflow):
            for i, mode in self._units(workflow):
                unit[mode](data_loaders[i], **kwargs)

    def train(self, data_loader: Any, mode: str = 'train', **kwargs: Any) -> None:
        """Train one epoch, with ``model.<mode>_step``."""
        self.model.train()
        self.mode, self.data_loader = mode, data_loader
        if not self._stops_by_iters:
            self._max_iters = iters_in(self._max_epochs, data_loader)
        with self._rings('around_epoch'):
            self.call_hook('before_train_epoch')
            batches = self._enter_epoch(data_loader)
            for self._inner_iter, self.data_batch in enumerate(batches, self._consumed):
                with self._rings('around_iter'):
                    self.call_hook('before_train_iter')
                    self.run_iter(self.data_batch, train_mode=True, **kwargs)
                    self._consumed += 1
                    self._iter_done = True
                    self.call_hook('after_train_iter')
                self.data_batch = None
                self._iter_done = False
                self._iter += 1
                if self._stop_reason is not None or self._iter == self._max_iters:
                    self._epoch_done = self._consumed == length_of(data_loader)
                    break
            else:
                self._epoch_done = True
            # An epoch that was stopped goes on later; one that the run's max_iters cuts short is over all the same.
            if self._epoch_done or self._stop_reason is None:
                self.call_hook('after_train_epoch')
        if self._epoch_done:
            self._epoch += 1
            self._epoch_done = False
            self._consumed = 0

    def val(self, data_loader: Any, **kwargs: Any) -> None:
        """Validate one epoch: the runner's own hooks hear it, the losses are logged under ``val``."""
        with self.around_val():
            self._validate(data_loader, self._hook_table, 'val', self._epoch, **kwargs)

    def save_checkpoint(
        self,
        out_dir: str,
        filename_tmpl: str = 'epoch_{}.pth',
        save_optimizer: bool = True,
        meta: Mapping[str, Any] | None = None,
        create_symlink: bool = True,
        together: bool = False,
    ) -> str:
        """Write everything that resuming needs to a file in ``out_dir``.

        Args:
            out_dir: a folder or a URL.
            filename_tmpl: ``{}`` is the epoch that is running or was completed last, from 1; ``{epoch}`` and
                ``{iter}`` are the completed counts.
            save_optimizer: whether the optimizers' states are part of it.
            meta: what to remember beside the runner's own meta.
            create_symlink: whether ``latest.pth`` leads to it.
            together: all ranks call this, and rank 0 writes what each of them needs to go on.

        Returns:
            The file's path.
        """
        return self._save(out_dir, filename_tmpl, save_optimizer, meta, create_symlink, together)

    # --- the position in the epoch -----------------------------------------------------------------------------------

    def _enter_epoch(self, data_loader: Any) -> Iterator[Any]:
        """The batches of the running epoch: all of them, or those that a resumed run has not seen."""
        at, self._entering = self._entering, None
        if at is None and self._consumed:  # this runner stopped here itself
            at = {'start': self._consumed, 'rng': self._epoch_rng}
        if at is None or at['start'] == 0:
            self._consumed, self._epoch_rng = 0, rng_state()
            return self._batches(data_loader, self._epoch)
        # A loader may draw its order from the global generators: it must find them as they were at the epoch's start.
        self._consumed, self._epoch_rng = at['start'], at['rng']
        self._inner_iter = self._consumed - 1  # the last one done, should none be left
        with preserved_rng():
            set_rng_state(self._epoch_rng)
            batches = self._batches(data_loader, self._epoch, self._consumed)
        self._restore_moment()
        return batches

    def _position(self) -> int:
        return 0 if self._epoch_done else self._consumed

    def _loader_states(self) -> dict[str, Any]:
        start = self._position()
        return {'start': start, 'rng': self._epoch_rng if start else None}

    def _next_unit(self) -> tuple[int, int]:
        entry, done = self._cursor
        return entry, done + (self._epoch_done or self.mode == 'val')
