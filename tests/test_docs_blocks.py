"""Every config and code block of README and docs runs exactly as it stands there.

A block is known by its page and first line. Shell blocks run in the order in which they stand, in a folder with this
repository's `tools`, its demo's config with two epochs, and a `.venv` that leads to this Python.
"""

import csv
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_docs import BLOCK, PAGES, ROOT, dedent, read

from runnerkit.cli.main import main as runnerkit
from runnerkit.cli.train import main
from runnerkit.config import Config
from runnerkit.data.files import dataset_of_files
from runnerkit.flow.switches import compile_options
from runnerkit.hooks import HOOKS, OptimizerHook
from runnerkit.hooks.lr_updater import build_lr_hook
from runnerkit.nn.compiled import compile_model
from runnerkit.utils.imports import import_object

MNIST = ROOT / 'configs' / 'mnist'

#: Shell blocks that cannot run here, by their first line, and why.
NOT_RUN = {
    'make demo': 'installs torch from a package registry; the block after the config runs the same training',
    'make test': 'is this suite',
    'make bench': 'takes half an hour',
    'pip install torch==2.13.0 opencv-python-headless matplotlib': 'installs from a package registry',
    "pip install --no-deps 'setuptools<70' wheel": 'installs from a package registry',
    'pip install --no-deps mmcls==0.25.0 mlxtend==0.25.0': 'installs from a package registry; make downstream runs it',
    'pip install --no-deps mmsegmentation==0.30.0 && pip install prettytable': 'installs from a package registry',
}

#: The blocks that the tests below run, by their first line.
RUN = {
    'README.md': {
        'model = dict(',
        'source .venv/bin/activate',
        'from runnerkit.hooks import HOOKS, Hook',
        "custom_imports = dict(imports=['{{ fileDirname }}/my_hooks.py'])",
        'python tools/train.py configs/mnist/lenet.py --auto-resume',
        "amp = 'bf16'",
        'runnerkit profile configs/mnist/lenet.py --warmup 30 --iters 50 --trace trace.json',
        'python -m runnerkit.compat tools/train.py my_config.py',
    },
    'CONTRIBUTING.md': {'from runnerkit.hooks.hook import HOOKS, Hook, RunnerView'},
    'docs/config_keys.md': {
        'model = dict(',
        'data = dict(',
        'optimizer = dict(',
        "custom_imports = dict(imports=['{{ fileDirname }}/networks.py'])",
        "runner = dict(type='EpochBasedRunner', max_epochs=2)",
        "workflow = [('train', 1)]",
        'optimizer_config = dict(grad_clip=dict(max_norm=10.0), cumulative_iters=2)',
        'lr_config = dict(',
        "momentum_config = dict(policy='step', step=[1], gamma=0.5)",
        "log_config = dict(interval=10, hooks=[dict(type='TextLoggerHook'), dict(type='TensorboardLoggerHook')])",
        "evaluation = dict(interval=1, save_best='accuracy')",
        'checkpoint_config = dict(interval=1, max_keep_ckpts=3)',
        "custom_hooks = [dict(type='EMAHook', momentum=0.01), dict(type='NonFiniteHook', priority='LOW')]",
        'num_threads = 1',
    },
    'docs/experiment.md': {'import torch', 'seed = 0'},
    'docs/hooks.md': {'custom_hooks = [', 'dict('},
    'docs/mmcv.md': {
        'import runnerkit.compat',
        'python -m runnerkit.compat tools/train.py my_config.py --work-dir work_dirs/run',
    },
    'docs/preflight.md': {'import torch'},
    'docs/python.md': {'import runnerkit'},
    'docs/recipes.md': {
        "custom_hooks = [dict(type='EarlyStoppingHook', monitor='accuracy', patience=3)]",
        "digits = '{{ fileDirname }}/digits.py:Digits'",
        "data = dict(val_hard=dict(type='{{ fileDirname }}/digits.py:Digits', part='test'))",
        "custom_hooks = [dict(type='FreezeHook', patterns=['model.features.*'], until=3)]",
        "optimizer = dict(paramwise_cfg=dict(custom_keys={'features': dict(lr_mult=0.1)}))",
        'runnerkit summary config.py',
        'runnerkit find-lr config.py --iters 60 --out find_lr.png',
        'runnerkit train config.py --overfit 32',
    },
    'docs/switches.md': {'compile = True'},
    'docs/terminal.md': {'runnerkit train configs/mnist/lenet.py', 'source <(runnerkit completion bash)'},
    'docs/using_a_model.md': {
        'runnerkit predict work_dirs/lenet my_digit.png my_digit.npy --apply argmax',
        'import runnerkit',
        'import numpy as np',
    },
}

#: A script for MMCV 1.x, which the shell blocks about it call.
MMCV_SCRIPT = """
import argparse

import torch
from mmcv import Config
from mmcv.runner import EpochBasedRunner, init_dist

parser = argparse.ArgumentParser()
parser.add_argument('config')
parser.add_argument('--work-dir', default='work_dirs/mine')
parser.add_argument('--launcher', default='none')
args = parser.parse_args()
if args.launcher != 'none':
    init_dist(args.launcher, backend='gloo')


class Line(torch.nn.Linear):
    def train_step(self, data, optimizer):
        loss = self(data).square().mean()
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data))


cfg = Config.fromfile(args.config)
model = Line(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr)
runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=args.work_dir, max_epochs=1)
runner.register_training_hooks(None, dict(), dict(interval=1))
runner.run([[torch.ones(3, 2)]], [('train', 1)])
print('trained by', EpochBasedRunner.__module__)
"""


def found(page):
    """The page's blocks that are code, by their first lines up to a comment: (language, text)."""
    blocks = ((language, dedent(code)) for _, language, code in BLOCK.findall(read(page)) if language != 'text')
    return {code.split('\n', 1)[0].split('  #')[0].rstrip(): (language, code) for language, code in blocks}


def text_of(page, first):
    return next(code for start, (_, code) in found(page).items() if start.startswith(first))


@pytest.mark.parametrize('page', [page for page in PAGES if page != 'docs/seeds.md'])
def test_every_block_is_run_or_cannot_be(page):
    blocks = found(page)
    run = RUN.get(page, set())
    assert run <= set(blocks)
    for first, (language, code) in blocks.items():
        assert first in run or first in NOT_RUN, f'{page}: nobody runs the block {first!r}'
        assert language == 'bash' or first not in NOT_RUN, f'{page}: {first!r} is no shell block'
        assert language in ('python', 'bash'), f'{page}: say what language the block {code!r} is in'


# --- configs and Python ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with the README's config, and what its user has written beside it."""
    for name in ('digits.py', 'networks.py'):
        (tmp_path / name).write_text((MNIST / name).read_text())
    (tmp_path / 'config.py').write_text(text_of('README.md', 'model = dict('))
    return tmp_path


def train(path, *options):
    """Train, and return the log's lines."""
    work_dir = path.parent / f'run_{path.stem}'
    assert main([str(path), '--work-dir', str(work_dir), '--device', 'cpu', *options]) == 0
    (log,) = work_dir.glob('*.log.json')
    return [json.loads(line) for line in log.read_text().splitlines()][1:]


QUICK = ['--cfg-options', 'runner.max_epochs=1', 'data.train.part=test', 'log_config.interval=4']


def test_the_config_of_the_readme_trains_logs_evaluates_and_saves(folder):
    lines = train(folder / 'config.py')
    losses = [line['loss'] for line in lines if line['mode'] == 'train']
    scores = [line['accuracy'] for line in lines if line['mode'] == 'val']
    assert losses[-1] < losses[0] / 4
    assert len(scores) == 12
    assert scores[-1] > 0.95
    names = {path.name for path in (folder / 'run_config').glob('*.pth')}
    assert {'epoch_10.pth', 'epoch_11.pth', 'epoch_12.pth', 'latest.pth'} <= names
    assert len(names) == 5  # and the best


def test_the_hook_of_the_readme_ends_a_run(folder, caplog):
    (folder / 'my_hooks.py').write_text(text_of('README.md', 'from runnerkit.hooks import HOOKS, Hook'))
    added = text_of('README.md', 'custom_imports = dict(')
    (folder / 'with_hook.py').write_text(f"_base_ = ['config.py']\n{added}")
    try:
        lines = train(folder / 'with_hook.py', *QUICK, 'custom_hooks.0.loss=1e9', 'runner.max_epochs=3')
    finally:
        HOOKS.module_dict.pop('StopWhenGood', None)
    assert 'stopped: the loss is below 1000000000.0' in caplog.text
    assert {line['epoch'] for line in lines} == {1}


def test_the_switches_of_the_readme_train(folder, monkeypatch):
    # The default backend compiles C++ for a minute; this one compiles everything but that.
    compiled = []
    plain = torch.compile
    monkeypatch.setattr(
        torch, 'compile', lambda *args, **options: compiled.append(1) or plain(*args, **{**options, 'backend': 'eager'})
    )
    (folder / 'switches.py').write_text(f"_base_ = ['config.py']\n{text_of('README.md', 'amp =')}")
    lines = train(folder / 'switches.py', *QUICK)
    assert lines[-1]['accuracy'] > 0.3
    assert compiled


def test_the_recipes_train(folder):
    for index, (language, recipe) in enumerate(found('docs/recipes.md').values()):
        if language == 'python':
            path = folder / f'recipe_{index}.py'
            path.write_text(f"_base_ = ['config.py']\n{recipe}")
            assert train(path, *QUICK)


def test_the_sections_of_the_page_about_keys_are_one_config(folder):
    (folder / 'every.py').write_text('\n'.join(code for _, code in found('docs/config_keys.md').values()))
    lines = train(folder / 'every.py', *QUICK[:3])
    assert [line['accuracy'] for line in lines if line['mode'] == 'val']
    assert {'grad_norm', 'lr_groups'} <= set(lines[0])
    assert list((folder / 'run_every' / 'tf_logs').iterdir())


def test_the_hooks_of_the_page_about_hooks_are_built(folder):
    lines = eval(text_of('docs/hooks.md', 'dict('))
    assert build_lr_hook(lines).scheduler == 'SequentialLR'
    (folder / 'hooks.py').write_text(f"_base_ = ['config.py']\n{text_of('docs/hooks.md', 'custom_hooks')}")
    assert train(folder / 'hooks.py', *QUICK)


def test_the_summary_of_the_recipes_shows_the_model(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert runnerkit(text_of('docs/recipes.md', 'runnerkit summary').split()[1:]) == 0
    assert 'model.features' in capsys.readouterr().out


def test_the_learning_rate_of_the_recipes_is_found(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert runnerkit(text_of('docs/recipes.md', 'runnerkit find-lr').split()[1:]) == 0
    assert (folder / 'find_lr.png').exists()
    assert 1e-3 < float(re.search(r'Try optimizer.lr=([^;]+);', capsys.readouterr().out)[1]) < 5


def test_overfitting_as_in_the_recipes(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = text_of('docs/recipes.md', 'runnerkit train').split()[1:]
    assert runnerkit([*words, *QUICK[:2], '--device', 'cpu']) == 0
    assert 'the first 32 samples' in capsys.readouterr().err


def test_each_compile_of_the_switches_is_one(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, 'compile', lambda *args, **options: seen.append(options) or args[0])
    for line in text_of('docs/switches.md', 'compile = True').splitlines():
        model = torch.nn.Module()
        model.backbone, model.head = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        model.forward = model.backbone.forward
        compile_model(model, **compile_options(Config.fromstring(line, '.py')))
    assert [options.get('mode') for options in seen] == [None, 'reduce-overhead', None, None]


def test_the_experiment_trains_alone_and_from_a_config(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    code = text_of('docs/experiment.md', 'import torch')
    exec(compile(code, 'docs/experiment.md', 'exec'), {})
    done, score = capsys.readouterr().out.split(' ', 1)
    assert done == '200'
    assert float(re.search('value=([0-9.]+)', score)[1]) > 0.9
    (tmp_path / 'my_experiment.py').write_text(code.partition('config = dict(')[0])
    (tmp_path / 'config.py').write_text(text_of('docs/experiment.md', 'seed = 0'))
    assert main(['config.py', '--work-dir', 'run', '--device', 'cpu']) == 0
    assert list((tmp_path / 'run').glob('best_accuracy_iter_*.pth'))


def test_the_preflight_in_python_says_what_the_page_says(capsys):
    code = text_of('docs/preflight.md', 'import torch')
    exec(compile(code, 'docs/preflight.md', 'exec'), {})
    expected = code.rsplit('# ', 1)[1].strip()
    assert capsys.readouterr().out.splitlines()[0].endswith(expected)


def test_the_hook_of_contributing_is_built_by_name():
    from support import loader, tiny_runner

    space = {}
    exec(text_of('CONTRIBUTING.md', 'from runnerkit.hooks.hook'), space)
    try:
        runner = tiny_runner(max_epochs=9)
        runner.register_hook(OptimizerHook())
        runner.register_hook_from_cfg(dict(type='StopAtLossHook', threshold=1e9))
    finally:
        HOOKS.module_dict.pop('StopAtLossHook')
    runner.run([loader()], [('train', 1)])
    assert runner.outcome.reason == 'the loss is below 1000000000.0'
    assert runner.epoch == 1


# --- shells ----------------------------------------------------------------------------------------------------------

ACTIVATE = 'export PATH="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd):$PATH"\n'


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """Run a block in a new folder, line by line; what it has printed."""
    binaries = tmp_path / '.venv' / 'bin'
    binaries.mkdir(parents=True)
    (binaries / 'activate').write_text(ACTIVATE)
    for name, module in (('python', ''), ('torchrun', '-m torch.distributed.run'), ('runnerkit', '-m runnerkit')):
        (binaries / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (binaries / name).chmod(0o755)
    (tmp_path / 'tools').symlink_to(ROOT / 'tools')
    shutil.copytree(MNIST, tmp_path / 'configs' / 'mnist')
    config = tmp_path / 'configs' / 'mnist' / 'lenet.py'
    assert 'max_epochs=12' in config.read_text()
    config.write_text(config.read_text().replace('max_epochs=12', 'max_epochs=2'))
    own = {'PYTHONPATH': str(ROOT), 'HOME': str(tmp_path), 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': ''}
    environment = {**os.environ, **own}
    monkeypatch.chdir(tmp_path)

    def run(block):
        said = ''
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if '>' not in words and words[0] == 'runnerkit' or (words[0] == 'python' and words[1].startswith('tools/')):
                code, output = called(words, monkeypatch), capsys.readouterr()
                said += output.out + output.err
            else:
                done = subprocess.run(
                    ['bash', '-e', '-c', f'source .venv/bin/activate\n{line}'],
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                code, said = done.returncode, said + done.stdout
            assert code in (0, None), f'{line}: {code}\n{said}'
        return said

    return run


def called(words, monkeypatch):
    """Run a command of this package in this process, which has imported torch already; returns its exit code."""
    monkeypatch.setattr(sys, 'argv', words if words[0] == 'runnerkit' else words[1:])
    try:
        if words[0] == 'runnerkit':
            runpy.run_module('runnerkit', run_name='__main__')
        else:
            runpy.run_path(words[1], run_name='__main__')
    except SystemExit as end:
        return end.code
    return 0


def test_the_commands_of_the_readme_run(shell, tmp_path):
    said = shell(text_of('README.md', 'source .venv'))
    shutil.copytree(tmp_path / 'work_dirs' / 'lenet', tmp_path / 'work_dirs' / 'demo')  # which `make demo` makes
    assert float(re.search(r'test accuracy: (.*)', said)[1]) > 0.5
    assert 'THE WEIGHTS' not in said
    said = shell(text_of('README.md', 'python tools/train.py configs/mnist/lenet.py --auto-resume'))
    assert said.count('resumed from') == 3
    said = shell(text_of('README.md', 'runnerkit profile'))
    assert 'whole' in said
    assert (tmp_path / 'trace.json').stat().st_size > 0


def test_the_training_of_the_python_page_runs(shell):
    names = {}
    exec(text_of('docs/python.md', 'import runnerkit'), names)
    result = names['result']
    assert result.scores['accuracy'] > 0.5
    assert Path(result.best_checkpoint).parent == result.work_dir == Path('work_dirs/python').absolute()
    assert {'train', 'val'} == {record['mode'] for record in result.history}


def test_the_commands_of_the_terminal_page_run(shell, tmp_path):
    assert 'Learning curve' in shell(text_of('docs/terminal.md', 'runnerkit train'))
    scripts = ['.local/share/bash-completion/completions/runnerkit', '.zfunc/_runnerkit']
    scripts.append('.config/fish/completions/runnerkit.fish')
    for script in scripts:
        (tmp_path / script).parent.mkdir(parents=True)
    shell(text_of('docs/terminal.md', 'source <('))
    assert all('profile' in (tmp_path / script).read_text() for script in scripts)


def test_the_page_about_using_a_model(shell, tmp_path, monkeypatch):
    from PIL import Image

    called(shlex.split('runnerkit train configs/mnist/lenet.py --cfg-options runner.max_epochs=1'), monkeypatch)
    digits = import_object(f'{MNIST}/digits.py:Digits')('test')
    image, label = digits[0]
    np.save(tmp_path / 'my_digit.npy', image[0].numpy())
    Image.fromarray((image[0] * 255).round().to(torch.uint8).numpy()).save(tmp_path / 'my_digit.png')
    said = shell(text_of('docs/using_a_model.md', 'runnerkit predict'))
    assert said.count(f'"prediction": {label}') == 2
    rows = list(csv.DictReader((tmp_path / 'digits.csv').open()))
    found = [max(range(10), key=lambda i: float(row[f'prediction_{i}'])) for row in rows]
    assert np.mean(found == digits.labels.numpy()) > 0.8
    assert np.load(tmp_path / 'digits.npy').shape == (500, 10)
    assert len(json.loads((tmp_path / 'digits.json').read_text())) == 1000
    space = {}
    exec(text_of('docs/using_a_model.md', 'import runnerkit'), space)
    assert space['digits'] == [label, label]
    assert not space['model'].training
    assert len(space['scores']) == 1000
    exec(text_of('docs/using_a_model.md', 'import numpy as np'), space)
    ((sample,),) = dataset_of_files({'type': space['Signals'], 'scale': 2}, ['my_digit.npy'])
    assert torch.equal(sample, image[0])


def test_the_commands_for_scripts_of_mmcv_run(shell, tmp_path):
    (tmp_path / 'tools').unlink()
    for name in ('tools', 'my_package'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'train.py').write_text(MMCV_SCRIPT)
    (tmp_path / 'my_config.py').write_text('lr = 0.1\n')
    said = shell(text_of('README.md', 'python -m runnerkit.compat'))
    assert said.count('trained by runnerkit.runner.epoch_based_runner') == 1
    said = shell(text_of('docs/mmcv.md', 'python -m runnerkit.compat'))
    assert said.count('trained by runnerkit.runner.epoch_based_runner') == 4  # the last command has two processes
    assert {path.name for path in (tmp_path / 'work_dirs').iterdir()} == {'mine', 'run'}


def test_installing_the_old_names_in_python():
    code = text_of('docs/mmcv.md', 'import runnerkit.compat') + '\nimport mmcv.runner\nprint(mmcv.runner.__name__)'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': str(ROOT)}
    )
    assert done.stdout.strip() == 'runnerkit.runner', done.stderr
