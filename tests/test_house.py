"""What the whole package keeps to: no upward surprise in imports, errors, annotations, documentation, tests."""

import ast
import gc
import inspect
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest
import touched
from support import Tiny, tiny_runner

from runnerkit.hooks.hook import RINGS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / 'runnerkit'
FILES = sorted(PACKAGE.rglob('*.py'))

# Modules without a test file of their own at the mirrored path, each with the reason.
WITHOUT_MIRROR = {}

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def trees():
    """The syntax tree of each file."""
    return {file: ast.parse(file.read_text(encoding='utf-8')) for file in FILES}


def module_name(file):
    parts = file.relative_to(ROOT).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def place(file, node):
    return f'{file.relative_to(ROOT)}:{node.lineno}'


# --- messages and asserts --------------------------------------------------------------------------------------------

PLACEHOLDER = re.compile(r'(?<!\{)\{[A-Za-z_][\w.]*(\([^{}]*\)|\[[^{}]*\])*(![rsa])?(:[^{}]*)?\}(?!\})')
LOGGING = {'debug', 'info', 'warning', 'error', 'exception', 'critical', 'log', 'warn', 'print_log', 'say'}


def said(tree):
    """Every expression whose text reaches a person: what is raised, warned about, logged or printed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node.exc
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, 'id', '')
            if called in LOGGING or called == 'print':
                yield node


def forgotten_prefixes(tree):
    """Plain text with a placeholder in it, unless ``.format`` fills it in. A plain piece that is glued to an f-string
    counts, too: Python joins both into one node, in which only the f-string's own placeholders are expressions."""
    found = []
    for expression in said(tree):
        formatted = {
            id(node.func.value)
            for node in ast.walk(expression)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == 'format'
        }
        for node in ast.walk(expression):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in formatted:
                found += [(node, text[0]) for text in PLACEHOLDER.finditer(node.value)]
    return found


def test_the_search_for_forgotten_prefixes_finds_them():
    def found(text):
        return [match for _, match in forgotten_prefixes(ast.parse(text))]

    assert found("raise ValueError('got {value}')") == ['{value}']
    assert found("raise ValueError(f'{a} and ' '{b!r} too')") == ['{b!r}']
    assert found("logger.info('saved to {self.out_dir}')") == ['{self.out_dir}']
    assert found("warnings.warn('{names[0]:>4}')") == ['{names[0]:>4}']
    assert found("raise ValueError(f'got {value}, wanted {1 + 2}')") == []
    assert found("raise ValueError('got {value}'.format(value=3))") == []
    assert found("raise ValueError('use epoch_{}.pth or dict(a=1)')") == []


def test_no_message_has_lost_its_f():
    found = [(place(file, node), text) for file, tree in trees().items() for node, text in forgotten_prefixes(tree)]
    assert found == []


def test_nothing_is_asserted_of_what_users_pass():
    found = [place(f, node) for f, tree in trees().items() for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert found == []


# --- annotations and docstrings --------------------------------------------------------------------------------------


def public_functions(tree):
    """Functions of a module, and methods of its classes, that have no leading underscore; ``__init__`` too."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS) and not node.name.startswith('_'):
            yield node
        elif isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
            for part in node.body:
                if isinstance(part, FUNCTIONS) and (not part.name.startswith('_') or part.name == '__init__'):
                    yield part


def unannotated(function):
    args = function.args
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    missing = [arg.arg for arg in named if arg is not None and arg.annotation is None]
    missing = [name for name in missing if name not in ('self', 'cls', 'mcs')]
    return missing + (['return'] if function.returns is None else [])


def test_public_functions_are_annotated():
    found = {
        place(file, function): unannotated(function)
        for file, tree in trees().items()
        for function in public_functions(tree)
        if unannotated(function)
    }
    assert found == {}


def public_objects(module):
    """(name, object) of what a module itself defines in public: functions, classes, and their methods."""
    for name, value in vars(module).items():
        if name.startswith('_') or getattr(value, '__module__', None) != module.__name__:
            continue
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
        if inspect.isclass(value) and not getattr(value, '_is_protocol', False):
            for part, member in vars(value).items():
                member = getattr(member, '__func__', member)  # what a classmethod or staticmethod holds
                if part.startswith('_') or part in RINGS:
                    continue
                if inspect.isfunction(member) or isinstance(member, property):
                    yield f'{name}.{part}', getattr(value, part)


def test_everything_public_is_documented():
    """By a docstring of its own, or by that of the method it overrides.

    A protocol's class says it for its members, and `Hook` for its rings, which no base class defines.
    """
    found = [f'{module_name(f)}: missing docstring' for f, tree in trees().items() if not ast.get_docstring(tree)]
    for file in FILES:
        if file.name != '__main__.py':
            module = import_module(module_name(file))
            found += [f'{module.__name__}.{name}' for name, value in public_objects(module) if not documented(value)]
    assert found == []


def documented(value):
    # A dataclass without a docstring gets its signature for one.
    text = (vars(value).get('__doc__') if inspect.isclass(value) else inspect.getdoc(value)) or ''
    return bool(text.strip()) and not text.startswith(f'{getattr(value, "__name__", "")}(')


# --- imports ---------------------------------------------------------------------------------------------------------

WITHOUT_TORCH = {
    'runnerkit': 'import runnerkit',
    'config': 'import runnerkit.config',
    'registry': 'import runnerkit.registry',
    'utils': 'import runnerkit.utils',
    'fileio': 'import runnerkit.fileio',
    'a config': "from runnerkit.config import Config; Config.fromfile('configs/mnist/lenet.py').pretty_text",
    'python -m runnerkit --help': "run('runnerkit', '--help')",
    'runnerkit train --help': "run('runnerkit', 'train', '--help')",
    'runnerkit profile --help': "run('runnerkit', 'profile', '--help')",
    'runnerkit profile without its config': "run('runnerkit', 'profile', 'configs/missing.py')",
    'runnerkit summary --help': "run('runnerkit', 'summary', '--help')",
    'runnerkit predict --help': "run('runnerkit', 'predict', '--help')",
    'tools/train.py --help': "run('tools/train.py', '--help')",
    'tools/train.py without its config': "run('tools/train.py', 'configs/missing.py')",
    'tools/train.py with a wrong flag': "run('tools/train.py', 'configs/mnist/lenet.py', '--sed', '1')",
    'tools/test.py --help': "run('tools/test.py', '--help')",
    'tools/convert_checkpoint.py --help': "run('tools/convert_checkpoint.py', '--help')",
    'tools/print_config.py': "run('tools/print_config.py', 'configs/mnist/lenet.py')",
}

RUN = """
import runpy, sys
def run(what, *argv):
    sys.argv = [what, *argv]
    try:
        (runpy.run_path if what.endswith('.py') else runpy.run_module)(what, run_name='__main__')
    except SystemExit:
        pass
"""


def test_what_needs_no_torch_does_not_wait_for_it():
    """One process each would take seconds; forks of one that has imported nothing yet are as telling."""
    code = f"""{RUN}
import contextlib, io, os
for name, line in {WITHOUT_TORCH!r}.items():
    if not os.fork():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exec(line)
        print(name, [module for module in ('torch', 'rich', 'yapf', 'fsspec', 'torchmetrics') if module in sys.modules])
        sys.stdout.flush()
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [f'{name} []' for name in WITHOUT_TORCH], done.stderr


# What a config is refused for that a tool is given, and what the tool says.
REFUSED = {
    'missing.py': ('', 'no such config file'),
    'circle.py': ("_base_ = 'circle.py'\n", '_base_ is circular'),
    'broken.py': ('model = dict(\n', 'syntax error'),
    'broken.yaml': ('model: [\n', 'while parsing'),
}


@pytest.mark.parametrize('tool, more', [('tools/train.py', []), ('tools/test.py', ['no.pth'])])
def test_a_config_that_cannot_be_read_is_refused_without_torch(tool, more, tmp_path):
    for name, (text, _) in REFUSED.items():
        if text:
            (tmp_path / name).write_text(text)
    code = f"""{RUN}
import contextlib, io, os
for name, (_, says) in {REFUSED!r}.items():
    if not os.fork():
        with contextlib.redirect_stderr(io.StringIO()) as said:
            run({tool!r}, os.path.join({str(tmp_path)!r}, name), *{more!r})
        print(name, says in said.getvalue(), 'torch' in sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [f'{name} True False' for name in REFUSED], done.stderr


# What is wrong on the command line or in a config, and a word of the answer.
WRONG = {
    'flag': (['train', 'good.py', '--sed', '1'], '--sed'),
    'value of a flag': (['train', 'good.py', '--seed', 'x'], '--seed'),
    'command': (['trian'], "'train'"),
    'file': (['train', 'goood.py'], "'good.py'"),
    'file to test': (['test', 'goood.py', 'x.pth'], "'good.py'"),
    'top-level key': (['train', 'top.py'], "'model'"),
    'top-level option': (['train', 'good.py', '--cfg-options', 'evalution.interval=1'], "'evaluation'"),
    'data key': (['train', 'data.py'], "'samples_per_gpu'"),
    'data key to test': (['test', 'data.py', 'x.pth'], "'samples_per_gpu'"),
    'data key to predict': (['predict', 'data.py', 'test'], "'samples_per_gpu'"),
    'config to predict': (['predict', 'goood.py', 'test'], "'good.py'"),
    'format of predictions': (['predict', 'run', 'test', '--out', 'x.txt'], '.json, .csv, .npy'),
    'format of an export': (['export', 'run', '--out', 'x.onx'], "'.onnx'"),
    'data key to export': (['export', 'data.py', '--out', 'x.onnx'], "'samples_per_gpu'"),
    'data key to profile': (['profile', 'data.py'], "'samples_per_gpu'"),
    'data option': (['train', 'good.py', '--cfg-options', 'data.train_dataloder.shuffle=0'], "'train_dataloader'"),
    'runner key': (['train', 'runner.py'], "'max_epochs'"),
    'runner option': (['train', 'good.py', '--cfg-options', 'runner.max_epoch=3'], "'max_epochs'"),
    'no key': (['train', 'good.py', '--cfg-options', 'runner'], 'key=value'),
}


def test_what_is_wrong_is_answered_without_torch(tmp_path):
    """Also where the config imports what needs torch."""
    start = "custom_imports = dict(imports=['needs_torch'])\n"
    for name, text in {
        'needs_torch.py': 'import torch',
        'good.py': start + "runner = dict(type='EpochBasedRunner', max_epochs=1)",
        'top.py': start + 'modle = dict()',
        'data.py': start + 'data = dict(samples_per_gp=1)',
        'runner.py': start + "runner = dict(type='EpochBasedRunner', max_epoch=1)",
    }.items():
        (tmp_path / name).write_text(text)
    code = f"""{RUN}
import contextlib, io, os
sys.path.append('.')
for name, (argv, says) in {WRONG!r}.items():
    if not os.fork():
        with contextlib.redirect_stderr(io.StringIO()) as said:
            run('runnerkit', *argv)
        print(name, says in said.getvalue(), 'torch' in sys.modules, flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == [f'{name} True False' for name in WRONG], done.stderr


#: What takes long to import, and is imported when it is first used: by torch for its own ends, or by us.
LATE = {
    'torch._dynamo',
    'torch._inductor',
    'torch.utils.tensorboard',
    'numpy.random',
    *('fsspec', 'matplotlib', 'pandas', 'PIL', 'rich', 'scipy', 'sympy', 'tensorboard', 'torchmetrics', 'yaml', 'yapf'),
}


#: What only some runs use. The objects of a module count too: with too many new ones Python's garbage collector goes
#: through all of torch in the middle of the import, which takes 0.1 s.
OF_SOME_RUNS = {
    'runnerkit.checkpoint.async_writer',
    'runnerkit.data.prefetch',
    'runnerkit.fileio.file_client',
    'runnerkit.fileio.handlers',
    'runnerkit.nn.weight_init',
    'runnerkit.checkpoint.conditions',
    'runnerkit.hooks.logger.trackers',
}


def test_the_runner_brings_in_little_beside_torch_and_nothing_needs_torchvision_or_warns():
    code = f"""import importlib, sys, torch
before = set(sys.modules)
import runnerkit.runner
print(*sorted(set(sys.modules) - before))
model = torch.nn.Linear(1, 1)
model.train_step = print
runnerkit.runner.EpochBasedRunner(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), max_epochs=1)
print('runnerkit.config' in sys.modules)  # of a run without a config
sys.modules['torchvision'] = None  # an import of it fails
for name in {sorted(name for name in MODULES if not name.endswith('__main__'))!r}:
    importlib.import_module(name)
"""
    command = [sys.executable, '-W', 'error', '-c', code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    *names, has_config = ended.stdout.split()
    assert has_config == 'False', ended.stderr
    brought = set(names)
    assert 'runnerkit.runner' in brought, ended.stderr
    assert brought & (LATE | OF_SOME_RUNS) == set()
    assert OF_SOME_RUNS <= MODULES
    others = sorted(name for name in brought if name.partition('.')[0] not in ('runnerkit', 'torch'))
    assert len(others) <= 20, others


def imports_of(file):
    """The modules of the package that ``file`` imports, inside functions and for annotations as well."""
    found = set()
    for node in ast.walk(trees()[file]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                deeper = f'{node.module}.{alias.name}'
                found.add(deeper if deeper in MODULES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES


MODULES = {module_name(file) for file in FILES}


def test_no_module_imports_itself_by_a_detour():
    TopologicalSorter({module_name(file): imports_of(file) for file in FILES}).prepare()  # raises CycleError


# --- rooms and names -------------------------------------------------------------------------------------------------

#: The most of each; only a commit that names what it buys raises one. See `touched` about what each one is.
CEILINGS = {
    'files that a training imports': 168,
    'lines in them': 27241,
    'functions that it enters': 1380,
    'its deepest frame': 30,
    'functions of a save': 110,
    'files of a save': 34,
    'functions of a score': 189,
    'files of a score': 43,
    'files': 340,
    'lines': 50764,
    'short private functions with one call': 123,
    'private names in several files': 10,
}


def test_a_run_touches_no_more_than_this():
    """In a process of its own: this one has imported all of the package."""
    command = [sys.executable, '-W', 'ignore', str(Path(touched.__file__))]
    environ = {**os.environ, 'OMP_NUM_THREADS': '1', 'PYTHONPATH': str(touched.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == CEILINGS.keys()
    assert {name: value for name, value in found.items() if value > CEILINGS[name]} == {}


#: Public names that several modules define, each with the reason.
SHARED_NAMES = {
    'MMDistributedDataParallel': "MMCV's",
    'Scatter': "MMCV's",
    'scatter': "MMCV's",
    'scatter_kwargs': "MMCV's",
    'Network': "PaddleRec's stage, and Vega's network",
    'Codec': 'of a search, and as Vega has it',
    'SearchAlgorithm': 'of a search, and as Vega has it',
    'Plan': 'what a run does, and what the preflight checks',
    'dump': 'of all formats, and of YAML',
    'load': 'of all formats, and of YAML',
    'install': 'import finders',
    'main': 'commands',
    'parser': 'commands',
}


def test_a_name_is_defined_in_one_module():
    found = {}
    for file, tree in trees().items():
        for node in tree.body:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.name.startswith('_'):
                found.setdefault(node.name, []).append(str(file.relative_to(PACKAGE)))
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in SHARED_NAMES} == {}


# --- files -----------------------------------------------------------------------------------------------------------


def tracked_files():
    listed = subprocess.run(
        ['git', 'ls-files', '--cached', '--others', '--exclude-standard'], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip('not a git checkout')
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def in_tracked_files(pattern):
    """What matches ``pattern`` in the texts of the repository, with the name of the file."""
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding='utf-8')
        except UnicodeDecodeError:
            continue
        found += [f'{path.relative_to(ROOT)}: {match[0]}' for match in pattern.finditer(text)]
    return found


def test_no_file_knows_this_machine():
    """Neither where something lies on the machine it was written on, nor where packages were fetched from."""
    places = [re.escape('/' + name + '/') for name in ('home', 'root', 'work', 'opt')]
    hosts = ['pypi' + '[.]org', 'python' + 'hosted', 'download[.]' + 'pytorch', 'index' + '-url']
    forbidden = re.compile(r'(?<![\w.])(?:' + '|'.join(places) + ')|' + '|'.join(hosts))
    assert in_tracked_files(forbidden) == []


def test_tests_mirror_the_package():
    sources = {
        str(file.relative_to(ROOT)) for file in FILES if file.name not in ('__init__.py', '__main__.py', 'version.py')
    }
    lacking = {name for name in sources if not mirror(name).is_file()}
    assert lacking - set(WITHOUT_MIRROR) == set(), 'write a test at the mirrored path'
    assert set(WITHOUT_MIRROR) - lacking == set(), 'they have a test by now: take them out of WITHOUT_MIRROR'


def mirror(name):
    path = Path(name)
    return ROOT / 'tests' / path.relative_to('runnerkit').parent / f'test_{path.name}'


def test_ranks_are_started_by_fixtures():
    """By which a test has the marker ``distributed`` without that anybody writes it."""
    direct = re.compile(r'^ *(?:from ranks import|import ranks|from forks import .*\blaunch\b)', re.MULTILINE)
    files = [file for file in (ROOT / 'tests').rglob('*.py') if file.name != 'conftest.py']
    found = [str(file.relative_to(ROOT)) for file in files if direct.search(file.read_text(encoding='utf-8'))]
    assert found == [], 'take the fixture on_ranks or launch'


def test_the_files_to_read_first_can_be_read():
    """CONTRIBUTING names six; the links are in their order."""
    text = (ROOT / 'CONTRIBUTING.md').read_text(encoding='utf-8')
    files = re.findall(r'^\d\. \[`([^`]+)`\]\(\1\)', text, re.MULTILINE)
    assert len(files) == 6
    lines = {file: len(re.findall(r'^.*\S', (ROOT / file).read_text(encoding='utf-8'), re.MULTILINE)) for file in files}
    assert sum(lines.values()) <= 1500, lines
    assert len(text.splitlines()) <= 60, 'one screen'


# --- the loop --------------------------------------------------------------------------------------------------------


@contextmanager
def profiled(count):
    """Tell ``count`` of every call; coverage goes on afterwards. No garbage of other tests is collected meanwhile: that
    calls functions, too."""
    before = sys.getprofile()
    gc.disable()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
        gc.enable()


def test_an_iteration_costs_few_calls(tmp_path):
    """At most 27, as many as MMCV, with the five default hooks, away from log lines and the ends of epochs.

    Counted are calls of the package's own functions from one ``train_step`` to the next; the loader is the user's own,
    since what seeded samples cost depends on the batch.
    """
    calls = [[]]

    class Counted(Tiny):
        def train_step(self, data, optimizer, **kwargs):
            calls.append([])
            return super().train_step(data, optimizer, **kwargs)

    def count(frame, event, arg):
        if event == 'call' and frame.f_code.co_filename.startswith(str(PACKAGE)):
            calls[-1].append(f'{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}')

    runner = tiny_runner(model=Counted(), work_dir=tmp_path, max_epochs=1)
    runner.register_training_hooks(
        {'policy': 'poly', 'by_epoch': False},
        {},
        {'interval': 1},
        {'interval': 50, 'hooks': [{'type': 'TextLoggerHook'}]},
    )
    assert len(runner.hooks) == 5
    batches = list(support_batches(8))
    with profiled(count):
        runner.run([batches], [('train', 1)])
    between = calls[3:-1]
    assert all(each == between[0] for each in between)
    assert len(between[0]) <= 27, between[0]


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_an_iteration_costs_at_most_200_python_calls(kind, tmp_path):
    """Of whatever library, torch's loader over eight samples among them, with a rate for every iteration; the plain
    loop makes about 170."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    calls = [0]

    class Counted(Tiny):
        def train_step(self, data, optimizer, **kwargs):
            calls.append(0)
            loss = torch.nn.functional.mse_loss(self.head(torch.relu(data[0])), data[1])
            return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': 8}

    def count(frame, event, arg):
        calls[-1] += event == 'call'

    limit = {'max_epochs': 1} if kind == 'epoch' else {'max_iters': 12}
    runner = tiny_runner(kind, model=Counted(), work_dir=tmp_path, **limit)
    rate = {'policy': 'poly', 'power': 0.9, 'by_epoch': False}
    log = {'interval': 50, 'hooks': [{'type': 'TextLoggerHook'}]}
    runner.register_training_hooks(rate, {}, {'interval': 50}, log)
    batches = DataLoader(TensorDataset(torch.rand(96, 8), torch.rand(96, 1)), 8)
    with profiled(count):
        runner.run([batches], [('train', 1)])
    between = calls[3:-1]
    assert len(set(between)) == 1
    assert between[0] <= 200


def support_batches(n):
    import torch

    for _ in range(n):
        yield torch.rand(4, 4), torch.rand(4, 1)
