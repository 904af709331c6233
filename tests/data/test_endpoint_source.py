"""Lines of JSON from a server, over TCP and HTTP, also where the connection breaks."""

import json
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from runnerkit.data import EndpointSource
from runnerkit.data.source import Event, Malformed


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


class Http(BaseHTTPRequestHandler):
    def do_GET(self):
        url = urlsplit(self.path)
        assert url.path == '/events'
        after = parse_qs(url.query).get('after')
        found = lines_after(self.server, None if after is None else json.loads(after[0]))
        self.send_response(200 if found != 'refused' else 503)
        self.end_headers()
        for each in found if found != 'refused' else ():
            self.wfile.write(each)

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        self.server.acknowledged.append(json.loads(body)['ack'])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args):
        pass


class TcpServer(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True


@pytest.fixture(params=['tcp', 'http'])
def server(request):
    if request.param == 'tcp':
        server = TcpServer(('127.0.0.1', 0), Tcp)
    else:
        server = ThreadingHTTPServer(('127.0.0.1', 0), Http)
    server.script, server.asked, server.acknowledged = [], [], []
    server.url = f'{request.param}://127.0.0.1:{server.server_address[1]}' + '/events' * (request.param == 'http')
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
    long = b'"' + b'x' * (1 << 20) + b'"\n'
    server.script = [lambda after: [*bad, long, line(2), b'{"end": true}\n']]
    found = list(EndpointSource(server.url).read(None))
    assert [type(each) for each in found] == [Malformed] * 7 + [Event]
    assert 'longer than' in found[6].problem
    assert len(found[6].text) < 11000


def test_acknowledgements_reach_the_server(server):
    source = EndpointSource(server.url)
    for offset in (1, 1, [2, 'b']):
        source.acknowledge(offset)
    source.close()
    assert server.acknowledged == [1, [2, 'b']]
    source.acknowledge(7)  # a source may be used again
    source.close()
    assert server.acknowledged[-1] == 7


def test_close_ends_a_read_that_waits(server):
    waits = threading.Event()

    def endless(after):
        yield line(1)
        waits.wait(20)

    server.script = [endless]
    source = EndpointSource(server.url)
    records = source.read(None)
    assert next(records).offset == 1
    threading.Timer(0.1, source.close).start()
    began = time.monotonic()
    assert list(records) == []
    assert time.monotonic() - began < 10
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
    assert 'cannot be told what is done' in caplog.text


def test_a_refusal_is_a_failure(caplog):
    server = ThreadingHTTPServer(('127.0.0.1', 0), Http)
    server.asked, server.script = [], [lambda after: 'refused', lambda after: 'refused']
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    source = EndpointSource(f'http://127.0.0.1:{server.server_address[1]}/events', retry=0.001)
    assert offsets(source.read(5)) == []
    assert server.asked == [5, 5, 5]
    assert 'answers 503' in caplog.text
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize('url', ['ftp://a:1', 'tcp://host', 'host:80', 'tcp://:80'])
def test_wrong_urls(url):
    with pytest.raises(ValueError, match=r'url must be tcp://host:port or http://'):
        EndpointSource(url)
