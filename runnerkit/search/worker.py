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
from dataclasses import asdict
from typing import Any


def main(descriptor: int) -> None:
    """Run the job that comes through the socket ``descriptor``."""
    link = Link(socket.socket(fileno=descriptor))
    described = link.receive()
    if described is None:
        return
    from runnerkit.search.job import Job, run_job

    job = Job(**{**described, 'objectives': tuple(described['objectives'])})
    answers = Answers(link)
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
    """Reads the study's answers. When the study is gone, the process ends, with all that it has started."""

    def __init__(self, link: Link) -> None:
        super().__init__(name='runnerkit-study', daemon=True)
        self._link, self._came, self._answers = link, threading.Condition(), []  # type: ignore[var-annotated]

    def run(self) -> None:
        """Wait for answers."""
        while (answer := self._link.receive()) is not None:
            with self._came:
                self._answers.append(answer)
                self._came.notify()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def next(self) -> Any:
        """The next answer."""
        with self._came:
            self._came.wait_for(lambda: self._answers)
            return self._answers.pop(0)


if __name__ == '__main__':
    main(int(sys.argv[1]))
