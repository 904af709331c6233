"""Checkpoints whose configs want to connect, write, read or run something: none of it happens."""

import os
import socket
from pathlib import Path

import pytest
import torch

import runnerkit
from runnerkit.checkpoint import save_checkpoint
from runnerkit.cli.main import main
from runnerkit.config import Config
from runnerkit.data import DATASETS, TRANSFORMS, build_dataloader
from runnerkit.data.source import SOURCES, Source
from runnerkit.flow.stages.stage import STAGES
from runnerkit.hooks import HOOKS, Hook
from runnerkit.nn import MODELS, BaseModule
from runnerkit.utils.nameable import nameable

LINEAR = dict(type='Linear', in_features=2, out_features=1)
MODEL = dict(type='Supervised', model=LINEAR, loss=dict(type='MSELoss'))


class Points(torch.utils.data.Dataset):
    """A data set of the user, who has imported it. It acts as soon as it is built."""

    def __init__(self, where=None, inner=None, transforms=(), **words):
        for config in [inner] if isinstance(inner, dict) else []:
            DATASETS.build(config)
        self.transforms = [TRANSFORMS.build(each) for each in transforms]
        if where is not None:
            act(where)

    @classmethod
    def from_files(cls, files, where=None, **settings):
        if where is not None:
            act(where)
        return [(torch.zeros(2),) for _ in files]

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return torch.zeros(2), torch.zeros(1)


class Eager(BaseModule):
    """A model of the user, which loads its first weights when it is built."""

    def __init__(self, pretrained=None, init_cfg=None, weights=None):
        super().__init__(init_cfg)
        self.layer = torch.nn.Linear(2, 1)
        for path in (pretrained, weights):
            if path:
                act(path)
        if init_cfg:
            self.init_weights()

    def predict(self, data):
        return self.layer(data[0])

    def forward(self, x):
        return self.layer(x)


class Twist:
    """A transform of the user."""

    def __init__(self, table=None):
        if table is not None:
            act(table)


class Report(Hook):
    """A hook of the user."""


class Feed(Source):
    """A source of the user."""

    def __init__(self, name):
        Path(name).touch()


def clean_up(context):
    """A stage of the user."""
    Path(context).touch()


def act(where):
    """Connect, or write: what a class of the user may do with what it is given."""
    address = where[-1] if isinstance(where, (list, tuple)) else where
    address = next(iter(address.values())) if isinstance(address, dict) else address
    if isinstance(address, str) and '://' in address:
        host, _, port = address.partition('://')[2].partition('/')[0].partition(':')
        socket.create_connection((host, int(port))).close()
    else:
        with open(address, 'a') as file:
            file.write('written')


ACTING = ((HOOKS, Report), (SOURCES, Feed), (STAGES, clean_up))


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """A folder with a server that must see no connection, and whose files must not change."""
    for registry, made in ((DATASETS, Points), (MODELS, Eager), (TRANSFORMS, Twist), *ACTING):
        monkeypatch.setitem(registry.module_dict, made.__name__, made)
    folder = tmp_path / 'scene'
    (folder / 'in').mkdir(parents=True)
    (folder / 'in' / 'a.jsonl').write_text('{"x": [1.0, 2.0]}\n')
    (folder / 'evil.py').write_text("import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\npad = list\n")
    os.mkfifo(folder / 'fifo')
    monkeypatch.chdir(folder)
    server = socket.create_server(('127.0.0.1', 0))
    server.setblocking(False)
    before = state(folder)
    yield folder, server.getsockname()[1]
    with pytest.raises(BlockingIOError):
        server.accept()
    server.close()
    assert state(folder) == before


def state(folder):
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob('*')}


def filled(value, folder, port):
    """``value`` with the folder and the port of the scene in its texts."""
    if isinstance(value, dict):
        return {key: filled(item, folder, port) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(filled(item, folder, port) for item in value)
    return value.replace('DIR', str(folder)).replace('PORT', str(port)) if isinstance(value, str) else value


def evil(scene, model=MODEL, **sections):
    """A checkpoint of a linear model, whose config has these sections."""
    folder, port = scene
    sections = filled({'model': model, 'data': {'test': {'type': 'Points'}}, **sections}, folder, port)
    network = torch.nn.Module()
    setattr(network, 'layer' if model is not MODEL else 'model', torch.nn.Linear(2, 1))
    path = folder.parent / 'evil.pth'
    save_checkpoint(network, path, meta={'config': Config(sections).pretty_text})
    return path


ENDPOINT = dict(type='EndpointSource', url='tcp://127.0.0.1:PORT')
STREAM = dict(type='Stream', source=ENDPOINT, aside='DIR/aside')
DIRECTORY = dict(type='DirectorySource', folder='DIR/in', aside='DIR/aside')
#: Data sets for the split that is predicted.
DATA = {
    'a stream from a server': STREAM,
    'a stream from a folder': dict(type='Stream', source=DIRECTORY, aside='DIR/aside'),
    'a stream by its path': {**STREAM, 'type': 'runnerkit.data.stream.Stream'},
    'a stream by another path': {**STREAM, 'type': 'runnerkit.data.Stream'},
    'a stream by its scope': {**STREAM, 'type': 'runnerkit.Stream'},
    'a stream in a list': [STREAM],
    'a stream among others': dict(type='ConcatDataset', datasets=[dict(type='Points'), STREAM]),
    'a stream, repeated': dict(type='RepeatDataset', dataset=STREAM, times=2),
    'a stream by a path, repeated': dict(type='torch.utils.data.ConcatDataset', datasets=(STREAM,)),
    'a stream in a data set of the user': dict(type='Points', inner=STREAM),
    'a source': ENDPOINT,
    'a source by its path': {**ENDPOINT, 'type': 'runnerkit.data.endpoint_source.EndpointSource'},
    'a source of files': DIRECTORY,
    'a control channel': dict(type='ControlHook'),
    'a tracker': dict(type='TensorboardLoggerHook', log_dir='DIR/logs'),
    'a tracker in a data set of the user': dict(type='Points', inner=dict(type='MlflowLoggerHook', tags={})),
    'a search': dict(type='Optuna', storage='sqlite:///DIR/db'),
    'a function of ours that writes': dict(type='runnerkit.fileio.io.dump', obj=1, file='DIR/dumped.json'),
    'a function of ours that loads': dict(type='runnerkit.checkpoint.load_checkpoint', filename='http://127.0.0.1:PORT/x'),
    'a function of Python': dict(type='os.mkdir', path='DIR/made'),
    'code in a file': dict(type='DIR/evil.py:pad'),
    'code in a file beside': dict(type='evil.py:pad'),
    'a file for the data set of the user': dict(type='Points', where='DIR/written'),
    'a new file here': dict(type='Points', where='written.txt'),
    'a new file without an extension': dict(type='Points', data_root='written'),
    'a word for a server': dict(type='Points', host='evil', port=1),
    'a download': dict(type='Points', download=True),
    'a hook of the user': dict(type='Points', inner=dict(type='Report')),
    'a stage of the user': dict(type='clean_up', context='x'),
    'a stage of the user by its path': dict(type=f'{__name__}.clean_up', context='x'),
    'a source of the user': dict(type=f'{__name__}.Feed', name='x'),
    'a file that is here': dict(type='Points', where='fifo'),
    'a URL': dict(type='Points', where='http://127.0.0.1:PORT/x'),
    'places in a list': dict(type='Points', where=['a', 'DIR/written']),
    'places in a dict': dict(type='Points', where=dict(path='tcp://127.0.0.1:PORT')),
    'places in tuples': dict(type='Points', where=('a', ('b', 'DIR/written'))),
    'bytes': dict(type='Points', where=b'written'),
    'a place as a key': dict(type='Points', where={'tcp://127.0.0.1:PORT': 1}),
    'a place as an inner key': dict(type='Points', where=[{'a/written': dict(mode='w')}]),
    'a place in a key': dict(type='Points', where={('a', 'a/written'): 1}),
    'bytes as a key': dict(type='Points', where={b'written': 1}),
    'a place in several data sets': [dict(type='Points'), dict(type='Points', where='DIR/written')],
    'a place for a transform': dict(type='Points', transforms=[dict(type='Twist', table='DIR/written')]),
    'a place in Compose': dict(
        type='Points', transforms=[dict(type='Compose', transforms=[dict(type='Twist', table='DIR/written')])]
    ),
    'a metric, which may download': dict(type='Points', inner=dict(type='MeanMetric')),
}  # fmt: skip


@pytest.mark.parametrize('config', DATA.values(), ids=DATA)
def test_a_split_of_a_checkpoint_does_not_act(scene, config, capsys):
    path = str(evil(scene, data=dict(test=config)))
    assert main(['predict', path, 'test']) == 1
    error = capsys.readouterr().err
    assert '--trust' in error
    assert 'Nothing was imported, opened or built' in error
    assert main(['export', path, '--out', str(scene[0].parent / 'x.pt2')]) == 1  # nobody names a split
    assert not (scene[0].parent / 'x.pt2').exists()
    runnerkit.load_model(path)  # needs no data


PREPARED = 'http://127.0.0.1:PORT/x.pth'
EAGER = dict(type='Eager')
MODELS_THAT_ACT = {
    'weights for a class of the user': {**EAGER, 'weights': 'http://127.0.0.1:PORT/x'},
    'a file for a class of the user': {**EAGER, 'weights': 'DIR/written'},
    'a description of Vega': dict(
        type='NetworkDesc', modules=['backbone'], backbone=dict(name='os.mkdir', path='DIR/made')
    ),
    'a path behind a family': dict(type='backbone.os.mkdir', path='DIR/made'),
    'a path without arguments behind a family': dict(type='backbone.os.getpid'),
    'a path behind a scope': dict(type='runnerkit.os.mkdir', path='DIR/made'),
    'an inner path behind a family': {**MODEL, 'model': dict(type='neck.os.mkdir', path='DIR/made')},
    'a loss that is a function': {**MODEL, 'loss': 'os.mkdir'},
    'a loss in a file': {**MODEL, 'loss': 'DIR/evil.py:pad'},
    'a wrapper': dict(type='torch.nn.DataParallel', module=LINEAR),
    'a function of torch': dict(type='torch.hub.load', repo_or_dir='DIR', source='local', model='x'),
    'a function of torch.nn': dict(type='torch.nn.Module.register_module'),
    'a network of torchvision': dict(type='torchvision.models.resnet18', weights='DEFAULT'),
    'an initialiser': dict(type='Pretrained', checkpoint=PREPARED),
}


@pytest.mark.parametrize('model', MODELS_THAT_ACT.values(), ids=MODELS_THAT_ACT)
def test_the_model_of_a_checkpoint_does_not_act(scene, model):
    import runnerkit.compat.vega.networks  # its families are registered where a search was imported

    assert 'backbone' in runnerkit.compat.vega.networks.FAMILIES
    path = evil(scene, model)
    for use in (
        lambda: runnerkit.load_model(path),
        lambda: runnerkit.predict(path),
        lambda: runnerkit.export(path, scene[0].parent / 'x.pt2', shape=(2,)),
    ):
        with pytest.raises(ValueError, match='Nothing was imported, opened or built'):
            use()


@pytest.mark.parametrize(
    'weights',
    [
        dict(init_cfg=dict(type='Pretrained', checkpoint=PREPARED)),
        dict(init_cfg=[dict(type='Pretrained', checkpoint='DIR/evil.pth')]),
        dict(pretrained=PREPARED),
        dict(pretrained=dict(path='DIR/written')),
    ],
)
def test_first_weights_are_left_out_as_the_checkpoint_replaces_them(scene, weights):
    path = evil(scene, {**EAGER, **weights})
    assert len(runnerkit.predict(path)) == 3


LOADERS = {
    'a function in a file': dict(collate_fn='DIR/evil.py:pad'),
    'a function in a file beside': dict(collate_fn='evil.py:pad'),
    'a function by its path': dict(worker_init_fn='os.mkdir'),
    'a function as a config': dict(collate_fn=dict(type='os.mkdir', path='DIR/made')),
    'a context': dict(multiprocessing_context='DIR/evil.py:pad'),
    'a generator': dict(generator=dict(type='runnerkit.fileio.io.dump', obj=1, file='DIR/x.json')),
}


@pytest.mark.parametrize('settings', LOADERS.values(), ids=LOADERS)
def test_the_loader_of_a_checkpoint_does_not_act(scene, settings):
    path = evil(scene, data=dict(test=dict(type='Points'), test_dataloader=settings))
    with pytest.raises(ValueError, match='Nothing was imported, opened or built'):
        runnerkit.predict(path)


@pytest.mark.parametrize('own', [True, False])
def test_the_loader_of_a_checkpoint_does_not_exhaust_the_machine(scene, own, monkeypatch):
    asked = dict(batch_size=10**12, num_workers=10**6, prefetch_factor=10**6, num_gpus=10**6)
    if not own:
        asked = dict(samples_per_gpu=10**12, workers_per_gpu=10**6)
    data = dict(test=dict(type='Points'))
    path = evil(scene, data={**data, 'test_dataloader': asked} if own else {**data, **asked})
    taken = []

    def build(dataset, **settings):
        taken.append(settings)
        return build_dataloader(dataset, **{**settings, 'workers_per_gpu': 0})

    monkeypatch.setattr('runnerkit.flow.use.predict.build_dataloader', build)
    assert len(runnerkit.predict(path)) == 3
    limits = dict(samples_per_gpu=1024, workers_per_gpu=os.cpu_count(), prefetch_factor=4, num_gpus=1)
    assert {key: taken[0][key] for key in limits if own or key in taken[0]} == (
        limits if own else dict(list(limits.items())[:2])
    )
    path = evil(scene, data=dict(test=dict(type='Points'), test_dataloader=dict(batch_size='10**12')))
    with pytest.raises(TypeError, match='must be a whole number'):
        runnerkit.predict(path)


def test_other_sections_of_a_checkpoint_are_not_read(scene):
    path = evil(
        scene,
        data=dict(
            test=dict(type='Points'), train=STREAM, val=STREAM, test_dataloader=dict(sampler=dict(type='os.mkdir'))
        ),
        custom_hooks=[dict(type='ControlHook'), dict(type='os.mkdir', path='DIR/made')],
        log_config=dict(hooks=[dict(type='TensorboardLoggerHook', log_dir='DIR/logs')]),
        load_from=PREPARED, resume_from=PREPARED, work_dir='DIR/run', model_wrapper=dict(type='os.mkdir'),
        compile=dict(backend='evil.pad'), amp='bf16', profiler_config=dict(on_trace_ready='DIR/trace'),
        optimizer=dict(type='os.mkdir'), evaluation=dict(test_fn='evil.py:pad'), flow=dict(runner='evil.py:pad'),
        dist_params=dict(backend='evil'), runner=dict(type='os.mkdir'),
    )  # fmt: skip
    assert len(runnerkit.predict(path)) == 3
    assert runnerkit.export(path, scene[0].parent / 'x.pt2').inputs


def test_files_that_the_user_names_are_read_and_those_of_the_file_are_not(scene):
    named = scene[0] / 'in' / 'a.jsonl'
    assert len(runnerkit.predict(evil(scene), [named])) == 1
    path = evil(scene, data=dict(test=dict(type='Points', where='DIR/written')))
    with pytest.raises(ValueError, match='places: where=.*written.* of Points'):
        runnerkit.predict(path, [named])


def test_a_class_of_the_user_that_says_so_gets_all_that_the_file_gives(scene, monkeypatch):
    @nameable
    class Careful(Points):
        def __init__(self, **given):
            super().__init__()
            self.given = given

    class Careless(Careful): ...

    for made in (Careful, Careless):
        monkeypatch.setitem(DATASETS.module_dict, made.__name__, made)
    assert len(runnerkit.predict(evil(scene, data=dict(test=dict(type='Careful', where='DIR/written'))))) == 3
    with pytest.raises(ValueError, match='of Careless'):
        runnerkit.predict(evil(scene, data=dict(test=dict(type='Careless', where='DIR/written'))))


def test_trust_does_as_the_file_says(scene, tmp_path):
    path = evil(scene, data=dict(test=dict(type='Points', where=str(tmp_path / 'written'))))
    assert len(runnerkit.predict(path, trust=True)) == 3
    assert (tmp_path / 'written').read_text() == 'written'
