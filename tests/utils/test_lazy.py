"""Names that are imported at their first use."""

import subprocess
import sys

import pytest

import runnerkit.hooks
from runnerkit.registry import Registry
from runnerkit.utils.lazy import homes_in

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
