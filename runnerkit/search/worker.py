"""The process of one trial: ``python -m runnerkit.search.worker``, started by `LocalExecutor`.

It reads a job from the file descriptor that its first argument names, a socket to the study, and answers with lines of
JSON: ``{"step": …, "scores": …}`` after each evaluation, to which the study answers ``{"prune": …}``, and at the end
``{"result": …}``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

_CHUNK = 1 << 16  # bytes that are read at once
_LONGEST = 1 << 26  # bytes of a line


def end_with_all() -> None:
    """End this process, with all that it has started."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(descriptor: int, when_gone: Callable[[], None] = end_with_all) -> None:
    """Run the job that comes through the socket ``descriptor``.

    Args:
        descriptor: of the socket.
        when_gone: called in a thread when the study is gone.
    """
    link = Link(socket.socket(fileno=descriptor))
    described = link.receive()
    if described is None:
        return
    from runnerkit.search.job import Job, run_job

    job = Job(**described)
    answers = Answers(link, when_gone)
    answers.start()

    def report(step: int, scores: dict[str, float]) -> bool:
        link.send({'step': step, 'scores': scores})
        return bool(answers.next()['prune'])

    result = run_job(job, report)
    link.send({'result': asdict(result)})


class Link:
    """Lines of JSON over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._parts: list[bytes] = []  # of a line whose end has not come
        self._length = 0  # their bytes
        self._messages: list[Any] = []

    def send(self, content: Any) -> None:
        """Send one line."""
        self.socket.sendall(json.dumps(content).encode() + b'\n')

    def poll(self) -> list[Any] | None:
        """What has come, once there is something to read: the lines that are whole; None if the other side is gone.

        Raises:
            ValueError: it is no JSON, or a line without an end.
        """
        try:
            data = self.socket.recv(_CHUNK)
        except OSError:
            return None
        if not data:
            return None
        *lines, rest = data.split(b'\n')
        if lines:
            lines[0] = b''.join([*self._parts, lines[0]])
            self._parts.clear()
            self._length = 0
        self._parts.append(rest)
        self._length += len(rest)
        if self._length > _LONGEST:
            raise ValueError(f'a line of more than {_LONGEST} bytes')
        return [json.loads(line) for line in lines]

    def receive(self) -> Any:
        """Wait for the next message; None if the other side is gone."""
        while not self._messages:
            found = self.poll()
            if found is None:
                return None
            self._messages += found
        return self._messages.pop(0)


class Answers(threading.Thread):
    """Reads the study's answers, and calls ``when_gone`` when the study is gone."""

    def __init__(self, link: Link, when_gone: Callable[[], None]) -> None:
        super().__init__(name='runnerkit-study', daemon=True)
        self._when_gone = when_gone
        self._link, self._came, self._answers = link, threading.Condition(), []  # type: ignore[var-annotated]

    def run(self) -> None:
        """Wait for answers."""
        while (answer := self._link.receive()) is not None:
            with self._came:
                self._answers.append(answer)
                self._came.notify()
        self._when_gone()

    def next(self) -> Any:
        """The next answer."""
        with self._came:
            self._came.wait_for(lambda: self._answers)
            return self._answers.pop(0)


if __name__ == '__main__':
    main(int(sys.argv[1]))
