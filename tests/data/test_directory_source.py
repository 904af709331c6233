"""A folder that fills up: files in order, each line once."""

import json
import os
from itertools import islice

import pytest

from runnerkit.data import DirectorySource
from runnerkit.data.source import Event, Malformed


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


@pytest.mark.parametrize('read_files', ['keep', 'delete', 'done'])
def test_files_are_put_away_when_all_their_events_are_acknowledged(tmp_path, read_files):
    folder, done = tmp_path / 'in', tmp_path / 'done'
    for name in ('a.jsonl', 'b.jsonl'):
        put(folder, name, 1, 2)
    put(folder, 'END')
    source = DirectorySource(folder, read_files=str(done) if read_files == 'done' else read_files)
    list(source.read(None))

    def there():
        return sorted(path.name for path in folder.glob('*.jsonl'))

    source.acknowledge(['a.jsonl', 1])
    assert there() == ['a.jsonl', 'b.jsonl']
    source.acknowledge(['b.jsonl', 1])
    assert there() == (['a.jsonl', 'b.jsonl'] if read_files == 'keep' else ['b.jsonl'])
    source.acknowledge(['b.jsonl', 2])
    assert there() == (['a.jsonl', 'b.jsonl'] if read_files == 'keep' else [])
    if read_files == 'done':
        assert sorted(os.listdir(done)) == ['a.jsonl', 'b.jsonl']
    # A run that goes on behind what is gone reads nothing twice.
    assert events(source.read(['b.jsonl', 2])) == []


def test_a_file_that_cannot_be_put_away_is_told(tmp_path, caplog):
    put(tmp_path, 'a.jsonl', 1)
    put(tmp_path, 'END')
    (tmp_path / 'blocked').write_text('')
    source = DirectorySource(tmp_path, read_files=str(tmp_path / 'blocked'))
    list(source.read(None))
    source.acknowledge(['a.jsonl', 1])
    assert 'a.jsonl is read and acknowledged, but cannot be put away' in caplog.text


def test_a_file_is_no_folder(tmp_path):
    put(tmp_path, 'a.jsonl', 1)
    with pytest.raises(ValueError, match=r'a\.jsonl is a file'):
        DirectorySource(tmp_path / 'a.jsonl')
