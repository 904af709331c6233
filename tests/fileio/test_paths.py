"""Paths and URLs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runnerkit.fileio import exists, is_url, join, open_file
from runnerkit.fileio.paths import local_path, plain_file_name, shown


def test_local_files(tmp_path):
    path = tmp_path / 'a.txt'
    with open_file(path, 'w') as file:
        file.write('é')
    assert path.read_bytes() == 'é'.encode()
    with open_file(str(path), encoding='latin-1') as file:
        assert file.read() == 'Ã©'
    with open_file(path, 'rb') as file:
        assert file.read() == 'é'.encode()
    assert exists(path)
    assert exists(str(tmp_path))
    assert not exists(tmp_path / 'b')
    assert join(tmp_path, 'x', 'y') == str(tmp_path / 'x' / 'y')


def test_urls():
    url = join('memory://fileio-test/', 'sub', '/a.txt')
    assert url == 'memory://fileio-test/sub/a.txt'
    assert join('memory://', 'sub', 'a.txt') == 'memory://sub/a.txt'
    assert join('file:///', 'sub') == 'file:///sub'
    assert is_url(url)
    assert not is_url(Path('a/b'))
    assert not exists(url)
    with open_file(url, 'w') as file:
        file.write('é')
    assert exists(url)
    with open_file(url, 'rb') as file:
        assert file.read() == 'é'.encode()
    with open_file(url) as file:
        assert file.read() == 'é'


def test_fsspec_is_imported_only_for_urls():
    code = 'import sys; from runnerkit.fileio import exists; print(exists("no"), "fsspec" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout == 'False False\n'


def test_a_missing_file():
    with pytest.raises(FileNotFoundError):
        open_file('/no/such/file')


@pytest.mark.parametrize(
    'path, local', [('file:///a/b', '/a/b'), ('local:///a', '/a'), ('/a/b', '/a/b'), ('memory://a', 'memory://a')]
)
def test_file_urls_are_paths(path, local):
    assert local_path(path) == local


@pytest.mark.parametrize('name', ['a.pth', '.hidden', 'a b-ä.pth', '%2F..x', 'nullify.pth', '..a', 'a' * 200])
def test_names_of_files(name):
    assert plain_file_name(name) == name


@pytest.mark.parametrize(
    'name, problem',
    [
        ('', 'is empty or longer'),
        ('a' * 201, 'is empty or longer'),
        ('ä' * 101, 'is empty or longer'),
        ('a/b', 'has separators'),
        ('/etc/passwd', 'has separators'),
        ('a\\b', 'has separators'),
        ('a\0', 'has separators or invisible'),
        ('a\nb', 'has separators or invisible'),
        ('\u202egnp.exe', 'has separators or invisible'),
        ('\ud800', 'has separators or invisible'),
        ('.', 'means something else'),
        ('..', 'means something else'),
        ('a.', 'means something else'),
        ('a ', 'means something else'),
        (' a', 'means something else'),
        ('NUL', 'means something else'),
        ('com1.pth', 'means something else'),
        ('aux .tar.gz', 'means something else'),
    ],
)
def test_names_that_could_lead_elsewhere_are_refused(name, problem):
    with pytest.raises(ValueError, match=f'{problem}.* so it cannot name a file') as caught:
        plain_file_name(name)
    assert str(caught.value).isprintable()


def test_paths_are_shown_as_one_would_type_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shown(tmp_path / 'a' / 'b.pth') == 'a/b.pth'
    assert shown('a.pth') == 'a.pth'
    assert shown('/elsewhere/a.pth') == '/elsewhere/a.pth'
