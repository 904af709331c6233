"""Files that belong to no package, as modules."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys

import pytest

from runnerkit.utils.imports import import_object
from runnerkit.utils.user_files import (
    end_import,
    file_of_module,
    is_ours,
    module_of_file,
    name_of_file,
    with_neighbours,
)

FILE = """\
from .parts import scale

class Net:
    def __init__(self, width):
        self.width = width
    def __eq__(self, other):
        return type(self) is type(other) and self.width == other.width
    def twice(self):
        return scale(self.width)
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "my nets_1-ü'"
    folder.mkdir()
    (folder / 'net.py').write_text(FILE)
    (folder / 'parts.py').write_text('def scale(x): return 2 * x\n')
    return folder


def test_a_file_is_loaded_once_by_any_path(folder, monkeypatch):
    path = list(sys.path)
    module = module_of_file(str(folder / 'net.py'))
    monkeypatch.chdir(folder)
    (folder.parent / 'link').symlink_to(folder)
    for other in ('net.py', './net.py', '../link/net.py', f'../{folder.name}/net.py'):
        assert module_of_file(other) is module
    assert sys.path == path
    assert module.__file__ == str(folder / 'net.py')
    assert file_of_module(module.__name__) == str(folder / 'net.py')
    assert file_of_module('os.path') is None
    assert name_of_file(folder / 'net.py') == module.__name__


def test_a_file_that_has_changed_since_is_told(tmp_path):
    path = tmp_path / 'changing.py'
    path.write_text('x = 1\n')
    module_of_file(str(path))
    path.write_text('x = 2\n')
    with pytest.warns(UserWarning, match='changing.py has changed since this process imported it'):
        assert module_of_file(str(path)).x == 1


def test_neighbours_are_imported_relatively_and_are_the_same(folder):
    assert import_object(f'{folder}/net.py:scale') is import_object(f'{folder}/parts.py:scale')
    (folder / 'script.py').write_text('import parts\n')
    with pytest.raises(
        ModuleNotFoundError, match=r"script.py imports 'parts', a file in the same folder: write `from \.parts import"
    ):
        module_of_file(str(folder / 'script.py'))


def test_a_file_comes_before_a_folder_of_its_name(folder):
    (folder / 'net').mkdir()
    (folder / 'net' / '__init__.py').write_text('Net = None\n')
    assert import_object(f'{folder}/net.py:Net').__name__ == 'Net'


def test_a_file_is_executed_up_to_where_it_begins_a_training(folder):
    ends = 'from runnerkit.utils.user_files import end_import\ntry:\n    end_import()\nexcept Exception: ...\nx = 2\n'
    (folder / 'inner.py').write_text(f'x = 1\n{ends}')
    (folder / 'outer.py').write_text(f'from .inner import x\ny = x + 1\n{ends}')
    module = module_of_file(str(folder / 'outer.py'))
    assert (module.x, module.y) == (1, 2)  # the end of the inner file's import is not that of the outer's
    assert module_of_file(str(folder / 'outer.py')) is module
    end_import()  # no file is being imported


def test_a_module_that_trains_when_it_is_imported_is_told(folder, monkeypatch):
    """The file that imports it would end there, without its classes."""
    monkeypatch.syspath_prepend(str(folder / 'lib'))
    (folder / 'lib').mkdir()
    (folder / 'lib' / 'trains_at_once.py').write_text('import runnerkit\n\nrunnerkit.train("cfg.py")\n')
    (folder / 'user.py').write_text('import trains_at_once\n\nclass Net: ...\n')
    with pytest.raises(ImportError, match=r'user.py cannot be imported: .*trains_at_once.py, which trains on import'):
        module_of_file(str(folder / 'user.py'))


def test_no_bytecode_is_written_beside_a_file(folder, monkeypatch):
    monkeypatch.setattr(sys, 'dont_write_bytecode', False)
    (folder / 'fresh.py').write_text('y = 1  # as no other file\n')
    assert module_of_file(str(folder / 'fresh.py')).y == 1
    assert {path.name for path in folder.iterdir()} == {'fresh.py', 'net.py', 'parts.py'}


def test_classes_pickle_into_a_fresh_process(folder):
    net = import_object(f'{folder}/net.py:Net')(3)
    file = folder / 'net.pkl'
    file.write_bytes(pickle.dumps(net))
    code = 'import pickle, sys; print(pickle.load(open(sys.argv[1], "rb")).twice())'
    done = subprocess.run([sys.executable, '-c', code, file], capture_output=True, text=True, check=True)
    assert done.stdout == '6\n'
    assert pickle.loads(file.read_bytes()) == net


def test_classes_pickle_into_spawned_workers(folder):
    # A bound method of such an object is all that the worker gets: the test's own module is not needed there.
    net = import_object(f'{folder}/net.py:Net')(4)
    with multiprocessing.get_context('spawn').Pool(1) as pool:
        assert pool.apply(net.twice) == 8


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder on sys.path with a file that counts how often it is executed; its name is no other test's."""
    name = f'once_{abs(hash(str(tmp_path)))}'
    folder = tmp_path / 'project'
    folder.mkdir()
    (folder / f'{name}.py').write_text('import builtins\nbuiltins.COUNTED.append(__name__)\n\n\nclass Net: ...\n')
    monkeypatch.setattr('builtins.COUNTED', [], raising=False)
    monkeypatch.syspath_prepend(str(folder))
    yield folder / f'{name}.py'
    for key in [key for key, module in sys.modules.items() if name in key]:
        del sys.modules[key]


def counted():
    import builtins

    return builtins.COUNTED


def test_a_file_that_was_imported_by_its_name_is_not_executed_again(project):
    module = importlib.import_module(project.stem)
    assert module_of_file(str(project)) is module
    assert import_object(f'{project}:Net') is module.Net
    assert counted() == [project.stem]
    # … nor by a neighbour's relative import
    (project.parent / 'user.py').write_text(f'from .{project.stem} import Net\n')
    assert import_object(f'{project.parent}/user.py:Net') is module.Net
    assert counted() == [project.stem]


def test_a_copy_of_a_file_that_was_imported_by_its_name_is_not_executed(project):
    module = importlib.import_module(project.stem)
    for folder, text in (('same', ''), ('changed', '\n')):
        copy = project.parent.parent / folder / project.name
        copy.parent.mkdir()
        copy.write_text(project.read_text() + text)
        assert (module_of_file(str(copy)) is module) == (folder == 'same')
    assert counted() == [project.stem, name_of_file(copy)]


def test_a_later_import_by_its_name_finds_the_module_of_a_file(project):
    module = module_of_file(str(project))
    spec = module.__spec__
    assert importlib.import_module(project.stem) is module
    assert module.__spec__ is spec
    assert counted() == [name_of_file(project)]
    assert pickle.loads(pickle.dumps(module.Net)) is module.Net


def test_a_copy_is_the_same_module_while_its_text_and_its_neighbours_are(project):
    (project.parent / 'parts.py').write_text('scale = 2\n')
    project.write_text(project.read_text() + 'from .parts import scale\n')
    original = module_of_file(str(project))
    for n, change in enumerate((None, 'parts.py', project.name)):
        copy = project.parent.parent / f'copy{n}'
        shutil.copytree(project.parent, copy)
        if change:
            (copy / change).write_text((copy / change).read_text() + '\nscale = 3\n')
        module = module_of_file(str(copy / project.name))
        assert (module is original) == (change is None)
        assert module.scale == (3 if change else 2)


def test_the_neighbours_that_a_file_needs(folder):
    (folder / 'more.py').write_text('from . import net, no_such\nfrom .parts import scale\nimport os\n')
    assert with_neighbours(folder / 'parts.py') == [folder / 'parts.py']
    assert with_neighbours(folder / 'more.py') == [folder / name for name in ('more.py', 'net.py', 'parts.py')]
    (folder / 'bad.py').write_text('from .net import (')
    assert with_neighbours(folder / 'bad.py') == [folder / 'bad.py']


def test_errors(folder):
    with pytest.raises(FileNotFoundError, match='there is no file'):
        module_of_file(str(folder / 'nope.py'))
    with pytest.raises(FileNotFoundError, match=r"did you mean 'parts.py'\?$"):
        module_of_file(str(folder / 'part.py'))
    for name in ('net.txt', 'net.v2.py', 'net'):
        with pytest.raises(ValueError, match='must be a .py file with no other dot'):
            module_of_file(str(folder / name))
    (folder / 'bad.py').write_text('1 / 0\n')
    with pytest.raises(ZeroDivisionError):
        module_of_file(str(folder / 'bad.py'))
    (folder / 'bad.py').write_text('fine = True\n')
    os.utime(folder / 'bad.py', (0, 0))
    assert module_of_file(str(folder / 'bad.py')).fine
    with pytest.raises(ModuleNotFoundError):
        __import__('runnerkit.utils.user_files._2f_no_2f_such.net')


def test_a_file_of_the_user_is_not_ours(tmp_path):
    (tmp_path / 'mine.py').write_text('')
    assert not is_ours(module_of_file(str(tmp_path / 'mine.py')).__name__)
    assert is_ours('runnerkit.utils.user_files')
    assert not is_ours('torch.nn')
