"""The disk, a web server and fsspec's memory: each a real storage."""

from __future__ import annotations

import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from zipfile import ZipFile

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from runnerkit.fileio import BaseStorageBackend, list_from_file, load
from runnerkit.fileio.backends import FsspecBackend, HardDiskBackend, HTTPBackend

FILES = ('b.PY', 'a.txt', '.h.txt', 'sub/c.py', 'sub/.hid/d.py', 'sub/deep/z.txt')


@pytest.fixture(params=['disk', 'memory'])
def place(request, tmp_path):
    """A storage that can be written, and a folder in it."""
    if request.param == 'disk':
        yield HardDiskBackend(), str(tmp_path)
        return
    import fsspec

    fsspec.filesystem('memory').makedirs('/backends-test', exist_ok=True)
    yield FsspecBackend(), 'memory://backends-test'
    fsspec.filesystem('memory').rm('/backends-test', recursive=True)


def test_writing_and_reading(place):
    storage, root = place
    path = storage.join_path(root, 'a', 'b', 'file')
    storage.put('é'.encode('latin-1'), path)
    assert storage.get(path) == b'\xe9'
    assert storage.get_text(path, encoding='latin-1') == 'é'
    storage.put_text('ü', path)
    assert storage.get(path) == 'ü'.encode()
    storage.put_text('ü', path, encoding='latin-1')
    assert storage.get(path) == b'\xfc'
    assert [storage.exists(path), storage.isfile(path), storage.isdir(path)] == [True, True, False]
    folder = storage.join_path(root, 'a')
    assert [storage.exists(folder), storage.isfile(folder), storage.isdir(folder)] == [True, False, True]
    with storage.get_local_path(path) as local:
        assert Path(local).read_bytes() == b'\xfc'
    storage.remove(path)
    assert not storage.exists(path)
    with pytest.raises(FileNotFoundError):
        storage.get(path)


@pytest.mark.parametrize(
    'options, found',
    [
        ({}, ['a.txt', 'b.PY', 'sub']),
        ({'list_dir': False}, ['a.txt', 'b.PY']),
        ({'list_file': False}, ['sub']),
        ({'list_file': False, 'recursive': True}, ['sub', 'sub/.hid', 'sub/deep']),
        ({'list_dir': False, 'suffix': '.py', 'recursive': True}, ['sub/.hid/d.py', 'sub/c.py']),
        (
            {'recursive': True},
            ['a.txt', 'b.PY', 'sub', 'sub/.hid', 'sub/.hid/d.py', 'sub/c.py', 'sub/deep', 'sub/deep/z.txt'],
        ),
        ({'list_dir': False, 'suffix': ('.PY', '.txt')}, ['a.txt', 'b.PY']),
    ],
)
def test_listing(place, options, found):
    storage, root = place
    for name in FILES:
        storage.put_text(name, f'{root}/{name}')
    hidden = [] if isinstance(storage, HardDiskBackend) or options.get('list_file') is False else ['.h.txt']
    if options.get('suffix') == '.py':
        hidden = []
    assert sorted(storage.list_dir_or_file(root, **options)) == sorted(hidden + found)


def test_listing_by_a_wrong_suffix(place):
    storage, root = place
    with pytest.raises(TypeError, match='`suffix` should be None when `list_dir` is True'):
        storage.list_dir_or_file(root, suffix='.py')
    with pytest.raises(TypeError, match='`suffix` must be a string or tuple of strings'):
        storage.list_dir_or_file(root, list_dir=False, suffix=['.py'])


def test_local_paths_are_the_files_themselves_on_the_disk(tmp_path):
    (tmp_path / 'file').write_text('x')
    with HardDiskBackend().get_local_path(tmp_path / 'file') as local:
        assert local == tmp_path / 'file'
    assert (tmp_path / 'file').exists()


def test_local_copies_are_deleted():
    storage = FsspecBackend()
    storage.put(b'x', 'memory://backends-copy/file')
    with pytest.raises(KeyError), storage.get_local_path('memory://backends-copy/file') as local:
        assert Path(local).read_bytes() == b'x'
        raise KeyError
    assert not os.path.exists(local)
    storage.remove('memory://backends-copy/file')


def test_fsspec_gets_its_options(tmp_path):
    with ZipFile(tmp_path / 'a.zip', 'w') as archive:
        archive.writestr('inside', 'x')
    assert FsspecBackend(fo=str(tmp_path / 'a.zip')).get('zip://inside') == b'x'
    FsspecBackend().put(b'x', f'file://{tmp_path}/new/file')
    assert (tmp_path / 'new' / 'file').read_bytes() == b'x'


def test_names_and_links():
    class Own(BaseStorageBackend):
        def get(self, filepath): ...
        def get_text(self, filepath): ...

    assert [Own().name, Own().allow_symlink] == ['Own', False]
    assert [HardDiskBackend().name, HardDiskBackend().allow_symlink] == ['HardDiskBackend', True]
    assert [HTTPBackend().allow_symlink, FsspecBackend().allow_symlink] == [False, False]

    class Half(BaseStorageBackend):
        def get(self, filepath): ...

    with pytest.raises(TypeError, match='abstract'):
        Half()


@pytest.fixture
def server(tmp_path):
    """The address of a web server that gives out a folder."""

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path))

        def log_message(self, *args): ...

    with ThreadingHTTPServer(('127.0.0.1', 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f'http://127.0.0.1:{server.server_port}'
        server.shutdown()


def test_http(server, tmp_path):
    (tmp_path / 'a.txt').write_bytes('é\r\n2\n'.encode('latin-1'))
    (tmp_path / 'a.json').write_text('{"a": 1}')
    storage = HTTPBackend()
    assert storage.get(f'{server}/a.txt') == b'\xe9\r\n2\n'
    assert storage.get_text(f'{server}/a.txt', encoding='latin-1') == 'é\r\n2\n'
    with storage.get_local_path(f'{server}/a.txt') as local:
        assert Path(local).read_bytes() == b'\xe9\r\n2\n'
    assert not os.path.exists(local)
    with pytest.raises(HTTPError, match='404'):
        storage.get(f'{server}/missing')
    assert load(f'{server}/a.json') == {'a': 1}
    assert list_from_file(f'{server}/a.txt', encoding='latin-1') == ['é', '2']


class Rack(LocalFileSystem):
    """A storage of files that are seen from their first byte on, and that cannot be moved over another file."""

    protocol = 'rack'
    full = False

    def pipe_file(self, path, value, **kwargs):
        super().pipe_file(path, value[: len(value) // 2] if self.full else value)
        if self.full:
            raise ConnectionError('the cable is out')

    def mv(self, source, target, **kwargs):
        if self.exists(target):
            raise FileExistsError(target)
        super().mv(source, target)


def test_a_file_storage_shows_a_file_when_it_is_whole(tmp_path, monkeypatch):
    fsspec.register_implementation('rack', Rack, clobber=True)
    storage, url = FsspecBackend(), f'rack://{tmp_path}/a'
    storage.put(b'first', url)
    storage.put(b'second', url)
    monkeypatch.setattr(Rack, 'full', True)
    with pytest.raises(ConnectionError, match='cable'):
        storage.put(b'third', url)
    assert (tmp_path / 'a').read_bytes() == b'second'
    assert [path.name for path in tmp_path.iterdir()] == ['a']


def test_an_object_storage_is_given_the_object_at_once(monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    given = []
    monkeypatch.setattr(MemoryFileSystem, 'pipe_file', lambda self, path, value: given.append((path, value)))
    FsspecBackend().put(b'x', 'memory://bucket/a')
    assert given == [('/bucket/a', b'x')]


def test_when_a_file_was_written(tmp_path, monkeypatch):
    (tmp_path / 'a').touch()
    assert FsspecBackend().modified(str(tmp_path / 'a')) == pytest.approx((tmp_path / 'a').stat().st_mtime, abs=0.01)
    monkeypatch.setattr(LocalFileSystem, 'modified', fsspec.AbstractFileSystem.modified)
    assert FsspecBackend().modified(str(tmp_path / 'a')) == 0


def test_moving(place):
    storage, root = place
    source, target = storage.join_path(root, 'file'), storage.join_path(root, 'new', 'folder', 'file')
    storage.put(b'1', source)
    storage.move(source, target)
    assert not storage.isfile(source)
    assert storage.get(target) == b'1'
