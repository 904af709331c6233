"""The examples of the seed document on PaddleRec's flows, transcribed: only the imports and the engine's calls differ.

docs/dev/seeds_paddlerec.md says where everything else of it is tested.
"""

import re

import pytest
import torch

from runnerkit.cli.train import main

MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def train_step(self, data, optimizer):
        loss = (self.layer(data[0]) - data[1]).square().mean()
        return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data[0]))

    def val_step(self, data):
        return self.train_step(data, None)
"""

READER = """
import torch


class Reader(torch.utils.data.Dataset):
    def __init__(self, data_path):
        self.lines = open(data_path).read().splitlines()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        *values, target = map(float, self.lines[index].split())
        return torch.tensor(values), torch.tensor([target])
"""

INSTANCE = """
from runnerkit.flow import InstanceBase


class Instance(InstanceBase):
    def __init__(self, context):
        print('Running SingleInstance.')

    def instance(self, context):
        path = context.cfg.data.train.data_path
        with open(path, 'w') as file:  # "download data, import packages, set environment variables"
            for i in range(8):
                file.write(f'{i % 2} {i % 3} 1 0 {i % 2}\\n')
        context['downloaded'] = path
"""

NETWORK = """
from runnerkit.flow import NetworkBase


class Network(NetworkBase):
    def __init__(self, context):
        print('Running SingleNetwork.')

    def build_network(self, context):
        assert context['downloaded']
        self.build_data(context)
        self.build_model(context)
        torch_model = context.model
        torch_model.layer.bias.data.fill_(1.0)
        self.build_optimizer(context)
"""

TDM_STARTUP = """
from runnerkit.flow import EngineMode, StartupBase


class Startup(StartupBase):
    def startup(self, context):
        context.logger.info('Run TDM Trainer Startup Pass')
        if context['engine'] == EngineMode.SINGLE:
            self._single_startup(context)
        else:
            self._cluster_startup(context)

        context['status'] = 'train_pass'

    def _single_startup(self, context):
        context['tree'] = 'single'
        self.load(context)

    def _cluster_startup(self, context):
        context['tree'] = 'cluster'
"""

RUNNER = """
import time

from runnerkit.flow import RunnerBase


class Runner(RunnerBase):
    def __init__(self, context):
        print('Running PSRunner.')

    def run(self, context):
        epochs = int(context.cfg.runner.max_epochs)
        for epoch in range(epochs):
            begin_time = time.time()
            context.runner.train(context.loaders[0])
            end_time = time.time()
            print(f'epoch {epoch} done, use time: {end_time - begin_time > 0}')
            context.runner.save()
        context['status'] = 'terminal_pass'
"""

TERMINAL = """
from runnerkit.flow import TerminalBase


class Terminal(TerminalBase):
    def __init__(self, context):
        pass

    def terminal(self, context):
        print('PaddleRec Finish', context['runner_name'], context['tree'], context.outcome)
"""

LOOK = """
from runnerkit.flow import TerminalBase


class Terminal(TerminalBase):
    def terminal(self, context):
        with open('seen.txt', 'w') as file:
            file.write(str(context.model.layer.bias.item()))
"""

CONFIG = """
dataset:
- name: dataset_1
  type: DataLoader
  batch_size: 4
  data_path: "{workspace}/data.txt"
  data_converter: "{workspace}/reader.py"

hyper_parameters:
  optimizer:
    class: SGD
    learning_rate: 0.1
  width: 3

runner:
  - name: train_runner
    class: single_train
    epochs: 2
    device: cpu
    instance_class_path: "{workspace}/your_instance.py"
    network_class_path: "{workspace}/your_network.py"
    startup_class_path: "{workspace}/tdm_startup.py"
    runner_class_path: "{workspace}/your_runner.py"
    terminal_class_path: "{workspace}/your_terminal.py"
    print_interval: 1

phase:
- name: phase1
  model: "{workspace}/model.py"
  dataset_name: dataset_1
  thread_num: 1
"""

FILES = {
    'model.py': MODEL,
    'reader.py': READER,
    'your_instance.py': INSTANCE,
    'your_network.py': NETWORK,
    'tdm_startup.py': TDM_STARTUP,
    'your_runner.py': RUNNER,
    'your_terminal.py': TERMINAL,
    'config.yaml': CONFIG,
}


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(f'{text.strip()}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_five_stages_are_replaced(workspace, capsys):
    assert main(['config.yaml']) == 0
    said = capsys.readouterr()
    printed = said.out.splitlines()
    assert printed == [
        'Running SingleInstance.',
        'Running SingleNetwork.',
        'Running PSRunner.',
        'epoch 0 done, use time: True',
        'epoch 1 done, use time: True',
        'PaddleRec Finish train_runner single completed',
    ]
    assert 'Run TDM Trainer Startup Pass' in said.err
    saved = sorted(path.name for path in (workspace / 'work_dirs' / 'config').glob('epoch_*.pth'))
    assert saved == ['epoch_1.pth', 'epoch_2.pth']


def test_a_loop_of_a_stage_ends_where_the_run_does(workspace, capsys):
    """``for epoch in range(epochs)`` also in a run that has done the first one before."""
    assert main(['config.yaml']) == 0
    whole = torch.load(workspace / 'work_dirs' / 'config' / 'epoch_2.pth', weights_only=True)
    seed = str(whole['meta']['seed'])
    other = ['config.yaml', '--work-dir', 'other', '--seed', seed]
    assert main([*other, '--stop-after', '1']) == 0
    assert main([*other, '--auto-resume']) == 0
    assert 'The run has its length: further calls of train do nothing' in capsys.readouterr().err
    assert sorted(path.name for path in (workspace / 'other').glob('epoch_*.pth')) == ['epoch_1.pth', 'epoch_2.pth']
    resumed = torch.load(workspace / 'other' / 'epoch_2.pth', weights_only=True)
    assert resumed['meta']['epoch'] == 2
    assert all(torch.equal(value, resumed['state_dict'][name]) for name, value in whole['state_dict'].items())


def test_one_key_replaces_one_stage(workspace, capsys):
    """TDM: its YAML differs from the usual one by the one path."""
    lines = CONFIG.splitlines()
    rest = [line for line in lines if not any(f'{name}_class' in line for name in ('network', 'runner', 'terminal'))]
    (workspace / 'tdm.yaml').write_text('\n'.join(rest) + '\n')
    assert main(['tdm.yaml', '--dry-run']) == 0
    said = capsys.readouterr().out
    assert re.search(r'startup   Startup \(.*tdm_startup.py:4\)', said)
    assert 'network   Network (runnerkit.flow.stages.network)' in said
    assert main(['tdm.yaml']) == 0
    said = capsys.readouterr()
    assert 'Run TDM Trainer Startup Pass' in said.err
    assert 'Last checkpoint work_dirs/tdm/epoch_2.pth' in said.out


def test_the_stages_of_all_runners_are_imported_before_the_first_one_runs(workspace, capsys):
    runner = '  - {name: second, class: infer, init_model_path: none, terminal_class_path: "{workspace}/broken.py"}\n'
    (workspace / 'two.yaml').write_text(
        f'mode: [train_runner, second]\n{CONFIG}'.replace('\nphase:', f'{runner}\nphase:')
    )
    (workspace / 'broken.py').write_text('import nowhere\n')
    assert main(['two.yaml']) == 1
    said = capsys.readouterr()
    assert re.search(r"No module named 'nowhere' .*broken.py:1", said.err)
    assert said.out == ''
    assert not (workspace / 'work_dirs').exists()


def test_the_base_of_the_startup_loads(workspace):
    """`load` reads `init_model_path`; if it is empty or absent, nothing is loaded."""
    assert main(['config.yaml']) == 0
    first = workspace / 'work_dirs' / 'config' / 'epoch_2.pth'
    text = CONFIG.replace('    epochs: 2', f'    epochs: 0\n    init_model_path: {first}')
    (workspace / 'look.py').write_text(LOOK)
    (workspace / 'warm.yaml').write_text(text.replace('your_terminal.py', 'look.py'))
    assert main(['warm.yaml']) == 0
    expected = torch.load(first, weights_only=True)['state_dict']['layer.bias'].item()
    assert float((workspace / 'seen.txt').read_text()) == expected


@pytest.mark.parametrize(
    'file, change, text',
    [
        ('tdm_startup.py', ('StartupBase', 'StartpBase'), "cannot import name 'StartpBase'"),
        ('tdm_startup.py', ('def startup', 'def startupp'), "did you mean 'startup'?"),
        ('tdm_startup.py', ('import EngineMode', 'import nowhere, EngineMode'), 'tdm_startup.py:1'),
        ('tdm_startup.py', ('self._single_startup(context)', 'self._singel_startup(context)'), 'tdm_startup.py:8'),
        ('your_terminal.py', ("context['tree']", "context['tre']"), "did you mean 'tree'?"),
    ],
)
def test_an_error_in_a_stage_file_names_it(workspace, capsys, file, change, text):
    """And the terminal is called once, if it was reached."""
    (workspace / file).write_text(FILES[file].strip().replace(*change) + '\n')
    assert main(['config.yaml']) == 1
    said = capsys.readouterr()
    assert text in said.err.strip().splitlines()[-1] or text in said.err
    assert said.out.count('PaddleRec Finish') == 0


TRAIN = 'context.runner.train(context.loaders[0])'


@pytest.mark.parametrize(
    'file, change, text',
    [
        ('your_runner.py', (TRAIN, "context['env']['phase'][0]"), "no stage has set context['env']: context.cfg has"),
        ('your_runner.py', (TRAIN, "context['exe'].run()"), 'PyTorch has no executor'),
        ('your_runner.py', (TRAIN, 'self._run(context, None)'), f'a pass over a phase is {TRAIN}'),
        ('your_runner.py', ('int(context.cfg.runner.max_epochs)', "envs.get_global_env('x')"), 'max_epochs'),
        (
            'tdm_startup.py',
            ('from runnerkit', 'from paddlerec.core.utils import envs\nfrom runnerkit'),
            'runnerkit.flow',
        ),
        ('tdm_startup.py', ('from runnerkit', 'import paddle.fluid as fluid\nfrom runnerkit'), 'import torch'),
        ('your_terminal.py', ("context['tree']", "context['fleet']"), 'context.world_size say what fleet does'),
    ],
)
def test_words_of_the_document_that_are_not_there(workspace, capsys, file, change, text):
    """The error says what takes their place."""
    assert change[0] in FILES[file]
    (workspace / file).write_text(FILES[file].strip().replace(*change) + '\n')
    assert main(['config.yaml']) == 1
    assert text in capsys.readouterr().err.strip().splitlines()[-1]


def test_save_and_load_take_the_arguments_of_the_document(workspace):
    (workspace / 'your_runner.py').write_text(
        RUNNER.replace('context.runner.save()', 'self.save(epoch, context, True)')
    )
    startup = TDM_STARTUP.replace(
        'def startup(self, context):', 'def startup(self, context):\n        self.load(context, is_fleet=True)'
    )
    (workspace / 'tdm_startup.py').write_text(startup.strip() + '\n')
    assert main(['config.yaml']) == 0
    saved = sorted(path.name for path in (workspace / 'work_dirs' / 'config').glob('epoch_*.pth'))
    assert saved == ['epoch_1.pth', 'epoch_2.pth']


def test_an_error_in_a_file_of_the_second_run_is_told_before_the_first_one(workspace, capsys):
    second = """
  - name: second
    epochs: 1
    terminal_class_path: "{workspace}/broken.py"

phase:
"""
    (workspace / 'two.yaml').write_text('mode: [train_runner, second]\n' + CONFIG.replace('\nphase:\n', second))
    (workspace / 'broken.py').write_text('1 / 0\n')
    assert main(['two.yaml']) == 1
    said = capsys.readouterr()
    assert 'broken.py:1' in said.err
    assert said.out == ''
    assert not (workspace / 'work_dirs').exists()
