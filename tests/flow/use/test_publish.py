"""Checkpoints to hand on."""

import hashlib
import os
import pickle
from pathlib import Path

import pytest
import torch
from support import loader, tiny_runner
from torch import nn

import runnerkit
from runnerkit.checkpoint import load_url, save_checkpoint
from runnerkit.checkpoint.schemes import HASH_IN_NAME
from runnerkit.flow.use import publish as module
from runnerkit.flow.use.publish import publish
from runnerkit.hooks import EMAHook, OptimizerHook

CONFIG = "model = dict(type='Linear', in_features=4, out_features=2)\n"


def test_the_weights_alone_with_the_hash_in_the_name(tmp_path):
    model = nn.Linear(4, 2)
    meta = dict(config=CONFIG, CLASSES=('a', 'b'), mine=3, epoch=5, iter=50, env_info='here', hook_msgs={'best': 1})
    path = tmp_path / 'run' / 'latest.pth'
    save_checkpoint(model, path, torch.optim.Adam(model.parameters()), meta, state={'progress': {'epoch': 5}})
    found = publish(tmp_path / 'run', tmp_path / 'models' / 'net.pth')
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    assert found == tmp_path / 'models' / f'net-{digest[:8]}.pth'
    content = torch.load(found)
    assert set(content) == {'meta', 'state_dict'}
    kept = {'config', 'CLASSES', 'mine', 'time', 'mmcv_version', 'runnerkit_version'}
    assert set(content['meta']) == kept
    loaded = runnerkit.load_model(found, trust=True)
    assert torch.equal(loaded.weight, model.weight)
    assert loaded.CLASSES == ('a', 'b')
    assert publish(path, tmp_path / 'models' / 'net.pth') == found  # the same bytes each time
    assert os.listdir(tmp_path / 'models') == [found.name]


def test_the_name_passes_the_check_of_a_download(tmp_path):
    save_checkpoint(nn.Linear(4, 2), tmp_path / 'a.pth')
    found = publish(tmp_path / 'a.pth', tmp_path / 'net')
    assert 'weight' in load_url(found.as_uri(), str(tmp_path / 'cache'), check_hash=True)['state_dict']
    content = bytearray(found.read_bytes())
    content[-100] ^= 1
    found.write_bytes(content)
    with pytest.raises(RuntimeError, match='hash'):
        load_url(found.as_uri(), str(tmp_path / 'other'), check_hash=True)


def test_a_hash_does_not_look_like_a_date():
    assert module.with_hash(Path('net.pth'), '20230115abcdef00') == 'net-20230115a.pth'
    assert HASH_IN_NAME.search('net-20230115a.pth')[1] == '20230115a'
    assert module.with_hash(Path('x/net'), 'deadbeef00') == 'net-deadbeef.pth'


def test_averages_are_published(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_hook(OptimizerHook())
    runner.register_hook(EMAHook(momentum=0.5))
    runner.register_checkpoint_hook(dict(interval=1))
    runner.run([loader()], [('train', 1)])
    saved = torch.load(tmp_path / 'latest.pth')['state_dict']
    found = torch.load(publish(tmp_path, tmp_path / 'out.pth'))['state_dict']
    assert found.keys() == {name for name in saved if not name.startswith('ema_')}
    assert all(torch.equal(value, saved[name]) for name, value in found.items())
    assert len(found) < len(saved)


def test_files_of_mmcv_and_weights_without_more(tmp_path):
    averages = dict(meta=dict(epoch=3, config=CONFIG, PALETTE=[[1, 2, 3]]))
    averages['state_dict'] = {'module.weight': torch.zeros(2, 4), 'ema_weight': torch.ones(2, 4)}
    torch.save(averages, tmp_path / 'mmcv.pth')
    found = torch.load(publish(tmp_path / 'mmcv.pth', tmp_path / 'out.pth'))
    assert list(found['state_dict']) == ['weight']
    assert found['state_dict']['weight'].eq(1).all()
    assert set(found['meta']) == {'config', 'PALETTE'}
    # where its EMAHook comes before the saving, the averages are under the model's own names already
    averages['meta']['config'] = CONFIG + "custom_hooks = [dict(type='EMAHook', priority='HIGH')]\n"
    torch.save(averages, tmp_path / 'early.pth')
    assert torch.load(publish(tmp_path / 'early.pth', tmp_path / 'out.pth'))['state_dict']['weight'].eq(0).all()
    torch.save(nn.Linear(4, 2).state_dict(), tmp_path / 'bare.pth')
    found = torch.load(publish(tmp_path / 'bare.pth', tmp_path / 'out.pth'))
    assert found['meta'] == {}
    assert set(found['state_dict']) == {'weight', 'bias'}


def test_a_config_that_is_code_is_neither_run_nor_in_the_way(tmp_path):
    text = f"import os\nos.mkdir('{tmp_path}/ran')\nmodel = dict(type='Linear')\n"
    save_checkpoint(nn.Linear(4, 2), tmp_path / 'a.pth', meta={'config': text})
    assert torch.load(publish(tmp_path / 'a.pth', tmp_path / 'out.pth'))['meta']['config'] == text
    assert not (tmp_path / 'ran').exists()


def test_the_folders_of_the_run_are_not_published(tmp_path):
    places = "load_from = None\nresume_from = '/srv/me/a.pth'\nwork_dir = '/srv/me/run'\n"
    save_checkpoint(nn.Linear(4, 2), tmp_path / 'a.pth', meta={'config': CONFIG + places + 'seed = 1\n'})
    assert torch.load(publish(tmp_path / 'a.pth', tmp_path / 'x.pth'))['meta']['config'] == CONFIG + 'seed = 1\n'


def test_a_meta_of_none_is_none(tmp_path):
    torch.save({'state_dict': nn.Linear(4, 2).state_dict(), 'meta': None}, tmp_path / 'a.pth')
    assert torch.load(publish(tmp_path / 'a.pth', tmp_path / 'x.pth'))['meta'] == {}


class Code:
    def __reduce__(self):
        return os.getcwd, ()


def test_errors_say_what_to_do(tmp_path):
    save_checkpoint(nn.Linear(4, 2), tmp_path / 'a.pth')
    for name, content in {'list': [1], 'number': {'state_dict': 3}, 'empty': {'state_dict': {}}}.items():
        torch.save(content, tmp_path / f'{name}.pth')
        with pytest.raises(ValueError, match=rf'{name}.pth holds no weights'):
            publish(tmp_path / f'{name}.pth', tmp_path / 'x.pth')
    torch.save({'state_dict': {1: torch.ones(1)}}, tmp_path / 'numbers.pth')
    with (tmp_path / 'code.pth').open('wb') as file:
        pickle.dump({'state_dict': Code()}, file)
    for source, out, options, error, text in (
        ('a.pth', 'x.onnx', {}, ValueError, r'published as .pth or .pt, but not as .*x.onnx; .* --out x.onnx'),
        ('a.pth', '..', {}, ValueError, r"published under a name, such as lenet.pth, but got '.*\.\.'"),
        ('a.pth', '.pth', {}, ValueError, 'published under a name'),
        ('numbers.pth', 'x.pth', {}, ValueError, 'under names that are no texts'),
        ('a.pth', 'x.pth', {'which': 'bset'}, ValueError, "but got 'bset'; did you mean 'best'"),
        ('a.pth', 'memory://x/x.pth', {}, ValueError, 'memory://x/x.pth is a URL: give a local path'),
        ('b.pth', 'x.pth', {}, FileNotFoundError, "did you mean 'a.pth'"),
        ('code.pth', 'x.pth', {}, ValueError, 'could run code when loaded.*--trust-pickles'),
    ):
        with pytest.raises(error, match=text):
            publish(tmp_path / source, out if '://' in out else tmp_path / out, **options)
    assert list(tmp_path.glob('x*')) == []
