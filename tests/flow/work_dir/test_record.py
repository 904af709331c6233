"""Work dirs that this user's own runs have made, and others, whose code is not executed."""

import json
import os
import py_compile
import shutil
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import torch

import runnerkit
from runnerkit.checkpoint import save_checkpoint
from runnerkit.cli.main import main
from runnerkit.flow.work_dir import record
from runnerkit.flow.work_dir.previous_runs import files_of_a_run
from runnerkit.flow.work_dir.record import NOT_MADE_HERE, config_of, is_made_here, read_record, seal, write_record
from runnerkit.utils.user_files import file_of_module

NETS = """
import pathlib
import torch
from .parts import WIDTH

pathlib.Path(__file__).with_name('ran').touch()


class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(WIDTH, 1)


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.full((4,), i / 4), torch.tensor([i / 4])
"""
CONFIG = """
model = dict(type='Supervised', model=dict(type='{{ fileDirname }}/nets.py:Net'), loss=dict(type='MSELoss'))
points = dict(type='{{ fileDirname }}/nets.py:Points')
data = dict(samples_per_gpu=4, train=points, test=points)
optimizer = dict(type='SGD', lr=0.05)
runner = dict(type='EpochBasedRunner', max_epochs=1)
"""


def key_file():
    return Path(os.environ['XDG_STATE_HOME'], 'runnerkit', 'work_dirs.key')


@pytest.fixture(scope='module')
def original(tmp_path_factory):
    """The work dir of a training, whose project is gone."""
    project = tmp_path_factory.mktemp('made') / 'project'
    project.mkdir()
    (project / 'nets.py').write_text(NETS)
    (project / 'parts.py').write_text('WIDTH = 4\n')
    (project / 'cfg.py').write_text(CONFIG)
    run = runnerkit.train(project / 'cfg.py', project.parent / 'run', device='cpu').work_dir
    shutil.rmtree(project)
    return run


@pytest.fixture
def run(original, tmp_path):
    """A copy of it that nobody else uses, in a process that has not imported its code yet."""
    for name in [name for name in sys.modules if name.endswith(('.nets', '.parts')) and file_of_module(name)]:
        del sys.modules[name]
    return Path(shutil.copytree(original, tmp_path / 'run', symlinks=True))


def executed(run):
    return list(run.rglob('ran'))


def test_a_copy_on_the_same_machine_is_used_as_it_is(run):
    assert is_made_here(config_of(run))
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
    assert len(runnerkit.predict(run)) == 4
    assert runnerkit.test(run, device='cpu')['loss'] >= 0
    assert executed(run)
    assert is_made_here(config_of(run))  # what it is used for changes nothing
    assert not list(run.rglob('__pycache__'))


def edit(text):
    return lambda run: (run / 'code' / 'nets.py').write_text(NETS + text)


def forged(run):
    record = json.loads((run / '.flow.json').read_text())
    (run / '.flow.json').write_text(json.dumps({**record, 'seal': '0' * 64}))
    (run / 'code' / 'nets.py').write_text(NETS + '# changed')


def other_config(run):
    record = json.loads((run / '.flow.json').read_text())
    (run / 'evil.py').write_text((run / 'cfg.py').read_text() + '# changed')
    (run / '.flow.json').write_text(json.dumps({**record, 'config': 'evil.py'}))


def other_code(run):
    record = json.loads((run / '.flow.json').read_text())
    (run / 'code').rename(run / 'other')
    (run / 'cfg.py').write_text((run / 'cfg.py').read_text().replace('/code/', '/other/'))
    (run / '.flow.json').write_text(json.dumps({**record, 'code': 'other'}))


def unsealed(value):
    def change(run):
        record = json.loads((run / '.flow.json').read_text())
        (run / '.flow.json').write_text(json.dumps({**record, 'seal': value}))

    return change


def without_config(run):
    record = json.loads((run / '.flow.json').read_text())
    (run / '.flow.json').write_text(json.dumps({**record, 'config': None}))


#: What may be done to a work dir, or to the key, so that it is not the one that a run here has written.
CHANGES = {
    'edited code': edit('# changed'),
    'edited neighbour': lambda run: (run / 'code' / 'parts.py').write_text('WIDTH = 2 + 2'),
    'a neighbour more': lambda run: (run / 'code' / 'torch.py').write_text(''),
    'a compiled neighbour': lambda run: (run / 'code' / 'parts.abi3.so').write_text(''),
    'a neighbour in a folder': lambda run: (
        (run / 'code' / 'parts').mkdir(),
        (run / 'code' / 'parts' / '__init__.py').touch(),
    ),
    'a neighbour in a linked folder': lambda run: (run / 'code' / 'more').symlink_to(run),
    'a neighbour less': lambda run: (run / 'code' / 'parts.py').unlink(),
    'edited config': lambda run: (run / 'cfg.py').write_text((run / 'cfg.py').read_text() + 'import os\n'),
    'another config': other_config,
    'another code folder': other_code,
    'a forged seal': forged,
    'a seal of another kind': unsealed(3),
    'a seal that is no ASCII': unsealed('é'),
    'no seal, as in older versions': unsealed(None),
    'a seal without a config': without_config,
    'no record': lambda run: (run / '.flow.json').unlink(),
    'a record of another kind': lambda run: (run / '.flow.json').write_text('[]'),
    'another key': lambda run: (key_file().parent.mkdir(), key_file().write_bytes(b'k' * 32)),
    'no key': None,
    'a key that was cut': lambda run: (key_file().parent.mkdir(), key_file().write_bytes(b'k')),
}


@pytest.mark.parametrize('change', CHANGES.values(), ids=CHANGES)
def test_code_that_no_run_here_has_written_is_not_executed(run, tmp_path, change, request, monkeypatch, capsys):
    if 'key' in request.node.callspec.id:
        monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
    if change is not None:
        change(run)
    assert main(['predict', str(run), 'test']) == 1
    assert NOT_MADE_HERE in capsys.readouterr().err
    for use in (runnerkit.load_model, runnerkit.test):
        with pytest.raises(ValueError, match='none of your runs on this machine'):
            use(run)
    assert not executed(run)


def test_trust_executes_it(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'elsewhere'))
    assert main(['predict', str(run), 'test', '--trust', '--device', 'cpu']) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4
    assert runnerkit.test(run, device='cpu', trust=True)
    assert runnerkit.load_model(run, trust=True).model.weight.shape == (1, 4)
    assert not (tmp_path / 'elsewhere').exists()  # to use a work dir writes nothing


def test_a_config_from_python_is_not_changed_by_a_work_dir_from_elsewhere(run, tmp_path):
    mine = {'model': dict(type='Supervised', model=dict(type='Linear', in_features=4, out_features=1), loss=len)}
    made = dict(type='os.mkdir', path=str(tmp_path / 'made'))
    (run / 'cfg.py').write_text(f"model = dict(type='Supervised', model={made!r}, loss='builtins.len')")
    network = torch.nn.Module()
    network.model = torch.nn.Linear(4, 1)
    save_checkpoint(network, run / 'epoch_1.pth')
    runnerkit.load_model(run, config=mine)
    runnerkit.export(run, tmp_path / 'x.pt2', config=mine, shape=(4,))
    assert runnerkit.load_model(run, config=runnerkit.Config(mine)).model.weight.shape == (1, 4)
    assert not (tmp_path / 'made').exists()
    with pytest.raises(TypeError, match='torch.nn.Module is needed'):
        runnerkit.load_model(run, config=mine, trust=True)
    assert (tmp_path / 'made').exists()


@pytest.fixture
def project(tmp_path):
    for name, text in (('nets.py', NETS), ('parts.py', 'WIDTH = 4\n'), ('cfg.py', CONFIG)):
        (tmp_path / name).write_text(text)
    (tmp_path / 'victim').mkdir()
    (tmp_path / 'victim' / 'nets.py').write_text('# mine')
    (tmp_path / 'foreign').mkdir()
    return tmp_path


RECORDS = ['../victim', 'ABSOLUTE', '..', '.', '', 'a\0b', ['code'], 3]


@pytest.mark.parametrize('code', RECORDS, ids=map(str, range(len(RECORDS))))
def test_a_run_writes_nowhere_else_than_its_work_dir(project, code):
    code = str(project / 'victim') if code == 'ABSOLUTE' else code
    (project / 'foreign' / '.flow.json').write_text(json.dumps({'config': ['x'], 'code': code, 'jobs': 5}))
    run = runnerkit.train(project / 'cfg.py', project / 'foreign', resume=True, device='cpu').work_dir
    assert [path.name for path in (project / 'victim').iterdir()] == ['nets.py']
    assert (project / 'victim' / 'nets.py').read_text() == '# mine'
    assert {path.name for path in (run / 'code').iterdir()} >= {'nets.py', 'parts.py'}
    assert is_made_here(config_of(run))


@pytest.mark.parametrize('name', ['code/torch.py', 'code_run/more/__init__.py'])
def test_a_run_does_not_seal_the_code_of_others(project, name):
    """A work dir from elsewhere in which a run of the user goes on, with their own config."""
    folder = project / 'foreign'
    (folder / 'code').mkdir()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    if name == 'code/torch.py':
        (folder / '.flow.json').write_text(json.dumps({'config': 'cfg.py', 'code': 'code'}))
    command = ['train', str(project / 'cfg.py'), '--work-dir', str(folder), '--device', 'cpu', '--auto-resume']
    assert main(command) == 0
    assert not is_made_here(config_of(folder))
    with pytest.raises(ValueError, match='--trust'):
        runnerkit.load_model(folder)
    (folder / name).unlink()
    assert main(command) == 0
    assert is_made_here(config_of(folder))


def test_a_run_of_the_users_own_goes_on_with_code_that_it_no_longer_needs(project):
    run = runnerkit.train(project / 'cfg.py', project / 'run', device='cpu').work_dir
    (project / 'nets.py').write_text(NETS.replace('from .parts import WIDTH', 'WIDTH = 4'))
    (project / 'parts.py').unlink()
    runnerkit.train(project / 'cfg.py', run, device='cpu', resume=True)
    assert (run / 'code' / 'parts.py').exists()
    assert is_made_here(config_of(run))


def test_a_link_in_the_work_dir_is_not_written_through(project):
    (project / 'foreign' / '.flow.json').write_text(json.dumps({'config': 'cfg.py', 'code': 'code'}))
    (project / 'foreign' / 'code').symlink_to(project / 'victim')
    with pytest.raises(ValueError, match='leads out of the work dir'):
        runnerkit.train(project / 'cfg.py', project / 'foreign', resume=True, device='cpu')
    assert (project / 'victim' / 'nets.py').read_text() == '# mine'


def test_compiled_files_are_not_believed(run):
    nets, changed = run / 'code' / 'nets.py', run.parent / 'nets.py'
    changed.write_text(NETS.replace("'ran'", "'evl'"))
    os.utime(changed, ns=(nets.stat().st_atime_ns, nets.stat().st_mtime_ns))
    assert changed.stat().st_size == nets.stat().st_size
    py_compile.compile(str(changed), cache_from_source(nets))
    assert Path(cache_from_source(nets)).is_file()
    runnerkit.load_model(run)
    assert (run / 'code' / 'ran').exists()
    assert not list(run.rglob('evl'))


def test_data_alone_is_not_built_either(run):
    (run / 'cfg.py').write_text("model = dict(type='Linear', in_features=4, out_features=1)")
    with pytest.raises(ValueError, match='--trust'):
        runnerkit.load_model(run)


def test_a_checkpoint_has_the_config_of_its_work_dir(run, tmp_path, monkeypatch):
    assert runnerkit.load_model(run / 'epoch_1.pth').model.weight.shape == (1, 4)
    assert executed(run)
    monkeypatch.chdir(run)
    assert len(runnerkit.predict('latest.pth')) == 4
    edit('# changed')(run)
    for use in (runnerkit.load_model, runnerkit.predict, lambda path: runnerkit.predict(run, checkpoint=path)):
        with pytest.raises(ValueError, match='--trust'):
            use(run / 'epoch_1.pth')


def test_a_config_beside_the_parts_of_a_checkpoint_is_not_executed(run, monkeypatch):
    """A sharded checkpoint is a folder, too."""
    (run / '.flow.json').unlink()
    (run / 'cfg.py').write_text("import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n")
    with pytest.raises(ValueError, match='none of your runs'):
        runnerkit.load_model(run)
    assert not executed(run)


def test_commands_that_need_records_or_weights_alone_import_nothing(run, tmp_path, capsys):
    text = (run / 'cfg.py').read_text()
    (run / 'code' / 'nets.py').write_text("raise SystemExit('executed')")
    (run / 'cfg.py').write_text(text + "custom_imports = dict(imports=['{{ fileDirname }}/code/nets.py'])\n")
    assert main(['print-config', str(run / 'cfg.py')]) == 0
    assert main(['publish', str(run), str(tmp_path / 'x.pth')]) == 0
    assert main(['convert', str(run), str(tmp_path / 'x.safetensors')]) == 0
    assert main(['ctl', str(run), 'status']) == 1
    assert 'executed' not in capsys.readouterr().err


def test_the_record_adds_up_and_a_damaged_one_is_none(tmp_path):
    assert read_record(tmp_path) == {}
    write_record(tmp_path, config='a.py')
    write_record(tmp_path, jobs=['slurm 1'])
    assert read_record(tmp_path) == {'config': 'a.py', 'jobs': ['slurm 1']}
    for text in ('{"config"', '[1]'):
        (tmp_path / '.flow.json').write_text(text)
        assert read_record(tmp_path) == {}


def test_the_config_of_an_older_version_is_known_by_the_log(tmp_path):
    (tmp_path / '20261121_114345.log.json').write_text('{"env_info": "x", "seed": 1, "exp_name": "lenet.py"}\n{}\n')
    (tmp_path / 'lenet.py').write_text('')
    assert read_record(tmp_path) == {'config': 'lenet.py'}
    assert 'lenet.py' in files_of_a_run(tmp_path)


# --- the key ---------------------------------------------------------------------------------------------------------


def test_one_key_whoever_comes_first(monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'new'))
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: record._key(make=True), range(8)))
    assert keys == {key_file().read_bytes()}
    assert os.listdir(tmp_path / 'new' / 'runnerkit') == ['work_dirs.key']


def test_nothing_is_sealed_with_a_key_that_was_cut(run, monkeypatch, tmp_path):
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path))
    for text in (b'', b'k'):
        key_file().parent.mkdir(exist_ok=True)
        key_file().write_bytes(text)
        assert seal(run, {'config': 'cfg.py'}) is None


@pytest.mark.parametrize('state', ['', 'relative'])
def test_where_the_key_is(monkeypatch, tmp_path, state):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.setenv('XDG_STATE_HOME', state)
    assert record._key() is None
    key = record._key(make=True)
    assert (tmp_path / '.local' / 'state' / 'runnerkit' / 'work_dirs.key').read_bytes() == key


def test_a_run_without_a_place_for_the_key_says_so_and_goes_on(monkeypatch, tmp_path, capsys):
    (tmp_path / 'file').touch()  # for root, no folder is read-only
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'file'))
    (tmp_path / 'nets.py').write_text(NETS)
    (tmp_path / 'parts.py').write_text('WIDTH = 4\n')
    (tmp_path / 'cfg.py').write_text(CONFIG)
    run = runnerkit.train(tmp_path / 'cfg.py', tmp_path / 'run', device='cpu').work_dir
    assert 'the work dir is not sealed: to run its code later, add --trust' in next(run.glob('*.log')).read_text()
    with pytest.raises(ValueError, match='none of your runs'):
        runnerkit.load_model(run)
    assert runnerkit.load_model(run, trust=True)
