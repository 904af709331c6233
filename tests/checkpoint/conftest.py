"""A web server with checkpoints."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Web:
    """A folder that is served, and the paths that were asked for."""

    def __init__(self, folder):
        self.folder, self.asked = folder, []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                super().do_GET()

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(('127.0.0.1', 0), partial(Handler, directory=str(folder)))
        self.url = f'http://127.0.0.1:{self.server.server_port}'


@pytest.fixture
def web(tmp_path, monkeypatch):
    """An empty server; torch's and MMCV's caches are folders of this test."""
    for name in ('MMCV_HOME', 'TORCH_HOME', 'XDG_CACHE_HOME'):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv('no_proxy', '127.0.0.1')
    (tmp_path / 'web').mkdir()
    web = Web(tmp_path / 'web')
    thread = threading.Thread(target=web.server.serve_forever, args=(0.02,))
    thread.start()
    yield web
    web.server.shutdown()
    thread.join()
    web.server.server_close()
