"""The names of ``runnerkit.utils``. Those of MMCV are in tests/compat/mmcv/test_old_names.py."""

import subprocess
import sys

import pytest

import runnerkit.utils as utils
from runnerkit.config import Config, ConfigDict, DictAction
from runnerkit.registry import Registry, build_from_cfg


def test_everything_promised_is_there():
    assert all(hasattr(utils, name) for name in utils.__all__)


def test_mmcvs_names_lead_to_where_they_live():
    assert (utils.Config, utils.ConfigDict, utils.DictAction) == (Config, ConfigDict, DictAction)
    assert (utils.Registry, utils.build_from_cfg) == (Registry, build_from_cfg)
    with pytest.raises(AttributeError, match="module 'runnerkit.utils' has no attribute 'Confg'"):
        utils.Confg  # noqa: B018


def test_importing_it_imports_no_torch():
    code = 'import sys, runnerkit.utils; print("torch" in sys.modules, "runnerkit.config" in sys.modules)'
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert ended.stdout == 'False False\n'
