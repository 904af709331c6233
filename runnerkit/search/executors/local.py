"""Trials in processes of this machine, several at once."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from runnerkit.search.blame import is_text_of_machine
from runnerkit.search.executors.executor import EXECUTORS, OUTPUT, Ended, Executor
from runnerkit.search.job import Job, Report, Result
from runnerkit.search.worker import Link
from runnerkit.utils.exceptions import WrongType
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.small_files import open_own

_POLL = 0.25  # seconds between two looks at the processes
_LEFT = 1.0  # seconds in which what an ended process has sent must come, where its socket is still open elsewhere
_GRACE = 30.0  # seconds that a trial has to save and end
_LEAVES = 1.0  # seconds that a failed trial has to end by itself
_TAIL = 600  # characters of a trial's output that an error shows


@dataclass(eq=False)
class _Trial:
    job: Job
    report: Report
    process: subprocess.Popen[bytes]
    link: Link
    slot: int
    deadline: float | None
    result: Result | None = None
    is_silent: bool = False  # nothing more comes through its socket
    gone_since: float | None = None  # when its process was found to have ended


@EXECUTORS.register_module('Local')
class LocalExecutor(Executor):
    """Runs each job in a separate process. A trial that crashes, hangs, or is killed does not touch the others.

    Each process leads a process group, which ends with it; it ends by itself when the study is gone.

    Args:
        workers: how many trials run at once.
        devices: for each of them, the GPU that it sees, such as ``[0, 1]``; None: all see the same.
        limit: seconds after which a trial is ended as failed; None: never.
    """

    def __init__(
        self, workers: int = 2, devices: Sequence[int | str] | None = None, limit: float | None = None
    ) -> None:
        check_whole_number('workers', workers)
        if devices is not None and (isinstance(devices, str) or len(devices) != workers):
            raise WrongType(f'devices must name one GPU for each of the {workers} workers, but got {devices!r}')
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, float)) or limit <= 0):
            raise WrongType(f'limit must be a number of seconds above 0, or None, but got {limit!r}')
        self.slots, self.devices, self.limit = workers, devices, limit
        self._running: list[_Trial] = []
        self._came: SimpleQueue[tuple[_Trial, Any]] = SimpleQueue()
        self._is_stopping = False

    @property
    def running(self) -> int:
        """How many processes there are."""
        return len(self._running)

    def start(self, job: Job, report: Report) -> None:
        """Start a process."""
        slot = next(number for number in range(self.slots) if all(each.slot != number for each in self._running))
        ours, theirs = socket.socketpair()
        folder = os.path.dirname(job.work_dir)
        os.makedirs(folder, exist_ok=True)
        with open_own(os.path.join(folder, OUTPUT), 'ab') as output:
            process = subprocess.Popen(
                [sys.executable, '-m', 'runnerkit.search.worker', str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(job, slot),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        # A trial that does not read must not block the study.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', int(_GRACE), 0))
        deadline = None if self.limit is None else time.monotonic() + self.limit
        each = _Trial(job, report, process, Link(ours), slot, deadline)
        self._running.append(each)
        with suppress(OSError):  # it has crashed already, which `wait` finds
            each.link.send(asdict(job))
        Thread(target=self._listen, args=(each,), daemon=True).start()

    def wait(self, seconds: float) -> list[Ended]:
        """Answer the trials that report; those that have ended, with a result or without."""
        until = time.monotonic() + seconds
        while self._running:
            ended = [self._leave(each) for each in list(self._running) if self._has_ended(each)]
            left = until - time.monotonic()
            if ended or left <= 0:
                return ended
            with suppress(Empty):
                self._take(*self._came.get(timeout=min(left, _POLL)))
        return []

    def _has_ended(self, each: _Trial) -> bool:
        now, is_gone = time.monotonic(), each.process.poll() is not None
        if is_gone and each.gone_since is None:
            each.gone_since = now
        if each.result is None and each.gone_since is not None and (each.is_silent or now > each.gone_since + _LEFT):
            each.result = self._crashed(each)
        if each.result is None and each.deadline is not None and now > each.deadline:
            if self._is_stopping:
                each.result = Result('stopped', message=f'it has not ended within {_GRACE:g} s after SIGTERM')
            else:
                each.result = Result('failed', message=f'it took longer than {self.limit:g} s, the limit')
            end_group(each.process)
        return each.result is not None

    def stop(self) -> None:
        """Pass SIGTERM on: the runs save and end."""
        self._is_stopping = True
        for each in self._running:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGTERM)
            each.deadline = time.monotonic() + _GRACE

    def __exit__(self, *error: object) -> None:
        for each in self._running:
            end_group(each.process)
            each.link.close()
        self._running.clear()

    def _environment(self, job: Job, slot: int) -> dict[str, str]:
        found = {**os.environ, 'OMP_NUM_THREADS': str(job.threads), 'MKL_NUM_THREADS': str(job.threads)}
        found['PYTHONPATH'] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        if self.devices is not None:
            found['CUDA_VISIBLE_DEVICES'] = str(self.devices[slot])
        return found

    def _listen(self, each: _Trial) -> None:
        """Pass on what a trial sends; in one thread per trial, so that half a line blocks no other trial."""
        message: Any = True
        while message is not None:
            try:
                message = each.link.receive()
                self._came.put((each, message if message is None else _understood(message)))
            except (ValueError, KeyError, TypeError) as error:
                wrong = f'something else has written to the socket of its study: {error!r}'
                self._came.put((each, Result('failed', message=wrong)))
                return

    def _take(self, each: _Trial, message: Any) -> None:
        """Take a message of a trial: a result, a report, or None if nothing more comes."""
        if message is None:
            each.is_silent = True  # the end of its process is the result then
        elif isinstance(message, Result):
            each.result = message
        elif each in self._running:
            with suppress(OSError):
                each.link.send({'prune': each.report(*message)})

    def _crashed(self, each: _Trial) -> Result:
        code = each.process.wait()
        if self._is_stopping:  # it had not installed its signal handlers
            return Result('stopped', message=f'its process has ended: {ending(code)}')
        printed = tail(each.job)
        message = f'its process has ended: {ending(code)}{printed}'
        return Result('failed', message=message, is_of_machine=is_text_of_machine(printed))

    def _leave(self, each: _Trial) -> Ended:
        has_failed = each.result is None or each.result.status == 'failed'
        with suppress(subprocess.TimeoutExpired):
            each.process.wait(timeout=_LEAVES if has_failed else _GRACE)
        end_group(each.process)
        each.link.close()
        self._running.remove(each)
        return Ended(each.job, each.result or Result('failed'))


def _understood(message: Any) -> Result | tuple[int, dict[str, float]]:
    """What a line of a trial means: its result, or the step and the scores of a report."""
    if 'result' in message:
        return Result(**message['result'])
    return int(message['step']), {str(name): float(value) for name, value in dict(message['scores']).items()}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process group, and wait for its end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for _ in range(100):  # those that it has started are waited for by the system, not by us
            os.killpg(process.pid, 0)
            time.sleep(0.01)
    process.wait()


def ending(code: int) -> str:
    """How a process has ended, in words."""
    if code < 0:
        with suppress(ValueError):
            return f'killed by {signal.Signals(-code).name}'
    return f'exit code {code}'


def tail(job: Job) -> str:
    """The last lines that a trial has printed."""
    path = os.path.join(os.path.dirname(job.work_dir), OUTPUT)
    with suppress(OSError), open(path, 'rb') as file:
        file.seek(max(0, os.path.getsize(path) - 4 * _TAIL))
        text = file.read().decode(errors='replace')[-_TAIL:].strip()
        return f'. The end of {path}:\n{text}' if text else ''
    return ''
