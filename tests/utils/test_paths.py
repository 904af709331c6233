"""Files and folders."""

import os
from pathlib import Path

import pytest

from runnerkit.utils.paths import check_file_exist, find_vcs_root, fopen, is_filepath, mkdir_or_exist, scandir, symlink


@pytest.fixture
def tree(tmp_path):
    (tmp_path / 'sub' / '.hidden').mkdir(parents=True)
    for name in ('b.PY', 'a.txt', '.h.txt', 'sub/c.py', 'sub/.hidden/d.py'):
        (tmp_path / name).write_text(name)
    return tmp_path


def test_what_is_a_path():
    assert is_filepath('x')
    assert is_filepath(Path('x'))
    assert not is_filepath(3)


def test_fopen_takes_paths_only(tree):
    with fopen(tree / 'a.txt') as file:
        assert file.read() == 'a.txt'
    with fopen(str(tree / 'new'), 'w') as file:
        file.write('x')
    with pytest.raises(ValueError, match='`filepath` should be a string or a Path'):
        fopen(0)


def test_check_file_exist(tree):
    check_file_exist(tree / 'a.txt')
    with pytest.raises(FileNotFoundError, match='file "nothing" does not exist'):
        check_file_exist('nothing')
    with pytest.raises(FileNotFoundError, match='no sub'):
        check_file_exist(tree / 'sub', 'no sub: {}')


def test_mkdir_or_exist(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    for _ in range(2):
        mkdir_or_exist(tmp_path / 'a' / 'b')
        mkdir_or_exist('~/c')
    mkdir_or_exist('')
    assert (tmp_path / 'a' / 'b').is_dir()
    assert (tmp_path / 'c').is_dir()


def test_symlink_replaces_what_was_there(tree):
    for target in ('a.txt', 'missing', 'sub/c.py'):
        symlink(target, tree / 'link')
    assert (tree / 'link').read_text() == 'sub/c.py'
    with pytest.raises(FileExistsError):
        symlink('a.txt', tree / 'link', overwrite=False)


SUB = ['sub/.hidden/d.py', 'sub/c.py']


@pytest.mark.parametrize(
    'options, found',
    [
        ({}, ['a.txt', 'b.PY']),
        ({'suffix': '.py'}, []),
        ({'suffix': '.py', 'case_sensitive': False}, ['b.PY']),
        ({'suffix': ('.PY', '.txt')}, ['a.txt', 'b.PY']),
        ({'suffix': ('.PY', '.Txt'), 'case_sensitive': False, 'recursive': True}, ['a.txt', 'b.PY', *SUB]),
        ({'recursive': True}, ['a.txt', 'b.PY', *SUB]),
        ({'recursive': True, 'suffix': '.py'}, SUB),
    ],
)
def test_scandir(tree, options, found):
    assert sorted(scandir(tree, **options)) == found


@pytest.mark.parametrize('backwards', [False, True])
def test_scandir_keeps_the_order_of_the_system(tree, monkeypatch, backwards):
    def listed(path):
        return sorted(scan(path), key=lambda entry: entry.name, reverse=backwards)

    scan = os.scandir
    monkeypatch.setattr('runnerkit.utils.paths.os.scandir', listed)
    assert list(scandir(tree)) == ['a.txt', 'b.PY'][:: -1 if backwards else 1]


def test_scandir_refuses_other_types_at_once(tree):
    with pytest.raises(TypeError, match='"dir_path" must be a string or Path object'):
        scandir(5)
    with pytest.raises(TypeError, match='"suffix" must be a string or tuple of strings'):
        scandir(tree, suffix=['.py'])


def test_find_vcs_root(tree):
    (tree / '.git').mkdir()
    assert find_vcs_root(tree / 'sub' / '.hidden') == str(tree)
    assert find_vcs_root(tree / 'sub' / 'c.py') == str(tree)
    assert find_vcs_root(tree) == str(tree)
    assert find_vcs_root(tree, markers=('.no-such-thing',)) is None
