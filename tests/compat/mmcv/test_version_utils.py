"""Versions as tuples, with the values that MMCV 1.7.2 gave; and commits of a real checkout."""

import subprocess

import pytest

from runnerkit.compat.mmcv import version_utils as version
from runnerkit.compat.mmcv.version_utils import digit_version, get_git_hash


@pytest.mark.parametrize(
    'text, expected',
    [
        ('1.0', (1, 0, 0, 0, 0, 0)),
        ('1.2.3', (1, 2, 3, 0, 0, 0)),
        ('1.2.3.4.5', (1, 2, 3, 4, 0, 0)),
        ('1.2.3rc1', (1, 2, 3, 0, -1, 1)),
        ('0.1.0rc10', (0, 1, 0, 0, -1, 10)),
        ('1.0b2', (1, 0, 0, 0, -2, 2)),
        ('1.0a0+cu113', (1, 0, 0, 0, -3, 0)),
        ('1.0a1.dev2', (1, 0, 0, 0, -3, 1)),
        ('1.8.0a0+17f8c32', (1, 8, 0, 0, -3, 0)),
        ('1.13.0.dev', (1, 13, 0, 0, -4, 0)),
        ('1.0.post1.dev2', (1, 0, 0, 0, -4, 0)),
        ('1.0.0.post1', (1, 0, 0, 0, 1, 1)),
        ('2.0.0.post1+git', (2, 0, 0, 0, 1, 1)),
        ('1.0rc1.post1', (1, 0, 0, 0, -1, 1)),
        ('v1.0', (1, 0, 0, 0, 0, 0)),
        ('2.1.0+cpu', (2, 1, 0, 0, 0, 0)),
    ],
)
def test_digits(text, expected):
    assert digit_version(text) == expected


def test_digits_by_length_and_order():
    assert digit_version('1.2.3', length=2) == (1, 2, 0, 0)
    assert digit_version('1.2', length=6) == (1, 2, 0, 0, 0, 0, 0, 0)
    ordered = ['1.0.dev1', '1.0a1', '1.0b1', '1.0rc1', '1.0rc2', '1.0', '1.0.post1', '1.0.1', '1.10']
    numbers = [digit_version(each) for each in ordered]
    assert numbers == sorted(set(numbers))


def test_what_is_no_version():
    for text in ('', '1.x', 'parrots'):
        for error in (ValueError, AssertionError):
            with pytest.raises(error, match='Invalid version'):
                digit_version(text)
    with pytest.raises(TypeError, match='a version must be a str'):
        digit_version(1.0)


def test_the_commit_of_a_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('GIT_CEILING_DIRECTORIES', str(tmp_path.parent))
    monkeypatch.setattr(version, 'acts_as_mmcv', lambda: False)  # another test may have imported mmcv
    assert get_git_hash() == 'unknown'
    assert get_git_hash(fallback='not known', digits=6) == 'not known'
    with monkeypatch.context() as patch:
        patch.setattr(version, 'acts_as_mmcv', lambda: True)
        assert get_git_hash() == ''
    author = ['-c', 'user.name=a', '-c', 'user.email=a@b.c']
    for command in (['init', '-q'], [*author, 'commit', '-q', '--allow-empty', '-m', 'x']):
        subprocess.run(['git', *command], check=True)
    commit = subprocess.run(['git', 'log', '--format=%H'], capture_output=True, text=True).stdout.strip()
    assert get_git_hash() == commit
    assert get_git_hash(digits=6) == commit[:6]
    assert get_git_hash(digits=100) == commit
    with pytest.raises(TypeError, match='digits must be None or an integer'):
        get_git_hash(digits='6')


def test_without_git(monkeypatch):
    def no_git(cmd):
        raise FileNotFoundError(cmd[0])

    monkeypatch.setattr(version, '_minimal_ext_cmd', no_git)
    assert get_git_hash() == 'unknown'
