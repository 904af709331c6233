"""Loading and dumping by path, URL and open file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from runnerkit.fileio import dict_from_file, dump, list_from_file, load

VALUES = {'a': [1, 2.5, None, True, 'é'], 'b': {'c': {}}}


@pytest.mark.parametrize('extension', ['json', 'yaml', 'yml', 'pkl', 'pickle'])
def test_round_trips(tmp_path, extension):
    path = tmp_path / 'deep' / f'file.{extension}'
    assert dump(VALUES, path) is None
    assert load(path) == load(str(path)) == VALUES
    url = f'memory://io-test/file.{extension}'
    dump(VALUES, url)
    assert load(url) == VALUES
    binary = extension.startswith('p')
    opened = io.BytesIO() if binary else io.StringIO()
    dump(VALUES, opened, file_format=extension)
    opened.seek(0)
    assert load(opened, file_format=extension) == VALUES
    text = dump(VALUES, file_format=extension)
    assert text == (path.read_bytes() if binary else path.read_text(encoding='utf-8'))


def test_the_format_may_be_given(tmp_path):
    dump(VALUES, tmp_path / 'x.data', file_format='json', indent=2)
    assert '\n  ' in (tmp_path / 'x.data').read_text()
    assert load(tmp_path / 'x.data', file_format='yaml') == VALUES


def test_wrong_use(tmp_path):
    with pytest.raises(TypeError, match='Unsupported format'):
        load('x.unknown')
    with pytest.raises(TypeError, match='"file" must be a filepath str or a file-object'):
        load(3, file_format='json')
    with pytest.raises(TypeError, match='"file" must be a filename str or a file-object'):
        dump(VALUES, 3, file_format='json')
    for call in (lambda: load(io.StringIO()), lambda: dump(VALUES)):
        with pytest.raises(ValueError, match='file_format must be specified'):
            call()
    with pytest.raises(ValueError, match="backend 'petrel' is not known"):
        load('x.json', file_client_args={'backend': 'petrel'})
    with pytest.raises(FileNotFoundError):
        load(tmp_path / 'nope.json')


def test_the_disk_backend_is_the_path_itself(tmp_path):
    dump(VALUES, tmp_path / 'x.json', file_client_args={'backend': 'disk'})
    assert load(tmp_path / 'x.json', file_client_args={'backend': 'disk'}) == VALUES


def test_list_from_file(tmp_path):
    file = tmp_path / 'list.txt'
    file.write_bytes('a\nb c\r\n\né'.encode())
    assert list_from_file(file) == ['a', 'b c', '', 'é']
    assert list_from_file(str(file), prefix='x/', offset=1, max_num=2) == ['x/b c', 'x/']
    assert list_from_file(file, offset=3, max_num=9) == ['é']
    file.write_bytes('é'.encode('latin-1'))
    assert list_from_file(file, encoding='latin-1') == ['é']


def test_dict_from_file(tmp_path):
    file = tmp_path / 'dict.txt'
    file.write_text('1 cat\n2 dog cow\n')
    assert dict_from_file(file) == {'1': 'cat', '2': ['dog', 'cow']}
    assert dict_from_file(file, key_type=int) == {1: 'cat', 2: ['dog', 'cow']}
    Path(file).write_text('1 cat\n2\n')
    with pytest.raises(ValueError, match=r"dict.txt:2 must hold a key and at least one value, but is '2'"):
        dict_from_file(file)
