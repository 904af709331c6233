from importlib import import_module

from runnerkit.compat.moved import MOVED


def test_each_old_path_is_the_new_module():
    for old, new in MOVED.items():
        assert import_module(f'runnerkit.{old}') is import_module(f'runnerkit.{new}'), old
