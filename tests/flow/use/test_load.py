"""Trained models, built again."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import torch

import runnerkit
from runnerkit.checkpoint import find_checkpoint, save_checkpoint
from runnerkit.cli.main import main as command
from runnerkit.cli.train import main
from runnerkit.config import Config
from runnerkit.flow.use.load import as_trained, config_in, config_of

NETS = """
import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Linear(width, 1))


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((4,), i / 8), torch.tensor([i / 8])
"""
CONFIG = """
seed = 0
model = dict(
    type='Supervised', model=dict(type='{{ fileDirname }}/nets.py:Net', width=8), loss=dict(type='MSELoss'),
    metrics=dict(error=dict(type='MeanSquaredError')),
)
points = '{{ fileDirname }}/nets.py:Points'
data = dict(samples_per_gpu=4, train=dict(type=points), val=dict(type=points))
optimizer = dict(type='SGD', lr=0.05)
runner = dict(type='EpochBasedRunner', max_epochs=3)
custom_hooks = [dict(type='EMAHook', momentum=0.1)]
evaluation = dict(save_best='error')
"""
PLAIN = """
model = dict(
    type='Supervised', model=dict(type='Linear', in_features=4, out_features=1), loss=dict(type='L1Loss')
)"""
X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.fixture(scope='module')
def project(tmp_path_factory):
    """A project whose model has been trained with an EMA, its work dir ``run`` beside it."""
    folder = tmp_path_factory.mktemp('trained') / 'project'
    folder.mkdir()
    (folder / 'nets.py').write_text(NETS)
    (folder / 'cfg.py').write_text(CONFIG)
    work_dir = folder.parent / 'run'
    assert main([str(folder / 'cfg.py'), '--work-dir', str(work_dir), '--device', 'cpu']) == 0
    return folder


@pytest.fixture
def run(project):
    return project.parent / 'run'


def test_a_work_dir_gives_the_averages_of_its_best_checkpoint_in_evaluation_mode(run):
    model = runnerkit.load_model(run)
    assert type(model).__name__ == 'Supervised'
    assert not any(module.training for module in model.modules())
    (best,) = run.glob('best_*.pth')
    state = torch.load(best)['state_dict']
    assert torch.equal(model.model[0].weight, state['model.0.weight'])
    assert not torch.equal(state['model.0.weight'], state['ema_model_0_weight'])  # which are the raw weights
    assert not any(name.startswith('ema_') for name in model.state_dict())
    assert torch.equal(model(X), runnerkit.load_model(str(run))(X))


def test_which_checkpoint(run, tmp_path):
    latest = torch.load(run / 'latest.pth')['state_dict']['model.0.weight']
    first = torch.load(run / 'epoch_1.pth')['state_dict']['model.0.weight']
    assert torch.equal(runnerkit.load_model(run, which='latest').model[0].weight, latest)
    found = runnerkit.load_model(run / 'epoch_1.pth', config=run / 'cfg.py')
    assert torch.equal(found.model[0].weight, first)
    copy = tmp_path / 'run'
    shutil.copytree(run, copy, symlinks=True)
    (best,) = copy.glob('best_*.pth')
    shutil.copy(run / 'epoch_1.pth', best)
    assert not torch.equal(first, latest)
    assert torch.equal(runnerkit.load_model(copy).model[0].weight, first)
    assert torch.equal(runnerkit.load_model(copy, which='latest').model[0].weight, latest)
    with pytest.raises(ValueError, match="which must be 'best' or 'latest', but got 'lastest'; did you mean 'latest'"):
        runnerkit.load_model(run, which='lastest')


def test_a_config_in_each_form(run):
    file = run / 'cfg.py'
    cfg = Config.fromfile(file)
    for config in (file, str(file), cfg, cfg._cfg_dict, {'model': cfg.model}):
        assert torch.equal(runnerkit.load_model(run, config)(X), runnerkit.load_model(run)(X))


def test_a_checkpoint_of_a_work_dir_has_the_config_of_that(run, tmp_path):
    latest = runnerkit.load_model(run, which='latest')
    assert torch.equal(runnerkit.load_model(run / 'epoch_3.pth')(X), latest(X))
    shutil.copy(run / 'epoch_3.pth', tmp_path)
    with pytest.raises(ValueError, match=r"in none of the work dirs that your runs.*config='…/config.py'.*--trust"):
        runnerkit.load_model(tmp_path / 'epoch_3.pth')
    assert torch.equal(runnerkit.load_model(tmp_path / 'epoch_3.pth', trust=True)(X), latest(X))


def test_a_checkpoint_alone_of_registered_classes(tmp_path):
    model = torch.nn.Module()
    model.model = torch.nn.Linear(4, 1)
    model.CLASSES = ('a', 'b')
    save_checkpoint(model, tmp_path / 'x.pth', meta={'config': PLAIN})
    loaded = runnerkit.load_model(tmp_path / 'x.pth', trust=True)
    assert torch.equal(loaded.model.weight, model.model.weight)
    assert tuple(loaded.CLASSES) == ('a', 'b')


# --- the config of a checkpoint from elsewhere ------------------------------------------------------------------------

EVIL = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\nfrom torch.nn import Linear as Net\n"


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A folder with a module that leaves a file behind if it is executed, and a server that must see no connection; and
    a function that makes a checkpoint there."""
    (tmp_path / 'evil.py').write_text(EVIL)
    (tmp_path / 'in').mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    server = socket.create_server(('127.0.0.1', 0))
    server.setblocking(False)

    def make(text):
        model = torch.nn.Module()
        model.model = torch.nn.Linear(4, 1)
        text = text.replace('DIR', str(tmp_path)).replace('PORT', str(server.getsockname()[1]))
        save_checkpoint(model, 'evil.pth', meta={'config': text})
        return 'evil.pth'

    yield make
    with pytest.raises(BlockingIOError):
        server.accept()
    server.close()
    assert {path.name for path in tmp_path.iterdir()} == {'evil.py', 'evil.pth', 'in'}
    assert 'evil' not in sys.modules


STREAM = "dict(type='Stream', source=dict(type='EndpointSource', url='tcp://127.0.0.1:PORT'), aside='DIR/aside')"
ACTING = {
    'an import': f"{PLAIN}\ncustom_imports = dict(imports=['evil'])",
    'a file': "model = dict(type='DIR/evil.py:Net', in_features=4, out_features=1)",
    'a folder to make': "model = dict(type='os.mkdir', path='DIR/made')",
    'a loss': "model = dict(type='Supervised', model=dict(type='ReLU'), loss='evil.Net')",
    'first weights': "model = dict(type='Supervised', init_cfg=dict(type='Pretrained', checkpoint='http://127.0.0.1:PORT'))",
    'a stream': f'{PLAIN}\ndata = dict(test={STREAM})',
    'a folder': f"{PLAIN}\ndata = dict(test=dict(type='Stream', source=dict(type='DirectorySource', folder='DIR/in')))",
    'a hook': f"{PLAIN}\ncustom_hooks = [dict(type='TensorboardLoggerHook', log_dir='DIR/logs')]",
    'a function': f"{PLAIN}\ndata = dict(test=dict(type='Points'), test_dataloader=dict(collate_fn='evil.Net'))",
    'data alone': PLAIN,
}  # fmt: skip


@pytest.mark.parametrize('text', ACTING.values(), ids=ACTING)
def test_nothing_of_it_is_built(hostile, text, capsys):
    path = hostile(text)
    for use in (
        lambda: runnerkit.load_model(path),
        lambda: runnerkit.predict(path),
        lambda: runnerkit.export(path, 'x.pt2', shape=(4,)),
    ):
        with pytest.raises(ValueError, match='nothing is built of the config in it.*--trust'):
            use()
    assert command(['predict', path, 'test']) == 1
    assert '--trust' in capsys.readouterr().err


@pytest.mark.parametrize(
    'text',
    [
        'import evil',
        "model = __import__('evil').Net(1, 1)",
        'model = f"{__import__(\'evil\')}"',
        "_base_ = ['evil.py']\nmodel = {{ _base_.model }}",
        "filename = 'reserved'",
        "model = dict(type='Linear'",
    ],
)
@pytest.mark.parametrize('trust', [False, True])
def test_its_text_is_never_executed(hostile, text, trust):
    with pytest.raises(ValueError, match='It was not executed; pass the config' if trust else 'nothing is built of'):
        runnerkit.load_model(hostile(text), trust=trust)


def test_variables_in_it_stay_texts():
    text = "name = '{{ fileDirname }} {{ _base_.x }} $HOME ~'"
    assert config_in({'config': text}, 'x.pth', True).name == '{{ fileDirname }} {{ _base_.x }} $HOME ~'


def test_trust_imports_what_it_names(tmp_path):
    (tmp_path / 'good.py').write_text(EVIL)
    text = f"custom_imports = dict(imports=['{tmp_path}/good.py'])\nmodel = dict(type='{tmp_path}/good.py:Net')"
    assert config_in({'config': text}, 'x.pth', True).model.type == f'{tmp_path}/good.py:Net'
    assert (tmp_path / 'good.ran').exists()


def test_the_device(run):
    assert runnerkit.load_model(run).model[0].weight.device.type == 'cpu'
    with pytest.raises(ValueError, match='unknown device'):
        runnerkit.load_model(run, device='gpu')


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_on_a_gpu(run):
    model = runnerkit.load_model(run, device='cuda')
    assert model.model[0].weight.is_cuda
    assert torch.allclose(model(X.cuda()).cpu(), runnerkit.load_model(run)(X), atol=1e-5)


@pytest.mark.parametrize(
    'meta, hooks, expected',
    [
        ({}, '[]', 2.0),
        ({}, "[dict(type='EMAHook')]", 2.0),
        ({}, "[dict(type='EMAHook', priority='HIGH')]", 1.0),
        ({}, "[dict(type='EMAHook', priority='HIGH')]\ncheckpoint_config = dict(by_epoch=False)", 2.0),
        ({}, "[dict(type='EMAHook', priority='HIGH')]\nrunner = dict(type='IterBasedRunner')", 2.0),
        ({}, "[3, dict(type='EMAHook', priority='HIGH')]\nrunner = 3\ncheckpoint_config = 3", 1.0),
        ({}, '3', 2.0),
        ({'runnerkit_version': '0.1.0'}, '[]', 1.0),
    ],
)
def test_averages_in_files_of_mmcv_and_of_ours(tmp_path, meta, hooks, expected):
    state = {'module.model.weight': torch.ones(1, 4), 'module.model.bias': torch.zeros(1)}
    state['ema_model_weight'] = torch.full((1, 4), 2.0)
    meta = {**meta, 'config': f'{PLAIN}\ncustom_hooks = {hooks}'}
    torch.save({'meta': meta, 'state_dict': state}, tmp_path / 'x.pth')
    assert runnerkit.load_model(tmp_path / 'x.pth', trust=True).model.weight[0, 0] == expected


@pytest.mark.parametrize('meta', [None, [1], 'text'])
def test_a_meta_that_is_no_dict_counts_as_none(tmp_path, meta):
    state = {'model.weight': torch.ones(1, 4), 'model.bias': torch.zeros(1)}
    torch.save({'meta': meta, 'state_dict': state}, tmp_path / 'x.pth')
    model = runnerkit.load_model(tmp_path / 'x.pth', Config.fromstring(PLAIN, '.py'))
    assert torch.equal(model.model.weight, state['model.weight'])
    with pytest.raises(ValueError, match='holds no config'):
        runnerkit.load_model(tmp_path / 'x.pth')


@pytest.mark.thorough  # tests/cli/test_predict.py
def test_a_copy_is_used_when_the_project_is_gone(project, run, tmp_path):
    expected = runnerkit.load_model(run)(X).tolist()
    copy, hidden = tmp_path / "Ann's läuf {{ fileDirname }}", project.with_name('hidden')
    shutil.copytree(run, copy, symlinks=True)
    project.rename(hidden)
    run.rename(project.with_name('hidden_run'))
    try:
        code = 'import json, runnerkit, sys, torch\nmodel = runnerkit.load_model(sys.argv[1])\n'
        code += f'print(json.dumps(model(torch.tensor({X.tolist()})).tolist()))'
        done = subprocess.run(
            [sys.executable, '-c', code, str(copy)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
        )
    finally:
        hidden.rename(project)
        project.with_name('hidden_run').rename(run)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


SCRIPT = """
import pathlib, sys, torch, runnerkit, runnerkit.hooks


@runnerkit.hooks.HOOKS.register_module()
class Watcher(runnerkit.hooks.Hook): ...


class Net(torch.nn.Linear): ...


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((4,), i / 4), torch.tensor([i / 4])


pathlib.Path(sys.argv[0] + '.times').open('a').write('x')
result = runnerkit.train(
    dict(
        model=dict(type='Supervised', model=dict(type=Net, in_features=4, out_features=1), loss=dict(type='MSELoss')),
        data=dict(train=dict(type=Points)),
        optimizer=dict(type='SGD', lr=0.05),
        runner=dict(type='EpochBasedRunner', max_epochs=1),
    ),
    'run',
    device='cpu',
)
model = runnerkit.load_model('run').model
raise SystemExit(type(model) is not Net or not torch.equal(model.weight, result.model.model.weight.cpu()))
"""


def files_in(folder):
    return {path for path in folder.rglob('*') if '__pycache__' not in path.parts}


@pytest.mark.usefixtures('warm')
def test_a_model_of_a_script_that_trains_at_its_top_level_is_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'argv', [str(tmp_path / 'lab.py')])
    (tmp_path / 'lab.py').write_text(SCRIPT)
    path = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, 'lab.py'], check=True, env={**os.environ, 'PYTHONPATH': path})
    before = files_in(tmp_path)
    assert 'lab.py' in {path.name for path in (tmp_path / 'run' / 'code').iterdir()}
    model = runnerkit.load_model('run')
    saved = torch.load('run/latest.pth')['state_dict']
    assert torch.equal(model.model.weight, saved['model.weight'])
    assert files_in(tmp_path) == before
    assert (tmp_path / 'lab.py.times').read_text() == 'xx'  # executed, but only up to the training


def test_the_config_of_a_folder(run, tmp_path):
    assert config_of(run) == run / 'cfg.py'
    assert config_of(str(run)) == run / 'cfg.py'
    assert config_of(f'file://{run}') == run / 'cfg.py'
    assert config_of(run / 'epoch_1.pth') is None
    assert config_of('memory://run') is None
    assert config_of(tmp_path) is None
    (tmp_path / 'mine.yaml').write_text('')
    (tmp_path / '20260101_000000.log.json').write_text('{}')  # no config
    (tmp_path / 'folder.py').mkdir()
    assert config_of(tmp_path) == tmp_path / 'mine.yaml'
    (tmp_path / 'other.py').write_text('')
    assert config_of(tmp_path) is None
    (tmp_path / '.flow.json').write_text('{"config": "other.py"}')
    assert config_of(tmp_path) == tmp_path / 'other.py'
    elsewhere = tmp_path.with_name(f'{tmp_path.name}_elsewhere.py')
    elsewhere.write_text('')
    for name in (f'../{elsewhere.name}', str(elsewhere), 3):
        (tmp_path / '.flow.json').write_text(json.dumps({'config': name}))
        assert config_of(tmp_path) is None


def test_the_folder_above_a_checkpoint_folder_is_its_work_dir(tmp_path):
    (tmp_path / 'epoch_1.pth').mkdir()
    (tmp_path / 'epoch_1.pth' / 'MANIFEST').touch()
    (tmp_path / 'latest.pth').symlink_to('epoch_1.pth')
    assert find_checkpoint(f'{tmp_path}/latest.pth/') == str(tmp_path / 'latest.pth')


def test_errors_say_what_to_do(run, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"rnu.*; did you mean 'run'\?"):
        runnerkit.load_model(run.with_name('rnu'))
    with pytest.raises(FileNotFoundError, match=r"did you mean 'epoch_1.pth'"):
        runnerkit.load_model(run / 'epoch_11.pth')
    with pytest.raises(ValueError, match="cfg.py is a config, not weights.*config='"):
        runnerkit.load_model(run / 'cfg.py')
    with pytest.raises(FileNotFoundError, match='no checkpoint in'):
        runnerkit.load_model(tmp_path)
    torch.save({'model.weight': torch.ones(1, 9)}, tmp_path / 'x.pth')
    with pytest.raises(ValueError, match='x.pth holds no config, so the model is not known: pass the config as a file'):
        runnerkit.load_model(tmp_path / 'x.pth')
    with pytest.raises(ValueError, match=r'does not fit the model of its config.*(?s:.)*size mismatch(?s:.)*config=…'):
        runnerkit.load_model(tmp_path / 'x.pth', config=dict(Config.fromstring(PLAIN, '.py')._cfg_dict))
    torch.save([1], tmp_path / 'list.pth')
    with pytest.raises(ValueError, match='list.pth holds a list'):
        runnerkit.load_model(tmp_path / 'list.pth')
    torch.save({'state_dict': None, 'meta': {'config': PLAIN}}, tmp_path / 'none.pth')
    with pytest.raises(ValueError, match='none.pth holds a NoneType, but a checkpoint is a dict of weights by name'):
        runnerkit.load_model(tmp_path / 'none.pth')
    torch.save({1: torch.ones(1)}, tmp_path / 'numbers.pth')
    with pytest.raises(ValueError, match='numbers.pth holds a dict, but a checkpoint is a dict of weights by name'):
        runnerkit.load_model(tmp_path / 'numbers.pth', run / 'cfg.py')
    with pytest.raises(ValueError, match="config='latest' is not a config: .* write which='latest'"):
        runnerkit.load_model(run, 'latest')
    with pytest.raises(KeyError, match="has no 'model'"):
        runnerkit.load_model(run, config={})


# --- the config of a run, with objects from Python --------------------------------------------------------------------


class Own:
    """Stands for a class of the user."""


KEPT = """
model = dict(
    type='{{ fileDirname }}/code/nets.py:Own', net='<object> Own()', width=64,
    layers=[dict(type='ReLU'), dict(type='a.Own')], more=None)
"""


@pytest.fixture
def laid(tmp_path, caplog):
    def call(text, **model):
        (tmp_path / 'config.py').write_text(text)
        given = Config({'model': model, 'seed': 3})
        found = as_trained(given, tmp_path / 'config.py')
        return found, caplog.text

    return call


def test_the_run_has_the_last_word_on_values_and_python_on_objects(laid):
    net = Own()
    layers = [dict(type='Tanh'), dict(type=Own)]
    found, said = laid(KEPT, type=Own, net=net, width=32, layers=layers, own=1)
    assert found.model.type is Own
    assert found.model.net is net
    assert (found.model.width, found.model.layers[0].type, found.model.layers[1].type) == (64, 'ReLU', Own)
    assert 'own' not in found.model
    assert found.seed == 3
    for told in ('model.width 64 (not 32)', "model.layers[0].type 'ReLU' (not 'Tanh')", 'model.own None (not 1)'):
        assert told in said


@pytest.mark.parametrize('text', [
    KEPT, 'seed = 1', "import os\nmodel = dict(type=os.sep)", "model = __import__('os').system('false')",
])  # fmt: skip
def test_nothing_changes_where_the_run_says_the_same_or_nothing(laid, text):
    net = Own()
    same = dict(type='nets.py:Own', net=net, width=64, layers=[dict(type='ReLU'), dict(type=Own)])
    found, said = laid(text, **same)
    assert found.model.net is net
    assert found.model.type == 'nets.py:Own'
    assert said == ''
