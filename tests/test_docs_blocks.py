"""Every config and code block of README and docs runs exactly as it stands there.

A block is known by its page and first line. Shell blocks run in the order in which they stand, in a folder with this
repository's `tools`, its demo's config with two epochs, and a `.venv` that leads to this Python.
"""

import ast
import csv
import gzip
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from importlib import metadata
from itertools import count as count_up
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import wrapping_runs
import yaml
from installed import install
from printed import check_printed
from support import free_port, loader, tiny_runner
from test_docs import BLOCK, PAGES, ROOT, dedent, read

import runnerkit as runnerkit_package
from runnerkit.checkpoint.conditions import changes, hook_changes, loader_changes, table
from runnerkit.cli.main import main as runnerkit
from runnerkit.cli.train import main
from runnerkit.compat.vega.callbacks import CALLBACKS
from runnerkit.compat.vega.config import config_of_step
from runnerkit.compat.vega.networks import FAMILIES
from runnerkit.config import Config
from runnerkit.config.config import import_modules_of
from runnerkit.data import build_dataloader
from runnerkit.data.files import dataset_of_files
from runnerkit.data.kinds import loader_facts
from runnerkit.flow import Flow, Options
from runnerkit.flow.stages.defaults import compile_options
from runnerkit.hooks import HOOKS, Hook, OptimizerHook, build_lr_hook
from runnerkit.nn import METRICS, build_model
from runnerkit.nn.compiled import compile_model
from runnerkit.parallel.same_weights import local_tensors
from runnerkit.search.pipeline import Pipeline
from runnerkit.utils.imports import import_object

MNIST = ROOT / 'configs' / 'mnist'

#: Shell blocks that cannot run here, by their first line, and why.
NOT_RUN = {
    'make demo': 'installs torch from a package registry; docs/terminal.md runs the same training',
    'make test': 'is this suite',
    'python tools/kill_and_resume.py my_config.py': 'tests/tools/test_kill_and_resume.py runs it',
    'make bench': 'takes an hour',
    'pip install torch==2.13.0 opencv-python-headless matplotlib': 'installs from a package registry',
    "pip install --no-deps 'setuptools<70' wheel": 'installs from a package registry',
    'pip install --no-deps mmcls==0.25.0 mlxtend==0.25.0': 'installs from a package registry; make downstream runs it',
    'NNODES=2 NODE_RANK=0 MASTER_ADDR=node0 PORT=29500 tools/dist_train.sh configs/mnist/lenet.py 8': 'for 2 machines',
    'mpirun -np 16 -x MASTER_ADDR=node0 python tools/train.py configs/mnist/lenet.py --launcher mpi': 'needs MPI',
    'GPUS=16 GPUS_PER_NODE=8 tools/slurm_train.sh my_partition my_job configs/mnist/lenet.py work_dirs/lenet': 'is for '
    'Slurm; tests/tools/test_launch_scripts.py has one that is made up',
    'torchrun --nnodes 2:4 --nproc_per_node 8 --max_restarts 3 --rdzv_backend c10d --rdzv_endpoint node0:29400 '
    '--rdzv_id my_job tools/train.py configs/mnist/lenet.py --launcher pytorch': 'needs 2 machines',
    'pip install --no-deps mmsegmentation==0.30.0 && pip install prettytable': 'installs from a package registry',
    'torchrun --nproc_per_node 2 -m runnerkit verify work_dirs/run --launcher pytorch': 'tests/cli/test_verify.py',
}

#: The blocks that the tests below run, by their first line.
RUN = {
    'docs/dev/engine.md': {'from runnerkit.hooks.hook import HOOKS, Hook, RunnerView'},
    'docs/from_lightning.md': {
        'import torch',
        "model = dict(type='my_denoiser.py:Denoiser', hidden=8)",
        'runnerkit train my_config.py --cfg-options model.hidden=16',
    },
    'docs/your_loop.md': {
        '# my_loop.py',
        '# accumulating.py',
        '# gan.py',
        'runnerkit report work_dirs/mine',
    },
    'docs/from_pytorch.md': {
        'import torch',
        'import runnerkit',
        'model = dict(',
        'runnerkit train my_config.py --dry-run',
    },
    'docs/config_keys.md': {
        'model = dict(',
        'data = dict(',
        'optimizer = dict(',
        "custom_imports = dict(imports=['networks.py'])",
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
        'flow = dict(terminal=None)',
    },
    'docs/flow.md': {
        'from runnerkit.flow import StartupBase',
        'from contextlib import contextmanager',
        "flow = dict(startup='my_startup.py')",
        'from runnerkit.config import Config',
    },
    'docs/from_paddlerec.md': {'workspace: configs/mnist', 'runnerkit train configs/recommendation/deepfm.yaml'},
    'docs/experiment.md': {'import torch', 'class Best(Digits):', 'class Visible(Digits):', 'seed = 0'},
    'docs/growing.md': {
        '# my_budget.py',
        "_base_ = ['configs/mnist/lenet.py']",
        "[project.entry-points.'runnerkit.hooks']",
        '# my_samples.py',
        'python my_samples.py 100',
    },
    'docs/hooks.md': {'custom_hooks = [', 'dict('},
    'docs/large_data.md': {  # in test_large_data.py
        "data = dict(train_dataloader=dict(sampler=dict(type='EpochSampler', order='feistel')))",
        '# large.py',
        '# write_arrow.py',
        '# arrow.py',
        '# arrow_stream.py',
        '# write_shards.py',
        '# shards.py',
        "_base_ = ['large.py']",
    },
    'docs/mmcv.md': {
        'import runnerkit.compat',
        'python -m runnerkit.compat tools/train.py my_config.py --work-dir work_dirs/run',
        'python -m runnerkit.compat --as-mmcv 1.4.0 tools/train.py my_config.py',
    },
    'docs/nested_runs.md': {'import torch', "_base_ = ['configs/mnist/lenet.py']", 'from runnerkit.hooks import Hook'},
    'docs/online.md': {
        'python configs/online/serve.py --port 7007 --events 20000 --rate 200 &',
        'runnerkit ctl work_dirs/online status',
        '(umask 077; openssl rand -hex 32 > ~/.runnerkit-key)',
        "custom_hooks = [dict(type='ControlHook', address='0.0.0.0:7008', key_file='~/.runnerkit-key')]",
        'runnerkit ctl node0:7008 status --key-file ~/.runnerkit-key',
        "_base_ = ['configs/online/clicks.py']",
        'import redis',
    },
    'docs/several_networks.md': {
        'optimizer = dict(',
        'runnerkit train configs/gan/modes.py',
        "workflow = [('dis', 5), ('gen', 1)]",
        "lr_config = dict(policy='step', step=[20], by_epoch=False, optimizer='dis')",
        'def train_step(self, data, optimizer):',
        'def train_batch(self):',
        '# halves.py',
        "model = dict(type='halves.py:Halves')",
        'model = dict(',
        "_base_ = ['first.py']",
    },
    'docs/distributed.md': {
        'tools/dist_train.sh configs/mnist/lenet.py 2 --auto-scale-lr',
        'apiVersion: kubeflow.org/v1',
        'torchrun --nproc_per_node 2 -m runnerkit train my_config.py --launcher pytorch',
        "model_wrapper = dict(type='DDP', gradient_as_bucket_view=True)",
        '# my_wrapper.py',
        "custom_imports = dict(imports=['my_wrapper'])",
        'model_wrapper = dict(',
    },
    'docs/preflight.md': {'import torch'},
    'docs/search.md': {
        '# my_algorithm.py',
        '# my_executor.py',
        '# my_search.py',
        'runnerkit search my_search.py',
        '# my_steps.py',
        'from runnerkit.search.pipeline import Pipeline',
    },
    'docs/profiling.md': {
        'runnerkit profile configs/mnist/lenet.py --warmup 5 --iters 10',
        'RUNNERKIT_TRACE_START=1 runnerkit train configs/mnist/lenet.py --cfg-options runner.max_epochs=1',
    },
    'docs/recipes.md': {
        'runnerkit summary config.py',
        'runnerkit find-lr config.py --iters 60',
        'runnerkit train config.py --overfit 32',
    },
    'docs/reference/ranks.md': {
        "sampler = dict(type='WeightedRandomSampler', weights=[1.0, 3.0] * 500, num_samples=1000)",
        'from torch import nn',
    },
    'docs/report.md': {'runnerkit train configs/mnist/lenet.py --work-dir work_dirs/a', 'import runnerkit'},
    'docs/resuming.md': {
        'runnerkit train configs/mnist/lenet.py --auto-resume',
        'runnerkit train configs/mnist/lenet.py --auto-resume --cfg-options optimizer.lr=0.001',
    },
    'docs/seeing_everything.md': {
        'import torch',
        'from runnerkit import report_image',
        'class HardestBatch(Hook):',
        'class UpdateRatio(Hook):',
        'from contextlib import contextmanager',
        "capture = CaptureHook(modules=['body', 'head'], interval=5, log=['norm', 'zeros'])",
        "custom_hooks = [dict(type='CaptureHook', modules=['model.0', 'model.2'], interval=10, log=['mean', 'norm'])]",
    },
    'docs/switches.md': {'compile = True', "amp = 'bf16'"},
    'docs/terminal.md': {
        'runnerkit train configs/mnist/lenet.py',
        'source .venv/bin/activate',
    },
    'docs/vega.md': {
        '# hpo.yml',
        'runnerkit search hpo.yml',
        'nas:',
        'from runnerkit import train',
        'import time',
        '# my_networks.py',
    },
    'docs/using_a_model.md': {
        'runnerkit predict work_dirs/lenet my_digit.png my_digit.npy --apply argmax',
        'import runnerkit',
        'import numpy as np',
        'runnerkit export work_dirs/lenet --out lenet.onnx',
        'import onnxruntime',
        'runnerkit publish work_dirs/lenet lenet.pth',
    },
}

#: Pages that `test_docs_walked` types from top to bottom.
WALKED = (
    'README.md',
    'README.zh-CN.md',  # whose blocks are those of README.md
    'docs/class_imbalance.md',
    'docs/configs.md',
    'docs/diff.md',
    'docs/first_steps.md',
    'docs/python.md',
    'docs/replay.md',
    'docs/tutorials/pictures.md',
    'docs/tutorials/replay.md',
    'docs/tutorials/resume.md',
    'docs/tutorials/search.md',
    'docs/tutorials/step.md',
    'docs/tutorials/table.md',
    'docs/tutorials/text.md',
    'docs/unequal_samples.md',
    'docs/your_own_data_and_model.md',
)

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
print(f'trained by {EpochBasedRunner.__module__}\\n', end='')  # in one piece: two processes write to one pipe
"""


def blocks_of(page):
    """The page's blocks that are code, in order: (first line up to a comment, language, text)."""
    for _, language, code in BLOCK.findall(read(page)):
        if language != 'text':
            code = dedent(code)
            yield code.split('\n', 1)[0].split('  #')[0].rstrip(), language, code


def found(page):
    """The page's blocks that are code, by their first lines; of several with one first line, the last."""
    return {first: (language, code) for first, language, code in blocks_of(page)}


def text_of(page, first, having=''):
    """The first block that begins so and contains ``having``."""
    return next(code for start, _, code in blocks_of(page) if start.startswith(first) and having in code)


def shown(page, start):
    """The text block of a page that begins so."""
    return next(dedent(code) for _, language, code in BLOCK.findall(read(page)) if language == 'text' and start in code)


# Every Python block of the recipes is trained with.
RUN['docs/recipes.md'].update(
    start for start, (language, _) in found('docs/recipes.md').items() if language == 'python'
)


#: Pages whose blocks other tests compare with what runs: those of the gallery are generated (tools/test_gallery.py).
COMPARED_ELSEWHERE = (*WALKED, *(page for page in PAGES if page.startswith('docs/gallery/')))


@pytest.mark.parametrize('page', [page for page in PAGES if 'seeds' not in page and page not in COMPARED_ELSEWHERE])
def test_every_block_is_run_or_cannot_be(page):
    blocks = found(page)
    run = RUN.get(page, set())
    assert run <= set(blocks)
    for first, (language, code) in blocks.items():
        assert first in run or first in NOT_RUN, f'{page}: nobody runs the block {first!r}'
        assert language == 'bash' or first not in NOT_RUN, f'{page}: {first!r} is no shell block'
        assert language in ('python', 'bash', 'yaml', 'toml'), f'{page}: say what language the block {code!r} is in'


#: How the text blocks that the tests below compare begin; those of `WALKED` pages all are.
COMPARED = {
    'docs/concepts/exact_resume.md': {'was'},
    'docs/growing.md': {'112 samples'},
    'docs/preflight.md': {'error:', '- model.metrics'},
    'docs/profiling.md': {'10 iterations', 'trace'},
    'docs/resuming.md': {'Changed since'},
    'docs/seeing_everything.md': {'Epoch [1][5/10]'},
    'docs/terminal.md': {'$ runnerkit'},  # in test_docs.py
}


#: Pages whose text blocks are drawings, or compared in tools/test_reference.py.
OTHER_TEXTS = ('docs/dev/engine.md', 'docs/reference/commands.md')


def test_every_text_block_is_compared_with_what_is_printed():
    for page in PAGES:
        texts = [dedent(code) for _, language, code in BLOCK.findall(read(page)) if language == 'text']
        if texts and page not in {*COMPARED_ELSEWHERE, *OTHER_TEXTS}:
            starts = COMPARED.get(page, set())
            assert len(texts) == len(starts), f'{page}: which test compares its text blocks?'
            assert all(any(text.strip().startswith(start) for start in starts) for text in texts), page


# --- configs and Python ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder with the config of the page about configs, and what its user has written beside it."""
    for name in ('digits.py', 'networks.py'):
        (tmp_path / name).write_text((MNIST / name).read_text())
    (tmp_path / 'config.py').write_text(text_of('docs/configs.md', '# config.py'))
    return tmp_path


def train(path, *options):
    """Train, and return the log's lines."""
    work_dir = path.parent / f'run_{path.stem}'
    assert main([str(path), '--work-dir', str(work_dir), '--device', 'cpu', *options]) == 0
    (log,) = work_dir.glob('*.log.json')
    return [json.loads(line) for line in log.read_text().splitlines()][1:]


QUICK = ['--cfg-options', 'runner.max_epochs=1', 'data.train.part=test', 'log_config.interval=4']


@pytest.mark.thorough  # the recipes train the same config for an epoch
def test_the_config_of_the_page_trains_logs_evaluates_and_saves(folder):
    lines = train(folder / 'config.py')
    losses = [line['loss'] for line in lines if line['mode'] == 'train']
    scores = [line['accuracy'] for line in lines if line['mode'] == 'val']
    assert losses[-1] < losses[0] / 4
    assert len(scores) == 12
    assert scores[-1] > 0.95
    names = {path.name for path in (folder / 'run_config').glob('*.pth')}
    assert {'epoch_10.pth', 'epoch_11.pth', 'epoch_12.pth', 'latest.pth'} <= names
    assert len(names) == 5  # and the best


@pytest.mark.thorough  # tests/flow/test_switches.py
def test_the_switches_train(folder, monkeypatch):
    # The default backend compiles C++ for a minute; this one compiles everything but that.
    compiled = []
    plain = torch.compile
    monkeypatch.setattr(
        torch, 'compile', lambda *args, **options: compiled.append(1) or plain(*args, **{**options, 'backend': 'eager'})
    )
    (folder / 'switches.py').write_text(f"_base_ = ['config.py']\n{text_of('docs/switches.md', 'amp =')}")
    lines = train(folder / 'switches.py', *QUICK, '--seed', '0')
    assert lines[-1]['accuracy'] > 0.3
    assert compiled


#: What shows that a recipe has done what it says: of its log's lines, its work dir and its last checkpoint.
SHOWN = {
    'EarlyStoppingHook': lambda lines, run, saved: 'EarlyStoppingHook#0' in saved['runnerkit']['ranks'][0]['hooks'],
    'digits = ': lambda lines, run, saved: 'unseen/accuracy' in lines[-1],
    'val_hard': lambda lines, run, saved: 'val_hard/accuracy' in lines[-1],
    "patterns=['model.features": lambda lines, run, saved: saved['state_dict']['model.features.1.weight'].eq(1).all(),
    'except_': lambda lines, run, saved: saved['state_dict']['model.features.1.weight'].eq(1).all(),
    "{'features'": lambda lines, run, saved: list(lines[0]['lr_groups']) == ['x10'],
    'lr_mult = ': lambda lines, run, saved: list(lines[0]['lr_groups']) == ['x4', 'x2'],
    'warmup': lambda lines, run, saved: 0.005 < lines[0]['lr'] < lines[1]['lr'] < 0.05,
    'cumulative_iters': lambda lines, run, saved: saved['runnerkit']['conditions']['accumulation'] == {'': 4},
    'grad_clip': lambda lines, run, saved: lines[0]['grad_norm'] > 0,
    'amp = ': lambda lines, run, saved: saved['runnerkit']['conditions']['precision'] == {'': 'bf16'},
    'EMAHook': lambda lines, run, saved: 'ema_model_features_0_weight' in saved['state_dict'],
    'parts = ': lambda lines, run, saved: list(saved['optimizer']) == ['model.features', 'model.classifier'],
    'max_batches': lambda lines, run, saved: saved['meta']['iter'] == 10,
    'max_keep_ckpts': lambda lines, run, saved: {'iter_15.pth', 'best_accuracy_epoch_1.pth'} <= names_in(run),
    'f1 = ': lambda lines, run, saved: 'best_f1_epoch_1.pth' in names_in(run) and 'accuracy' in lines[-1],
    'TensorboardLoggerHook': lambda lines, run, saved: names_in(run / 'tf_logs'),
    'load_from': lambda lines, run, saved: saved['state_dict']['model.classifier.1.weight'].shape[0] == 64,
    'deterministic': lambda lines, run, saved: saved['meta']['seed'] == 1,
}


def names_in(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.thorough  # tests/flow and tests/hooks have what each recipe does
def test_the_recipes_do_what_they_say(folder, monkeypatch, caplog):
    blocks = [(start, code) for start, (language, code) in found('docs/recipes.md').items() if language == 'python']
    assert len(blocks) == len(re.findall('```python', read('docs/recipes.md'))), 'two blocks begin with the same line'
    monkeypatch.chdir(folder)
    train(folder / 'config.py', *QUICK)
    (folder / 'work_dirs').mkdir()
    (folder / 'run_config').rename(folder / 'work_dirs' / 'config')
    wrong = []
    for index, (start, recipe) in enumerate(blocks):
        if start.startswith('# '):
            (folder / start[2:]).write_text(recipe)
            if start == '# take_features.py':
                exec(recipe, {})
            continue
        path = folder / f'recipe_{index}.py'
        path.write_text(f"_base_ = ['config.py']\n{recipe}")
        lines, run = train(path, *QUICK), folder / f'run_recipe_{index}'
        (shows,) = (each for part, each in SHOWN.items() if part in recipe)
        if not shows(lines, run, torch.load(run / 'latest.pth')):
            wrong.append(start)
    assert wrong == []
    assert 'loaded 10 of 14 tensors' in caplog.text


@pytest.mark.thorough  # test_the_commands_for_scripts_of_mmcv_run uses torchrun; tests/cli/test_train.py has two ranks
@pytest.mark.distributed
def test_the_command_for_several_processes_trains(shell, tmp_path, folder):
    (folder / 'config.py').rename(folder / 'my_config.py')
    command = text_of('docs/distributed.md', 'torchrun --nproc_per_node 2 -m').strip()
    said = shell(f'{command} {" ".join(QUICK)}')
    assert 'rank 0 of 2' in said
    assert 'Scores after 8 iterations' in said


@pytest.mark.thorough  # tests/tools/test_launch_scripts.py
@pytest.mark.distributed
def test_several_processes_of_one_machine_train_and_test(shell, tmp_path):
    said = shell(text_of('docs/distributed.md', 'tools/dist_train.sh').replace('tools/', f'PORT={free_port()} tools/'))
    assert 'rank 0 of 2' in said
    assert 'lr scaled from 0.05 to 0.1 for a batch of 128 instead of 64' in said
    (accuracy,) = re.findall('test accuracy: (.*)', said)
    assert float(accuracy) > 0.5


def test_the_job_for_kubernetes_has_a_command_that_is_one():
    job = yaml.safe_load(text_of('docs/distributed.md', 'apiVersion'))
    replicas = job['spec']['pytorchReplicaSpecs']
    assert {name: each['replicas'] for name, each in replicas.items()} == {'Master': 1, 'Worker': 3}
    for replica in replicas.values():
        (container,) = replica['template']['spec']['containers']
        program, command, *arguments = container['command']
        assert (program, command, container['name']) == ('runnerkit', 'train', 'pytorch')
        assert main.parser().parse_args(arguments).auto_resume


@pytest.mark.thorough  # tests/flow/test_wrapping.py
def test_each_wrapper_of_the_page_about_several_processes_trains(on_ranks, folder, monkeypatch):
    blocks = re.findall(r'```python\n(.*?)```', read('docs/distributed.md').partition('## Wrapping')[2], re.DOTALL)
    names = ['ddp', 'my_wrapper', 'own', 'by_class', 'by_size']
    for name, block in zip(names, blocks, strict=True):
        base = '' if name == 'my_wrapper' else "_base_ = ['config.py']\n"
        (folder / f'{name}.py').write_text(base + block)
    names.remove('my_wrapper')
    changes = {
        'runner.max_epochs': 1,
        'data.train.part': 'val',
        'checkpoint_config': None,
        'evaluation': None,
        'seed': 0,
    }
    first, second = on_ranks(wrapping_runs.__file__, 'of_files', folder, names, changes)
    for name in names:
        assert first[name]['loss'] < 2.5
        assert first[name]['weights'] == second[name]['weights']
    assert first['own']['class'] == 'Counting'
    assert first['ddp']['loss'] == pytest.approx(first['by_class']['loss'], rel=1e-3)


def test_the_shares_of_the_page_about_ranks():
    scope = {}
    exec(text_of('docs/reference/ranks.md', 'sampler = dict('), scope)
    options = scope['data']['train_dataloader']
    loaders = [build_dataloader(range(1000), 10, 0, seed=1, ranks=(rank, 2), **options) for rank in range(2)]
    first, second = ([i for batch in loader for i in batch.tolist()] for loader in loaders)
    assert (len(first), len(second)) == (500, 500)
    assert 650 < sum(i % 2 for i in first + second) < 850  # three times as often
    exec(text_of('docs/reference/ranks.md', 'from torch import nn'), scope)
    assert local_tensors(scope['Experts']()) == {'expert.weight', 'expert.bias'}


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
    words = text_of('docs/recipes.md', 'runnerkit find-lr').split()[1:]
    # With this seed the loss falls once more, and faster, where it explodes.
    assert runnerkit([*words, '--cfg-options', 'seed=19']) == 0
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


@pytest.mark.thorough  # tests/flow/test_experiment.py
def test_the_experiment_trains_alone_and_from_a_config(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'configs').symlink_to(ROOT / 'configs')
    code = text_of('docs/experiment.md', 'import torch')
    exec(compile(code, 'docs/experiment.md', 'exec'), {})
    done, score = capsys.readouterr().out.split(' ', 1)
    assert done == '200'
    assert float(re.search('value=([0-9.]+)', score)[1]) > 0.9
    best, loop = (text_of('docs/experiment.md', f'class {name}(Digits):') for name in ('Best', 'Visible'))
    (tmp_path / 'my_experiment.py').write_text(f'{code.partition("config = dict(")[0]}\n\n{best}\n\n{loop}')
    config = text_of('docs/experiment.md', 'seed = 0')
    for name in ('Digits', 'Best', 'Visible'):
        (tmp_path / 'config.py').write_text(config.replace(':Digits', f':{name}'))
        assert main(['config.py', '--work-dir', name, '--device', 'cpu']) == 0
    assert list((tmp_path / 'Digits').glob('best_accuracy_iter_*.pth'))
    saved = {name: torch.load(tmp_path / name / 'iter_60.pth') for name in ('Digits', 'Best', 'Visible')}
    for each in saved.values():
        assert all(map(torch.equal, each['state_dict'].values(), saved['Digits']['state_dict'].values()))
    assert saved['Best']['runnerkit']['ranks'][0]['experiment']['own']['best'] > 0


def test_the_preflight_in_python_says_what_the_page_says(capsys):
    code = text_of('docs/preflight.md', 'import torch')
    exec(compile(code, 'docs/preflight.md', 'exec'), {})
    expected = code.rsplit('# ', 1)[1].strip()
    assert capsys.readouterr().out.splitlines()[0].endswith(expected)


def test_the_errors_of_the_page_about_the_preflight(tmp_path, monkeypatch, capsys):
    lines = ['#'] * 20
    config = """model: {type: Linear, in_features: 1, out_features: 1}
data: {train: {type: Nothing}}
runner: {type: EpochBasedRunner, max_epochs: 1}"""
    lines[: len(config.splitlines())] = config.splitlines()
    lines[10:13] = 'optimizer:', '  lr: 1e-3', '  type: SGD'
    lines[19] = 'workflow: []'
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'my_config.yaml').write_text('\n'.join(lines))
    assert runnerkit(['train', 'my_config.yaml']) == 2
    assert capsys.readouterr().err.strip().endswith(shown('docs/preflight.md', 'error:').strip())


def test_the_first_validation_batch_of_the_page_about_the_preflight(tmp_path, monkeypatch, capsys):
    (tmp_path / 'my_data.py').write_text(
        'from torch import randn, tensor, utils\n'
        'def rows(): return utils.data.TensorDataset(randn(6, 4), tensor([0, 1, 2] * 2))'
    )
    (tmp_path / 'my_config.py').write_text("""model = dict(
    type='Supervised', model=dict(type='Linear', in_features=4, out_features=4), loss=dict(type='CrossEntropyLoss'),
    metrics=dict(
        accuracy=dict(type='MulticlassAccuracy', num_classes=3),
    ),
)
data = dict(batch_size=2, train=dict(type='my_data.py:rows'), val=dict(type='my_data.py:rows'))
optimizer = dict(type='SGD', lr=0.1)
runner = dict(type='EpochBasedRunner', max_epochs=1)
evaluation = dict(interval=1)
""")
    monkeypatch.chdir(tmp_path)
    assert runnerkit(['train', 'my_config.py', '--device', 'cpu']) == 2
    assert shown('docs/preflight.md', '- model.metrics').strip() in capsys.readouterr().err


def test_the_changes_that_the_page_about_exact_resume_shows():
    found = changes({'world size': 2}, {'world size': 4})
    found += loader_changes(0, *(loader_facts(build_dataloader(range(64), size, 0, seed=0)) for size in (16, 8)))
    found += hook_changes(['EMAHook#0'], [])
    assert table(found).strip() == shown('docs/concepts/exact_resume.md', 'world size').strip()


def test_the_hook_of_the_page_about_the_engine_is_built_by_name():

    space = {}
    exec(text_of('docs/dev/engine.md', 'from runnerkit.hooks.hook'), space)
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

    run.environment = environment
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


@pytest.mark.thorough  # tests/cli/test_records.py runs the commands on small work dirs
def test_the_commands_of_the_page_about_reports_run(shell, tmp_path):
    said = shell(text_of('docs/report.md', 'runnerkit train'))
    assert 'Report work_dirs/a/report.html' in said
    assert '2 runs' in (tmp_path / 'two.html').read_text()
    assert re.search(r'^[ab], [ab] differ by their seed alone: .*accuracy 0\.\d+ ± ', said, re.MULTILINE)
    assert re.search(r'^run +outcome +epoch', said, re.MULTILINE)
    (tmp_path / 'two.html').unlink()
    exec(text_of('docs/report.md', 'import runnerkit'), {})
    assert '2 runs' in (tmp_path / 'two.html').read_text()


@pytest.mark.thorough  # test_docs.py reads the commands; tests/cli runs their like
def test_the_commands_of_the_terminal_page_and_of_resuming_run(shell, tmp_path):
    said = shell(text_of('docs/terminal.md', 'source .venv'))
    shutil.copytree(tmp_path / 'work_dirs' / 'lenet', tmp_path / 'work_dirs' / 'demo')  # which `make demo` makes
    assert float(re.search(r'test accuracy: (.*)', said)[1]) > 0.5
    assert 'THE WEIGHTS' not in said
    said = shell(text_of('docs/resuming.md', 'runnerkit train configs/mnist/lenet.py --auto-resume'))
    assert said.count('resumed from') == 3
    said = shell(
        text_of(
            'docs/resuming.md', 'runnerkit train configs/mnist/lenet.py --auto-resume --cfg-options optimizer.lr=0.001'
        )
    )
    check_printed(shown('docs/resuming.md', 'Changed since'), said, 'docs/resuming.md')
    said = shell(text_of('docs/profiling.md', 'runnerkit profile'))
    heading, *rows = shown('docs/profiling.md', '10 iterations').splitlines()
    assert heading in said
    for row in rows:
        assert row.split(' ')[0] in said, row
    said = shell(text_of('docs/profiling.md', 'RUNNERKIT_TRACE_START'))
    moments = re.findall(r'^trace .* s  (.*)', said, re.MULTILINE)
    assert moments == re.findall(r'^trace .* s  (.*)', shown('docs/profiling.md', 'trace'), re.MULTILINE)


@pytest.mark.thorough  # tests/test_seed_paddlerec.py, tests/configs
def test_the_page_about_the_five_stages(shell, tmp_path, monkeypatch, capsys):
    (tmp_path / 'my_startup.py').write_text(text_of('docs/flow.md', 'from runnerkit.flow import StartupBase'))
    base = "_base_ = ['configs/mnist/lenet.py']\nrunner = dict(max_epochs=1)\n"
    (tmp_path / 'config.py').write_text(base + text_of('docs/flow.md', 'flow = dict('))
    assert called(['runnerkit', 'train', 'config.py'], monkeypatch) == 0
    assert 'the last layer is reinitialised' in capsys.readouterr().err
    (tmp_path / 'tells.py').write_text(text_of('docs/flow.md', 'from contextlib'))
    (tmp_path / 'tells_too.py').write_text("_base_ = 'config.py'\ncustom_hooks = [dict(type='tells.py:Tells')]\n")
    assert called(['runnerkit', 'test', 'tells_too.py', 'work_dirs/config'], monkeypatch) == 0
    assert 'the evaluation begins\nthe evaluation ends\n' in capsys.readouterr().out
    exec(text_of('docs/flow.md', 'from runnerkit.config'), {})
    assert 'upload flow completed\n' in capsys.readouterr().out
    (tmp_path / 'paddlerec.yaml').write_text(text_of('docs/from_paddlerec.md', 'workspace:'))
    assert called(['runnerkit', 'train', 'paddlerec.yaml'], monkeypatch) == 0
    scores = json.loads((tmp_path / 'work_dirs' / 'paddlerec' / 'infer_runner' / 'scores.json').read_text())
    assert [each['epoch'] for each in scores] == [1, 2]
    assert scores[1]['accuracy'] > 0.8


@pytest.mark.thorough  # tests/test_seed_vega.py
def test_the_page_about_vega(shell, tmp_path, monkeypatch, capsys):
    (tmp_path / 'my_parts.py').write_text(text_of('docs/vega.md', 'import time'))
    (tmp_path / 'nas.yml').write_text(text_of('docs/vega.md', 'nas:'))
    names = {}
    exec(text_of('docs/vega.md', 'from runnerkit import train'), names)
    scores = names['result'].scores
    assert {'top1_accuracy', 'top5_accuracy', 'confidence', 'flops', 'params', 'slowest_step'} < set(scores)
    assert f'{scores["top1_accuracy"]} {scores["params"]}' in capsys.readouterr().out
    assert METRICS.build({'type': 'Errors'}).higher_is_better is False
    text = text_of('docs/vega.md', '# hpo.yml')
    assert 'num_samples: 8' in text
    (tmp_path / 'hpo.yml').write_text(text.replace('num_samples: 8', 'num_samples: 2'))
    assert 'hpo: 2 trials (2 completed); best:' in shell(text_of('docs/vega.md', 'runnerkit search hpo.yml'))
    (tmp_path / 'my_networks.py').write_text(text_of('docs/vega.md', '# my_networks.py'))
    described = 'model_desc: {modules: [backbone], backbone: {type: Perceptron, width: 32}}'
    imported = 'custom_imports: {imports: ["my_networks.py"]}'
    assert all(part in read('docs/vega.md') for part in (described, imported))
    text = text.replace('model_desc: {type: "configs/mnist/networks.py:LeNet"}', f'{described}\n  {imported}')
    (tmp_path / 'hpo.yml').write_text(text)
    cfg = config_of_step(Config.fromfile('hpo.yml').hpo)
    import_modules_of(cfg)
    assert build_model(cfg['model'])(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    backbones = FAMILIES['backbone']
    for registry, name in (
        (METRICS, 'confidence'),
        (METRICS, 'Errors'),
        (CALLBACKS, 'Slowest'),
        (backbones, 'Perceptron'),
    ):
        del registry.module_dict[name]


@pytest.mark.thorough  # tests/test_seed_paddle.py
def test_the_page_about_runs_inside_a_run(shell, tmp_path, monkeypatch, capsys):
    (tmp_path / 'my_probe.py').write_text(text_of('docs/nested_runs.md', 'import torch'))
    (tmp_path / 'config.py').write_text(text_of('docs/nested_runs.md', '_base_'))
    assert called(['runnerkit', 'train', 'config.py'], monkeypatch) == 0
    said = capsys.readouterr()
    assert 'has methods that nobody calls' not in said.err + said.out
    log = next((tmp_path / 'work_dirs' / 'config').glob('*.log.json')).read_text().splitlines()
    probed = [each['probe/accuracy'] for each in map(json.loads, log) if 'probe/accuracy' in each]
    assert len(probed) >= 2
    assert probed[-1] > 0.8
    assert sorted(path.name for path in (tmp_path / 'work_dirs' / 'config' / 'probe').iterdir()) == [
        'iter_40',
        'iter_80',
    ]
    names = {}
    exec(text_of('docs/nested_runs.md', 'from runnerkit.hooks import Hook'), names)
    runner = tiny_runner('epoch', max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(names['TestEvery'](loader(8), interval=4))
    runner.run([loader(20)], [('train', 1)])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ['4', '8']


def test_the_hook_of_the_page_about_growing_keeps_what_it_has_spent(shell, tmp_path, monkeypatch):
    page = 'docs/growing.md'
    (tmp_path / 'my_budget.py').write_text(text_of(page, '# my_budget.py'))
    (tmp_path / 'config.py').write_text(text_of(page, '_base_'))
    found, works = import_object('my_budget.py:TimeBudget'), tmp_path / 'work_dirs' / 'config'
    try:
        monkeypatch.setattr(sys.modules[found.__module__], 'time', SimpleNamespace(monotonic=count_up(0, 600).__next__))
        assert called(['runnerkit', 'train', 'config.py'], monkeypatch) == 0
        assert resumable(works) == (6, {'spent': 3600})
        more = shlex.split(re.search('`(runnerkit train .*7200)`', read(page))[1])
        for iterations, spent in ((12, 7200), (13, 7800)):  # the second one has nothing left
            assert called(more, monkeypatch) == 0
            assert resumable(works) == (iterations, {'spent': spent})
    finally:
        del HOOKS.module_dict['TimeBudget']


def resumable(work_dir):
    """Of the newest checkpoint: the completed iterations and the state of the page's hook."""
    saved = torch.load(work_dir / 'latest.pth')
    return saved['meta']['iter'], saved['runnerkit']['ranks'][0]['hooks']['TimeBudget#0']


def test_the_entry_point_of_the_page_about_growing(tmp_path, monkeypatch):
    page = 'docs/growing.md'
    code, written = text_of(page, '# my_budget.py'), text_of(page, '[project.entry-points').splitlines()
    group = re.fullmatch(r"\[project\.entry-points\.'(.*)'\]", written[0])[1]
    offers = dict(re.fullmatch(r"(\w+) = '(.*)'", line).groups() for line in written[1:])
    install(tmp_path, monkeypatch, 'my_budget', code, group, **offers)
    runner = tiny_runner(max_epochs=1)
    try:
        runner.register_custom_hooks([dict(type='TimeBudget', seconds=3600)])
    finally:
        HOOKS.module_dict.pop('TimeBudget', None)
        sys.modules.pop('my_budget', None)
    assert runner.hooks[0].seconds == 3600


@pytest.mark.thorough  # tests/hooks/test_hook_table.py saves and resumes a part
def test_the_part_of_the_page_about_growing_keeps_its_count(shell, tmp_path):
    page = 'docs/growing.md'
    (tmp_path / 'my_samples.py').write_text(text_of(page, '# my_samples.py'))
    said = shell(text_of(page, 'python my_samples.py')).splitlines()
    assert [line for line in said if re.match(r'\d+ samples,', line)] == shown(page, '112 samples').splitlines()


def test_the_searches_of_pages_are_planned(shell, tmp_path):
    """Everything that a search checks before its first trial."""
    for page, first, name, steps in (
        ('docs/search.md', '# my_search.py', 'my_search.py', ['search', 'best', 'test']),
        ('docs/vega.md', '# hpo.yml', 'hpo.yml', ['hpo']),
    ):
        (tmp_path / name).write_text(text_of(page, first))
        pipeline = Pipeline(name, tmp_path / 'planned', device='cpu')
        assert pipeline.names == steps, name
        assert all(os.path.exists(step.config_file) for step in pipeline.steps.values() if hasattr(step, 'config_file'))


@pytest.mark.thorough  # test_the_searches_of_pages_are_planned, tests/search
def test_a_search_with_your_own_parts(shell, tmp_path):
    for name in ('my_cars.py', 'cars.py'):
        (tmp_path / name).write_text(text_of('docs/tutorials/table.md', f'# {name}'))
    packed = metadata.distribution('mlxtend').locate_file('mlxtend/data/data/autompg.csv.gz')
    (tmp_path / 'cars.csv').write_text(gzip.open(packed, 'rt').read())
    for name in ('my_algorithm.py', 'my_executor.py'):
        (tmp_path / name).write_text(text_of('docs/search.md', f'# {name}'))
    own = "search_algorithm=dict(type='my_algorithm.py:OneByOne', trials=12)"
    rested = "executor=dict(type='my_executor.py:Rested', seconds=10)"
    assert own in read('docs/search.md')
    assert rested in read('docs/search.md')
    text = text_of('docs/tutorials/search.md', '# tune.py')
    text = text.replace("search_algorithm=dict(type='TPE', trials=12)", f'{own},\n    {rested}').replace(
        ': 20}', ': 5}'
    )
    (tmp_path / 'own.py').write_text(text.replace('trials=12', 'trials=3').replace('seconds=10', 'seconds=0'))
    said = shell('runnerkit search own.py')
    assert 'search: 3 trials (3 completed); best:' in said
    trials = [each['hps'] for each in json.loads((tmp_path / 'work_dirs' / 'own' / 'reports.json').read_text())]
    assert [sum(trials[0][key] != each[key] for key in each) <= 1 for each in trials[1:2]] == [True]


@pytest.mark.thorough  # test_the_searches_of_pages_are_planned, tests/search
def test_the_search_of_the_page_about_searching(shell, tmp_path, capsys):
    text = text_of('docs/search.md', '# my_search.py')
    for slow, fast in (('trials=24', 'trials=3'), ("max_epochs': 24", "max_epochs': 1"), ('repeats=3', 'repeats=2')):
        assert slow in text
        text = text.replace(slow, fast)
    average = "average = dict(pipe_step=dict(type='my_steps.py:Average'))"
    assert average in read('docs/search.md')
    (tmp_path / 'my_steps.py').write_text(text_of('docs/search.md', '# my_steps.py'))
    more = f"{average}\npipeline.insert(2, 'average')\ntest['source'] = 'best'\n"
    (tmp_path / 'my_search.py').write_text(f'{text}\n{more}')
    said = shell(text_of('docs/search.md', 'runnerkit search my_search'))
    work_dir = tmp_path / 'work_dirs' / 'my_search'
    for file in re.findall(r'^\| `([^`]+)`', read('docs/search.md'), flags=re.MULTILINE):
        if '/' in file:
            assert (work_dir / file.replace('0007', '0001')).exists(), file
    records = json.loads((work_dir / 'reports.json').read_text())
    counted = Counter(each['step'] for each in records)
    assert counted == {'search': 3, 'best': 2, 'average': 1, 'test': 2}
    losses = [each['performance']['loss'] for each in records if each['step'] == 'best']
    (mean,) = (each['performance']['loss'] for each in records if each['step'] == 'average')
    assert mean == sum(losses) / 2
    assert 'test: 2 trials (2 completed)' in said
    exec(text_of('docs/search.md', 'from runnerkit.search.pipeline import Pipeline'), {})
    assert 'runnerkit train' in capsys.readouterr().out


@pytest.mark.thorough  # tests/configs/recommendation
def test_the_recommendation_of_the_page_about_the_five_stages(shell, tmp_path):
    for name in ('online', 'recommendation'):
        shutil.copytree(ROOT / 'configs' / name, tmp_path / 'configs' / name)
    config = tmp_path / 'configs' / 'recommendation' / 'deepfm.yaml'
    assert 'epochs: 6' in config.read_text()
    config.write_text(config.read_text().replace('epochs: 6', 'epochs: 1'))
    said = shell(text_of('docs/from_paddlerec.md', 'runnerkit train configs/recommendation'))
    assert re.search(r'epoch_1.pth: .*auc 0.77', said)


@pytest.mark.thorough  # tests/cli
def test_the_curve_of_the_terminal_page(shell, tmp_path):
    config = tmp_path / 'configs' / 'mnist' / 'lenet.py'
    config.write_text(config.read_text().replace("part='train', augment=True", "part='val'"))
    assert 'Learning curve' in shell(text_of('docs/terminal.md', 'runnerkit train'))


@pytest.mark.thorough  # tests/cli/test_predict.py, test_export.py
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
    said = shell(text_of('docs/using_a_model.md', 'runnerkit export'))
    assert said.count('largest difference from the model: ') == 2
    exec(text_of('docs/using_a_model.md', 'import onnxruntime'), space)
    assert space['exported'].inputs == {'image': 'float32 [batch, 1, 28, 28]'}
    assert np.allclose(space['logits'], space['same'].detach(), atol=1e-4)
    name = re.search(r'lenet-[0-9a-f]{8}.pth', shell(text_of('docs/using_a_model.md', 'runnerkit publish')))[0]
    published = runnerkit_package.load_model(name, 'work_dirs/lenet/lenet.py')(space['image'])
    assert torch.allclose(published, space['same'], atol=1e-5)


@pytest.mark.thorough  # tests/compat/test_main.py
def test_the_commands_for_scripts_of_mmcv_run(shell, tmp_path):
    (tmp_path / 'tools').unlink()
    for name in ('tools', 'my_package'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'train.py').write_text(MMCV_SCRIPT)
    (tmp_path / 'my_config.py').write_text('lr = 0.1\n')
    said = shell(text_of('docs/mmcv.md', 'python -m runnerkit.compat'))
    assert said.count('trained by runnerkit.runner.epoch_based_runner') == 4  # the last command has two processes
    assert {path.name for path in (tmp_path / 'work_dirs').iterdir()} == {'mine', 'run'}
    gate = 'import mmcv\nassert mmcv.__version__ <= "1.5.0", mmcv.__version__\nprint("let in by", mmcv.__version__)\n'
    (tmp_path / 'tools' / 'train.py').write_text(gate)
    assert 'let in by 1.4.0' in shell(text_of('docs/mmcv.md', 'python -m runnerkit.compat --as-mmcv'))


@pytest.mark.thorough  # tests/compat/test_main.py
def test_installing_the_old_names_in_python():
    code = text_of('docs/mmcv.md', 'import runnerkit.compat') + '\nimport mmcv.runner\nprint(mmcv.runner.__name__)'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, env={**os.environ, 'PYTHONPATH': str(ROOT)}
    )
    assert done.stdout.strip() == 'runnerkit.runner', done.stderr


# --- the pages for those who come from elsewhere ---------------------------------------------------------------------


@pytest.fixture
def wines(shell, tmp_path, monkeypatch):
    """Run shell blocks in a folder with the data set of wines, which Python blocks can import."""
    shutil.copy(ROOT / 'configs' / 'tabular' / 'table.py', tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, 'table', raising=False)
    torch.manual_seed(0)
    yield shell
    sys.modules.pop('table', None)


def test_the_module_ported_from_lightning(wines, tmp_path):
    page = 'docs/from_lightning.md'
    (tmp_path / 'my_denoiser.py').write_text(text_of(page, 'import torch', 'def train_step'))
    (tmp_path / 'my_config.py').write_text(text_of(page, 'model = dict(type='))
    said = wines(text_of(page, 'runnerkit train my_config.py'))
    losses = [float(loss) for loss in re.findall(r'evaluated on val: loss ([\d.]+)', said)]
    assert losses[-1] < 0.9 * losses[0]
    assert np.load(tmp_path / 'predictions.npy').shape == (48, 13)


def test_the_module_in_lightning(wines, tmp_path):
    from test_in_lightning import MISSING, python_with_lightning

    code = text_of('docs/from_lightning.md', 'import torch', 'LightningModule')
    compile(code, 'docs/from_lightning.md', 'exec')
    if python_with_lightning() is None:
        pytest.skip(MISSING)
    (tmp_path / 'theirs.py').write_text(code)
    done = subprocess.run([python_with_lightning(), 'theirs.py'], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob('*.ckpt'))


@pytest.mark.thorough  # tests/tools/test_plain_train.py
def test_the_steps_from_plain_pytorch(wines, tmp_path, capsys):
    page = 'docs/from_pytorch.md'
    exec(text_of(page, 'import torch', 'torch.save'), {})
    losses = [float(loss) for loss in re.findall(r'loss ([\d.]+),', capsys.readouterr().out)]
    assert len(losses) == 30
    assert min(losses) < 0.02
    space = {}
    exec(text_of(page, 'import runnerkit'), space)
    assert space['result'].scores['loss'] < 0.02
    assert len(list((tmp_path / 'work_dirs' / 'wines').glob('best_loss_*.pth'))) == 1
    space = {}
    exec(text_of(page, 'import torch', 'EpochBasedRunner'), space)
    assert space['runner'].scores['loss'].value < 0.02
    (tmp_path / 'my_config.py').write_text(text_of(page, 'model = dict('))
    said = wines(text_of(page, 'runnerkit train my_config.py'))
    assert float(re.search(r'test accuracy: (.*)', said)[1]) > 0.85
    assert len((tmp_path / 'predictions.csv').read_text().splitlines()) == 49


@pytest.mark.parametrize(
    ('name', 'run', 'iters'),
    [
        ('my_loop', 'mine', 30),
        pytest.param('accumulating', 'accumulating', 60, marks=pytest.mark.thorough),
        pytest.param('gan', 'gan', 12, marks=pytest.mark.thorough),
    ],
)
def test_the_loops_of_ones_own(name, run, iters, wines, tmp_path):
    page = 'docs/your_loop.md'
    code = text_of(page, f'# {name}.py')
    (tmp_path / f'{name}.py').write_text(code)
    killed = code.replace('run.log(', f'run.iter == {iters} and __import__("os")._exit(0)\n        run.log(', 1)
    assert killed != code
    (tmp_path / 'killed.py').write_text(killed)
    wines('python killed.py')
    assert 'resumed from work_dirs' in wines(f'python {name}.py').replace(f'{tmp_path}/', '')
    assert [start.get('outcome') for start in starts_of(tmp_path / 'work_dirs' / run)] == [None, 'completed']
    if run == 'mine':
        assert 'All log lines on the way are equal' in wines(text_of(page, 'runnerkit report'))


def starts_of(work_dir):
    return json.loads((work_dir / 'run.json').read_text())['starts']


def test_the_page_on_seeing_everything(wines, tmp_path, monkeypatch, capsys):
    page, space = 'docs/seeing_everything.md', {}
    logged = []
    for first, language, code in blocks_of(page):
        assert language == 'python'
        if first.startswith('custom_hooks'):
            break
        exec(code, space)
        (log,) = (tmp_path / 'work_dirs' / 'seeing').glob('*.log.json')
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        logged.append([{key: value for key, value in line.items() if type(value) is float} for line in lines])
        shutil.rmtree(tmp_path / 'work_dirs')
    plain, pictured, hardest, ratios, rings, captured = logged
    shown = re.findall(r'(active|margin|loss|grad_norm): ([\d.]+)', read(page).split('```text')[1].split('```')[0])
    assert [plain[0][name] for name, _ in shown] == pytest.approx([float(value) for _, value in shown], abs=1e-3)
    assert len(shown) == 4
    for other in (pictured, hardest, ratios, rings, captured):  # no hook of the page changes the training
        assert [line['loss'] for line in other] == [line['loss'] for line in plain]
    assert float(space['hardest'].record.loss) == space['hardest'].highest >= plain[0]['loss']
    assert "mode='train'" in capsys.readouterr().out
    assert all(0 < line['moved'] < 1 and line['gradient'] > 0 for line in ratios)
    assert all({'body.output_zeros', 'head.grad_norm', 'dead_units'} <= set(line) for line in captured)
    # And in a config, in which the names are those of `Supervised`.
    base = f"_base_ = ['{ROOT}/configs/tabular/wine.py']\nrunner = dict(max_epochs=2)\nlog_config = dict(interval=5)\n"
    (tmp_path / 'my_config.py').write_text(base + code)
    assert called(['runnerkit', 'train', 'my_config.py'], monkeypatch) == 0
    lines = [json.loads(line) for line in next((tmp_path / 'work_dirs').rglob('*.log.json')).read_text().splitlines()]
    assert 'model.2.grad_norm' in [line for line in lines if line.get('mode') == 'train'][-1]


@pytest.mark.thorough  # tests/configs/online, tests/data/test_stream.py
def test_the_stream_and_the_commands_of_the_online_page(shell, tmp_path, capsys):
    """The page's processes, at another port than it says, which may be taken."""
    online = tmp_path / 'configs' / 'online'
    shutil.copytree(ROOT / 'configs' / 'online', online)
    serve, train = text_of('docs/online.md', 'python configs/online/serve.py').splitlines()
    words = [sys.executable, *shlex.split(serve)[1:-1], '--rate', '500']
    words[words.index('7007')] = '0'
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        config = online / 'clicks.py'
        url = server.stdout.readline().split(' at ')[1].strip()
        config.write_text(config.read_text().replace('tcp://127.0.0.1:7007', url))
        own = {**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': ''}
        command = [sys.executable, '-m', *shlex.split(train)]
        training = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in training.stdout:
            if 'Iter [' in line:  # it has data
                break
        answers = []
        for line in text_of('docs/online.md', 'runnerkit ctl').splitlines():
            answers.append(json.loads(shell(line)))
        status, paused, saved, resumed, stopped = answers
        assert training.wait(60) == 0, training.stdout.read()
        training.stdout.close()
    finally:
        server.kill()
        server.communicate()
    assert {'iter', 'epoch', 'progress', 'lr', 'loss', 'scores', 'eta', 'paused', 'work_dir', 'stream'} <= set(status)
    assert (paused['paused'], resumed['paused'], stopped['stops']) == (True, False, True)
    assert paused['iter'] == saved['iter']
    assert os.path.basename(saved['checkpoint']) == f'iter_{saved["iter"]}.pth'
    last = torch.load(tmp_path / 'work_dirs/online/latest.pth', weights_only=True)
    assert last['meta']['iter'] == stopped['iter']
    assert last['state_dict']['times'].sum() == 32 * stopped['iter']


def test_the_network_of_the_online_page(tmp_path, monkeypatch, capsys):
    """A run that gets its command when it has begun, from a thread of the test."""
    monkeypatch.setenv('HOME', str(tmp_path))
    subprocess.run(text_of('docs/online.md', '(umask 077'), shell=True, check=True)
    port, codes = free_port(), []
    scope = {}
    exec(text_of('docs/online.md', "custom_hooks = [dict(type='ControlHook', address").replace('7008', port), scope)
    command = text_of('docs/online.md', 'runnerkit ctl node0').replace('node0:7008', f'127.0.0.1:{port}')

    class Asks(Hook):
        def after_train_iter(self, runner):
            codes.append(runnerkit([os.path.expanduser(word) for word in shlex.split(command)[1:]]))

    runner = tiny_runner('iter', work_dir=tmp_path, max_iters=1)
    for hook in (OptimizerHook(), *map(HOOKS.build, scope['custom_hooks']), Asks()):
        runner.register_hook(hook)
    runner.run([loader()], [('train', 1)])
    assert codes == [0]
    assert json.loads(capsys.readouterr().out)['paused'] is False


def test_the_folder_of_the_online_page(shell, tmp_path):
    shutil.copytree(ROOT / 'configs' / 'online', tmp_path / 'configs' / 'online')
    config, events = tmp_path / 'folder.py', tmp_path / 'events'
    config.write_text(text_of('docs/online.md', "_base_ = ['configs/online/clicks.py']"))
    events.mkdir()
    read = import_object(f'{ROOT}/configs/online/ratings.py:read')
    lines = [json.dumps({**rating, 'number': number}) for number, rating in enumerate(read()[:320])]
    (events / 'a.jsonl').write_text('\n'.join(lines) + '\nno rating\n')
    (events / 'END').touch()
    assert main([str(config), '--work-dir', 'run', '--device', 'cpu']) == 0
    last = torch.load('run/latest.pth', weights_only=True)
    assert last['state_dict']['times'].sum() == 320
    assert len((tmp_path / 'run' / 'malformed.jsonl').read_text().splitlines()) == 1
    assert json.loads(lines[-1])['number'] == last['runnerkit']['ranks'][0]['readers'][0]['loader']['events'] - 1


def test_the_source_of_the_online_page(monkeypatch):
    """With a stand-in for the client of Redis."""
    from types import SimpleNamespace

    from runnerkit.data import SOURCES, Stream

    class Redis:
        entries = [((5, 0), b'1'), ((5, 1), b'{'), ((7, 0), b'2')]
        trimmed = []

        def xread(self, streams, count, block):
            ((_, last),) = streams.items()
            after = tuple(map(int, last.split('-')))
            found = [(f'{a}-{b}'.encode(), {b'event': text}) for (a, b), text in self.entries if (a, b) > after]
            return [(b'ratings', found)] if found else []

        def xtrim(self, name, minid, approximate):
            self.trimmed.append((name, minid))

    client = Redis()
    monkeypatch.setitem(sys.modules, 'redis', SimpleNamespace(Redis=SimpleNamespace(from_url=lambda url: client)))
    space = {}
    try:
        exec(text_of('docs/online.md', 'import redis'), space)
        source = SOURCES.build({'type': 'RedisSource', 'url': 'redis://localhost', 'stream': 'ratings'})
    finally:
        SOURCES.module_dict.pop('RedisSource', None)
    loader = Stream(source).make_loader(2)
    assert next(iter(loader)).tolist() == [1, 2]
    loader.acknowledge(loader.state_dict())
    loader.close()
    assert client.trimmed == [('ratings', '7-0')]
    assert loader.state_dict() == {'offset': [7, 0], 'events': 2, 'malformed': 1, 'duplicates': 0}
    records = source.read([5, 0])
    assert [next(records).offset for _ in range(2)] == [[5, 1], [7, 0]]


# --- several networks ------------------------------------------------------------------------------------------------

NETWORKS = 'docs/several_networks.md'


def test_the_gan_of_the_page_about_several_networks(shell, tmp_path):
    shutil.copytree(ROOT / 'configs' / 'gan', tmp_path / 'configs' / 'gan')
    modes = tmp_path / 'configs' / 'gan' / 'modes.py'
    short = modes.read_text().replace('max_iters=4200', 'max_iters=12').replace('interval=100,', 'interval=1,')
    modes.write_text(short.replace('width=16', 'width=2'))
    said = shell(text_of(NETWORKS, 'runnerkit train'))
    assert len(re.findall(r'Iter\((dis|gen)\)', said)) == 12
    assert 'unknown key' not in said
    assert 'unused' not in said
    assert (tmp_path / 'work_dirs' / 'modes' / 'samples.png').exists()
    blocks = [text_of(NETWORKS, start) for start in ('optimizer = dict(', 'workflow = [', 'lr_config = dict(')]
    (tmp_path / 'five.py').write_text('\n'.join(["_base_ = ['configs/gan/modes.py']", *blocks]))
    said = shell('runnerkit train five.py')
    assert re.findall(r'Iter\((dis|gen)\)', said) == ['dis'] * 5 + ['gen'] + ['dis'] * 5 + ['gen']
    assert len(set(re.findall(r'lr_dis: (\S+)', said))) == 1
    assert len(set(re.findall(r'lr_gen: (\S+)', said))) == 12


@pytest.mark.parametrize('start, file', [('def train_step', 'networks.py'), ('def train_batch', 'adversaries.py')])
def test_the_steps_of_the_page_about_several_networks_are_those_of_the_gallery(start, file):
    (shown,) = ast.parse(text_of(NETWORKS, start)).body
    gallery = ast.walk(ast.parse((ROOT / 'configs' / 'gan' / file).read_text()))
    (meant,) = (each for each in gallery if isinstance(each, ast.FunctionDef) and each.name == shown.name)
    body = meant.body[1:] if ast.get_docstring(meant) else meant.body
    assert [ast.unparse(line) for line in body] == [ast.unparse(line) for line in shown.body]


def test_each_half_learns_from_its_own_data(wines, tmp_path):
    class Look(Hook):
        seen = []

        def before_train_iter(self, runner):
            self.before = {name: value.clone() for name, value in runner.model.named_parameters()}

        def after_train_iter(self, runner):
            moved = {
                name.split('.')[0]
                for name, value in runner.model.named_parameters()
                if not torch.equal(value, self.before[name])
            }
            self.seen.append((runner.mode, moved, len(runner.data_loader.dataloader.dataset)))

    (tmp_path / 'halves.py').write_text(text_of(NETWORKS, '# halves.py'))
    (tmp_path / 'config.py').write_text(text_of(NETWORKS, 'model = dict(', 'Halves'))
    options = Options(work_dir='run', device='cpu')
    Flow(Config.fromfile('config.py'), options, hooks=[(Look(), 'LOWEST')]).run()
    assert Look.seen == [('left', {'left'}, 100), ('right', {'right'}, 48)] * 20


def test_networks_in_series(wines, tmp_path):
    (tmp_path / 'first.py').write_text(text_of(NETWORKS, 'model = dict(', "type='Supervised'"))
    (tmp_path / 'second.py').write_text(text_of(NETWORKS, '_base_'))
    wines('runnerkit train first.py')
    said = wines('runnerkit train second.py')
    assert "below 'model.0.'" in said
    first, second = (torch.load(f'work_dirs/{name}/latest.pth')['state_dict'] for name in ('first', 'second'))
    assert torch.equal(first['model.0.weight'], second['model.0.weight'])
    assert not torch.equal(first['model.2.weight'], second['model.2.weight'])
