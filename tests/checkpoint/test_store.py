"""Names and places of checkpoints: folders, URLs, storages of the user's; the newest one, and what is swept."""

import os
import sys
from pathlib import Path
from unittest.mock import MagicMock

import fsspec
import pytest
import torch
from folders import checkpoint, write
from torch import nn

from runnerkit.checkpoint import NotSavedError, Store, find_latest_checkpoint, save_checkpoint
from runnerkit.checkpoint.atomic import replace_link
from runnerkit.checkpoint.store import (
    behind_link,
    best_name,
    finite_beside,
    resolve_checkpoint,
    why_file_not_finite,
    why_not_finite,
)
from runnerkit.fileio import FileClient
from runnerkit.fileio.file_client import HardDiskBackend


def save(path, value=1.0, age=0):
    torch.save({'w': torch.full((1000,), value)}, path)
    os.utime(path, (path.stat().st_mtime - age,) * 2)
    return path


def flip_bit(path, where=0.5):
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(bytes(data))


def test_the_newest_whole_checkpoint_is_found(tmp_path, caplog):
    save(tmp_path / 'epoch_1.pth', age=20)
    second = save(tmp_path / 'epoch_2.pth', age=10)
    third = save(tmp_path / 'epoch_3.pth')
    save(tmp_path / 'best_acc_epoch_9.pth')
    replace_link(tmp_path / 'latest.pth', third.name)
    assert find_latest_checkpoint(tmp_path) == third.resolve()
    flip_bit(third)
    assert find_latest_checkpoint(tmp_path) == second.resolve()
    assert 'epoch_3.pth is skipped: the checksum' in caplog.text
    assert Store(tmp_path).numbered()[-1].path == str(tmp_path / 'epoch_1.pth')


def test_no_checkpoint_is_none(tmp_path):
    assert find_latest_checkpoint(tmp_path) is None
    assert find_latest_checkpoint(tmp_path / 'missing') is None


def test_a_client_may_be_a_mock(monkeypatch):
    """As MMCV's own tests have it: what it gives is no bytes."""
    for module in ('petrel_client', 'petrel_client.client'):
        monkeypatch.setitem(sys.modules, module, MagicMock())
    store = Store('s3://bucket/run', {'backend': 'petrel'})
    assert (store.owner(), store.numbered(), store.sweep()) == (None, [], [])


def test_numbers_and_best_ones(tmp_path):
    for age, name in enumerate(('iter_3.pth', 'epoch_12.pth', 'best_acc_epoch_3.pth', 'best_acc_epoch_5.pth', 'x.pth')):
        save(tmp_path / name, age=age)
    store = Store(tmp_path)
    assert [(stored.number, stored.path) for stored in store.numbered()] == [
        (3, str(tmp_path / 'iter_3.pth')),
        (12, str(tmp_path / 'epoch_12.pth')),
    ]
    assert [os.path.basename(stored.path) for stored in store.best()] == [
        'best_acc_epoch_3.pth',
        'best_acc_epoch_5.pth',
    ]
    assert best_name('mIoU/a b', 'epoch', 3) == 'best_mIoU_a_b_epoch_3.pth'


def test_names_of_scores_that_cannot_be_in_a_file_name_have_a_checksum(tmp_path):
    """They stay apart, fit into a file name, and are the same in each process."""
    assert best_name('x' * 200, 'iter', 10) == f'best_{"x" * 200}_iter_10.pth'
    assert best_name('é', 'epoch', 3) == 'best___84b1a9db979a_epoch_3.pth'
    scores = ['é', 'è', 'e\u0301', '精度', '召回', '\udcff', 'précision', 'precision', 'é' * 300]
    scores += ['x' * 201, 'x' * 300, 'x' * 299 + 'y', 'x' * 299 + '/']
    names = [best_name(score, 'iter', 10**9) for score in scores]
    assert len(set(names)) == len(scores)
    for name in names:
        Store(tmp_path).write(name, {})
    assert sorted(Path(each.path).name for each in Store(tmp_path).best()) == sorted(names)


@pytest.mark.parametrize(
    'ages, newest',
    [
        ({'epoch_1': 9, 'epoch_2': 5, 'epoch_3': 1}, 'epoch_3'),  # the link was never moved on
        ({'epoch_1': 9, 'epoch_3': 5, 'epoch_2': 1}, 'epoch_2'),  # the run began again from epoch 1
        ({'epoch_3': 9, 'epoch_2': 5, 'epoch_1': 1}, 'epoch_2'),  # copied in any order
    ],
)
def test_the_link_counts_unless_a_younger_one_lies_beyond(ages, newest, tmp_path):
    for name, age in ages.items():
        path = tmp_path / f'{name}.pth'
        torch.save({}, path)
        os.utime(path, (1e9 - age, 1e9 - age))
    replace_link(tmp_path / 'latest.pth', 'epoch_2.pth')
    assert find_latest_checkpoint(tmp_path) == tmp_path / f'{newest}.pth'


def test_latest_without_links_is_a_file_with_the_name(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError('not supported')

    monkeypatch.setattr(os, 'symlink', no_links)
    target, latest = save(tmp_path / 'epoch_1.pth'), tmp_path / 'latest.pth'
    replace_link(latest, target.name)
    assert not latest.is_symlink()
    assert behind_link(latest) == target
    assert find_latest_checkpoint(tmp_path) == target


def test_latest_is_moved_when_the_file_is_there(tmp_path, monkeypatch):
    store = Store(tmp_path / 'new' / 'folder')
    assert store.write('epoch_1.pth', {'n': 1}, latest=True) == str(tmp_path / 'new' / 'folder' / 'epoch_1.pth')
    store.write('epoch_2.pth', {'n': 2}, latest=True)
    monkeypatch.setattr('runnerkit.checkpoint.store.write_atomically', lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.write('epoch_3.pth', {'n': 3}, latest=True)
    assert torch.load(store.path('latest.pth')) == {'n': 2}


def test_what_is_meant_by_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'no checkpoint in .* \(no latest.pth\)'):
        resolve_checkpoint(str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r'\(neither best_\*.pth nor latest.pth\)'):
        resolve_checkpoint(str(tmp_path), best=True)
    assert resolve_checkpoint('anything.pth') == 'anything.pth'
    older, younger = save(tmp_path / 'iter_1.pth', age=5), save(tmp_path / 'iter_2.pth')
    assert resolve_checkpoint(str(tmp_path)) == resolve_checkpoint(f'file://{tmp_path}') == str(younger)
    replace_link(tmp_path / 'latest.pth', younger.name)
    assert resolve_checkpoint(str(tmp_path), best=True) == str(tmp_path / 'latest.pth')
    replace_link(tmp_path / 'latest.pth', older.name)  # the run was killed before it moved the link on
    assert resolve_checkpoint(str(tmp_path), best=True) == str(younger)
    os.utime(younger, (1e9, 1e9))  # the run began again from the older one
    assert resolve_checkpoint(str(tmp_path)) == str(tmp_path / 'latest.pth')
    save(tmp_path / 'best_acc_iter_1.pth', age=9)
    best = save(tmp_path / 'best_acc_iter_2.pth', age=8)
    assert resolve_checkpoint(str(tmp_path)) == str(tmp_path / 'latest.pth')
    assert resolve_checkpoint(str(tmp_path), best=True) == str(best)


def test_a_url_without_a_dot_in_its_last_part_is_a_folder_if_it_can_be_listed():
    store = Store('memory://bucket/exp/run1')
    store.write('epoch_1.pth', {'n': 1})
    store.write('best_acc_epoch_1.pth', {'n': 2})
    assert resolve_checkpoint('memory://bucket/exp/run1') == 'memory://bucket/exp/run1/epoch_1.pth'
    assert resolve_checkpoint('memory://bucket/exp/run1/', best=True) == 'memory://bucket/exp/run1/best_acc_epoch_1.pth'
    for other in ('memory://bucket/exp/run2', 'memory://bucket/exp/run1/epoch_2.pth', 'torchvision://resnet50'):
        assert resolve_checkpoint(other) == other
    assert resolve_checkpoint('http://nowhere/model') == 'http://nowhere/model'


def test_a_problem_of_the_callers_is_a_reason_to_skip(tmp_path, caplog):
    first = save(tmp_path / 'epoch_1.pth', age=5)
    save(tmp_path / 'epoch_2.pth')
    assert Store(tmp_path).newest(lambda path: None if '1' in path.name else 'not odd').path == str(first)
    assert 'epoch_2.pth is skipped: not odd' in caplog.text


def test_a_file_and_its_place():
    for path, place, name in (
        ('a.pth', '', 'a.pth'),
        ('/x/y/a.pth', '/x/y', 'a.pth'),
        ('file:///x/a.pth', '/x', 'a.pth'),
        ('memory://x/a.pth', 'memory://x', 'a.pth'),
        ('memory://a.pth', 'memory://', 'a.pth'),
        ('pavi://x/y/a.pth', 'pavi://x/y', 'a.pth'),
    ):
        store, found = Store.of(path)
        assert (store.place, found) == (place, name)
        assert store.path(name) == path.removeprefix('file://')


@pytest.mark.parametrize('place', ['{}', 'memory://checksums'])
def test_what_is_saved_has_checksums_also_where_the_user_wants_none(place, tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        store = Store(place.format(tmp_path))
        store.write('epoch_1.pth', {'w': torch.ones(3)})
        assert torch.serialization.get_crc32_options() is False
    finally:
        torch.serialization.set_crc32_options(True)
    assert store.is_whole('epoch_1.pth')


def test_whole_deleted_or_not_there(tmp_path):
    store = Store(tmp_path)
    assert not store.is_whole('epoch_1.pth')
    path = save(tmp_path / 'epoch_1.pth')
    assert store.is_whole('epoch_1.pth')
    flip_bit(path)
    assert not store.is_whole('epoch_1.pth')
    assert store.delete('epoch_1.pth')
    assert not store.delete('epoch_1.pth')
    assert store.exists()
    assert not Store(tmp_path / 'nowhere').exists()


def test_a_storage_of_the_users(tmp_path):
    """No links there, even if it says that it is like a disk; and no sweeping where nobody can list."""
    kept = {}

    class Memory(HardDiskBackend):
        def put(self, obj, filepath):
            kept[filepath] = bytes(obj)

        def list_dir_or_file(self, *args):
            raise NotImplementedError

    FileClient.register_backend('store_test', Memory, force=True)
    store = Store(tmp_path, {'backend': 'store_test'})
    store.write('epoch_1.pth', {'n': 1}, latest=True)
    assert list(kept) == [str(tmp_path / 'epoch_1.pth')]
    assert store.sweep() == []
    assert list(tmp_path.iterdir()) == []


def test_a_storage_that_fails_is_named(monkeypatch):
    class Quota(Exception):
        pass

    def full(self, obj, filepath):
        raise Quota('the bucket is full')

    monkeypatch.setattr('runnerkit.fileio.file_client.FsspecBackend.put', full)
    with pytest.raises(NotSavedError, match="Quota: the bucket is full: 'memory://remote/a.pth'"):
        Store('memory://remote').write('a.pth', {})


# --- at URLs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def memory():
    """fsspec's files in memory, empty."""
    files = fsspec.filesystem('memory')
    yield files
    if files.exists('/remote'):
        files.rm('/remote', recursive=True)


def test_the_newest_whole_one_at_a_url(memory, caplog):
    assert Store('memory://remote').newest() is None
    model = nn.Linear(2, 1)
    for n in (9, 10, 2):
        save_checkpoint(model, f'memory://remote/epoch_{n}.pth')
    save_checkpoint(nn.Linear(2, 1), 'memory://remote/best_acc_epoch_11.pth')
    assert Store('memory://remote/').newest().path == 'memory://remote/epoch_2.pth'  # the youngest, whatever its number
    damaged = bytearray(memory.cat_file('/remote/epoch_2.pth'))
    damaged[damaged.index(model.weight.detach().numpy().tobytes())] ^= 1
    memory.pipe_file('/remote/epoch_2.pth', bytes(damaged))
    assert Store('memory://remote').newest().path == 'memory://remote/epoch_10.pth'
    assert 'memory://remote/epoch_2.pth is skipped: the checksum of its record' in caplog.text


def test_a_storage_that_tells_no_time_goes_by_the_numbers(memory, monkeypatch):
    for n in (9, 10, 2):
        save_checkpoint(nn.Linear(2, 1), f'memory://remote/iter_{n}.pth')
    monkeypatch.delattr('runnerkit.fileio.file_client.FsspecBackend.modified')
    assert Store('memory://remote').newest() == (0.0, 10, 'memory://remote/iter_10.pth')


@pytest.mark.parametrize('prefix', ['', 'file://'])
def test_a_folder_by_path_or_url(tmp_path, prefix):
    save_checkpoint(nn.Linear(2, 1), str(tmp_path / 'epoch_1.pth'))
    written, _, path = Store(f'{prefix}{tmp_path}').newest()
    assert (written, path) == ((tmp_path / 'epoch_1.pth').stat().st_mtime, str(tmp_path / 'epoch_1.pth'))
    assert Store(tmp_path, {'backend': 'disk'}).newest().path == path


def test_half_written_files_are_swept(memory):
    for name in ('.epoch_1.pth.tmp', 'epoch_1.pth', '.hidden', 'own.pth.tmp'):
        memory.pipe_file(f'/remote/{name}', b'x')
    assert Store('memory://remote').sweep() == ['.epoch_1.pth.tmp']
    assert sorted(memory.ls('/remote', detail=False)) == [
        '/remote/.hidden',
        '/remote/epoch_1.pth',
        '/remote/own.pth.tmp',
    ]
    assert Store('memory://remote/nowhere').sweep() == []


def test_what_is_found_is_what_was_saved(memory):
    model = nn.Linear(2, 1)
    save_checkpoint(model, 'memory://remote/epoch_1.pth')
    with fsspec.open(Store('memory://remote').newest().path, 'rb') as file:
        assert torch.equal(torch.load(file)['state_dict']['weight'], model.weight)


@pytest.mark.parametrize('place', ['local', 'memory://stored/run'])
def test_what_runs_have_saved_and_moving_it(place, tmp_path):
    store = Store(tmp_path / 'run' if place == 'local' else place)
    assert store.saved() == []
    half = '.epoch_3.pth.7.tmp' if store.is_local else '.epoch_3.pth.tmp'
    own = [half, '.run.json', 'best_acc_epoch_1.pth', 'iter_1.pth']
    for name in [*own, 'net.pth', 'epochs.pth', 'iter_1.pth.txt', '.epoch_3.pth']:
        store.client.put(b'1', store.path(name))
    assert store.saved() == own
    assert store.move(own[1:], f'{store}.1') == []
    assert store.saved() == own[:1]
    assert Store(f'{store}.1').saved() == own[1:]
    assert not store.client.isfile(store.path('iter_1.pth'))


def test_checkpoints_with_other_names_are_known_by_the_link(tmp_path):
    for name in ('net-1.5.pth', 'net-12.0.pth', 'net-a.pth', 'net.pth'):
        save(tmp_path / name)
    replace_link(tmp_path / 'latest.pth', 'net-12.0.pth')
    assert Store(tmp_path).saved() == ['latest.pth', 'net-1.5.pth', 'net-12.0.pth']


def test_a_storage_that_cannot_list_or_move():
    store = Store('http://nowhere/run')
    assert store.saved() == []
    assert store.move(['a.pth'], 'http://nowhere/run.1') == ['a.pth']


def test_a_latest_without_links_may_name_what_is_gone(tmp_path):
    save(tmp_path / 'epoch_1.pth', age=5)
    second = save(tmp_path / 'epoch_2.pth')
    (tmp_path / 'latest.pth').write_text('epoch_3.pth')
    assert find_latest_checkpoint(tmp_path) == second
    assert resolve_checkpoint(tmp_path) == str(second)


def test_the_newest_at_a_url_is_found_by_its_url():
    files = fsspec.filesystem('memory')
    Store('memory://newest/run').write('epoch_1.pth', {'n': 1})
    found = find_latest_checkpoint('memory://newest/run')
    files.rm('/newest', recursive=True)
    assert found == 'memory://newest/run/epoch_1.pth'


def test_the_link_is_in_the_store_where_names_have_folders(tmp_path):
    """``filename_tmpl='weights/epoch_{}.pth'``: else a run that is started again begins anew."""
    store = Store(tmp_path)
    path = store.write('weights/epoch_1.pth', {'n': 1}, latest=True)
    assert str(find_latest_checkpoint(tmp_path)) == path
    assert torch.load(resolve_checkpoint(tmp_path)) == {'n': 1}
    assert store.saved() == ['latest.pth', 'weights']


def test_a_pipe_in_the_place_of_a_checkpoint_is_not_waited_for(tmp_path):
    first = save(tmp_path / 'epoch_1.pth', age=5)
    replace_link(tmp_path / 'latest.pth', first.name)
    os.mkfifo(tmp_path / 'epoch_2.pth')
    writer = os.open(tmp_path / 'epoch_2.pth', os.O_RDWR)  # so that reading without the mend ends with an error
    os.write(writer, b'no checkpoint')
    assert resolve_checkpoint(tmp_path) == str(tmp_path / 'latest.pth')
    assert [Path(each.path).name for each in Store(tmp_path).numbered()] == ['epoch_1.pth']
    os.close(writer)


def test_a_folder_with_a_temporary_name_takes_no_files_place(tmp_path):
    """Of a prepared folder, or another program: reading deletes nothing."""
    write(tmp_path / '.notes.txt.4194399.tmp', checkpoint())  # a process number that no Linux has
    (tmp_path / 'notes.txt').write_text('mine')
    assert find_latest_checkpoint(tmp_path) is None
    assert (tmp_path / 'notes.txt').read_text() == 'mine'


# --- what a file says of itself ---------------------------------------------------------------------------------------

BAD = {'non_finite': {'weights': 'a (1 of 2 values)', 'loss': 'a training loss'}}


def saved(folder, name, meta=None):
    save_checkpoint(torch.nn.Linear(1, 1), folder / name, meta=meta)
    return folder / name


def test_files_that_do_not_say_count_as_finite(tmp_path):
    assert why_not_finite({'meta': {}}) is None
    for content in ({}, [], {'meta': None}, {'meta': {'non_finite': {}}}, {'meta': {'non_finite': 'x'}}):
        assert why_not_finite(content) is None
    assert why_file_not_finite(saved(tmp_path, 'a.pth')) is None
    (tmp_path / 'b.pth').write_bytes(b'no checkpoint')
    assert why_file_not_finite(tmp_path / 'b.pth') is None
    assert why_file_not_finite(tmp_path / 'missing.pth') is None


def test_a_file_that_says_it(tmp_path):
    text = 'NaN or infinite values in a (1 of 2 values), a training loss'
    assert why_file_not_finite(saved(tmp_path, 'a.pth', BAD)) == text
    evil = {'meta': {'non_finite': {'weights': '\x1b[31m'}}}
    assert '\x1b' not in why_not_finite(evil)


def test_the_newest_finite_one_of_a_folder(tmp_path):
    for number, meta in enumerate([{}, {}, BAD, BAD], 1):
        saved(tmp_path, f'epoch_{number}.pth', meta)
    assert finite_beside(str(tmp_path / 'epoch_4.pth')) == str(tmp_path / 'epoch_2.pth')
    assert finite_beside(str(tmp_path / 'epoch_2.pth')) == str(tmp_path / 'epoch_1.pth')
    (tmp_path / 'latest.pth').symlink_to('epoch_1.pth')  # killed before it moved
    assert Store(tmp_path).resolve_checkpoint() == str(tmp_path / 'epoch_2.pth')
    assert resolve_checkpoint(tmp_path) == str(tmp_path / 'epoch_2.pth')


def test_the_latest_of_many_is_found_without_a_look_at_the_others(tmp_path, monkeypatch):
    for number in range(1, 201):
        (tmp_path / f'iter_{number}.pth').write_bytes(b'never read')
    (tmp_path / 'latest.pth').symlink_to('iter_200.pth')
    looks = []
    stat, resolve = os.stat, Path.resolve
    monkeypatch.setattr(os, 'stat', lambda *args, **options: looks.append(args) or stat(*args, **options))
    monkeypatch.setattr(Path, 'resolve', lambda path: looks.append(path) or resolve(path))
    assert resolve_checkpoint(tmp_path) == str(tmp_path / 'latest.pth')
    assert Store(tmp_path).newest(lambda path: None).number == 200
    assert len(looks) < 50
    looks.clear()
    assert len(Store(tmp_path).numbered()) == 200
    assert len(looks) < 250  # one look at each


def test_what_may_be_a_checkpoint(tmp_path, caplog):
    """Files, folders, and links that lead nowhere, which are logged; a pipe would wait for its writer."""
    (tmp_path / 'epoch_1.pth').write_bytes(b'x')
    (tmp_path / 'epoch_2.pth').mkdir()
    (tmp_path / 'epoch_3.pth').symlink_to('epoch_1.pth')
    (tmp_path / 'epoch_4.pth').symlink_to('epoch_4.pth')
    (tmp_path / 'epoch_5.pth').symlink_to('nowhere.pth')
    os.mkfifo(tmp_path / 'epoch_6.pth')
    (tmp_path / 'epoch_7.pth').symlink_to('epoch_6.pth')
    assert sorted(each.number for each in Store(tmp_path).numbered()) == [1, 2, 3]
    assert [record.args[0] for record in caplog.records] == [str(tmp_path / 'epoch_4.pth')]
