"""The package's front door."""

import subprocess
import sys

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
