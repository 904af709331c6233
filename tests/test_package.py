"""The package's front door."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from test_docs import PAGES, ROOT, read
from test_house import in_tracked_files, tracked_files

import runnerkit


def test_every_name_is_there():
    assert [name for name in runnerkit.__all__ if getattr(runnerkit, name) is None] == []


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'runnerkit' has no attribute 'Trainer'"):
        _ = runnerkit.Trainer


def test_importing_it_imports_no_torch():
    code = "import runnerkit, sys; runnerkit.Config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0


def test_what_there_is_can_be_listed():
    """For completion in shells and notebooks; and what type checkers read is what there is."""
    assert {*runnerkit.__all__, 'runner', 'flow', 'hooks'} <= set(dir(runnerkit))
    assert all(getattr(runnerkit, name) is not None for name in dir(runnerkit))
    block = next(node for node in ast.parse(Path(runnerkit.__file__).read_text()).body if isinstance(node, ast.If))
    imported = {name.asname for line in block.body for name in line.names}
    assert imported - {None} == {*runnerkit.__all__} - {'__version__'}


def test_the_names_of_another_system_come_at_the_first_that_is_unknown():
    """And those of the package, MMCV's at its root included, need none of it."""
    code = """
import sys
import runnerkit, runnerkit.hooks, runnerkit.runner
from runnerkit.hooks.optimizer import OptimizerHook
runnerkit.train, runnerkit.load, runnerkit.get_logger, runnerkit.utils.ProgressBar
assert not [name for name in sys.modules if name.startswith('runnerkit.compat')]
assert type(sys.meta_path[-1]).__name__ == 'type'
before = list(sys.meta_path)
runnerkit.is_str
assert len(sys.meta_path) == len(before)
assert type(sys.meta_path[0]).__name__ == 'AliasFinder'
assert runnerkit.utils.is_str is runnerkit.is_str
from runnerkit.runner.hooks.optimizer import LossScaler, OptimizerHook as other
assert other is OptimizerHook
"""
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    'code',
    [
        'from runnerkit.utils import is_str',
        'import runnerkit; runnerkit.utils.is_str',
        'import runnerkit; runnerkit.is_str',
        'import runnerkit.runner.hooks.ema',
        'import runnerkit.fileio.handlers.json_handler',
        'import runnerkit.engine',
        'from runnerkit.nn import LossScaler',
    ],
)
def test_any_of_them_may_be_the_first(code):
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_listing_imports_no_torch():
    code = "import runnerkit, sys; dir(runnerkit); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, '-c', code]).returncode == 0


# --- how it is installed ---------------------------------------------------------------------------------------------


def extras():
    """The names of the extras in setup.py."""
    (call,) = (
        node.value
        for node in ast.parse((ROOT / 'setup.py').read_text()).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    (given,) = (keyword.value for keyword in call.keywords if keyword.arg == 'extras_require')
    return [key.value for key in given.keys]


def test_nothing_says_that_a_registry_has_the_package():
    """It is on none; whoever took its name there would run code on the machines of those who follow the advice."""
    wrong = re.compile(r'\b(?:install|add) (?:[^#`\n]* )?[\'"]?runnerkit\b(?!/)|\brunnerkit\[[a-z]')
    assert wrong.search("pip install 'runnerkit" + "[search]'")
    assert wrong.search('pip install torch ' + 'runnerkit')
    own = str(Path(__file__).relative_to(ROOT))
    assert [each for each in in_tracked_files(wrong) if not each.startswith(f'{own}: ')] == []


def test_the_extras_of_the_pages_are_those_of_the_package():
    listed = read('docs/first_steps.md').partition('Extras add')[2].partition('\n\n')[0]
    assert set(re.findall(r'`([a-z-]+)`', listed)) == set(extras())
    for page in PAGES:
        named = re.findall(r'\.\[([a-z,-]+)\]', read(page)) + re.findall(r'extras: ([^)]*)', read(page))
        for names in named:
            assert set(re.findall(r'[a-z-]+', names)) <= set(extras()), f'{page}: {names}'


#: Loads what the wheel installs as the command ``runnerkit``, and says where it comes from.
COMMAND = """
import sys
from importlib.metadata import distribution

installed = distribution('runnerkit')
(command,) = installed.entry_points.select(group='console_scripts')
print(installed.locate_file('runnerkit'), file=sys.stderr)
sys.argv[0] = command.name
sys.exit(command.load()())
"""

CONFIG = """
model = dict(type='Supervised', model=dict(type='Linear', in_features=2, out_features=1), loss=dict(type='MSELoss'))
data = dict(batch_size=2, train=dict(type='data.py:Rows'), val=dict(type='data.py:Rows'))
optimizer = dict(type='SGD', lr=0.1)
runner = dict(type='EpochBasedRunner', max_epochs=2)
evaluation = dict(interval=1)
seed = 0
"""

DATA = """
import torch


class Rows(torch.utils.data.TensorDataset):
    def __init__(self):
        super().__init__(torch.eye(2).repeat(4, 1), torch.ones(8, 1))
"""


def test_a_source_archive_has_what_its_wheel_is_built_from(tmp_path):
    source = tmp_path / 'source'
    for path in (path.relative_to(ROOT) for path in tracked_files()):
        if path.parts[0] in ('runnerkit', 'requirements') or len(path.parts) == 1:
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, source / path)
    build = [sys.executable, '-c', 'from setuptools import build_meta; build_meta.build_sdist("..")']
    done = subprocess.run(build, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob('*.tar.gz')
    with tarfile.open(archive) as files:
        names = {name.partition('/')[2] for name in files.getnames()}
    read = {f'requirements/{path.name}' for path in (ROOT / 'requirements').glob('*.txt')}
    assert {'setup.py', 'README.md', 'runnerkit/py.typed', 'runnerkit/flow/report/page.js', *read} <= names


@pytest.mark.thorough  # test_a_source_archive_has_what_its_wheel_is_built_from; `make dist` runs this one
def test_a_wheel_has_everything_and_trains_far_from_the_checkout(tmp_path):
    source, site, project = (tmp_path / name for name in ('source', 'site', 'project'))
    own = [path.relative_to(ROOT) for path in tracked_files()]
    for path in own:
        if path.parts[0] in ('runnerkit', 'requirements') or str(path) in ('setup.py', 'pyproject.toml', 'README.md'):
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, source / path)
    build = [sys.executable, '-c', 'from setuptools import build_meta; build_meta.build_wheel("..")']
    done = subprocess.run(build, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    (wheel,) = tmp_path.glob('*.whl')
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if name.startswith('runnerkit/')}
        assert names == {str(path) for path in own if path.parts[0] == 'runnerkit'}  # py.typed and model_zoo, too
        files.extractall(site)
    (info,) = site.glob('*.dist-info')
    assert set(re.findall(r'^Provides-Extra: (.*)$', (info / 'METADATA').read_text(), re.M)) == set(extras())
    project.mkdir()
    (project / 'config.py').write_text(CONFIG)
    (project / 'data.py').write_text(DATA)
    environment = {**os.environ, 'PYTHONPATH': str(site), 'OMP_NUM_THREADS': '1'}

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done

    assert 'predict' in run('-m', 'runnerkit', '--help').stdout
    done = run('-c', COMMAND, 'train', 'config.py', '--device', 'cpu')
    assert done.stderr.startswith(f'{site}/runnerkit\n')
    assert 'Scores after 8 iterations: loss ' in done.stdout
    (log,) = (project / 'work_dirs' / 'config').glob('*.log.json')
    assert json.loads(log.read_text().splitlines()[-1])['mode'] == 'val'
