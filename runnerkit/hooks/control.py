"""The hook that lets another process look at a run and control it."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from torch import Tensor

from runnerkit.checkpoint.store import BY_ITER
from runnerkit.distributed import broadcast_object, get_dist_info
from runnerkit.hooks.checkpoint import CheckpointHook
from runnerkit.hooks.hook import HOOKS, Hook, RunnerView
from runnerkit.optim.named import named_optimizers
from runnerkit.utils.control import ControlServer, check_command, host_and_port
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.waiting import pulse

_POLL = 0.1  # seconds between two looks while nothing moves
_RENDEZVOUS = 0.5  # seconds between two rendezvous of the ranks, about


@HOOKS.register_module()
class ControlHook(Hook):
    """Obeys commands of other processes: ``runnerkit ctl WORK_DIR status|start|pause|resume|save|stop``.

    Commands are obeyed at the end of the running training iteration, after all other hooks, and while the run waits for
    data. In a distributed run all ranks obey at the same iteration. Without a request, an iteration costs next to
    nothing on a single process; several ranks meet about twice a second, at an iteration that rank 0 has named when
    they met last.

    Who may give commands: the user who runs the process, on the same machine; with an ``address``, all who have the key
    (see `runnerkit.utils.control.ControlServer`). A pause ends with the process.

    Args:
        address: where to take commands from the network as well, such as ``'0.0.0.0:7008'``:
            ``runnerkit ctl HOST:7008 status --key-file FILE``. Nothing is encrypted, so use a network that you trust.
        key_file: a file that only its owner can read, with the key, at least 16 characters; needed with ``address``.
        paused: begin with a pause, before the first iteration; ``runnerkit ctl WORK_DIR start`` ends it.
    """

    needs_training = True

    runs_last = True

    def __init__(self, address: str | None = None, key_file: str | None = None, paused: bool = False) -> None:
        if address is not None:
            host_and_port(address)
        if (address is None) != (key_file is None):
            raise WrongValue(
                f'ControlHook needs both address and key_file, or neither, but got address={address!r}, '
                f'key_file={key_file!r}. Make a key with (umask 077; openssl rand -hex 32 > ~/.runnerkit-key)'
            )
        self.address, self.key_file, self.begins_paused, self.paused = address, key_file, paused, False
        self._server: ControlServer | None = None
        self._runner: RunnerView | None = None  # of a run that has not ended
        self._requests: deque[tuple[str, Future[dict[str, Any]]]] = deque()
        self._next_meeting = 0  # the ranks meet when so many iterations are done
        self._began = self._met_at = (0.0, 0)

    # --- the run -----------------------------------------------------------------------------------------------------

    def before_run(self, runner: RunnerView) -> None:
        if runner.work_dir is None:
            raise WrongValue('ControlHook has nowhere to listen: give the runner a work_dir')
        self._runner, self.paused, self._is_waiting = runner, self.begins_paused, False
        self._requests.clear()
        self._alone, self._next_meeting = get_dist_info()[1] == 1, 0
        self._began = self._met_at = time.monotonic(), runner.iter
        if runner.rank == 0:
            self._server = ControlServer(runner.work_dir, self._answer, self.address, self.key_file)
            also = '' if self.address is None else f', and at {self.address} with the key file'
            runner.logger.info('Control: runnerkit ctl %s status%s', runner.work_dir, also)

    def before_epoch(self, runner: RunnerView) -> None:
        if self.paused:  # of a run that begins so
            self._meet(runner)

    def after_train_iter(self, runner: RunnerView) -> None:
        # This is called in every iteration.
        if self._requests if self._alone else runner.iter + 1 >= self._next_meeting:
            self._meet(runner)

    def while_waiting(self, runner: RunnerView) -> None:
        """Called while the run waits for data: on every rank, or on none."""
        if not self._is_waiting and (self._requests or not self._alone):
            self._meet(runner)

    def after_roll_back(self, runner: RunnerView) -> None:
        """Let the ranks meet at once: the iteration that was named may be far away now."""
        self._next_meeting = 0

    def after_run(self, runner: RunnerView) -> None:
        self._runner = None
        while self._requests:
            self._requests.popleft()[1].set_exception(RuntimeError(f'the run has ended ({runner.outcome})'))
        server, self._server = self._server, None
        if server is not None:
            server.close()

    # --- obeying -----------------------------------------------------------------------------------------------------

    def _meet(self, runner: RunnerView) -> None:
        """Obey what was asked; if that is a pause, until it ends."""
        ends = self._obey(runner)
        if not self.paused:
            return
        began, done, self._is_waiting = time.monotonic(), runner.completed_iters, True
        runner.logger.info('Paused after iteration %d', done)
        while self.paused and not ends:
            time.sleep(_POLL)
            pulse()  # or the run would seem to hang
            ends = self._obey(runner)
        self.paused = self._is_waiting = False
        self._began = self._began[0] + time.monotonic() - began, self._began[1]
        self._met_at = time.monotonic(), done
        runner.logger.info('Going on after iteration %d', done)

    def _obey(self, runner: RunnerView) -> bool:
        """Obey all commands that have come in, on every rank in the same order; returns whether the run ends."""
        requests = [self._requests.popleft() for _ in range(len(self._requests))]
        commands, ends, done = [command for command, _ in requests], runner.is_ending, runner.completed_iters
        if not self._alone:
            commands, ends, iterations = broadcast_object((commands, ends, self._until_next(done)))
            self._next_meeting = done + iterations
        for number, command in enumerate(commands):
            answer, error = {}, None
            try:
                answer = getattr(self, f'_do_{command}')(runner)
            except Exception as caught:
                error = caught
                runner.logger.error('Control: %s failed: %s', command, caught)
            if runner.rank == 0 and error is not None:
                requests[number][1].set_exception(error)
            elif runner.rank == 0:
                requests[number][1].set_result({**answer, 'iter': done})
        return bool(ends)

    def _until_next(self, done: int) -> int:
        """In how many iterations the ranks meet again: half a second's worth."""
        now, (then, before) = time.monotonic(), self._met_at
        self._met_at = now, done
        iterations = done - before
        return max(1, min(2 * iterations, int(iterations * _RENDEZVOUS / max(now - then, 1e-9))))

    def _do_pause(self, runner: RunnerView) -> dict[str, Any]:
        self.paused = True
        return {'paused': True}

    def _do_resume(self, runner: RunnerView) -> dict[str, Any]:
        self.paused = False
        return {'paused': False}

    _do_start = _do_resume

    def _do_stop(self, runner: RunnerView) -> dict[str, Any]:
        runner.logger.info('Control: stop')
        runner.stop('runnerkit ctl stop')
        self.paused = False
        return {'stops': True}

    def _do_save(self, runner: RunnerView) -> dict[str, Any]:
        hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
        name = BY_ITER.format(runner.completed_iters)
        path = runner.save(filename_tmpl=name) if hook is None else hook.save_now(runner)
        runner.logger.info('Control: saved %s', path)
        return {'checkpoint': path}

    # --- in the server's threads -------------------------------------------------------------------------------------

    def _answer(self, command: str) -> dict[str, Any]:
        """Answer another process: at once if it asks for the status, else when the run has obeyed."""
        check_command(command)
        runner = self._runner
        if runner is None:
            raise RuntimeError('the run has ended')
        if command == 'status':
            return self._status(runner)
        promise: Future[dict[str, Any]] = Future()
        self._requests.append((command, promise))
        if self._runner is None:  # after_run may not have seen it
            raise RuntimeError('the run has ended')
        return promise.result()

    def _status(self, runner: RunnerView) -> dict[str, Any]:
        """Where the run is; reads only what another thread may read while the run trains."""
        done, last = runner.completed_iters, runner.max_iters
        seconds, trained = time.monotonic() - self._began[0], done - self._began[1]
        loader = runner.data_loader
        counts = getattr(getattr(loader, 'dataloader', loader), 'counts', None)  # of a stream
        left = None if last is None or trained <= 0 else seconds / trained * max(0, last - done)
        rates = {
            name: [_json_number(group.get('lr')) for group in optimizer.param_groups]
            for name, optimizer in named_optimizers(runner.optimizer).items()
        }
        return {
            'paused': self.paused,
            'iter': done,
            'epoch': runner.epoch,
            'max_iters': last,
            'max_epochs': runner.max_epochs,
            'progress': None if not last else min(1.0, done / last),
            'lr': rates.get('', rates),  # by optimizer where there are several
            'loss': _json_number(runner.outputs.get('loss')),
            'scores': {name: _json_number(score.value) for name, score in dict(runner.scores).items()},
            'eta': left,
            'work_dir': runner.work_dir,
            'checkpoint': runner.meta.get('hook_msgs', {}).get('last_ckpt'),
            'pid': os.getpid(),
            **({'stream': counts()} if callable(counts) else {}),
        }


def _json_number(value: Any) -> Any:
    """A number for JSON, which has neither NaN nor infinity: these become text. None for what is no number."""
    if isinstance(value, Tensor):
        value = value.detach().float().item() if value.numel() == 1 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else str(value)
