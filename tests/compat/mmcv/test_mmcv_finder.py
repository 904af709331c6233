import importlib
import pickle
import sys
import types
from importlib.util import find_spec

import pytest

import runnerkit.compat
from runnerkit.compat.mmcv.mmcv_finder import OURS, STANDIN, MmcvFinder, home_of, installed_folders

# Where MMCV 1.7.2 has its training modules.
MODULES = """
    device device.ipu device.mlu device.mlu.data_parallel device.mlu.distributed device.mps
    device.mps.data_parallel device.npu device.npu.data_parallel device.npu.distributed device.scatter_gather
    device.utils engine engine.test fileio fileio.file_client fileio.handlers fileio.handlers.base
    fileio.handlers.json_handler fileio.handlers.pickle_handler fileio.handlers.yaml_handler fileio.io fileio.parse
    parallel parallel._functions parallel.collate parallel.data_container parallel.data_parallel parallel.distributed
    parallel.distributed_deprecated parallel.registry parallel.scatter_gather parallel.utils runner runner.base_module
    runner.base_runner runner.builder runner.checkpoint runner.default_constructor runner.dist_utils
    runner.epoch_based_runner runner.fp16_utils runner.hooks runner.hooks.checkpoint runner.hooks.closure
    runner.hooks.ema runner.hooks.evaluation runner.hooks.hook runner.hooks.iter_timer runner.hooks.logger
    runner.hooks.logger.base runner.hooks.logger.clearml runner.hooks.logger.dvclive runner.hooks.logger.mlflow
    runner.hooks.logger.neptune runner.hooks.logger.pavi runner.hooks.logger.segmind runner.hooks.logger.tensorboard
    runner.hooks.logger.text runner.hooks.logger.wandb runner.hooks.lr_updater runner.hooks.memory
    runner.hooks.momentum_updater runner.hooks.optimizer runner.hooks.profiler runner.hooks.sampler_seed
    runner.hooks.sync_buffer runner.iter_based_runner runner.log_buffer runner.optimizer runner.optimizer.builder
    runner.optimizer.default_constructor runner.priority runner.utils utils utils.config utils.device_type utils.env
    utils.ext_loader utils.hub utils.logging utils.misc utils.parrots_jit utils.parrots_wrapper utils.path
    utils.progressbar utils.registry utils.seed utils.testing utils.timer utils.torch_ops utils.trace
    utils.version_utils
""".split()


def test_mmcvs_training_modules_are_runnerkits(compat):
    for path in MODULES:
        theirs, ours = importlib.import_module(f'mmcv.{path}'), importlib.import_module(f'runnerkit.{path}')
        assert theirs is ours, path
        assert ours.__spec__ is None or ours.__spec__.name.startswith('runnerkit.'), path
        assert path.partition('.')[0] in OURS


def test_deep_paths_are_the_very_modules(compat):
    import mmcv.runner.hooks.lr_updater
    import mmcv.utils.config as config
    from mmcv.parallel import data_container

    import runnerkit.hooks.lr_updater

    assert mmcv.runner.hooks.lr_updater is runnerkit.hooks.lr_updater
    assert mmcv.runner is sys.modules['runnerkit.runner']
    assert config.Config is runnerkit.Config
    assert data_container.DataContainer.__module__ == 'runnerkit.parallel.data_container'


def test_a_function_is_not_replaced_by_the_module_of_its_name(compat):
    from mmcv.parallel import collate as before
    from mmcv.parallel.collate import collate as function

    assert importlib.import_module('mmcv.parallel').collate is before is function


def test_pickles_of_old_paths(compat):
    container = pickle.loads(b'cmmcv.parallel.data_container\nDataContainer\n.')
    assert container is importlib.import_module('runnerkit.parallel').DataContainer


def test_everything_else_comes_from_the_installed_mmcv(compat, site):
    import mmcv.cnn
    import mmcv.image

    assert installed_folders() == [str(site / 'mmcv')]
    assert mmcv.__path__ == [str(site / 'mmcv')]
    assert mmcv.image.imread == 'imread'
    # which sees runnerkit in its turn
    assert mmcv.cnn.Sequential is importlib.import_module('runnerkit.nn').Sequential
    # and its initializers are those that BaseModule asks, or a registered one would not be found
    assert mmcv.cnn.constant_init is importlib.import_module('runnerkit.nn').constant_init
    assert mmcv.cnn.utils.weight_init is importlib.import_module('runnerkit.nn.weight_init')


@pytest.mark.parametrize('package', ['cnn', 'image', 'ops', 'video'])
def test_without_an_installed_mmcv_the_error_says_what_to_install(package, compat_alone):
    with pytest.raises(ModuleNotFoundError, match=r'no mmcv is installed; .* pip install .* mmcv==1\.7\.2') as caught:
        importlib.import_module(f'mmcv.{package}')
    assert caught.value.name == f'mmcv.{package}'
    import mmcv.runner

    assert mmcv.runner.EpochBasedRunner is importlib.import_module('runnerkit.runner').EpochBasedRunner
    assert mmcv.__path__ == []


def test_an_installed_mmcv_without_the_package_is_named(compat, site):
    with pytest.raises(ModuleNotFoundError, match=f'the mmcv in {site}/mmcv has none'):
        importlib.import_module('mmcv.tensorrt')


def test_what_is_nowhere_is_an_ordinary_error(compat):
    for name in ('mmcv.utils.nothing', 'mmcv.nothing', 'mmcv.cnn.nothing', 'mmcv._ext'):
        with pytest.raises(ModuleNotFoundError, match='No module named') as caught:
            importlib.import_module(name)
        assert caught.value.name == name
        assert find_spec(name) is None


def test_too_late_is_an_error(process, monkeypatch):
    present = types.ModuleType('mmcv')
    present.__file__ = '/somewhere/mmcv/__init__.py'
    monkeypatch.setitem(sys.modules, 'mmcv', present)
    with pytest.raises(RuntimeError, match='mmcv was imported from /somewhere/mmcv/__init__.py before'):
        runnerkit.compat.install()


def test_installing_twice_changes_nothing(compat):
    before = list(sys.path), list(sys.meta_path), sys.modules['mmcv']
    runnerkit.compat.install()
    assert (list(sys.path), list(sys.meta_path), sys.modules['mmcv']) == before
    assert sys.path.count(str(STANDIN)) == 1
    assert sys.path[0] != str(STANDIN)  # scripts know the first entry as their own folder


def test_importing_the_package_alone_installs_nothing():
    assert not any(isinstance(finder, MmcvFinder) for finder in sys.meta_path)
    assert str(STANDIN) not in sys.path


def test_homes():
    assert home_of('utils.config') == 'utils.config'
    assert home_of('version') == 'compat.mmcv.mmcv_version'
    assert home_of('cnn.utils') is None
    assert home_of('utils.nothing') is None
    assert home_of('utils.logging.nothing') is None
