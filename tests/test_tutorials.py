"""The tutorials: each is typed from top to bottom, as a reader would, and what it shows is compared.

That is thorough. What always runs: the configs fit the files next to them, and each page has its picture and its time.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import torchvision_stub
from test_docs import BLOCK, ROOT, dedent, read
from test_docs_blocks import WALKED, shell  # noqa: F401  # a fixture
from test_docs_walked import FILE, type_line, walk  # noqa: F401  # fixtures

from runnerkit.config import Config
from runnerkit.flow.preflight import Plan, find
from runnerkit.search.pipeline import Pipeline

#: The tutorials in their order, with the packages that a page needs in addition.
TUTORIALS = {
    'table': [],
    'pictures': ['timm'],
    'text': ['datasets'],
    'step': [],
    'resume': [],
    'search': ['optuna'],
    'replay': [],
}

#: A tutorial that continues in the folder of another one.
BEFORE = {'search': 'table'}

#: The section on torchvision, which does not load with each torch.
TORCHVISION = re.compile(r'## 4\. Augment with torchvision.*?(?=## 5\.)', re.DOTALL)


def page_of(name):
    return f'docs/tutorials/{name}.md'


def write_files(name):
    """Write the files of a page to the working directory; returns their paths."""
    paths = []
    for _, language, code in BLOCK.findall(read(page_of(name))):
        named = FILE.match(dedent(code))
        if named and language == 'python':
            paths.append(Path(named[1]))
            paths[-1].write_text(dedent(code))
    return paths


def test_each_page_is_a_tutorial_and_is_walked():
    assert sorted(path.stem for path in (ROOT / 'docs/tutorials').glob('*.md')) == sorted(TUTORIALS)
    assert {page_of(name) for name in TUTORIALS} <= {*WALKED}


@pytest.mark.parametrize('name', TUTORIALS)
def test_each_page_says_its_time_and_ends_with_a_picture(name):
    text = read(page_of(name))
    assert re.search(r'Run time: \d+ seconds of\sCPU', text)
    (picture,) = re.findall(r'!\[[^\]]+\]\(\.\./images/(\w+\.png)\)\n\nNext: ', text)
    assert 1_000 < (ROOT / 'docs/images' / picture).stat().st_size < 60_000


@pytest.mark.parametrize('name', TUTORIALS)
def test_the_configs_have_no_findings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torchvision_stub.install(monkeypatch)
    files = [*(write_files(BEFORE[name]) if name in BEFORE else ()), *write_files(name)]
    configs = [path for path in files if re.search(r'^(_base_|runner|pipeline) =', path.read_text(), re.MULTILINE)]
    assert configs
    for path in configs:
        cfg = Config.fromfile(path)
        if 'pipeline' in cfg:
            assert Pipeline(path, tmp_path / 'study').names == ['search']
        else:
            assert find(Plan(cfg=cfg)) == []
    for path in {*files} - {*configs}:
        compile(path.read_text(), path, 'exec')


@pytest.mark.thorough  # test_the_configs_have_no_findings, and for the walk test_docs_walked.py
@pytest.mark.parametrize('name', TUTORIALS)
def test_the_tutorial(name, walk, monkeypatch):  # noqa: F811
    for package in TUTORIALS[name]:
        pytest.importorskip(package) if package != 'timm' else find_spec(package) or pytest.skip('needs timm')
    is_left_out = name == 'pictures' and torchvision_stub.install(monkeypatch)
    if name in BEFORE:
        walk(page_of(BEFORE[name]))
    walk(page_of(name), TORCHVISION if is_left_out else None)
