"""The thread that reads ahead: not further than its buffer, and to its end."""

import json
import threading
import time
import tracemalloc

import pytest
import torch

from runnerkit.data import stream_buffer
from runnerkit.data.source import Event, Source
from runnerkit.data.stream_buffer import StreamBuffer


class Counting(Source):
    """Counts what it has given."""

    def __init__(self, number, fails=False):
        self.number, self.fails, self.given, self.closed = number, fails, 0, threading.Event()

    def read(self, after):
        for n in range(0 if after is None else after + 1, self.number):
            self.given += 1
            yield Event(n, n)
            yield None
        if self.fails:
            raise OSError('the disk is gone')

    def close(self):
        self.closed.set()


def settled(source):
    """Wait until it gives nothing more."""
    given = -1
    while given != source.given:
        given = source.given
        time.sleep(0.05)
    return given


def test_it_reads_no_further_than_there_is_room():
    source = Counting(100)
    buffer = StreamBuffer(source, None, 5)
    assert settled(source) <= 6  # one more waits for room
    assert len(buffer) == 5
    assert [buffer.take(5).offset for _ in range(3)] == [0, 1, 2]
    assert settled(source) <= 9
    buffer.close()
    assert source.closed.is_set()
    assert not buffer._thread.is_alive()


def test_records_that_take_much_memory_are_fewer(monkeypatch):
    """The text of a line is limited, and what is parsed of it takes many times that."""
    source = Counting(100)
    source.read = lambda after: (source.__dict__.update(given=n) or Event(n, [{}] * 1000) for n in range(100))
    monkeypatch.setattr(stream_buffer, '_MOST_MEMORY', 4 * stream_buffer.memory_of([{}] * 1000))
    buffer = StreamBuffer(source, None, 50)
    assert settled(source) <= 5
    assert len(buffer) == 4
    assert [buffer.take(5).offset for _ in range(100)] == list(range(100))
    assert buffer.take(5) is None
    monkeypatch.setattr(stream_buffer, '_MOST_MEMORY', 1)
    alone = StreamBuffer(Counting(3), None, 50)
    assert [alone.take(5).offset for _ in range(3)] == [0, 1, 2]  # one is always let in


def test_the_memory_of_a_payload():
    text = '[' + '[],' * 1000 + '{}]'
    before = tracemalloc_of(lambda: json.loads(text))
    assert before / 4 < stream_buffer.memory_of(json.loads(text)) < before * 4
    assert stream_buffer.memory_of(torch.zeros(8)) == 32
    assert stream_buffer.memory_of(object()) == 0


def tracemalloc_of(make):
    tracemalloc.start()
    try:
        kept = make()
        return tracemalloc.get_traced_memory()[0] if kept else 0
    finally:
        tracemalloc.stop()


def test_it_begins_after_an_offset_and_ends():
    buffer = StreamBuffer(Counting(4), 1, 10)
    assert [buffer.take(5).payload for _ in range(2)] == [2, 3]
    assert not buffer.ended
    assert buffer.take(5) is None
    assert buffer.ended
    assert buffer.take(5) is None


def test_what_the_source_raises_comes_behind_what_it_gave():
    buffer = StreamBuffer(Counting(1, fails=True), None, 10)
    assert buffer.take(5).offset == 0
    with pytest.raises(OSError, match='the disk is gone'):
        buffer.take(5)


def test_nothing_there_is_told_in_time_and_a_source_that_does_not_end(monkeypatch, caplog):
    class Waits(Source):
        def read(self, after):
            closed.wait(10)
            yield from ()

    closed = threading.Event()
    buffer = StreamBuffer(Waits(), None, 1)
    assert buffer.take(0) is None
    assert buffer.take(0.01) is None
    assert not buffer.ended
    with monkeypatch.context() as hasty:
        hasty.setattr(stream_buffer, '_PATIENCE', 0.01)
        buffer.close()
    assert 'Waits.read does not end' in caplog.text
    closed.set()
    buffer.close()
    assert not buffer._thread.is_alive()
