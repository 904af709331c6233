"""A thread that reads a source ahead, and not too far."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Any

from runnerkit.data.source import Event, Malformed, Source
from runnerkit.data.walk import Opaque

_POLL = 0.1  # seconds between two looks whether to go on
_PATIENCE = 5.0  # seconds for the thread to end

logger = logging.getLogger('runnerkit')


class StreamBuffer(Opaque):
    """Reads a source in a thread of its own, until its buffer is full; what is taken out makes room.

    Args:
        source: read from `start` on.
        after: the offset after which to begin; None for the beginning.
        size: how many records the buffer holds.
    """

    def __init__(self, source: Source, after: Any, size: int) -> None:
        self._source, self._after = source, after
        self._records: queue.Queue[Any] = queue.Queue(size)
        self._is_closed = threading.Event()
        self._failure: BaseException | None = None
        self.ended = False  # the source has ended, and all of it was taken
        self._thread = threading.Thread(target=self._read, name='runnerkit-stream', daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """How many records wait in the buffer, about."""
        return self._records.qsize()

    def take(self, seconds: float) -> Event | Malformed | None:
        """The next record; None if none comes within ``seconds``, or the source has ended.

        Raises:
            Exception: what the source has raised.
        """
        if self.ended:
            return None
        try:
            record = self._records.get(timeout=seconds) if seconds > 0 else self._records.get_nowait()
        except queue.Empty:
            return None
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
        while not self._is_closed.is_set():
            try:
                self._records.put(record, timeout=_POLL)
            except queue.Full:
                continue
            return True
        return False
