"""The runner whose unit is the iteration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from runnerkit.checkpoint.store import BY_ITER
from runnerkit.data.iter_loader import IterLoader
from runnerkit.data.kinds import is_cheap_to_enter, is_unbounded
from runnerkit.data.named import name_of_scores
from runnerkit.data.reader_state import ReaderState
from runnerkit.distributed import reduce_named_sums
from runnerkit.evaluation import Scores
from runnerkit.log_buffer import LogBuffer
from runnerkit.runner.base_runner import BaseRunner
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.registration import HookConfig
from runnerkit.runner.rollback import GoBack
from runnerkit.runner.workflow import (
    Workflow,
    agree_on_lengths,
    check_workflow,
    first_training_loader,
    iters_in,
    trains,
    unit_of,
)
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.report import scope as report_scope
from runnerkit.utils.waiting import WaitEnded


@RUNNERS.register_module()
class IterBasedRunner(BaseRunner):
    """Trains by iterations: ``[('train', 100), ('val', 10)]`` is a hundred training batches, ten of validation, and
    so on.

    ``max_epochs`` counts passes over the first training loader. Generic ``before_epoch`` and ``after_epoch`` are
    called once, around the whole run; train and val epoch points are not.
    """

    by_epoch = False
    _val_log: LogBuffer | None = None
    _val_scores: Scores

    def run(self, data_loaders: list[Any], workflow: Workflow, max_iters: int | None = None, **kwargs: Any) -> None:
        """Run ``workflow`` over ``data_loaders`` until ``max_iters`` is reached; over streams, it may be None.

        Args:
            data_loaders: one for each entry of ``workflow``.
            workflow: pairs of a mode and how many iterations of it; repeated until the run is done, cut where it is.
            max_iters: MMCV's old place to say it; better when the runner is built.
            **kwargs: handed to the model's step.
        """
        if max_iters is not None:
            warnings.warn(
                'max_iters in run is deprecated, please give it to the runner: IterBasedRunner(…, max_iters=…)',
                DeprecationWarning,
                stacklevel=2,
            )
            self._max_iters = max_iters
        self._prepare_run(data_loaders, workflow)
        unit = {mode: unit_of(self, mode) for mode, _ in workflow}
        with self._running(workflow):
            for i, mode in self._units(workflow):
                try:
                    if mode == 'val':
                        self._validate_entry(self._readers.entries[i], workflow[i][1], kwargs)
                    else:
                        self._inner_iter = self._unit
                        unit[mode](self._readers.entries[i], **kwargs)
                        self._progress.units = self._unit + 1
                except GoBack as asked:
                    self._return_to(asked)
                except WaitEnded as ended:  # the next boundary stops the run, or another iteration waits again
                    if ended.reason is not None:
                        self.stop(ended.reason)

    def _prepare_run(self, data_loaders: list[Any], workflow: Workflow) -> None:
        """Check the workflow, and know the run's length and its readers."""
        check_workflow(data_loaders, workflow, self)
        agree_on_lengths(data_loaders, workflow, self)
        if self._max_iters is None:
            loader = first_training_loader(data_loaders, workflow, self)
            self._max_iters = iters_in(self._max_epochs, data_loaders[0] if loader is None else loader)
        endless = self._max_iters is None and bool(data_loaders) and all(map(is_unbounded, data_loaders))
        if self._max_iters is None and not endless:
            raise WrongValue('max_iters must be specified before run: IterBasedRunner(…, max_iters=40000)')
        self._stops_by_iters = not endless  # a stream ends the run itself
        self._open_readers(data_loaders)

    @contextmanager
    def _running(self, workflow: Workflow) -> Iterator[None]:
        """As in every runner; the whole run is one epoch for the hooks' generic points."""
        with super()._running(workflow), self._rings('around_epoch'):
            self.model.train()
            self.call_hook('before_epoch')
            self._start_readers()
            yield
            if self._stop_reason is None:
                self.call_hook('after_epoch')

    def _open_readers(self, data_loaders: list[Any]) -> None:
        """Have a reader for each workflow entry."""
        self._readers.open(data_loaders, IterLoader)

    def train(self, data_loader: IterLoader, mode: str = 'train', **kwargs: Any) -> None:
        """Train one iteration, with ``model.<mode>_step``."""
        if self._own_loop is not None and not self._own_loop(True):
            return
        if not self.model.training:  # a walk over all modules: only where somebody has switched it off
            self.model.train()
        if data_loader not in self._readers.entries:
            self._admit(data_loader)
        self.mode, self.data_loader = mode, data_loader
        self.data_batch = next(data_loader)
        self._epoch = data_loader._epoch
        self._train_iter(kwargs)
        if self._stop_reason is not None:
            data_loader.remember(self.data_batch)
        self.data_batch = None
        self._inner_iter += 1
        self._iter += 1

    def _validate_entry(self, data_loader: IterLoader, n: int, kwargs: dict[str, Any]) -> None:
        """The ``n`` batches of a validation entry are one evaluation: its rings are entered once."""
        with self.around_val():
            for self._unit in range(self._unit, n):
                self._inner_iter = self._unit
                self.val(data_loader, **kwargs)
                self._progress.units = self._unit + 1
        self._inner_iter = self._unit + 1

    @torch.no_grad()
    def val(self, data_loader: IterLoader, **kwargs: Any) -> None:
        """Validate one batch; the entry's last one logs the averages and scores of all its batches."""
        if self._own_loop is not None and not self._own_loop(False):
            return
        entry, k = self._progress.entry, self._inner_iter
        if k == 0 or self._val_log is None:
            self._val_log, self._val_scores = LogBuffer(), Scores(self.model)
        self.log_buffer = self._val_log
        try:
            with self.around_val() as found, report_scope(self.log_buffer):
                if data_loader not in self._readers.entries:
                    self._admit(data_loader)
                self.mode, self.data_loader, self.data_batch = 'val', data_loader, next(data_loader)
                with self._rings('around_iter'):
                    self.call_hook('before_val_iter')
                    self.run_iter(self.data_batch, train_mode=False, **kwargs)
                    self._val_scores.update(self.outputs)
                    if not self._workflow or k + 1 == self._workflow[entry][1]:
                        self.log_buffer.update(self._val_scores.compute())
                        if name := name_of_scores(data_loader):
                            self.log_buffer.add_prefix(f'{name}/')
                        self.log_buffer.average(reduce=reduce_named_sums)
                        found.update(self.log_buffer.output)
                    self.call_hook('after_val_iter')
                self._stepped = None
        finally:
            self.log_buffer = self._train_log
        self._inner_iter += 1

    def _admit(self, loader: IterLoader) -> None:
        """Take in a loader that a loop of the user's own brings: go where it was when it was saved."""
        self._readers.entries.append(loader)
        self._load_admitted(loader)
        self._start_readers()

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
        return self._saver.write(out_dir, filename_tmpl, save_optimizer, meta, create_symlink, file_client_args)

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
        cls._has_own_train = cls.train is not IterBasedRunner.train

    # --- the places in the data --------------------------------------------------------------------------------------

    def _return_to(self, asked: GoBack) -> None:
        super()._return_to(asked)
        self._start_readers()

    def _go_to_counts(self) -> None:
        """Be where the loaders are in a run of MMCV's, if one of them alone has seen all iterations."""
        training = [i for i, (mode, _) in enumerate(self._workflow) if trains(mode, self)]
        if len(training) == 1 and is_cheap_to_enter(self._readers.entries[training[0]].dataloader):
            reader = self._readers.entries[training[0]]
            epoch, start = divmod(self._iter, len(reader))
            reader.load(ReaderState.at(reader.dataloader, epoch, start))

    def _state_of(self, reader: IterLoader) -> ReaderState:  # type: ignore[override]
        if reader is not self.data_loader or not reader.is_open:
            return reader.state()
        # A batch that was fetched and is not trained on is fetched again.
        if self._has_own_train:
            waits = reader.given > reader.trained
        else:
            waits = self.data_batch is not None and self._progress.units != self._inner_iter + 1
        return reader.state(reader.given - waits, None if waits else self.data_batch, waits)
