"""Whose a folder of checkpoints is."""

import json

import fsspec
import pytest

from runnerkit.checkpoint import Store
from runnerkit.hooks.storage import claim, is_owned


@pytest.fixture(params=['folder', 'url'])
def store(request, tmp_path):
    """An empty place that two work dirs of one name share."""
    if request.param == 'folder':
        yield Store(tmp_path / 'out' / 'run')
        return
    yield Store('memory://owned/run')
    fsspec.filesystem('memory').store.clear()


@pytest.fixture
def work_dir(tmp_path):
    def make(name):
        (tmp_path / name / 'run').mkdir(parents=True)
        return str(tmp_path / name / 'run')

    return make


def test_a_run_goes_on_in_its_place_and_another_is_refused(store, work_dir, tmp_path):
    first, second = work_dir('a'), work_dir('b')
    run = claim(store, first)
    assert claim(store, first) == run
    with pytest.raises(FileExistsError, match=f'{store} belongs to the run in .*{first}.*{second}.*another out_dir'):
        claim(store, second)
    (tmp_path / 'a').rename(tmp_path / 'moved')
    assert claim(store, str(tmp_path / 'moved' / 'run')) == run


def test_whoever_resumes_its_checkpoint_is_that_run(store, work_dir):
    run = claim(store, work_dir('a'))
    second = work_dir('b')
    assert claim(store, second, resumed=run) == run
    assert claim(store, second) == run
    third = work_dir('c')
    assert claim(Store(f'{store}-of-its-own'), third) != run  # it has been a run of its own before
    assert claim(store, third, resumed=run) == run
    with pytest.raises(FileExistsError):
        claim(store, work_dir('d'), resumed='another')


def test_a_work_dir_that_is_made_again_has_its_place(store, work_dir, tmp_path):
    first = work_dir('a')
    run = claim(store, first)
    store.write('epoch_1.pth', {})
    (tmp_path / 'a' / 'run' / '.run.json').unlink()
    assert claim(store, first) != run
    assert store.owner()['run'] != run


@pytest.mark.parametrize('name', ['epoch_1.pth', 'best_acc_epoch_1.pth'])
def test_a_machine_that_is_made_again_has_it_while_there_is_nothing_to_lose(store, work_dir, monkeypatch, name):
    first = work_dir('a')
    store.set_owner({'run': 'x', 'work_dir': first, 'host': 'a machine that is gone'})
    store.write(name, {})
    with pytest.raises(FileExistsError, match='a machine that is gone'):
        claim(store, first)
    store.delete(name)
    assert claim(store, first) == store.owner()['run'] != 'x'


def test_a_note_that_is_torn_is_nobodys(store, work_dir):
    claim(store, work_dir('a'))
    store.client.put(b'{"run": ', store.path('.run.json'))
    run = claim(store, work_dir('b'))
    assert json.loads(store.client.get_text(store.path('.run.json')))['run'] == run


def test_whether_it_is_known_to_be_ours(store, work_dir, tmp_path, monkeypatch):
    first, second = work_dir('a'), work_dir('b')
    assert not is_owned(store, first)
    claim(store, first)
    assert is_owned(store, first)
    assert not is_owned(store, second)
    (tmp_path / 'a').rename(tmp_path / 'moved')
    assert is_owned(store, str(tmp_path / 'moved' / 'run'))
    assert is_owned(store, first)  # deleted: what is made there next is the same place
    monkeypatch.setattr('socket.gethostname', lambda: 'elsewhere')
    assert not is_owned(store, first)
