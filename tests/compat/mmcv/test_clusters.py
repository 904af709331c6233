"""Storages with clients of their own: LMDB for real, the others by stand-ins that note what they are asked."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock, call

import pytest

from runnerkit.compat.mmcv.clusters import CephBackend, LmdbBackend, MemcachedBackend, PetrelBackend
from runnerkit.fileio import FileClient


@pytest.mark.parametrize(
    'backend, args, module, package',
    [
        (LmdbBackend, ['db'], 'lmdb', 'lmdb'),
        (MemcachedBackend, ['servers', 'client'], 'mc', 'memcached'),
        (CephBackend, [], 'ceph', 'ceph'),
        (PetrelBackend, [], 'petrel_client.client', 'petrel_client'),
    ],
)
def test_a_client_that_is_not_installed(monkeypatch, backend, args, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, module.split('.')[0], None)
    with pytest.raises(ImportError, match=f'Please install {package} to enable {backend.__name__}'):
        backend(*args)


def test_lmdb(tmp_path):
    lmdb = pytest.importorskip('lmdb')
    with lmdb.open(str(tmp_path / 'db')) as base, base.begin(write=True) as transaction:
        transaction.put(b'cat/1', b'\x00\xff')
    storage = LmdbBackend(tmp_path / 'db', max_readers=3)
    assert storage._client is None
    assert storage.get(Path('cat/1')) == b'\x00\xff'
    assert storage.get('dog') is None
    with pytest.raises(lmdb.ReadonlyError):
        storage._client.begin(write=True)
    copied = pickle.loads(pickle.dumps(storage))  # as a loader's worker gets it
    assert copied._client is None
    storage._client.close()  # a process can open a data base once
    assert copied.get('cat/1') == b'\x00\xff'
    copied._client.close()
    client = FileClient('lmdb', db_path=str(tmp_path / 'db'))
    assert client.get('cat/1') == b'\x00\xff'
    client.client._client.close()


def test_lmdbs_options(monkeypatch):
    library = MagicMock()
    monkeypatch.setitem(sys.modules, 'lmdb', library)
    storage = LmdbBackend(Path('data') / 'db', lock=True, max_readers=3)
    assert library.mock_calls == []
    storage.get('key')
    storage.get('key')
    assert library.open.mock_calls[0] == call('data/db', readonly=True, lock=True, readahead=False, max_readers=3)
    assert library.open.call_count == 1
    client = storage._client
    storage.__del__()
    client.close.assert_called_once_with()
    with pytest.raises(NotImplementedError, match='LmdbBackend holds bytes'):
        storage.get_text('key')


def test_memcached(monkeypatch):
    library = MagicMock()
    library.ConvertBuffer.return_value = b'content'
    monkeypatch.setitem(sys.modules, 'mc', library)
    monkeypatch.setattr(sys, 'path', [])
    storage = MemcachedBackend('servers.conf', 'client.conf', sys_path='where/mc/is')
    assert sys.path == ['where/mc/is']
    library.MemcachedClient.GetInstance.assert_called_once_with('servers.conf', 'client.conf')
    assert storage.get(Path('a') / 'b') == b'content'
    storage._client.Get.assert_called_once_with('a/b', library.pyvector.return_value)
    library.ConvertBuffer.assert_called_once_with(library.pyvector.return_value)
    with pytest.raises(NotImplementedError):
        storage.get_text('a')


def test_ceph(monkeypatch):
    library = MagicMock()
    library.S3Client.return_value.Get.return_value = b'content'
    monkeypatch.setitem(sys.modules, 'ceph', library)
    with pytest.warns(DeprecationWarning, match='please use PetrelBackend instead'):
        storage = CephBackend({'data/': 's3://bucket/'})
    assert bytes(storage.get('data/x')) == b'content'
    assert isinstance(storage.get('data/x'), memoryview)
    assert storage._client.Get.mock_calls == [call('s3://bucket/x')] * 2
    with pytest.raises(NotImplementedError):
        storage.get_text('data/x')


@pytest.fixture
def petrel(monkeypatch):
    library = MagicMock()
    monkeypatch.setitem(sys.modules, 'petrel_client', library)
    monkeypatch.setitem(sys.modules, 'petrel_client.client', library.client)
    monkeypatch.setattr(FileClient, '_instances', {})
    return library.client.Client


def test_petrels_arguments(petrel):
    PetrelBackend()
    PetrelBackend(conf_path='x.conf', enable_mc=False)
    assert petrel.mock_calls == [call(conf_path=None, enable_mc=True), call(conf_path='x.conf', enable_mc=False)]
    for error in (TypeError, AssertionError):
        with pytest.raises(error, match='path_mapping must be a dict or None'):
            PetrelBackend(path_mapping=[1])


def test_petrels_client_may_be_a_module_that_nobody_has_imported_yet(petrel, monkeypatch):
    monkeypatch.setitem(sys.modules, 'petrel_client', ModuleType('petrel_client'))
    assert PetrelBackend()._client is petrel.return_value


def test_petrels_client_is_what_its_package_has_by_that_name(petrel, monkeypatch):
    monkeypatch.setitem(sys.modules, 'petrel_client.client', MagicMock())  # as stand-ins are put there, one by one
    assert PetrelBackend()._client is petrel.return_value


def test_petrel(petrel):
    client = petrel.return_value
    storage = PetrelBackend(path_mapping={'data/': 's3://bucket/'})
    assert (storage._map_path(Path('data/x')), storage._format_path('a\\b')) == ('s3://bucket/x', 'a/b')  # MMCV's names
    client.Get.return_value = b'content'
    assert (bytes(storage.get('data/x')), storage.get_text(Path('data/x'))) == (b'content', 'content')
    assert client.Get.mock_calls == [call('s3://bucket/x')] * 2
    storage.put(b'q', 's3://bucket\\y')
    storage.put_text('é', 's3://bucket/y', encoding='latin-1')
    assert client.put.mock_calls == [call('s3://bucket/y', b'q'), call('s3://bucket/y', b'\xe9')]
    storage.remove('data/x')
    client.delete.assert_called_once_with('s3://bucket/x')
    client.contains.return_value, client.isdir.return_value = False, True
    assert [storage.exists('data/x'), storage.isfile('data/x'), storage.isdir('data/x')] == [True, False, True]
    with pytest.raises(AssertionError, match='there is no file'), storage.get_local_path('data/x'):
        pass
    client.contains.return_value = True
    with storage.get_local_path('data/x') as local:
        assert Path(local).read_bytes() == b'content'
    assert not Path(local).exists()
    assert storage.join_path('s3://a/', 'b/', '/c') == 's3://a/b/c'
    assert FileClient(prefix='s3').name == FileClient.infer_client(uri='s3://a').name == 'PetrelBackend'


def test_petrels_folders(petrel):
    tree = {'s3://r/': ['sub/', 'a.txt', 'd.dir/'], 's3://r/sub/': ['', 'c.py', 'deep/'], 's3://r/sub/deep/': ['z.txt']}
    tree['s3://r/d.dir/'] = []
    petrel.return_value.list = lambda path: iter(tree[path])
    storage = PetrelBackend()
    for root in ('s3://r', 's3://r/'):
        assert list(storage.list_dir_or_file(root)) == ['sub', 'a.txt', 'd.dir']
    found = ['sub', 'sub/c.py', 'sub/deep', 'sub/deep/z.txt', 'a.txt', 'd.dir']
    assert list(storage.list_dir_or_file('s3://r', recursive=True)) == found
    files = storage.list_dir_or_file('s3://r', list_dir=False, suffix=('.py', '.dir'), recursive=True)
    assert list(files) == ['sub/c.py']


def test_a_petrel_that_is_too_old(petrel):
    petrel.return_value = object()
    storage = PetrelBackend()
    for method, needed in (
        (storage.remove, '`delete` method'),
        (storage.exists, '`contains` and `isdir` methods'),
        (storage.isdir, '`isdir` method'),
        (storage.isfile, '`contains` method'),
        (storage.list_dir_or_file, '`list` method'),
    ):
        with pytest.raises(NotImplementedError, match=f'has not supported the {needed}, please use a higher version'):
            method('s3://a')
