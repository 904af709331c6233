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
from collections.abc import Callable
from dataclasses import asdict
from queue import SimpleQueue
from threading import Thread
from typing import Any

_LONGEST = 1 << 26  # bytes of a line


def end_with_all() -> None:
    """End this process, with all that it has started."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(descriptor: int, when_gone: Callable[[], None] = end_with_all) -> None:
    """Run the job that comes through the socket ``descriptor``."""
    link = Link(socket.socket(fileno=descriptor))
    described = link.receive()
    if described is None:
        return
    from runnerkit.search.job import Job, run_job

    answers: SimpleQueue[Any] = SimpleQueue()

    def listen() -> None:
        while (answer := link.receive()) is not None:
            answers.put(answer)
        when_gone()

    def report(step: int, scores: dict[str, float]) -> bool:
        link.send({'step': step, 'scores': scores})
        return bool(answers.get()['prune'])

    Thread(target=listen, name='runnerkit-study', daemon=True).start()
    link.send({'result': asdict(run_job(Job(**described), report))})


class Link:
    """Lines of JSON over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._lines = connection.makefile('rb')

    def send(self, content: Any) -> None:
        """Send one line."""
        self.socket.sendall(json.dumps(content).encode() + b'\n')

    def receive(self) -> Any:
        """Wait for the next message; None if the other side is gone."""
        try:
            line = self._lines.readline(_LONGEST)
        except OSError:
            return None
        if len(line) == _LONGEST:
            raise ValueError(f'a line of more than {_LONGEST} bytes')
        return json.loads(line) if line.endswith(b'\n') else None

    def close(self) -> None:
        """Close the connection; a thread that waits in `receive` gets None."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side is gone
            pass
        self.socket.close()


if __name__ == '__main__':
    main(int(sys.argv[1]))
