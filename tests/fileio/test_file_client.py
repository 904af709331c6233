"""One client for all storages: how it is chosen, kept, extended."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import pytest
from installed import install

from runnerkit.fileio import BaseStorageBackend, FileClient, file_client


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
        ValueError, match=r"Backend hadoop is not supported. Currently supported ones are \['disk', 'ceph'"
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
