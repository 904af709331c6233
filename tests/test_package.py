"""The package's front door."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import runnerkit


@pytest.mark.parametrize('name', runnerkit.__all__)
def test_every_name_is_there(name):
    assert getattr(runnerkit, name) is not None


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'runnerkit' has no attribute 'Trainer'"):
        _ = runnerkit.Trainer


def test_importing_it_imports_no_torch():
    code = "import runnerkit, sys; runnerkit.Config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0


def test_what_there_is_can_be_listed():
    """For completion in shells and notebooks; and what type checkers read is what there is."""
    assert {*runnerkit.__all__, 'runner', 'flow', 'hooks'} <= set(dir(runnerkit))
    assert all(getattr(runnerkit, name) is not None for name in dir(runnerkit))
    assert sorted(runnerkit.__all__) == sorted([*runnerkit._HOMES, '__version__'])
    tree = ast.parse(Path(runnerkit.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {(line.names[0].asname, line.module) for line in block.body}
    assert imported == set(runnerkit._HOMES.items())


def test_listing_imports_no_torch():
    code = "import runnerkit, sys; dir(runnerkit); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0
