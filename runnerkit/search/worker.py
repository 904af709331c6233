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

    job = Job(**{**described, 'objectives': tuple(described['objectives'])})
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
        self._file = connection.makefile('rb')

    def send(self, content: Any) -> None:
        """Send one line."""
        self.socket.sendall(json.dumps(content).encode() + b'\n')

    def receive(self) -> Any:
        """The next line; None if the other side is gone."""
        try:
            line = self._file.readline()
        except OSError:
            return None
        return json.loads(line) if line.endswith(b'\n') else None


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
