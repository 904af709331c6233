import pytest

from runnerkit.compat.mmcv.misc import check_file_exist, find_vcs_root, fopen, symlink


@pytest.fixture
def tree(tmp_path):
    (tmp_path / 'sub' / '.hidden').mkdir(parents=True)
    for name in ('b.PY', 'a.txt', '.h.txt', 'sub/c.py', 'sub/.hidden/d.py'):
        (tmp_path / name).write_text(name)
    return tmp_path


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


def test_symlink_replaces_what_was_there(tree):
    for target in ('a.txt', 'missing', 'sub/c.py'):
        symlink(target, tree / 'link')
    assert (tree / 'link').read_text() == 'sub/c.py'
    with pytest.raises(FileExistsError):
        symlink('a.txt', tree / 'link', overwrite=False)


def test_find_vcs_root(tree):
    (tree / '.git').mkdir()
    assert find_vcs_root(tree / 'sub' / '.hidden') == str(tree)
    assert find_vcs_root(tree / 'sub' / 'c.py') == str(tree)
    assert find_vcs_root(tree) == str(tree)
    assert find_vcs_root(tree, markers=('.no-such-thing',)) is None
