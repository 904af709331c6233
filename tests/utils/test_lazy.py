"""Names that are imported at their first use."""

import subprocess
import sys

import pytest

import runnerkit.hooks
from runnerkit.registry import Registry
from runnerkit.utils.lazy import homes_in


def loaded_after(code):
    program = f'import sys\n{code}\nprint([name for name in sys.modules if name.startswith("runnerkit.hooks.")])'
    return subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout


def test_a_name_imports_its_module_alone():
    assert 'runnerkit.hooks.ema' not in loaded_after('import runnerkit.hooks')
    loaded = loaded_after('from runnerkit.hooks import EMAHook')
    assert 'runnerkit.hooks.ema' in loaded
    assert 'runnerkit.hooks.freeze' not in loaded
    assert 'runnerkit.hooks.freeze' in loaded_after('from runnerkit.hooks import HOOKS; HOOKS.get("FreezeHook")')
    logger = 'from runnerkit.hooks import HOOKS; HOOKS.get("TensorboardLoggerHook").__name__'
    assert 'runnerkit.hooks.logger.tensorboard' in loaded_after(logger)


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


@pytest.mark.parametrize(
    'code',
    [
        'print(CheckpointLoader._get_checkpoint_loader("torchvision://resnet50").__module__)',
        'CheckpointLoader.register_scheme("lab://", print)\nprint(CheckpointLoader._get_checkpoint_loader("s3://a").__module__)',
    ],
)
def test_schemes_of_checkpoints_are_there_when_they_are_needed(code):
    program = f'from runnerkit.checkpoint import CheckpointLoader\n{code}'
    said = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True).stdout
    assert said == 'runnerkit.checkpoint.schemes\n'


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
