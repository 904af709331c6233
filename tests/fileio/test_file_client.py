"""One client for all storages: how it is chosen, kept, extended; the disk, a web server, fsspec's memory, for real."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from zipfile import ZipFile

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from installed import install

from runnerkit.fileio import BaseStorageBackend, FileClient, file_client, list_from_file, load
from runnerkit.fileio.file_client import FsspecBackend, HardDiskBackend, HTTPBackend


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """What a test registers is forgotten after it."""
    for name in ('_backends', '_prefix_to_backends', '_instances'):
        monkeypatch.setattr(FileClient, name, dict(getattr(FileClient, name)))


class One(BaseStorageBackend):
    def __init__(self, key=0):
        self.key = key

    def get(self, filepath):
        return f'one {filepath}'.encode()

    def get_text(self, filepath, encoding='utf-8'):
        return f'one {filepath} {encoding}'


class Two(One):
    def get(self, filepath):
        return b'two'


def test_by_name():
    assert FileClient() is FileClient('disk') is FileClient(None, None)
    assert isinstance(FileClient().client, file_client.HardDiskBackend)
    assert (FileClient().name, FileClient().allow_symlink) == ('HardDiskBackend', True)
    assert FileClient('disk', prefix='http').name == 'HardDiskBackend'
    with pytest.raises(
        ValueError, match=r"Backend hadoop is not supported. Currently supported ones are .*'fsspec'.*'ceph'"
    ):
        FileClient('hadoop')
    with pytest.raises(ValueError, match="did you mean 'petrel'"):
        FileClient('petrl')
    with pytest.raises(TypeError):
        FileClient('disk', nonsense=1)


@pytest.mark.parametrize(
    'uri, prefix',
    [
        ('s3://a', 's3'),
        ('cluster:s3://a', 's3'),
        ('https://x', 'https'),
        ('/a/b', None),
        (Path('/a'), None),
        ('C:\\a', None),
        ('memory://x', 'memory'),
    ],
)
def test_what_a_url_begins_with(uri, prefix):
    assert FileClient.parse_uri_prefix(uri) == prefix


def test_by_url(monkeypatch):
    names = {'/a': 'HardDiskBackend', 'http://x': 'HTTPBackend', 'https://x': 'HTTPBackend'}
    names |= {'memory://x': 'FsspecBackend', 'gs://x': 'FsspecBackend', 's3://x': 'FsspecBackend'}
    monkeypatch.setitem(sys.modules, 'petrel_client', None)
    assert {uri: FileClient.infer_client(uri=uri).name for uri in names} == names
    args = {'backend': 'disk'}
    assert FileClient.infer_client(args, 'http://x').name == 'HardDiskBackend'
    assert args == {'backend': 'disk'}
    assert FileClient.infer_client({'prefix': 'http'}).name == 'HTTPBackend'
    with pytest.raises(ValueError, match='prefix zzz is not supported'):
        FileClient.infer_client(uri='zzz://x')
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match='infer_client needs file_client_args'):
            FileClient.infer_client()
    with pytest.raises(AssertionError, match='uri must be a str or a Path'):
        FileClient.parse_uri_prefix(b's3://x')


def test_registering():
    FileClient.register_backend('one', One)
    assert FileClient('one').get('x') == b'one x'
    assert FileClient('one').get_text('x', encoding='y') == 'one x y'
    old = FileClient('one')
    with pytest.raises(KeyError, match='one is already registered as a storage backend, add "force=True"'):
        FileClient.register_backend('one', Two)
    FileClient.register_backend('one', Two, force=True)
    assert FileClient('one') is not old
    assert FileClient('one').get('x') == b'two'

    @FileClient.register_backend('three', prefixes=['p', 'q'])
    class Three(One): ...

    assert FileClient('three').name == FileClient(prefix='p').name == FileClient(prefix='q').name == Three.__name__
    with pytest.raises(KeyError, match='p is already registered'):
        FileClient.register_backend('four', Two, prefixes='p')
    assert 'four' not in FileClient._backends
    FileClient.register_backend('four', Two, prefixes='p', force=True)
    assert FileClient.infer_client(uri='p://x').name == 'Two'
    assert FileClient(prefix='q').name == 'Three'
    with pytest.raises(KeyError, match='s3 is already registered'):
        FileClient.register_backend('five', Two, prefixes=('s3',))


def test_registering_what_is_no_storage():
    with pytest.raises(TypeError, match="the backend name should be a string, but got <class 'int'>"):
        FileClient.register_backend(1, One)
    with pytest.raises(TypeError, match="backend should be a class but got <class 'int'>"):
        FileClient.register_backend('x', 1)
    with pytest.raises(TypeError, match="backend <class 'int'> is not a subclass of BaseStorageBackend"):
        FileClient.register_backend('x', int)
    with pytest.raises(AssertionError, match='prefixes must be a str'):
        FileClient.register_backend('x', One, prefixes=5)


def test_one_client_for_the_same_arguments():
    FileClient.register_backend('one', One)
    assert FileClient('one', key=1) is FileClient('one', key=1)
    assert FileClient('one', key=1) is not FileClient('one', key=2)
    client = FileClient('one', key=1)
    assert copy.deepcopy(client) is client
    assert pickle.loads(pickle.dumps(client)) is client
    assert isinstance(FileClient().client, file_client.HardDiskBackend)


def test_everything_is_handed_on(tmp_path):
    client = FileClient()
    path = client.join_path(tmp_path, 'sub', 'file')
    client.put_text('é', path)
    assert (client.get(path), client.get_text(path)) == ('é'.encode(), 'é')
    client.put(b'\xe9', path)
    assert client.get_text(path, encoding='latin-1') == 'é'
    assert [client.exists(path), client.isfile(path), client.isdir(path)] == [True, True, False]
    with client.get_local_path(Path(path)) as local:
        assert local == path
    assert list(client.list_dir_or_file(tmp_path, False, True, 'le', True)) == ['sub/file']
    client.remove(path)
    assert not client.exists(path)


def test_an_installed_package_offers_a_backend(tmp_path, monkeypatch):
    code = (
        'from runnerkit.fileio import BaseStorageBackend\n'
        'class Shelf(BaseStorageBackend):\n'
        '    def get(self, filepath):\n        return filepath.encode()\n'
        '    def get_text(self, filepath, encoding="utf-8"):\n        return filepath\n'
    )
    install(tmp_path, monkeypatch, 'shelf_pack', code, 'runnerkit.storage_backends', shelf='shelf_pack:Shelf')
    assert FileClient('shelf').get('book') == b'book'
    with pytest.raises(ValueError, match="Backend shelff is not supported.*'fsspec'.*'shelf'.*did you mean 'shelf'"):
        FileClient('shelff')


# --- backends --------------------------------------------------------------------------------------------------------

FILES = ('b.PY', 'a.txt', '.h.txt', 'sub/c.py', 'sub/.hid/d.py', 'sub/deep/z.txt')


@pytest.fixture(params=['disk', 'memory'])
def place(request, tmp_path):
    """A storage that can be written, and a folder in it."""
    if request.param == 'disk':
        yield HardDiskBackend(), str(tmp_path)
        return
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
