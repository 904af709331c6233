"""Every registered name, and whether a file from elsewhere may name it. A new name belongs here, after a decision."""

import importlib
import inspect
import pkgutil
import sys

import pytest
import torch
from torch import nn

import runnerkit
from runnerkit.compat.vega import networks
from runnerkit.optim import TORCH_OPTIMIZERS
from runnerkit.registry import Registry
from runnerkit.utils import nameable as nameable_module
from runnerkit.utils.nameable import is_listed, is_nameable, nameable, names_place
from runnerkit.utils.user_files import is_ours

#: Where the classes come from that are ours to decide about.
OURS = ('runnerkit.', 'torch.', 'torchmetrics.')

#: By registry: what may be named, and what may not.
TABLE = {
    'model': ('Supervised', 'NetworkDesc'),
    'loss': ('', ''),
    'metric': ('', 'accuracy'),
    'dataset': ('ConcatDataset RepeatDataset', 'Stream'),
    'transform': ('Compose', ''),
    'sampler': (
        'EpochSampler BatchSampler DistributedSampler RandomSampler SequentialSampler WeightedRandomSampler',
        '',
    ),
    'source': ('', 'DirectorySource EndpointSource'),
    'initializer': ('Constant Xavier Normal TruncNormal Uniform Kaiming Caffe2Xavier', 'Pretrained'),
    'hook': (
        '',
        'CaptureHook CheckpointHook ClosureHook ControlHook ClearMLLoggerHook DvcliveLoggerHook HistoryHook '
        'MlflowLoggerHook NeptuneLoggerHook PaviLoggerHook ProgressBarHook SegmindLoggerHook TensorboardLoggerHook '
        'TextLoggerHook WandbLoggerHook EvalHook DistEvalHook EarlyStoppingHook EMAHook FreezeHook IterTimerHook '
        'TorchLrUpdaterHook FixedLrUpdaterHook StepLrUpdaterHook ExpLrUpdaterHook PolyLrUpdaterHook InvLrUpdaterHook '
        'CosineAnnealingLrUpdaterHook FlatCosineAnnealingLrUpdaterHook CosineRestartLrUpdaterHook '
        'LinearAnnealingLrUpdaterHook CyclicLrUpdaterHook OneCycleLrUpdaterHook EmptyCacheHook '
        'StepMomentumUpdaterHook CosineAnnealingMomentumUpdaterHook LinearAnnealingMomentumUpdaterHook '
        'CyclicMomentumUpdaterHook OneCycleMomentumUpdaterHook NonFiniteHook OptimizerHook '
        'GradientCumulativeOptimizerHook Fp16OptimizerHook GradientCumulativeFp16OptimizerHook ProfilerHook '
        'DistSamplerSeedHook StopAfterHook SyncBuffersHook LossJumpHook VegaCallbacks',
    ),
    'callback': ('', 'ModelStatistics'),
    'optimizer': ('', ''),
    'optimizer builder': ('', 'DefaultOptimizerConstructor'),
    'learning-rate scheduler': ('', ''),
    'module wrapper': (
        '',
        'DataParallel DistributedDataParallel MMDataParallel MMDistributedDataParallel DDP FSDP2 MLUDataParallel '
        'MLUDistributedDataParallel MPSDataParallel NPUDataParallel NPUDistributedDataParallel '
        'MMDistributedDataParallelDeprecated',
    ),
    'runner': ('', 'EpochBasedRunner Runner IterBasedRunner'),
    'runner builder': ('', 'DefaultRunnerConstructor'),
    'stage': ('', 'Instance Startup Runner TrainStage Network InferNetwork Infer Terminal'),
    'search algorithm': (
        '',
        'PruneEA RandomSearch GridSearch QMC TPE GP CMAES NSGA2 NSGA3 AshaHpo HyperBand BohbHpo BayesSearch '
        'EvolutionAlgorithm',
    ),
    'codec': ('', 'PruneCodec'),
    'pipe step': ('', 'BenchmarkPipeStep SearchPipeStep TrainPipeStep'),
    'search parameter': ('', 'Categorical Bool Int Float BinaryCode AdjacencyList'),
    'executor': ('', 'Serial Local Ray'),
    **dict.fromkeys(('backbone', 'neck', 'head', 'rpn', 'block', 'super_network', 'custom', 'function'), ('', '')),
}


@pytest.fixture(scope='module')
def registered():
    """What runnerkit registers, by the name of the registry."""
    for module in pkgutil.walk_packages(runnerkit.__path__, 'runnerkit.'):
        if not module.name.endswith('__main__') and '.standin' not in module.name:
            importlib.import_module(module.name)
    ours = [each for each in Registry.everywhere if any(each is held for held in registries_of_runnerkit())]
    return {
        each.name: {name: made for name, made in each.module_dict.items() if is_of_the_package(made)} for each in ours
    }


def is_of_the_package(made):
    """Not one of a user's file, whose module has a name below runnerkit's."""
    return made.__module__.startswith(OURS[1:]) or is_ours(made.__module__)


def registries_of_runnerkit():
    """The registries that modules of runnerkit hold."""
    modules = [module for name, module in sys.modules.items() if name.startswith('runnerkit') and module is not None]
    held = [each for module in modules for each in vars(module).values() if isinstance(each, Registry)]
    return [*held, *networks.FAMILIES.values()]


def test_every_registered_name_has_an_answer(registered):
    found = {
        name: tuple({known for known, made in held.items() if is_nameable(made) is answer} for answer in (True, False))
        for name, held in registered.items()
    }
    assert found == {name: tuple(set(names.split()) for names in answers) for name, answers in TABLE.items()}


def test_every_module_of_torch_has_an_answer():
    known = {name for name in dir(nn) if inspect.isclass(made := getattr(nn, name)) and issubclass(made, nn.Module)}
    refused = {name for name in known if not is_nameable(getattr(nn, name))}
    assert refused == {'Module', 'Container', 'DataParallel'}
    assert known - set(nameable_module._ROWS['torch.nn'].split()) == refused


@pytest.mark.parametrize('made', [getattr(torch.optim, name) for name in TORCH_OPTIMIZERS])
def test_optimizers_are_not_built_of_files(made):
    assert not is_nameable(made)


@pytest.mark.parametrize('module', ['torchmetrics.text', 'torchvision.models', 'timm', 'transformers', 'torch.hub'])
def test_libraries_that_download_are_not_on_the_list(module):
    def made(): ...

    made.__module__ = module
    assert not is_nameable(made)


def test_the_name_of_a_row_is_not_enough():
    class Linear(nn.Module): ...

    Linear.__module__ = 'torch.nn.modules.linear'
    assert is_nameable(nn.Linear)
    assert not is_nameable(Linear)


def test_permission_is_not_inherited():
    class Ours(runnerkit.nn.Supervised): ...

    class Theirs(runnerkit.nn.Supervised): ...

    class Listening(runnerkit.data.Stream): ...

    def ours(): ...

    Ours.__module__ = ours.__module__ = 'runnerkit.somewhere.new'
    assert not is_nameable(ours)
    assert is_ours(Ours.__module__)
    assert not is_nameable(Ours)
    assert is_nameable(nameable(Ours))
    assert [is_listed(each) for each in (Ours, Theirs)] == [True, False]  # of which the arguments are looked at
    assert is_nameable(Theirs)  # the user's own, which inherits only from what may be named
    assert not is_nameable(Listening)
    assert is_nameable(nameable(Listening))

    class Both(runnerkit.nn.Supervised, runnerkit.data.Stream): ...

    assert not is_nameable(Both)


PLACES = [
    '/etc/passwd', 'a/b', '../a', '..', '.', '~', '~root', '$HOME', '%TEMP%', 'http://x', 's3:x', r'\\host\share',
    r'C:\x', 'x.json', 'os.system', 'x.py:Name', 'host.org', '127.0.0.1', 'localhost', 'localhost:1', '::1', b'x',
    '-', 'a\0b', '.hidden', 'x.7z', 'a$HOME', ' ~', 'cpu/x', 'cuda:0.org',
]  # fmt: skip


@pytest.mark.parametrize('value', PLACES)
def test_places(value):
    assert names_place('word', value)


@pytest.mark.parametrize('key', [
    'data_root', 'path', 'ann_file', 'HOST', 'cache_dir', 'log', 'weights', 'root_dir', 'img_dirs', 'filepath',
    'outfile', 'dataRoot', 'servers', 'proxy', 'dst',
])  # fmt: skip
def test_words_under_the_name_of_a_place(key):
    assert names_place(key, 'word')
    assert not names_place(key, '')
    assert not names_place(key, 3)
    assert not names_place(f'x{key}x'.replace('_', 'x'), 'word')


def test_downloads():
    for key, value in (('download', True), ('download', 1), ('download', 'yes'), ('auto_download', True)):
        assert names_place(key, value)
    assert not names_place('download', False)
    assert not names_place('augment', True)


@pytest.mark.parametrize('value', ['relu', 'test', 'cuda:0', 'cpu', 'a b', '', '0.5', 'v1', 'x-y', 3, 0.5, None, True])
def test_words_are_no_places(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'test').mkdir()
    assert not names_place('word', value)
    if value == 'relu':
        (tmp_path / value).touch()
        assert names_place('word', value)
        (tmp_path / 'link').symlink_to('nowhere')
        assert names_place('word', 'link')
