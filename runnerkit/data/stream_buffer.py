"""A thread that reads a source ahead, and not too far."""

from __future__ import annotations

import logging
import marshal
import queue
import threading
from typing import Any

from runnerkit.data.source import Event, Malformed, Source

_POLL = 0.1  # seconds between two looks whether to go on
_PATIENCE = 5.0  # seconds for the thread to end
_MOST_MEMORY = 256 << 20  # bytes that waiting records take, about

logger = logging.getLogger('runnerkit')


def memory_of(payload: Any) -> int:
    """About how many bytes a payload takes in memory; 0 if it is neither plain data nor an array.

    `marshal` writes a number in five bytes or more and an empty list in five, which take up to 64 in memory.
    """
    try:
        return 16 * len(marshal.dumps(payload, 2))  # version 2 has no references, which depend on who else holds a part
    except ValueError:
        return int(getattr(payload, 'nbytes', 0))


class StreamBuffer:
    """Reads a source in a thread, until its buffer is full; what is taken out makes room.

    Args:
        source: read from `start` on.
        after: the offset after which to begin; None for the beginning.
        size: how many records the buffer holds; fewer where they would take more than 256 MiB.
    """

    def __init__(self, source: Source, after: Any, size: int) -> None:
        self._source, self._after = source, after
        self._records: queue.Queue[Any] = queue.Queue(size)
        self._memory_in = self._memory_out = 0  # bytes of all records so far; each is written by one thread
        self._is_closed = threading.Event()
        self._failure: BaseException | None = None
        self.ended = False  # the source has ended, and all of it was taken
        self._thread = threading.Thread(target=self._read, name='runnerkit-stream', daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """How many records wait in the buffer, about."""
        return self._records.qsize()

    def take(self, seconds: float) -> Event | Malformed | None:
        """The next record; None if none comes within ``seconds``, or the source has ended."""
        if self.ended:
            return None
        try:
            record, memory = self._records.get(timeout=seconds) if seconds > 0 else self._records.get_nowait()
        except queue.Empty:
            return None
        self._memory_out += memory
        if record is None:
            self.ended = True
            if self._failure is not None:
                raise self._failure
        return record

    def close(self) -> None:
        """Stop reading; what is in the buffer is dropped."""
        self._is_closed.set()
        self._source.close()
        self._thread.join(timeout=_PATIENCE)
        if self._thread.is_alive():
            name = type(self._source).__name__
            logger.warning(
                '%s.read does not end: it must give None now and then while it waits, and end after close', name
            )

    def _read(self) -> None:
        try:
            for record in self._source.read(self._after):
                if self._is_closed.is_set():
                    return
                if record is not None and not self._put(record):
                    return
        except BaseException as error:
            self._failure = error
        self._put(None)

    def _put(self, record: Any) -> bool:
        """Put ``record`` into the buffer when there is room; returns False if the buffer was closed meanwhile."""
        memory = memory_of(record.payload) if isinstance(record, Event) else 0
        while not self._is_closed.is_set():
            waiting = self._memory_in - self._memory_out
            if waiting and waiting + memory > _MOST_MEMORY:
                self._is_closed.wait(_POLL)
                continue
            try:
                self._records.put((record, memory), timeout=_POLL)
            except queue.Full:
                continue
            self._memory_in += memory
            return True
        return False
