"""Files and folders."""

import os
from pathlib import Path

import pytest

from runnerkit.utils.paths import is_filepath, mkdir_or_exist, scandir


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


def test_mkdir_or_exist(tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    for _ in range(2):
        mkdir_or_exist(tmp_path / 'a' / 'b')
        mkdir_or_exist('~/c')
    mkdir_or_exist('')
    assert (tmp_path / 'a' / 'b').is_dir()
    assert (tmp_path / 'c').is_dir()


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
