"""A folder that fills up: files in order, each line once."""

import json
import os
import tracemalloc
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


def test_lines_that_are_appended_are_read_when_they_are_whole(tmp_path):
    source = DirectorySource(tmp_path, poll=0.001)
    records = source.read(None)
    with (tmp_path / 'a.jsonl').open('w') as file:
        for text, whole in (('1', []), ('2\n', [12]), ('3\n\n4\n5', [3, 4]), ('', []), ('6', [])):
            file.write(text)
            file.flush()
            assert events(islice(records, 1 + len(whole))) == whole
        put(tmp_path, 'b.jsonl', 7)
        assert [tuple(each) for each in islice(records, 2)] == [(['a.jsonl', 5], 56), (['b.jsonl', 1], 7)]
    put(tmp_path, 'END')
    assert events(records) == []


def test_what_is_no_file_or_is_gone_ends_no_run(tmp_path):
    for name in ('a.jsonl', 'b.jsonl', 'd.jsonl'):
        put(tmp_path, name, 1)
    (tmp_path / 'folder.jsonl').mkdir()
    (tmp_path / 'nowhere.jsonl').symlink_to(tmp_path / 'nothing')
    os.mkfifo(tmp_path / 'pipe.jsonl')
    source = DirectorySource(tmp_path, poll=0.001)
    records = source.read(None)
    first = next(records)
    (tmp_path / 'b.jsonl').unlink()
    gone, last, nothing = islice(records, 3)
    assert (first.offset, gone.text, last.offset, nothing) == (['a.jsonl', 1], 'b.jsonl', ['d.jsonl', 1], None)
    assert 'was removed' in gone.problem
    (tmp_path / 'd.jsonl').unlink()
    assert next(records) is None
    put(tmp_path, 'd.jsonl', 2)  # whose lines are at the places of others
    assert 'a file of this name was read already' in next(records).problem


def test_a_line_without_an_end_is_malformed_and_not_in_memory(tmp_path):
    with (tmp_path / 'a.jsonl').open('wb') as file:
        file.write(b'1\n')
        for _ in range(40):
            file.write(b'x' * (1 << 20))
        file.write(b'\n2\n')
    put(tmp_path, 'END')
    tracemalloc.start()
    found = list(DirectorySource(tmp_path).read(None))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.offset[1] for each in found] == [1, 2, 3]
    assert 'longer than' in found[1].problem
    assert most < 10 << 20


@pytest.mark.parametrize(
    ('options', 'told'),
    [
        ({'poll': 0}, 'poll must be a number of seconds above 0, but got 0'),
        ({'poll': 'often'}, "but got 'often'"),
    ],
)
def test_wrong_arguments(tmp_path, options, told):
    with pytest.raises(ValueError, match=told):
        DirectorySource(tmp_path, **options)


def test_a_file_is_no_folder(tmp_path):
    put(tmp_path, 'a.jsonl', 1)
    with pytest.raises(ValueError, match=r'a\.jsonl is a file'):
        DirectorySource(tmp_path / 'a.jsonl')
