"""Names that are imported at their first use, and what installed packages offer. Hooks by such names are in
tests/hooks/test_hook.py."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from unittest.mock import MagicMock

import pytest
from installed import install

import runnerkit.hooks
from runnerkit.registry import Registry
from runnerkit.utils.lazy import EntryPoints, homes_in, loaded_late

GROUP = 'runnerkit.tests'

PROGRAM = """
import sys
import runnerkit.hooks
print('runnerkit.hooks.ema' in sys.modules)
from runnerkit.hooks import EMAHook, HOOKS
print('runnerkit.hooks.ema' in sys.modules, 'runnerkit.hooks.freeze' in sys.modules)
HOOKS.get('FreezeHook'), HOOKS.get('TensorboardLoggerHook')
print('runnerkit.hooks.freeze' in sys.modules, 'runnerkit.hooks.logger.tensorboard' in sys.modules)
from runnerkit.checkpoint import CheckpointLoader
print('runnerkit.checkpoint.schemes' in sys.modules)
CheckpointLoader.register_scheme('lab://', print)
print(CheckpointLoader._get_checkpoint_loader('s3://a').__module__)
"""


def test_a_name_imports_its_module_alone():
    """Those of hooks, also by the registry; the schemes of checkpoints when one is registered."""
    said = subprocess.run([sys.executable, '-c', PROGRAM], capture_output=True, text=True, check=True).stdout
    assert said.split() == ['False', 'True', 'False', 'True', 'True', 'False', 'runnerkit.checkpoint.schemes']


def test_every_name_of_each_package_is_there():
    for part in ('checkpoint', 'config', 'data', 'distributed', 'flow', 'hooks', 'nn', 'optim', 'parallel', 'runner'):
        package = getattr(runnerkit, part)
        for name in package.__all__:
            assert getattr(package, name) is not None
        assert set(homes_in(package.__name__)) <= set(package.__all__)


def test_every_offered_name_is_registered():
    for registry in [*Registry.everywhere]:
        assert [name for name in registry._offered if registry.registered(name) is None] == []
    registered = [name for name in runnerkit.hooks._UNREGISTERED if name in runnerkit.hooks.HOOKS.module_dict]
    assert registered == []


def test_what_is_missing():
    with pytest.raises(AttributeError, match="module 'runnerkit.hooks' has no attribute 'EMAHok'"):
        runnerkit.hooks.EMAHok
    with pytest.raises(ImportError, match='EMAHok'):
        from runnerkit.hooks import EMAHok  # noqa: F401


def test_offered_names_of_a_registry(tmp_path, monkeypatch):
    (tmp_path / 'offered_module.py').write_text(
        'from offering import THINGS\n@THINGS.register_module()\nclass Thing: ...\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = type(sys)('offering')
    module.THINGS = things = Registry('thing')
    monkeypatch.setitem(sys.modules, 'offering', module)
    things.offer({'Thing': 'offered_module'})
    assert things.names() == ['Thing']
    assert things.loaded == {}
    assert 'offered_module' not in sys.modules
    with pytest.raises(KeyError, match='Thing is already registered in thing, as offered_module.Thing'):
        things.register_module('Thing', module=Registry)
    assert list(things.module_dict) == ['Thing']
    assert things.get('Thing') is things.registered('Thing') is sys.modules['offered_module'].Thing


def test_names_need_no_import_and_loading_gives_the_object(tmp_path, monkeypatch):
    offered = EntryPoints(GROUP)
    assert offered.names() == []
    assert offered.load('Watch') is None
    install(
        tmp_path,
        monkeypatch,
        'names_pack',
        'class Watch: ...\n',
        GROUP,
        Watch='names_pack:Watch',
        Also='names_pack:Watch',
    )
    assert offered.names() == ['Also', 'Watch']
    assert 'names_pack' not in sys.modules
    assert offered.load('Watch') is sys.modules['names_pack'].Watch
    assert offered.load('Wach') is None


def test_the_metadata_is_read_once_until_a_package_is_installed(tmp_path, monkeypatch):
    reads, read = [], importlib.metadata.entry_points
    monkeypatch.setattr('importlib.metadata.entry_points', lambda: reads.append(1) or read())
    install(tmp_path, monkeypatch, 'first_pack', 'class Watch: ...\n', GROUP, First='first_pack:Watch')
    os.utime(tmp_path, (1, 1))  # long before the next installation
    for _ in range(2):
        assert EntryPoints(GROUP).load('Frist') is None
        assert EntryPoints(f'{GROUP}.more').names() == []
    assert reads == [1]
    install(tmp_path, MagicMock(), 'other_pack', 'class Watch: ...\n', GROUP, Other='other_pack:Watch')
    assert EntryPoints(GROUP).names() == ['First', 'Other']
    assert reads == [1, 1]


@pytest.mark.parametrize('path', ['my_package.Watch', 'my_file.py:Watch', ''])
def test_a_path_reads_no_metadata(monkeypatch, path):
    monkeypatch.setattr('importlib.metadata.entry_points', lambda **kwargs: pytest.fail('metadata was read'))
    assert EntryPoints(GROUP).load(path) is None


def test_what_cannot_be_imported_is_an_error_that_names_the_package(tmp_path, monkeypatch):
    install(
        tmp_path, monkeypatch, 'broken_pack', '', GROUP, NoName='broken_pack:Watch', NoModule='broken_pack.hooks:Watch'
    )
    with pytest.raises(
        ImportError, match="^broken_pack offers NoName as broken_pack:Watch, .* 'Watch'. Mend or reinst"
    ):
        EntryPoints(GROUP).load('NoName')
    with pytest.raises(ImportError, match='^broken_pack offers NoModule as .*not a package'):
        EntryPoints(GROUP).load('NoModule')


def test_two_packages_with_one_name_are_an_error_unless_they_mean_the_same(tmp_path, monkeypatch):
    code = 'class Watch: ...\n'
    for package in ('one_pack', 'other_pack'):
        offers = {'Watch': f'{package}:Watch', 'Same': 'one_pack:Watch'}
        install(tmp_path / package, monkeypatch, package, code, GROUP, **offers)
    with pytest.raises(ImportError, match='several packages: .*one_pack:Watch.*one_pack.*dotted path') as refused:
        EntryPoints(GROUP).load('Watch')
    assert 'other_pack:Watch (other_pack)' in str(refused.value)
    assert EntryPoints(GROUP).load('Same') is sys.modules['one_pack'].Watch


def test_a_module_that_is_loaded_late(tmp_path, monkeypatch):
    package = tmp_path / 'late_package'
    package.mkdir()
    for name in ('__init__', 'part'):
        (package / f'{name}.py').write_text('known, asked = 1, 2\n')
    monkeypatch.syspath_prepend(tmp_path)
    with loaded_late('late_package.part', known=None):
        import late_package.part as first

        assert first.known is None
        assert importlib.util.find_spec('late_package.part') is first.__spec__
        assert not hasattr(first, '__file__')  # `inspect` asks all modules
    assert 'late_package.part' not in sys.modules
    with loaded_late('late_package.part', known=None):
        from late_package.part import asked

        assert asked == 2
        assert sys.modules['late_package.part'].known == 1
    import late_package.part

    with loaded_late('late_package.part', known=None):  # it is loaded already
        assert late_package.part.known == sys.modules['late_package.part'].known == 1
    assert sys.modules['late_package.part'].asked == 2
