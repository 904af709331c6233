"""The server sends the ratings from any place on, and notes what is done."""

import threading

import pytest
from support import ROOT

from runnerkit.data import EndpointSource, Event
from runnerkit.utils.imports import import_object


@pytest.fixture
def server(tmp_path):
    server = import_object(f'{ROOT}/configs/online/serve.py:Server')(0, 50, 1e6, str(tmp_path / 'done'))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_ratings_come_from_any_place_on_and_are_noted(server, tmp_path):
    source = EndpointSource(f'tcp://127.0.0.1:{server.server_address[1]}')
    events = list(source.read(None))
    assert [event.offset for event in events] == list(range(50))
    assert events[0].payload.keys() == {'user', 'film', 'stars', 'time', 'number'}
    assert [event.payload['number'] for event in events if isinstance(event, Event)] == list(range(50))
    assert list(source.read(40)) == events[41:]
    source.acknowledge(17)
    source.close()
    assert (tmp_path / 'done').read_text() == '17\n'
