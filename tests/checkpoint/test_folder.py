"""Checkpoint folders are written completely or not at all, and checked as they are read; no code in them runs."""

import errno
import io
import json
import os
import pickle
import random
import shutil
import warnings
import zlib
from collections import OrderedDict
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from disk_model import watched
from folders import checkpoint, same, write
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint import metadata as tables
from torch.distributed.checkpoint.filesystem import _StorageInfo

from runnerkit.checkpoint import (
    NotSavedError,
    Store,
    find_latest_checkpoint,
    load_checkpoint,
    trusted_pickles,
    why_damaged,
)
from runnerkit.checkpoint.atomic import MANIFEST, METADATA
from runnerkit.checkpoint.convert import convert_checkpoint
from runnerkit.checkpoint.folder import _Unpickler, read_folder, read_rest
from runnerkit.checkpoint.loader import _load_checkpoint, find_checkpoint, load_folder
from runnerkit.checkpoint.manifest import REST, listed_as, write_manifest
from runnerkit.checkpoint.plain import plain_checkpoint
from runnerkit.checkpoint.shards import taken_apart
from runnerkit.checkpoint.store import resolve_checkpoint
from runnerkit.parallel.dtensors import local_part


def test_a_folder_holds_the_checkpoint(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    assert same(read_folder(tmp_path / 'epoch_1.pth'), checkpoint())
    assert [path.name for path in tmp_path.iterdir()] == ['epoch_1.pth']


def test_a_folder_that_this_process_is_writing_is_neither_swept_nor_named(tmp_path, monkeypatch):
    swept, complete = [], write_manifest

    def complete_and_sweep(*args):
        swept.extend(Store(tmp_path).sweep())
        complete(*args)
        swept.extend(Store(tmp_path).sweep())

    monkeypatch.setattr('runnerkit.checkpoint.folder.write_manifest', complete_and_sweep)
    write(tmp_path / 'epoch_1.pth', checkpoint())
    assert swept == []
    assert same(read_folder(tmp_path / 'epoch_1.pth'), checkpoint())


def test_torch_itself_can_read_the_tensors(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    state = {'state_dict': {'w': torch.zeros(5, 3)}}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        dcp.load(state, checkpoint_id=tmp_path / 'epoch_1.pth')
    assert torch.equal(state['state_dict']['w'], checkpoint()['state_dict']['w'])


def test_no_path_of_this_machine_gets_into_a_checkpoint(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    for path in (tmp_path / 'epoch_1.pth').iterdir():
        assert os.fsencode(tmp_path.name) not in path.read_bytes()


class Operations:
    """Counts the file operations of a save, and does something at one of them."""

    def __init__(self, at=None, act=None):
        self.at, self.act, self.names = at, act, []

    def __call__(self, name, args, real):
        self.names.append((name, os.path.basename(os.fspath(args[0])) if not isinstance(args[0], int) else ''))
        return self.act(name, args, real) if len(self.names) - 1 == self.at else real()


def die(name, args, real):
    if name == 'write':
        real(args[0], bytes(args[1])[: len(args[1]) // 2])
    os._exit(9)


def no_room(name, args, real):
    if name == 'close':
        real()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def save(folder, number, latest=True, around=None):
    """As a run does: a link to the newest one, and the one before the last is deleted."""
    store = Store(folder)
    tensors, rest = taken_apart(checkpoint(number))
    local = {name: local_part(value) for name, value in tensors.items()}
    with watched(folder, around) if around else nullcontext():
        name = f'epoch_{number % 10}.pth'
        store.write_folder(name, tensors, local, plain_checkpoint(rest), latest, None, None)


def newest(folder):
    """The number of the newest intact checkpoint, of which every tensor is as it was saved."""
    path = find_latest_checkpoint(folder)
    if path is None:
        return None
    found = read_folder(path)
    number = found['meta']['iter']
    assert same(found, checkpoint(number))
    return number


@pytest.mark.parametrize(('first', 'second'), [(1, 2), (1, 11)], ids=['another name', 'the same name'])
def test_killed_at_any_operation_of_a_save_the_old_or_the_new_one_is_there(tmp_path, first, second):
    count = Operations()
    save(tmp_path / 'count', first)
    save(tmp_path / 'count', second, around=count)
    assert {'mkdir', 'write', 'fsync', 'replace', 'symlink'} <= {name for name, _ in count.names}
    assert newest(tmp_path / 'count') == second
    found = []
    end = count.names.index(('open', 'MANIFEST'))
    save(tmp_path / 'first', first)
    for at in [*range(0, end, 9), *range(end, len(count.names), 2 + 2 * (second == 2))]:
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / 'first', folder, symlinks=True)
        child = os.fork()
        if child == 0:
            try:
                save(folder, second, around=Operations(at, die))
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        found.append(newest(folder))
        Store(folder).sweep()
        assert newest(folder) == found[-1]
        assert not list(folder.glob('.*.tmp'))
        if at % 5 == 0:
            save(folder, 13)
            assert newest(folder) == 13
    assert set(found) == {first, second}
    assert found == sorted(found)  # from some operation on, it is the new one


def test_a_full_disk_is_told_and_nothing_is_left_of_the_new_one(tmp_path):
    count = Operations()
    save(tmp_path, 1)
    save(tmp_path, 2, around=count)
    before = count.names[: [name for name, _ in count.names].index('replace')]
    for at in [i for i, (name, _) in enumerate(before) if name in ('open', 'write', 'fsync')]:
        with pytest.raises(NotSavedError, match='No space left on device') as caught:
            save(tmp_path, 3, around=Operations(at, no_room))
        assert caught.value.errno == errno.ENOSPC
        assert 'epoch_3.pth' in str(caught.value)
        assert newest(tmp_path) == 2
        assert not list(tmp_path.glob('.*.tmp'))
        assert not (tmp_path / 'epoch_3.pth').exists()


def test_half_a_file_under_the_final_name_is_not_chosen(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)
    part = tmp_path / 'epoch_2.pth/__0_0.distcp'
    part.write_bytes(part.read_bytes()[:-100])
    assert newest(tmp_path) == 1
    (tmp_path / 'epoch_1.pth/MANIFEST').unlink()
    assert find_latest_checkpoint(tmp_path) is None


def test_a_store_lists_deletes_and_replaces_folders_as_files(tmp_path):
    store = Store(tmp_path)
    save(tmp_path, 1)
    save(tmp_path, 2)
    store.write('epoch_3.pth', checkpoint(3), latest=True)
    assert [stored.number for stored in store.numbered()] == [3, 2, 1]
    assert store.is_whole('epoch_2.pth')
    assert not store.is_whole('epoch_4.pth')
    assert store.delete('epoch_1.pth')
    assert not store.delete('epoch_1.pth')
    assert store.resolve_checkpoint() == str(tmp_path / 'latest.pth')
    store.write('epoch_2.pth', checkpoint(2))  # a file in the place of a folder
    save(tmp_path, 3)  # and a folder in that of a file
    assert (tmp_path / 'epoch_2.pth').is_file()
    assert (tmp_path / 'epoch_3.pth').is_dir()
    assert why_damaged(tmp_path / 'latest.pth') is None
    assert resolve_checkpoint(tmp_path / 'epoch_3.pth') == str(tmp_path / 'epoch_3.pth')
    assert resolve_checkpoint(tmp_path) == str(tmp_path / 'latest.pth')


def test_killed_while_it_deletes_a_folder_a_store_can_delete_the_rest(tmp_path):
    save(tmp_path / 'first', 1)
    save(tmp_path / 'first', 2)
    for at in range(5):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / 'first', folder, symlinks=True)
        child = os.fork()
        if child == 0:
            with watched(folder, Operations(at, die)):
                Store(folder).delete('epoch_2.pth')
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (9 if at < 4 else 0)
        assert newest(folder) == (2 if at == 0 else 1)
        assert Store(folder).delete('epoch_2.pth') == (at < 4)
        assert not (folder / 'epoch_2.pth').exists()


def test_a_folder_of_somebody_elses_is_not_deleted(tmp_path):
    (tmp_path / 'epoch_1.pth').mkdir()
    (tmp_path / 'epoch_1.pth/thesis.tex').write_text('mine')
    assert not Store(tmp_path).delete('epoch_1.pth')
    with pytest.raises(NotSavedError):
        save(tmp_path, 1)
    assert (tmp_path / 'epoch_1.pth/thesis.tex').read_text() == 'mine'


def test_a_checkpoint_with_a_file_of_somebody_elses_stays_whole(tmp_path):
    save(tmp_path, 1)
    (tmp_path / 'epoch_1.pth/thesis.tex').write_text('mine')
    with pytest.raises(NotSavedError, match=r'such as thesis\.tex: move them elsewhere'):
        save(tmp_path, 1)
    with pytest.raises(OSError, match=r'thesis\.tex'):
        Store(tmp_path).delete('epoch_1.pth')
    assert newest(tmp_path) is not None


def test_latest_may_name_a_folder_where_there_are_no_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError

    monkeypatch.setattr(os, 'symlink', no_links)
    save(tmp_path, 1)
    assert (tmp_path / 'latest.pth').is_file()
    for path in (tmp_path, tmp_path / 'latest.pth'):
        assert resolve_checkpoint(path) == str(tmp_path / 'epoch_1.pth')
    convert_checkpoint(tmp_path, tmp_path / 'out.pth')
    assert torch.load(tmp_path / 'out.pth')['optimizer']['state']


def test_a_checkpoint_that_is_deleted_meanwhile_is_not_listed(tmp_path, monkeypatch):
    save(tmp_path, 1)
    store = Store(tmp_path)
    monkeypatch.setattr(store, '_names', lambda wanted: ['epoch_1.pth', 'epoch_2.pth'])
    assert [stored.number for stored in store.numbered()] == [1]


def test_a_file_takes_the_place_of_a_folder_only_when_it_is_whole(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def full(content, file):
        raise OSError(errno.ENOSPC, 'no room')

    with monkeypatch.context() as patch:
        patch.setattr(torch, 'save', full)
        with pytest.raises(NotSavedError):
            Store(tmp_path).write('epoch_1.pth', checkpoint())
    assert newest(tmp_path) is not None
    Store(tmp_path).write('epoch_1.pth', checkpoint())
    assert (tmp_path / 'epoch_1.pth').is_file()


def test_a_place_that_is_no_folder_takes_none():
    with pytest.raises(ValueError, match=r'memory://x is no folder on a disk.*runnerkit convert'):
        Store('memory://x').check_takes_folders()
    Store('work_dirs').check_takes_folders()


def test_a_sharded_file_is_synced_before_it_is_listed(tmp_path):
    """In the order of the operations: every file is on the disk before the manifest begins."""
    count = Operations()
    save(tmp_path, 1, around=count)
    names = [name for name, _ in count.names]
    begun = next(i for i, (name, path) in enumerate(count.names) if name == 'open' and path == 'MANIFEST')
    opened = sum(name == 'open' for name in names[:begun])
    assert sum(name == 'fsync' for name in names[:begun]) >= opened - 1
    assert names.index('replace') > begun


def test_what_cannot_be_renamed_is_left_and_told(tmp_path, monkeypatch, caplog):
    """A folder that may only be read is looked through all the same."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    (tmp_path / 'epoch_2.pth').rename(tmp_path / f'.epoch_2.pth.{pid}.tmp')
    monkeypatch.setattr('runnerkit.checkpoint.manifest.put_in_place', lambda *args: os.rename('nothing', 'nowhere'))
    assert newest(tmp_path) == 1
    assert 'is complete, but cannot be renamed to epoch_2.pth' in caplog.text
    monkeypatch.undo()
    assert newest(tmp_path) == 2


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    return tmp_path / 'epoch_1.pth'


def relisted(folder):
    """Whoever alters a file on purpose alters the manifest too."""
    write_manifest(folder, {path.name: listed_as(path) for path in folder.iterdir() if path.name != MANIFEST})


def tabled(folder, change):
    """Alter the table of contents on purpose."""
    table = pickle.loads((folder / METADATA).read_bytes())
    (folder / METADATA).write_bytes(pickle.dumps(change(table) or table))
    relisted(folder)


def test_optimizers_are_left_out_when_only_weights_are_wanted(folder):
    found = read_folder(folder, optimizer=False)
    assert same(found, {key: value for key, value in checkpoint().items() if key != 'optimizer'})
    assert read_rest(folder)['meta'] == checkpoint()['meta']


def test_a_damaged_byte_is_noticed_by_whoever_reads_it(folder):
    pick = random.Random(1)
    for path in folder.iterdir():
        data = path.read_bytes()
        for _ in range(40):
            bit = pick.randrange(len(data) * 8)
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            with pytest.raises(ValueError, match=f'checksum of its file {path.name}|MANIFEST is damaged'):
                read_folder(folder, optimizer=False)
        path.write_bytes(data)


@pytest.mark.parametrize(
    'taken', [['__0_0.distcp'], [REST], [MANIFEST], [MANIFEST, '__0_0.distcp'], [MANIFEST, REST, METADATA]]
)
def test_files_of_two_saves_are_never_mixed(tmp_path, taken):
    """Of the same run, and of the same size: weights of two moments, which nothing else would notice."""
    first, second = tmp_path / 'epoch_1.pth', tmp_path / 'epoch_2.pth'
    write(first, checkpoint(3))
    write(second, checkpoint(4))
    for name in taken:
        assert name == MANIFEST or (first / name).stat().st_size == (second / name).stat().st_size
        shutil.copy(first / name, second / name)
    assert why_damaged(second) is not None
    for read in (
        read_folder,
        lambda folder: load_checkpoint(torch.nn.Linear(1, 1), str(folder)),
        lambda folder: convert_checkpoint(folder, tmp_path / 'whole.pth'),
    ):
        with pytest.raises(ValueError, match='the checksum of its file'):
            read(second)
    assert same(read_folder(first), checkpoint(3))
    assert list(tmp_path.glob('whole*')) == []


def test_folders_of_former_saves_are_read(folder):
    """Their files hold the id of the save: behind the parts of tensors, in the rest, in the table, in the manifest."""
    with (folder / '__0_0.distcp').open('ab') as file:
        file.write(b'\nrunnerkit save 0123')
    torch.save({**torch.load(folder / REST), 'runnerkit_save': '0123'}, folder / REST)
    tabled(folder, lambda table: setattr(table.storage_meta, 'save_id', '0123'))
    content = json.loads((folder / MANIFEST).read_bytes()[:-9])
    text = json.dumps({**content, 'save': '0123'}, indent=1) + '\n'
    (folder / MANIFEST).write_text(f'{text}{zlib.crc32(text.encode()):08x}\n')
    assert why_damaged(folder) is None
    assert same(read_folder(folder), checkpoint())


class Runs:
    """What pickle would run when it reads it."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


def attacks(target):
    """Objects that write the file ``target`` when pickle reads them."""
    yield Runs(Path.touch, target)
    yield Runs(eval, f'open({str(target)!r}, "w")')
    yield OrderedDict([(Runs(open, target, 'w'), 1)])
    yield tables.Metadata({'w': Runs(Path.touch, target)})


def test_no_code_in_any_file_is_run(folder, tmp_path):
    """Where torch's own reader runs it: in the table of contents, and in what is no tensor."""
    target, whole = tmp_path / 'it ran', {path.name: path.read_bytes() for path in folder.iterdir()}
    for attack in attacks(target):
        tabled(folder, lambda table, attack=attack: attack)
        with pytest.raises(ValueError, match=r'\.metadata: it names'):
            _load_checkpoint(folder)
        assert not target.exists()
        pickle.loads((folder / METADATA).read_bytes())  # as torch reads it
        target.unlink()
        (folder / METADATA).write_bytes(whole[METADATA])
    saved = io.BytesIO()
    torch.save(Runs(os.mkdir, str(target)), saved)
    (folder / REST).write_bytes(saved.getvalue())
    relisted(folder)
    with pytest.raises(ValueError, match='posix.mkdir'):
        _load_checkpoint(folder)
    # A tensor's part is replaced by an object.
    (folder / REST).write_bytes(whole[REST])
    (folder / '__0_0.distcp').write_bytes(whole['__0_0.distcp'] + saved.getvalue())

    def leads_to_object(table):
        index, place = next(iter(table.storage_data.items()))
        table.storage_data[index] = type(place)(place.relative_path, len(whole['__0_0.distcp']), len(saved.getvalue()))

    tabled(folder, leads_to_object)
    with trusted_pickles(), pytest.raises(ValueError, match='Weights only'):
        _load_checkpoint(folder)
    assert not target.exists()
    torch.load(io.BytesIO(saved.getvalue()), weights_only=False)
    assert target.exists()


def test_a_table_cannot_change_what_later_ones_are_read_with(folder):
    """BUILD on a class sets its attributes."""
    module = b'ctorch.distributed.checkpoint.metadata\n'
    spoiled = module + b"Metadata\n(N(S'storage_data'\nS'x'\ndtb."
    assert issubclass(_Unpickler(spoiled).load(), tables.Metadata)
    assert tables.Metadata.storage_data is None
    assert same(read_folder(folder), checkpoint())


def placed(**changes):
    """Every part at another place."""

    def change(table):
        for index, place in table.storage_data.items():
            table.storage_data[index] = replace(place, **changes)

    return change


def stored(name, **changes):
    def change(table):
        table.state_dict_metadata[name] = replace(table.state_dict_metadata[name], **changes)

    return change


FORGED = {
    'another file': (placed(relative_path='../f'), 'does not list ../f'),
    'an absolute file': (placed(relative_path='/etc/passwd'), 'does not list /etc/passwd'),
    'beyond the end': (placed(offset=10**6), 'its parts are not what .metadata says'),
    'before the start': (placed(offset=-1), 'its parts are not what .metadata says'),
    'encrypted': (placed(transform_descriptors=['zip']), "Unknown extension name='zip'"),
    'another size': (stored('state_dict.w', size=torch.Size([10**15])), r'\.metadata: .*memory'),
    'an object': (
        lambda table: table.state_dict_metadata.update({'state_dict.w': tables.BytesStorageMetadata()}),
        "its tensor 'state_dict.w' is missing",
    ),
    'nothing': (lambda table: table.state_dict_metadata.clear(), 'its tensor .* is missing'),
    'no places': (lambda table: setattr(table, 'storage_data', None), r'\.metadata: '),
    'no table': (lambda table: [1], r'\.metadata: it holds a list instead of a table'),
}


KNOWS_IT = 'transform_descriptors' in _StorageInfo.__dataclass_fields__
TRANSFORMED = {'encrypted': pytest.mark.skipif(not KNOWS_IT, reason='this torch cannot write transformed parts')}


@pytest.mark.parametrize('name', [pytest.param(each, marks=TRANSFORMED.get(each, ())) for each in FORGED])
def test_a_table_that_contradicts_the_files_is_refused(folder, name):
    change, text = FORGED[name]
    tabled(folder, change)
    with pytest.raises(ValueError, match=text):
        read_folder(folder)


def test_a_damaged_folder_says_what_to_do(folder):
    (folder / '__0_0.distcp').unlink()
    with pytest.raises(ValueError, match=r'epoch_1.pth cannot be read: its file __0_0.distcp is missing. Use an'):
        load_folder(folder)


def test_weights_are_loaded_from_a_folder_as_from_a_file(tmp_path):
    torch.manual_seed(0)
    model, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    write(tmp_path / 'epoch_2.pth', {'meta': {}, 'state_dict': model.state_dict(), 'optimizer': {'state': {}}})
    (tmp_path / 'latest.pth').symlink_to('epoch_2.pth')
    for path in (tmp_path, tmp_path / 'latest.pth', tmp_path / 'epoch_2.pth'):
        loaded = load_checkpoint(other, path, strict=True)
        assert 'optimizer' not in loaded  # which only a resumed run needs
        assert torch.equal(other.weight, model.weight)
        assert find_checkpoint(path).endswith('.pth')
        torch.nn.init.zeros_(other.weight)
    half = load_checkpoint(other, tmp_path, map_location=lambda storage, where: storage)
    assert torch.equal(half['state_dict']['weight'], model.weight)
