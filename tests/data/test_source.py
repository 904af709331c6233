"""What lines are events, and which are kept aside; a folder that fills up; a server, also where connections break."""

import io
import json
import math
import os
import socket
import socketserver
import threading
import time
import tracemalloc
from itertools import islice

import pytest

from runnerkit.data import DirectorySource, EndpointSource
from runnerkit.data import source as source_file
from runnerkit.data.source import Event, Lines, Malformed, Source, is_offset, parse_event, parse_line, shortened_text
from runnerkit.data.stream_buffer import StreamBuffer


def test_a_line_is_json_or_kept_aside():
    assert parse_line(b'{"a": 1}\n') == {'a': 1}
    for line in (
        b'{"a"\n',
        b'\xff\xfe\n',
        b'[' * 100000,
        b'{"a": NaN}',
        b'-Infinity',
        b'{"x": 1e999}',
        b'[[-1e400]]',
        b'\0\1\2',
    ):
        found = parse_line(line, offset=7)
        assert isinstance(found, Malformed)
        assert found.offset == 7
        assert found.problem.startswith('no JSON: ')


def test_an_event_is_parsed_with_its_offset():
    assert parse_event(b'{"a": 1}', [7, 1]) == Event([7, 1], {'a': 1})
    assert (parse_event(b'', 7).problem[:7], parse_event(b'', 7).offset) == ('no JSON', 7)


def test_what_is_kept_is_text_and_short():
    assert shortened_text(b'a\xffb\n') == 'a\\xffb'
    assert shortened_text(b'x' * 20, longest=5) == 'xxxxx…'


def test_a_source_needs_only_read():
    class Three(Source):
        def read(self, after):
            yield from (Event(n, n) for n in range(3) if after is None or n > after)

    source = Three()
    assert [event.payload for event in source.read(0)] == [1, 2]
    source.acknowledge(1)
    source.close()
    with pytest.raises(TypeError, match='read'):
        Source()


@pytest.mark.parametrize('whole', [True, False])
def test_lines_have_an_end_and_are_not_too_long(whole, monkeypatch):
    monkeypatch.setattr(source_file, 'LONGEST', 5)
    text = b'one\ntwelve\n1234\n12345\nlonger than all\n\nfive5\nhalf'

    class Grows(io.BytesIO):
        """A file that has something new, of any length, each time that it is read."""

        def readline(self, size):
            return super().readline(size if whole else min(size, 3))

    def told(found):
        return [each.text if isinstance(each, Malformed) else each for each in found]

    lines = Lines(Grows(text))
    assert told(lines.read()) == [b'one\n', 'twelve', b'1234\n', '12345', 'longer', b'\n', 'five5']
    assert told(lines.read()) == []
    assert [*lines.last(), *lines.last()] == [b'half']


def test_what_can_be_an_offset():
    assert all(map(is_offset, (0, -3, 1.5, '', 'a', [1, 'b'], ('a', 2), 2**63 - 1, 9e18)))
    for wrong in (
        None,
        True,
        math.nan,
        math.inf,
        [],
        {},
        [None],
        [[1]],
        [1, math.nan],
        b'1',
        2**63,
        -(10**300),
        1e300,
        ['a', 10**300],
    ):
        assert not is_offset(wrong)


# --- a folder ---------------------------------------------------------------------------------------------------------


def put(folder, name, *lines):
    """A file appears at once."""
    folder.mkdir(exist_ok=True)
    text = ''.join(f'{line if isinstance(line, str) else json.dumps(line)}\n' for line in lines)
    (folder / f'.{name}').write_text(text)
    os.rename(folder / f'.{name}', folder / name)


def events(records):
    return [record.payload for record in records if isinstance(record, Event)]


def test_files_are_read_in_order_from_any_place_to_the_end(tmp_path):
    put(tmp_path, '2.jsonl', 3, 4)
    put(tmp_path, '1.jsonl', 1, '', 2)
    put(tmp_path, 'notes.txt', 'nothing')
    put(tmp_path, 'END')
    source = DirectorySource(tmp_path)
    everything = list(source.read(None))
    assert [tuple(each) for each in everything] == [
        (['1.jsonl', 1], 1),
        (['1.jsonl', 3], 2),
        (['2.jsonl', 1], 3),
        (['2.jsonl', 2], 4),
    ]
    for number, each in enumerate(everything):
        assert list(source.read(each.offset)) == everything[number + 1 :]


def test_it_waits_for_files_and_for_the_folder(tmp_path):
    folder = tmp_path / 'later'
    source = DirectorySource(folder, poll=0.001)
    records = source.read(None)
    assert next(records) is None
    put(folder, 'a.jsonl', 1)
    assert events(islice(records, 2)) == [1]
    put(folder, 'b.jsonl', 2)
    assert events(islice(records, 3)) == [2]
    source.close()
    assert events(records) == []  # it ends


def test_malformed_lines_and_late_files_are_kept_aside(tmp_path):
    source = DirectorySource(tmp_path, poll=0.001)
    put(tmp_path, 'b.jsonl', 1, '{bad', 2)
    records = source.read(None)
    found = list(islice(records, 3))
    assert events(found) == [1, 2]
    assert (found[1].text, found[1].offset) == ('{bad', ['b.jsonl', 2])
    put(tmp_path, 'a.jsonl', 9)
    put(tmp_path, 'c.jsonl', 3)
    put(tmp_path, 'END')
    late, after = (record for record in records if record is not None)
    assert isinstance(late, Malformed)
    assert late.text == 'a.jsonl'
    assert 'b.jsonl, which is behind it, is read already' in late.problem
    assert after.payload == 3


def test_lines_that_are_appended_are_read_when_they_are_whole(tmp_path):
    source = DirectorySource(tmp_path, poll=0.001)
    records = source.read(None)
    with (tmp_path / 'a.jsonl').open('w') as file:
        for text, whole in (('1', []), ('2\n', [12]), ('3\n\n4\n5', [3, 4]), ('', []), ('6', [])):
            file.write(text)
            file.flush()
            assert events(islice(records, 1 + len(whole))) == whole
        put(tmp_path, 'b.jsonl', 7)
        assert [tuple(each) for each in islice(records, 2)] == [(['a.jsonl', 5], 56), (['b.jsonl', 1], 7)]
    put(tmp_path, 'END')
    assert events(records) == []


def test_what_is_no_file_or_is_gone_ends_no_run(tmp_path):
    for name in ('a.jsonl', 'b.jsonl', 'd.jsonl'):
        put(tmp_path, name, 1)
    (tmp_path / 'folder.jsonl').mkdir()
    (tmp_path / 'nowhere.jsonl').symlink_to(tmp_path / 'nothing')
    os.mkfifo(tmp_path / 'pipe.jsonl')
    source = DirectorySource(tmp_path, poll=0.001)
    records = source.read(None)
    first = next(records)
    (tmp_path / 'b.jsonl').unlink()
    gone, last, nothing = islice(records, 3)
    assert (first.offset, gone.text, last.offset, nothing) == (['a.jsonl', 1], 'b.jsonl', ['d.jsonl', 1], None)
    assert 'was removed' in gone.problem
    (tmp_path / 'd.jsonl').unlink()
    assert next(records) is None
    put(tmp_path, 'd.jsonl', 2)  # whose lines are at the places of others
    assert 'a file of this name was read already' in next(records).problem


def test_a_line_without_an_end_is_malformed_and_not_in_memory(tmp_path):
    with (tmp_path / 'a.jsonl').open('wb') as file:
        file.write(b'1\n')
        for _ in range(40):
            file.write(b'x' * (1 << 20))
        file.write(b'\n2\n')
    put(tmp_path, 'END')
    tracemalloc.start()
    found = list(DirectorySource(tmp_path).read(None))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.offset[1] for each in found] == [1, 2, 3]
    assert 'longer than' in found[1].problem
    assert most < 10 << 20


@pytest.mark.parametrize(
    ('options', 'told'),
    [
        ({'poll': 0}, 'poll must be a number of seconds above 0, but got 0'),
        ({'poll': 'often'}, "but got 'often'"),
    ],
)
def test_wrong_arguments(tmp_path, options, told):
    with pytest.raises(ValueError, match=told):
        DirectorySource(tmp_path, **options)


def test_a_file_is_no_folder(tmp_path):
    put(tmp_path, 'a.jsonl', 1)
    with pytest.raises(ValueError, match=r'a\.jsonl is a file'):
        DirectorySource(tmp_path / 'a.jsonl')


# --- a server ---------------------------------------------------------------------------------------------------------


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
