"""A file that would run code is refused by every reader, and read by every reader once the user trusts it."""

import json
import os
import shutil
import sys
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit.checkpoint import _load_checkpoint, _load_checkpoint_with_prefix, load_checkpoint, load_url, schemes
from runnerkit.checkpoint.safe_load import ENV_TRUST_PICKLES, pickles_are_trusted, trusted_pickles
from runnerkit.config import Config
from runnerkit.hooks import EMAHook
from runnerkit.nn import BaseModule, initialize


class Evil:
    """Runs a shell command when it is unpickled, and is a plain dict afterwards."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return eval, (f'__import__("os").system("touch {self.marker}") and {{}} or {{}}',)


@pytest.fixture
def trap(web, tmp_path):
    """A checkpoint of `Tiny` in a folder that is served, which makes ``ran`` when it is unpickled."""
    meta = {'epoch': 0, 'iter': 0, 'evil': Evil(tmp_path / 'ran')}
    state = {**Tiny().state_dict(), **{f'backbone.{name}': value for name, value in Tiny().state_dict().items()}}
    torch.save({'meta': meta, 'state_dict': state}, web.folder / 'evil.pth')
    return web.folder / 'evil.pth'


def from_memory(trap, web, monkeypatch):
    import fsspec

    with fsspec.open('memory://evil.pth', 'wb') as file:
        file.write(trap.read_bytes())
    return _load_checkpoint('memory://evil.pth')


def from_ceph(trap, web, monkeypatch):
    client = SimpleNamespace(get=lambda name: trap.read_bytes())
    monkeypatch.setattr('runnerkit.fileio.file_client.FileClient', lambda backend: client)
    return _load_checkpoint('s3://bucket/evil.pth')


def from_pavi(trap, web, monkeypatch):
    model = SimpleNamespace(name='evil.pth', download=lambda path: shutil.copy(trap, path))
    monkeypatch.setitem(sys.modules, 'pavi', SimpleNamespace(modelcloud=SimpleNamespace(get=lambda name: model)))
    return _load_checkpoint('pavi://evil')


def from_zoo(trap, web, monkeypatch):
    os.makedirs(os.environ['MMCV_HOME'])
    with open(os.path.join(os.environ['MMCV_HOME'], 'open_mmlab.json'), 'w') as file:
        json.dump({'evil': str(trap)}, file)
    return _load_checkpoint('open-mmlab://evil')


def from_torchvision(trap, web, monkeypatch):
    monkeypatch.setattr(schemes, 'get_torchvision_models', lambda: {'evil': f'{web.url}/evil.pth'})
    return _load_checkpoint('torchvision://evil')


def from_mmcls(trap, web, monkeypatch):
    monkeypatch.setattr(schemes, 'get_mmcls_models', lambda: {'evil': f'{web.url}/evil.pth'})
    return _load_checkpoint('mmcls://evil')


def resumed_averages(trap, web, monkeypatch):
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(EMAHook(resume_from=str(trap)))
    runner.run([loader(4)], [('train', 1)])


def pretrained(trap, web, monkeypatch):
    class Net(BaseModule):
        def __init__(self):
            super().__init__({'type': 'Pretrained', 'checkpoint': str(trap)})
            self.tiny = Tiny()

    Net().init_weights()


def pretrained_part(trap, web, monkeypatch):
    initialize(Tiny(), {'type': 'Pretrained', 'checkpoint': str(trap), 'prefix': 'backbone'})


READERS = {
    'load': lambda trap, *_: load_checkpoint(Tiny(), str(trap)),
    'prefix': lambda trap, *_: _load_checkpoint_with_prefix('backbone', str(trap)),
    'resume': lambda trap, *_: tiny_runner(max_epochs=1).resume(str(trap)),
    'load of a runner': lambda trap, *_: tiny_runner(max_epochs=1).load_checkpoint(str(trap)),
    'ema': resumed_averages,
    'pretrained': pretrained,
    'pretrained part': pretrained_part,
    'http': lambda trap, web, _: _load_checkpoint(f'{web.url}/evil.pth'),
    'load_url': lambda trap, web, _: load_url(f'{web.url}/evil.pth', progress=False, weights_only=False),
    'file url': lambda trap, *_: _load_checkpoint(f'file://{trap}'),
    'memory': from_memory,
    's3': from_ceph,
    'pavi': from_pavi,
    'zoo': from_zoo,
    'torchvision': from_torchvision,
    'mmcls': from_mmcls,
}


@pytest.mark.parametrize('reader', READERS)
def test_no_reader_runs_code_unless_it_is_trusted(reader, trap, web, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=f'could run code when loaded.*--trust-pickles, {ENV_TRUST_PICKLES}=1'):
        READERS[reader](trap, web, monkeypatch)
    assert not (tmp_path / 'ran').exists()
    if reader == 'zoo':
        (tmp_path / 'MMCV_HOME' / 'open_mmlab.json').unlink()
        (tmp_path / 'MMCV_HOME').rmdir()
    # Some find the file no good for other reasons, but they have read it.
    with trusted_pickles(), suppress(ValueError, KeyError):
        READERS[reader](trap, web, monkeypatch)
    assert (tmp_path / 'ran').exists()


@pytest.mark.parametrize(
    'tool, flags',
    [('train', ['--load-from']), ('train', ['--resume-from']), ('train', ['--auto-resume']), ('test', [])],
)
def test_the_tools_have_a_flag(tool, flags, tmp_path, monkeypatch, capsys):
    from runnerkit.cli import test, train

    main = {'train': train, 'test': test}[tool].main
    marker = tmp_path / 'ran'
    data = {'type': f'{__file__}:Points'}
    cfg = {
        'model': {
            'type': 'Supervised',
            'model': {'type': 'Linear', 'in_features': 4, 'out_features': 1},
            'loss': {'type': 'MSELoss'},
        },
        'data': {'samples_per_gpu': 2, 'workers_per_gpu': 0, 'train': data, 'test': data},
        'optimizer': {'type': 'SGD', 'lr': 0.1},
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
        'seed': 0,
    }
    Config(cfg).dump(str(tmp_path / 'cfg.py'))
    (tmp_path / 'run').mkdir()
    trap = tmp_path / 'run' / 'epoch_1.pth'
    state = {'model.weight': torch.zeros(1, 4), 'model.bias': torch.zeros(1)}
    torch.save({'meta': {'epoch': 1, 'iter': 2, 'evil': Evil(marker)}, 'state_dict': state}, trap)
    argv = [str(tmp_path / 'cfg.py'), *flags, *([] if flags == ['--auto-resume'] else [str(trap)])]
    work_dir = tmp_path / ('other' if flags == ['--load-from'] else 'run')
    argv += ['--work-dir', str(work_dir)] if tool == 'train' else []
    assert main(argv) == 1
    assert 'could run code when loaded' in capsys.readouterr().err
    assert not marker.exists()
    assert main([*argv, '--trust-pickles']) == 0, capsys.readouterr()
    assert marker.exists()
    assert not pickles_are_trusted()


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return torch.ones(4) * i, torch.ones(1)


@pytest.mark.parametrize('value, trusts', [('1', True), ('TRUE ', True), ('0', False), ('', False), ('maybe', False)])
def test_the_environment(trap, tmp_path, monkeypatch, value, trusts):
    monkeypatch.setenv(ENV_TRUST_PICKLES, value)
    if trusts:
        _load_checkpoint(str(trap))
    else:
        with pytest.raises(ValueError, match='could run code'):
            _load_checkpoint(str(trap))
    assert (tmp_path / 'ran').exists() is trusts


def test_trust_ends_with_its_block_and_is_one_thread_s(trap, caplog):
    elsewhere = []
    with pytest.raises(RuntimeError), trusted_pickles():
        thread = threading.Thread(target=lambda: elsewhere.append(pickles_are_trusted()))
        thread.start()
        thread.join()
        _load_checkpoint(str(trap))
        raise RuntimeError
    assert elsewhere == [False]
    with trusted_pickles(False):  # as a command has without its flag
        assert not pickles_are_trusted()
    assert not pickles_are_trusted()
    assert 'holds objects' in caplog.text


def test_a_damaged_file_is_refused_however_much_it_is_trusted(trap):
    data = bytearray(trap.read_bytes())
    data[data.index(b'touch')] ^= 1
    trap.write_bytes(bytes(data))
    with trusted_pickles(), pytest.raises(ValueError, match='is damaged'):
        _load_checkpoint(str(trap))
