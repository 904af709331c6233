"""Loading and dumping by path, URL and open file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from runnerkit.fileio import BaseStorageBackend, FileClient, dict_from_file, dump, list_from_file, load

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


def test_a_file_behind_a_link_is_written(tmp_path):
    (tmp_path / 'link.json').symlink_to('file.json')
    dump(1, tmp_path / 'link.json')
    assert load(tmp_path / 'file.json') == 1
    assert (tmp_path / 'link.json').is_symlink()


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
    for call in (lambda: load(io.StringIO()), lambda: dump(VALUES, io.StringIO()), lambda: load(3)):
        with pytest.raises(TypeError, match='Unsupported format: None; .* give file_format'):
            call()
    with pytest.raises(ValueError, match='file_format must be specified since file is None'):
        dump(VALUES)
    with pytest.raises(ValueError, match='Backend hadoop is not supported'):
        load('x.json', file_client_args={'backend': 'hadoop'})
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
    assert list_from_file(file, offset=-1, max_num=-1) == ['a', 'b c', '', 'é']
    assert list_from_file(file, offset=9) == []
    file.write_bytes('é'.encode('latin-1'))
    assert list_from_file(file, encoding='latin-1') == ['é']


def test_dict_from_file(tmp_path):
    file = tmp_path / 'dict.txt'
    file.write_text('1 cat\n2 dog cow\n')
    assert dict_from_file(file) == {'1': 'cat', '2': ['dog', 'cow']}
    assert dict_from_file(file, key_type=int) == {1: 'cat', 2: ['dog', 'cow']}
    file.write_text(' a\tb\n1  c\n')
    assert dict_from_file(file) == {'a': 'b', '1': 'c'}
    for text, line in (('1 cat\n2\n', "2 must .* but is '2'"), ('\n', "1 must .* but is ''")):
        file.write_text(text)
        for error in (ValueError, AssertionError):
            with pytest.raises(error, match=f'dict.txt:{line}'):
                dict_from_file(file)


def test_an_object_with_no_place_in_the_format_spoils_no_file(tmp_path):
    dump(VALUES, tmp_path / 'x.json')
    with pytest.raises(TypeError, match='is unsupported for json dump'):
        dump({'a': 1, 'b': object()}, tmp_path / 'x.json')
    assert load(tmp_path / 'x.json') == VALUES


class Shelf(BaseStorageBackend):
    # Files in a dict, which is all that load and dump ask of a storage.
    def __init__(self, files):
        self.files = files

    def get(self, filepath):
        return self.files[str(filepath)]

    def get_text(self, filepath, encoding='utf-8'):
        return self.files[str(filepath)].decode(encoding)

    def put(self, obj, filepath):
        self.files[str(filepath)] = obj

    def put_text(self, obj, filepath):
        self.files[str(filepath)] = obj.encode()


def test_another_storage(monkeypatch):
    monkeypatch.setattr(FileClient, '_backends', {'shelf': Shelf})
    monkeypatch.setattr(FileClient, '_instances', {})
    files = {'list': 'a 1\r\né 2\n'.encode('latin-1')}
    args = {'backend': 'shelf', 'files': files}
    for name in ('x.json', 'x.yml', Path('x.pkl')):
        dump(VALUES, name, file_client_args=args)
        assert load(name, file_client_args=args) == VALUES
    assert sorted(files) == ['list', 'x.json', 'x.pkl', 'x.yml']
    assert list_from_file('list', encoding='latin-1', file_client_args=args) == ['a 1', 'é 2']
    assert dict_from_file('list', encoding='latin-1', file_client_args=args) == {'a': '1', 'é': '2'}
    assert args == {'backend': 'shelf', 'files': files}


def test_old_pickles_are_read_with_their_encoding(tmp_path):
    (tmp_path / 'old.pkl').write_bytes(b'\x80\x02U\x01\xe9q\x00.')
    assert load(tmp_path / 'old.pkl', encoding='latin-1') == 'é'
    assert load(io.BytesIO(b'\x80\x02U\x01\xe9q\x00.'), file_format='pkl', encoding='latin-1') == 'é'
