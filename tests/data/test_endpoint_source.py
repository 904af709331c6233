"""Lines of JSON from a server, over TCP, also where the connection breaks."""

import json
import socket
import socketserver
import threading
import time
import tracemalloc

import pytest

from runnerkit.data import EndpointSource
from runnerkit.data.source import Event, Malformed
from runnerkit.data.stream_buffer import StreamBuffer


def line(n):
    return json.dumps({'offset': n, 'event': n * 10}).encode() + b'\n'


def lines_after(server, after):
    """What the server sends: its script's next answer, as a function of the offset that was asked for."""
    server.asked.append(after)
    return server.script.pop(0)(after) if server.script else [b'{"end": true}\n']


class Tcp(socketserver.StreamRequestHandler):
    def handle(self):
        asked = json.loads(self.rfile.readline())
        if 'ack' in asked:
            self.server.acknowledged.append(asked['ack'])
            return
        for each in lines_after(self.server, asked['after']):
            self.wfile.write(each)


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True


@pytest.fixture
def server():
    server = TcpServer(('127.0.0.1', 0), Tcp)
    server.handle_error = lambda *args: None  # a reader that goes away
    server.script, server.asked, server.acknowledged = [], [], []
    server.url = f'tcp://127.0.0.1:{server.server_address[1]}'
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def offsets(records):
    return [record.offset for record in records if isinstance(record, Event)]


def test_events_come_until_the_end(server):
    server.script = [lambda after: [line(1), b'\n', line(2), b'{"end": true}\n', line(3)]]
    assert [tuple(event) for event in EndpointSource(server.url).read(None)] == [(1, 10), (2, 20)]
    assert server.asked == [None]


def test_a_broken_connection_is_opened_again_where_it_broke(server):
    whole = line(3)
    server.script = [
        lambda after: [line(1), line(2), whole[:7]],  # cut off in the middle of a line
        lambda after: [line(3)],
        lambda after: [],
    ]
    source = EndpointSource(server.url, retry=0.001)
    assert offsets(source.read([0, 'a'])) == [1, 2, 3]
    assert server.asked == [[0, 'a'], 2, 3, 3]


def test_malformed_lines_are_kept_aside(server):
    bad = [b'{bad\n', b'[1]\n', b'{"offset": 1}\n', b'{"offset": {}, "event": 1}\n', b'{"event": 1}\n', b'\xff\n']
    bad += [b'{"offset": NaN, "event": 1}\n', b'{"offset": 1e999, "event": 1}\n', b'{"offset": 1, "event": Infinity}\n']
    long = b'"' + b'x' * (1 << 20) + b'"\n'
    server.script = [lambda after: [*bad, long, line(2)], lambda after: [b'{"end": true}\n']]
    found = [each for each in EndpointSource(server.url, retry=0.001).read(None) if each is not None]
    assert [type(each) for each in found] == [Malformed] * 10 + [Event]
    assert [each.offset for each in found] == [None, None, 1, *[None] * 7, 2]
    assert 'longer than' in found[9].problem
    assert len(found[9].text) < 11000
    assert server.asked == [None, 2]


def test_the_rest_of_what_has_no_end_is_not_in_memory(server):
    part = b'x' * (1 << 20)
    server.script = [lambda after: [part] * 40 + [b'\n', line(2), b'{"end": true}\n']]
    tracemalloc.start()
    assert [type(each) for each in EndpointSource(server.url).read(None)] == [Malformed, Event]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 << 20


def test_of_acknowledgements_that_wait_the_last_one_is_sent(server, monkeypatch, caplog):
    goes_on = threading.Event()
    send = EndpointSource._send

    def slow(self, offset):
        goes_on.wait(20)
        send(self, offset)

    monkeypatch.setattr(EndpointSource, '_send', slow)
    source = EndpointSource(server.url)
    for offset in range(100):
        source.acknowledge(offset)
    goes_on.set()
    source.close()
    assert server.acknowledged == [99]
    with monkeypatch.context() as gone:
        gone.setattr(socket, 'create_connection', unreachable)
        source.acknowledge(100)
        source.close()
    assert 'cannot acknowledge events to ' in caplog.text
    monkeypatch.undo()
    source.acknowledge(100)
    source.close()
    assert server.acknowledged == [99, 100]


def unreachable(*args, **kwargs):
    raise OSError('gone')


def test_acknowledgements_reach_the_server(server):
    source = EndpointSource(server.url)
    for offset in (1, 1, [2, 'b']):
        source.acknowledge(offset)
    source.close()
    assert server.acknowledged == [1, [2, 'b']]
    source.acknowledge(7)  # a source may be used again
    source.close()
    assert server.acknowledged[-1] == 7


def test_a_sender_that_is_faster_waits(server):
    """Its 2 GiB are neither read nor in memory: what is sent and not read fits into the buffers of the system."""
    event = json.dumps({'offset': 1, 'event': 'x' * 100_000}).encode() + b'\n'
    sent = []

    def fast(after):
        for _ in range(20_000):
            sent.append(1)
            yield event

    server.script = [fast]
    buffer = StreamBuffer(EndpointSource(server.url), None, 5)
    settled = -1
    while settled != len(sent) or len(buffer) < 5:
        settled = len(sent)
        time.sleep(0.1)
    assert len(buffer) == 5
    assert settled < 500
    buffer.close()


def test_close_ends_a_read_that_waits(server):
    waits, waited = threading.Event(), threading.Event()

    def endless(after):
        yield line(1)
        waits.wait(60)
        waited.set()

    server.script = [endless]
    source = EndpointSource(server.url)
    records = source.read(None)
    assert next(records).offset == 1
    threading.Timer(0.1, source.close).start()
    assert list(records) == []
    assert not waited.is_set()  # the server has sent no end
    waits.set()


def test_a_server_that_is_not_there_is_asked_again_and_told(caplog):
    source = EndpointSource('tcp://127.0.0.1:9', retry=0.001)
    records = source.read(None)
    assert [next(records) for _ in range(3)] == [None] * 3
    assert 'tcp://127.0.0.1:9 does not answer' in caplog.text
    source.close()
    assert list(records) == []
    source.acknowledge(1)
    source.close()
    assert 'cannot acknowledge events to' in caplog.text


@pytest.mark.parametrize(
    'url', ['ftp://a:1', 'tcp://host', 'host:80', 'tcp://:80', 'tcp://host:99999', 'http://host:80']
)
def test_wrong_urls(url):
    with pytest.raises(ValueError, match='url must be tcp://host:port, but got'):
        EndpointSource(url)
