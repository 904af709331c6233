import sys
from importlib import import_module

import pytest

from runnerkit.compat.mmcv.finder import AliasFinder, Facade, install


def test_an_alias_is_the_very_module():
    import runnerkit.runner.hooks.lr_updater
    from runnerkit.runner.hooks import lr_updater

    import runnerkit.hooks.lr_updater

    assert runnerkit.runner.hooks.lr_updater is runnerkit.hooks.lr_updater is lr_updater
    assert sys.modules['runnerkit.runner.hooks'] is runnerkit.hooks
    assert runnerkit.hooks.__spec__.name == 'runnerkit.hooks'


def test_several_homes_are_shown_as_one_module():
    old = import_module('runnerkit.runner.dist_utils')
    from runnerkit.distributed import collectives, groups, launch

    assert isinstance(old, Facade)
    assert old.init_dist is launch.init_dist
    assert old.get_dist_info is groups.get_dist_info
    assert old.allreduce_grads is collectives.allreduce_grads


def test_a_patch_of_an_old_path_reaches_the_home(monkeypatch):
    old = import_module('runnerkit.runner.dist_utils')
    from runnerkit.distributed import launch

    original = launch.init_dist
    with monkeypatch.context() as patch:
        patch.setattr('runnerkit.runner.dist_utils.init_dist', 'patched')
        assert launch.init_dist == 'patched'
    assert launch.init_dist is old.init_dist is original


def test_modules_below_what_is_a_module_here():
    from runnerkit import fileio

    assert import_module('runnerkit.fileio.handlers.json_handler') is fileio.handlers
    assert fileio.handlers.JsonHandler.__module__ == 'runnerkit.fileio.handlers'


def test_what_is_nowhere_is_an_ordinary_error():
    for name in ('runnerkit.runner.hooks.nothing', 'runnerkit.engine.nothing', 'runnerkit.nothing'):
        with pytest.raises(ModuleNotFoundError, match='No module named'):
            import_module(name)


def test_the_finder_is_there_once_and_first():
    install()
    assert [isinstance(finder, AliasFinder) for finder in sys.meta_path].count(True) == 1
    assert AliasFinder().find_spec('json.decoder') is None
