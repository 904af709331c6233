"""The notebooks of docs/notebooks: every cell runs, and none has an output."""

import ast
import json
import re

import pytest
from test_docs import ROOT, check_words

NOTEBOOKS = sorted((ROOT / 'docs' / 'notebooks').glob('*.ipynb'))
FILES = {'first_steps': 'work_dirs/iris/epoch_25.pth', 'comparing_runs': 'report.html'}  # the last cell leaves them


def cells(path, kind):
    return [''.join(cell['source']) for cell in json.loads(path.read_text())['cells'] if cell['cell_type'] == kind]


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run_in_one_process(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {'__name__': '__main__'}
    for number, code in enumerate(cells(path, 'code')):
        exec(compile(code, f'{path.name}, cell {number}', 'exec'), names)
    assert (tmp_path / FILES[path.stem]).is_file()


@pytest.mark.thorough  # test_the_cells_run_in_one_process
@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_jupyter_runs_them(path, tmp_path):
    nbformat, nbclient = pytest.importorskip('nbformat'), pytest.importorskip('nbclient')
    pytest.importorskip('ipykernel')
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=600, resources={'metadata': {'path': str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get('outputs', ())]
    assert any('image/png' in output.get('data', {}) for output in shown)
    assert (tmp_path / FILES[path.stem]).is_file()


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_they_have_no_outputs_and_plain_words(path):
    content = json.loads(path.read_text())
    assert all(cell['outputs'] == [] for cell in content['cells'] if cell['cell_type'] == 'code')
    for text in cells(path, 'markdown'):
        check_words(re.sub(r'^#.*$', '\n', text, flags=re.MULTILINE))
    assert all(ast.parse(code) for code in cells(path, 'code'))


def test_both_are_there():
    assert {path.stem for path in NOTEBOOKS} == {*FILES}
