from importlib import import_module

import pytest

from runnerkit.compat.moved import MOVED


@pytest.mark.parametrize('old', sorted(MOVED))
def test_an_old_path_is_the_new_module(old):
    assert import_module(f'runnerkit.{old}') is import_module(f'runnerkit.{MOVED[old]}')
