"""The listings of the seed document on PaddleRec's flows as they stand there, and stages that do more.

docs/dev/seeds_paddlerec.md says where everything else of it is tested.
"""

import ast
import inspect
import re

import pytest
import torch
from seed_documents import Changes, pattern

import runnerkit.flow
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

# --- the listings of the document, as they stand there ----------------------------------------------------------------

BASES = """
class InstanceBase(object):
    def __init__(self, context):
        pass

    def instance(self, context):
        pass

class NetworkBase(object):
    def __init__(self, context):
        pass

    def build_network(self, context):
        pass

class StartupBase(object):
    def __init__(self, context):
        pass

    def startup(self, context):
        pass

    def load(self, context, is_fleet=False, main_program=None):
        dirname = envs.get_global_env(
            "runner." + context["runner_name"] + ".init_model_path", None)
        if dirname is None or dirname == "":
            return
        print("going to load ", dirname)
        if is_fleet:
            context["fleet"].load_persistables(context["exe"], dirname)
        else:
            fluid.io.load_persistables(
                context["exe"], dirname, main_program=main_program)

class TerminalBase(object):
    def __init__(self, context):
        pass

    def terminal(self, context):
        print("PaddleRec Finish")
"""

PUBLISHED = """
context["model"][model_dict["name"]][
                "main_program"] = train_program
context["model"][model_dict["name"]][
    "startup_program"] = startup_program
context["model"][model_dict["name"]]["scope"] = scope
context["model"][model_dict["name"]]["model"] = model
context["model"][model_dict["name"]][
    "default_main_program"] = train_program.clone()
"""

PS_RUNNER = """
class PSRunner(RunnerBase):
    def __init__(self, context):
        print("Running PSRunner.")
        pass

    def run(self, context):
        # 通过超参拿到迭代次数
        epochs = int(
            envs.get_global_env("runner." + context["runner_name"] +
                                ".epochs"))
        # 取第一个phase的模型与reader
        model_dict = context["env"]["phase"][0]
        for epoch in range(epochs):
            begin_time = time.time()
            # 调用run进行训练
            self._run(context, model_dict)
            end_time = time.time()
            seconds = end_time - begin_time
            print("epoch {} done, use time: {}".format(epoch, seconds))
            with fluid.scope_guard(context["model"][model_dict["name"]][
                    "scope"]):
                train_prog = context["model"][model_dict["name"]][
                    "main_program"]
                startup_prog = context["model"][model_dict["name"]][
                    "startup_program"]
                with fluid.program_guard(train_prog, startup_prog):
                    # 保存模型
                    self.save(epoch, context, True)
        context["status"] = "terminal_pass"
"""

TDM = """
class Startup(StartupBase):
    def startup(self, context):
        logger.info("Run TDM Trainer Startup Pass")
        if context["engine"] == EngineMode.SINGLE:
            self._single_startup(context)
        else:
            self._cluster_startup(context)

        context['status'] = 'train_pass'

    def _single_startup(self, context):
        # single process

    def _cluster_startup(self, context):
        # cluster process
"""

YAML = """
runner:
  - name: train_runner
    class: single_train
    epochs: 2
    device: cpu
    instance_class_path: "{workspace}/your_instance.py"
    network_class_path: "{workspace}/your_network.py"
    startup_class_path: "{workspace}/your_startup.py"
    runner_class_path: "{workspace}/your_runner.py"
    terminal_class_path: "{workspace}/your_terminal.py"
    print_interval: 1
"""

TDM_YAML = """
runner:
- name: runner1
  class: single_train
  startup_class_path: "{workspace}/tdm_startup.py"
  epochs: 10
  device: cpu
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
    assert main(['config.yaml']) == (2 if 'startup' in text and 'did you mean' in text else 1)  # found before the run
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


# --- the listings run -------------------------------------------------------------------------------------------------

CHANGES = Changes('from_paddlerec.md')

IMPORTS = """
import time

from runnerkit.flow import EngineMode, InstanceBase, RunnerBase, StartupBase, TerminalBase
"""

#: What the comments stand for that are the whole body of a function: these two cannot run by their nature.
BODIES = [
    ('# single process\n', "# single process\n        context['tree'] = 'single'\n"),
    ('# cluster process\n', "# cluster process\n        context['tree'] = 'cluster'\n"),
]


def listing_of(name):
    """The listing of one base, as a stage of the user's own with the same body."""
    node = next(each for each in ast.parse(BASES).body if each.name == f'{name}Base')
    listing = '\n'.join(BASES.splitlines()[node.lineno - 1 : node.end_lineno]).strip()
    return listing.replace(f'class {name}Base(object)', f'class {name}({name}Base)')


def stage(listing, without=None):
    for comment, body in BODIES:
        listing = listing.replace(comment, body)
    return f'{IMPORTS}\n{CHANGES.applied(listing, without)}\n'


def as_it_stands(folder, without=None, runner=YAML, **files):
    """Write the document's stages and its config, except one change."""
    stages = {
        'instance': listing_of('Instance'),
        'runner': PS_RUNNER,
        'startup': TDM,
        'terminal': listing_of('Terminal'),
    }
    for name, listing in {**stages, **files}.items():
        (folder / f'your_{name}.py').write_text(stage(listing, without))
    (folder / 'your_network.py').write_text(NETWORK.replace("assert context['downloaded']", 'pass'))
    (folder / 'tdm_startup.py').write_text(stage(TDM, without))
    (folder / 'data.txt').write_text(''.join(f'{i % 2} {i % 3} 1 0 {i % 2}\n' for i in range(8)))
    before, rest = CONFIG.split('\nrunner:\n')
    (folder / 'config.yaml').write_text(f'{before}\n{runner}\nphase:\n' + rest.split('phase:\n')[1])


@pytest.mark.parametrize('node', ast.parse(BASES).body, ids=lambda node: node.name)
def test_the_bases_have_the_methods_of_the_document(node):
    base = getattr(runnerkit.flow, node.name)
    for method in node.body:
        wanted = [each.arg for each in method.args.args]
        assert [*inspect.signature(getattr(base, method.name)).parameters][: len(wanted)] == wanted


def test_the_stages_and_the_config_as_they_stand(workspace, capsys):
    as_it_stands(workspace)
    assert main(['config.yaml']) == 0
    said = capsys.readouterr()
    assert [line.partition(', use time: ')[0] for line in said.out.splitlines()] == [
        'Running SingleNetwork.',
        'Running PSRunner.',
        'epoch 0 done',
        'epoch 1 done',
        'PaddleRec Finish',
    ]
    assert 'Run TDM Trainer Startup Pass' in said.err
    saved = sorted(path.name for path in (workspace / 'work_dirs' / 'config').glob('epoch_*.pth'))
    assert saved == ['epoch_1.pth', 'epoch_2.pth']


def test_the_config_of_tdm_as_it_stands(workspace, capsys):
    as_it_stands(workspace, runner=TDM_YAML)
    assert main(['config.yaml']) == 0
    said = capsys.readouterr()
    assert 'for 10 epochs on Reader' in said.err
    assert 'Run TDM Trainer Startup Pass' in said.err


LOADS = (
    '    def startup(self, context):\n        pass',
    '    def startup(self, context):\n        self.load(context{})',
)


@pytest.mark.parametrize('is_fleet', ['', ', is_fleet=True'])
def test_the_load_of_the_document(is_fleet, workspace, capsys):
    as_it_stands(workspace)
    assert main(['config.yaml']) == 0
    first = workspace / 'work_dirs' / 'config' / 'epoch_2.pth'
    assert LOADS[0] in listing_of('Startup')
    startup = listing_of('Startup').replace(LOADS[0], LOADS[1].format(is_fleet))
    warm = YAML.replace('epochs: 2', f'epochs: 0\n    init_model_path: {first}')
    warm = warm.replace('your_startup', 'your_load').replace('your_terminal', 'look')  # imported files stay as they are
    as_it_stands(workspace, runner=warm, load=startup)
    (workspace / 'look.py').write_text(LOOK)
    assert main(['config.yaml', '--work-dir', 'warm']) == 0
    assert f'going to load  {first}' in capsys.readouterr().out
    expected = torch.load(first, weights_only=True)['state_dict']['layer.bias'].item()
    assert float((workspace / 'seen.txt').read_text()) == expected


def test_the_page_names_no_change_that_is_not_needed():
    listings = [PS_RUNNER, TDM, BASES, YAML, TDM_YAML]
    assert {code for listing in listings for code in CHANGES.needed_by(listing)} == CHANGES.rows.keys()
    assert all(pattern(code).search(PUBLISHED + PS_RUNNER) for code in CHANGES.differs)


@pytest.mark.thorough  # test_the_page_names_no_change_that_is_not_needed
@pytest.mark.parametrize('row', CHANGES.rows)
def test_without_a_change_the_run_ends_with_an_error(row, workspace, capsys):
    is_load = row in CHANGES.needed_by(BASES)
    startup = listing_of('Startup').replace(LOADS[0], LOADS[1].format(', True' if 'fleet' in row else ''))
    runner = YAML.replace('epochs: 2', 'epochs: 2\n    init_model_path: data.txt')
    as_it_stands(workspace, without=row, **({'startup': startup, 'runner': runner} if is_load else {}))
    assert main(['config.yaml']) in (1, 2)  # 2 where a line of the config is named
    assert 'your_' in capsys.readouterr().err
