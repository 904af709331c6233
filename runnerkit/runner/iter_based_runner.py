"""The runner whose unit is the iteration, and the endless loader that feeds it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from runnerkit.checkpoint.store import BY_ITER
from runnerkit.data.position import (
    epoch_batches,
    generator_states,
    is_cheap_to_enter,
    loader_state,
    set_generator_states,
)
from runnerkit.evaluation import Scores
from runnerkit.runner.base_runner import BaseRunner, Workflow
from runnerkit.runner.builder import RUNNERS
from runnerkit.runner.log_buffer import LogBuffer
from runnerkit.runner.registration import HookConfig
from runnerkit.runner.rollback import GoBack
from runnerkit.runner.workflow import check_workflow, first_training_loader, iters_in, trains, unit_of
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.report import scope as report_scope


class IterLoader:
    """An endless loader: when a pass is over, the next epoch begins.

    Args:
        dataloader: what is passed over again and again.
    """

    def __init__(self, dataloader: Any) -> None:
        self._dataloader = dataloader
        self._epoch = self._consumed = 0
        self._batches: Iterator[Any] | None = None
        self._epoch_rng: Any = None

    @property
    def epoch(self) -> int:
        """The running pass, from 0."""
        return self._epoch

    @property
    def dataloader(self) -> Any:
        """What is passed over."""
        return self._dataloader

    @property
    def position(self) -> int:
        """How many batches of the running pass were given out."""
        return self._consumed

    def __next__(self) -> Any:
        batches = self._begin() if self._batches is None else self._batches
        batch = next(batches, _END)
        if batch is _END:
            self._epoch += 1
            self._consumed = 0
            batch = next(self._begin(), _END)
            if batch is _END:
                raise ValueError(
                    'the data loader gives no batches: its data set is empty, or smaller than one full batch'
                )
        self._consumed += 1
        return batch

    def __len__(self) -> int:
        return len(self._dataloader)

    def begin(self) -> None:
        """Start the first pass now, unless one has begun: what that draws from random generators comes before the
        first step, as in MMCV."""
        if self._batches is None:
            self._begin()

    def _begin(self, state: Any = None) -> Iterator[Any]:
        self._epoch_rng = generator_states(self._dataloader)
        self._batches = epoch_batches(self._dataloader, self._epoch, self._consumed, state)
        return self._batches

    def state_dict(self, unused: int = 0) -> dict[str, Any]:
        """Epoch, batches consumed in it, and the generators' states with which it began (or is going to).

        Args:
            unused: how many of the batches that were given out have not been trained on.
        """
        begun = self._batches is not None
        rng = self._epoch_rng if begun else generator_states(self._dataloader)
        state = loader_state(self._dataloader) if begun else None
        start = self._consumed - unused
        return {'epoch': self._epoch, 'start': start, 'begun': begun, 'rng': rng, 'state': state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Enter the position that `state_dict` gave. Moves the global random states: restore them afterwards."""
        self._epoch, self._consumed = state['epoch'], state['start']
        # A loader may draw its order from generators: it must find them as they were at the epoch's start.
        set_generator_states(self._dataloader, state['rng'])
        if state['begun']:
            self._begin(state['state'])


_END = object()


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
    _loaders: Sequence[IterLoader] = ()

    def run(self, data_loaders: list[Any], workflow: Workflow, max_iters: int | None = None, **kwargs: Any) -> None:
        """Run ``workflow`` over ``data_loaders`` until ``max_iters`` is reached.

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
        check_workflow(data_loaders, workflow, self)
        if self._max_iters is None:
            loader = first_training_loader(data_loaders, workflow, self)
            self._max_iters = iters_in(self._max_epochs, data_loaders[0] if loader is None else loader)
        if self._max_iters is None:
            raise WrongValue('max_iters must be specified before run: IterBasedRunner(…, max_iters=40000)')
        self._stops_by_iters = True
        self._loaders = [IterLoader(loader) for loader in data_loaders]
        unit = {mode: unit_of(self, mode) for mode, _ in workflow}
        with self._running(workflow), self._rings('around_epoch'):
            self.model.train()
            self.call_hook('before_epoch')
            self._enter_loaders()
            for i, mode in self._units(workflow):
                self._inner_iter = self._cursor[1]
                try:
                    unit[mode](self._loaders[i], **kwargs)
                except GoBack as asked:
                    self._return_to(asked.checkpoint)
            if self._stop_reason is None:
                self.call_hook('after_epoch')

    def train(self, data_loader: IterLoader, mode: str = 'train', **kwargs: Any) -> None:
        """Train one iteration, with ``model.<mode>_step``."""
        if not self.model.training:  # a walk over all modules: only where somebody has switched it off
            self.model.train()
        if data_loader not in self._loaders:
            self._admit(data_loader)
        self.mode, self.data_loader, self.data_batch = mode, data_loader, next(data_loader)
        self._epoch = data_loader._epoch
        self._train_iter(kwargs)
        self.data_batch = None
        self._inner_iter += 1
        self._iter += 1

    @torch.no_grad()
    def val(self, data_loader: IterLoader, **kwargs: Any) -> None:
        """Validate one batch; the entry's last one logs the averages and scores of all its batches."""
        entry, k = self._cursor
        if k == 0 or self._val_log is None:
            self._val_log, self._val_scores = LogBuffer(copies=self._train_log.copies), Scores(self.model)
        self.log_buffer = self._val_log
        try:
            with self.around_val(), report_scope(self.log_buffer):
                if data_loader not in self._loaders:
                    self._admit(data_loader)
                self.mode, self.data_loader, self.data_batch = 'val', data_loader, next(data_loader)
                with self._rings('around_iter'):
                    self.call_hook('before_val_iter')
                    self.run_iter(self.data_batch, train_mode=False, **kwargs)
                    self._val_scores.update(self.outputs)
                    self._unit_done = True
                    if not self._workflow or k + 1 == self._workflow[entry][1]:
                        self.log_buffer.update(self._val_scores.compute())
                        self.log_buffer.average(reduce=self._log_reduce())
                    self.call_hook('after_val_iter')
        finally:
            self.log_buffer = self._train_log
        self._inner_iter += 1

    def _admit(self, loader: IterLoader) -> None:
        """Take in a loader that a loop of the user's own brings: go where it was when it was saved."""
        self._loaders = [*self._loaders, loader]
        if self._entering is not None and len(self._loaders) == 1:
            self._enter_loaders()

    def save_checkpoint(  # type: ignore[override]  # MMCV's two runners differ in their arguments' order
        self,
        out_dir: str,
        filename_tmpl: str = BY_ITER,
        meta: Mapping[str, Any] | None = None,
        save_optimizer: bool = True,
        create_symlink: bool = True,
        file_client_args: dict[str, Any] | None = None,
    ) -> str:
        """Write everything that resuming needs of this rank to a file in ``out_dir``; waits for no other rank.

        In distributed runs, `save` is what keeps the states of all ranks.

        Args:
            out_dir: a folder or a URL.
            filename_tmpl: ``{}`` and ``{iter}`` are the completed training iterations, ``{epoch}`` the completed
                passes.
            meta: what to remember beside the runner's own meta.
            save_optimizer: whether the optimizers' states are part of it.
            create_symlink: whether ``latest.pth`` leads to it.
            file_client_args: for `runnerkit.fileio.FileClient`; by default ``out_dir`` says where it goes.

        Returns:
            The file's path.
        """
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

    # --- the position in the data ------------------------------------------------------------------------------------

    def _enter_loaders(self) -> None:
        states, self._entering = self._entering, None
        if self._from_mmcv:
            states = self._places_by_count()
        if states is not None:
            for loader, state in zip(self._loaders, states, strict=False):
                loader.load_state_dict(state)
            self._restore_moment()
        for loader in self._loaders:
            loader.begin()

    def _return_to(self, checkpoint: str) -> None:
        super()._return_to(checkpoint)
        self._loaders = [IterLoader(loader._dataloader) for loader in self._loaders]
        self._enter_loaders()

    def _places_by_count(self) -> list[dict[str, Any]] | None:
        """Where the loaders are in a run of MMCV's, if one of them alone has seen all iterations; else None."""
        self._from_mmcv = False
        training = [i for i, (mode, _) in enumerate(self._workflow) if trains(mode, self)]
        if len(training) != 1 or not is_cheap_to_enter(self._loaders[training[0]]._dataloader):
            return None
        places = [loader.state_dict() for loader in self._loaders]
        epoch, start = divmod(self._iter, len(self._loaders[training[0]]))
        places[training[0]].update(epoch=epoch, start=start, begun=start > 0)
        return places

    def _position(self) -> int:
        return 0

    def _loader_states(self) -> list[dict[str, Any]]:
        if self._entering is not None:
            return self._entering
        waits = self.data_batch is not None and not self._unit_done  # a batch that is fetched and not trained on
        return [loader.state_dict(unused=int(waits and loader is self.data_loader)) for loader in self._loaders]
