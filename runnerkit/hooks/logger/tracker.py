"""The base of the loggers that send values to an experiment tracker."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from runnerkit.hooks.hook import RunnerView
from runnerkit.hooks.logger.base import LoggerHook
from runnerkit.utils.logging import WarnsOnce
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.pictures import Pixels


class TrackerHook(LoggerHook):
    """Opens a run of the tracker on rank 0, sends the values of every log line, and closes it when the run ends.

    If the tracker cannot be opened, the run does not start. If it fails later, there is one warning and training
    continues.

    Subclasses implement `_open`, `_send` and `_close`. They import their client in the constructor, so that a missing
    one is found before training starts: a dataclass with the attribute ``client`` does so by ``import_<client>``.

    Attributes:
        run_id: the tracker's id of this run. Checkpoints store it, and a resumed run continues under it. None if the
            tracker has no ids.
    """

    sends_outside = True

    client = ''
    run_id: str | None = None
    _numbers_only = True  # whether the tracker accepts numbers only
    _is_open = False
    _trouble: WarnsOnce | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.client:
            getattr(self, f'import_{self.client}')()

    def before_run(self, runner: RunnerView) -> None:
        super().before_run(runner)
        if runner.rank == 0:
            self._open(runner)
            self._is_open = True

    def log(self, runner: RunnerView) -> None:
        """Send the values to log."""
        tags = {
            name: plain_number(value) if self.is_scalar(value) else value
            for name, value in self._tags(runner).items()
            if not self._numbers_only or self.is_scalar(value)
        }
        step = self._step_of(runner)
        if step == runner.completed_iters + 1 and self._has_line(step):  # which will have its own rates
            for name in (*self.get_lr_tags(runner), *self.get_momentum_tags(runner)):
                tags.pop(name, None)
        if step is not None:
            tags = self._new_at(step, tags, runner)
        if tags:
            self._try(self._send, tags, runner)

    def after_image(self, runner: RunnerView, name: str, pixels: Pixels) -> None:
        """Send a picture of `runnerkit.report_image`, in colours."""
        if self._is_open:
            self._try(self._send_image, name, pixels if pixels.shape[2] > 1 else pixels.repeat(3, axis=2), runner)

    def after_run(self, runner: RunnerView) -> None:
        super().after_run(runner)
        if self._is_open:
            self._is_open = False
            self._try(self._close, runner)

    def _try(self, call: Callable[..., None], *args: Any) -> None:
        """Call the tracker; no error of its client ends the training."""
        try:
            call(*args)
        except NotImplementedError:
            raise
        except Exception as error:
            if self._trouble is None:
                self._trouble = WarnsOnce(f'the log of {type(self).__name__}')
            self._trouble(error)

    def _open(self, runner: RunnerView) -> None:
        """Tell the tracker that the run begins, or continues under ``self.run_id``."""

    def _tags(self, runner: RunnerView) -> dict[str, Any]:
        """Return the values to log, by name."""
        return self.get_loggable_tags(runner)

    def _step_of(self, runner: RunnerView) -> Any:
        """Return the step of the values, at which each name has one; None if it may have several. Between two
        iterations, it is the next one."""
        return self.get_iter(runner)

    def _has_line(self, step: int) -> bool:
        """Whether the iteration ``step``, the first one after a validation, has its own line."""
        return (1 if self.by_epoch else step) % self.interval == 0

    def _send(self, tags: dict[str, Any], runner: RunnerView) -> None:
        """Send values by name to the tracker."""
        raise NotImplementedError(f'{type(self).__name__} must have a method _send(tags, runner)')

    def _send_image(self, name: str, pixels: Pixels, runner: RunnerView) -> None:
        """Send a picture ``[height, width, 3 or 4]`` to the tracker, if it takes pictures."""

    def _close(self, runner: RunnerView) -> None:
        """Tell the tracker that the run has ended."""

    def _client(self, module: str, package: str) -> Any:
        """Import and return the client's module.

        Raises:
            ImportError: it is not installed; the message names the package.
        """
        try:
            return importlib.import_module(module)
        except ImportError as error:
            raise ImportError(f'{type(self).__name__} needs {module}: pip install {package!r} ({error})') from error

    def _keep_id(self, run_id: Any) -> None:
        # A mock of the client has no real id, and a checkpoint could not hold it.
        self.run_id = run_id if isinstance(run_id, str) else None

    def state_dict(self) -> dict[str, Any]:
        """Return the id of the run at the tracker."""
        return {} if self.run_id is None else {'run_id': self.run_id}

    def before_resume(self, runner: RunnerView, checkpoint: dict[str, Any]) -> None:
        # Not in load_state_dict: that is called after before_run, when the tracker's run is open already.
        self.run_id = self._saved_state(runner, checkpoint).get('run_id', self.run_id)


def has_failed(runner: RunnerView) -> bool:
    """Whether the run was ended by an error or by Ctrl-C."""
    outcome = getattr(runner, 'outcome', None)  # MMCV's runners have none
    return outcome is not None and not outcome.ended_well
