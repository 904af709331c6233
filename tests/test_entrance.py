"""The tables that compare runnerkit with its peers say what benchmarks/entrance/tries.py recorded."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENTRANCE = ROOT / 'benchmarks' / 'entrance'
RESULTS = json.loads((ENTRANCE / 'results.json').read_text(encoding='utf-8'))
COLUMNS = ('runnerkit_loop', 'hf_trainer', 'lightning_trainer', 'mmengine_runner', 'plain')

#: What a cell begins with, in both languages, for what a recorded outcome says. The first that is found counts.
WORDS = {
    'the same weights': ('same bits', '逐位相同'),
    'other weights': ('other bits', '不同'),
    'the second start fails': ('does not start', '无法启动'),
    'refused': ('refused', '拒绝'),
    'trains': ('trains', '照常训练'),
}
#: The tries in the order of the rows, each with its scripts.
ROWS = (
    ('killed in an epoch', COLUMNS),
    ('killed in a save', COLUMNS),
    ('newest checkpoint cut', COLUMNS),
    ('misspelt: optimizer', COLUMNS),
    ('misspelt: saves', COLUMNS[:-1]),
    ('killed in an epoch', ('runnerkit_loop', 'accelerate_loop', 'fabric_loop')),
)


def lines(name):
    texts = (ENTRANCE / f'{name}.py').read_text(encoding='utf-8').splitlines()
    return sum(bool(text.strip()) and not text.startswith(('#', '"""')) for text in texts)


def table(page):
    """The cells of the comparison in a page, a list for each row."""
    text = (ROOT / page).read_text(encoding='utf-8')
    rows = re.search(r'^\|  \| runnerkit\.loop .*?\n\n', text, re.MULTILINE | re.DOTALL)[0].splitlines()
    return [[cell.strip() for cell in row.strip('|').split('|')] for row in rows if row and row[:3] != '|--']


@pytest.mark.parametrize(('language', 'page'), [(0, 'README.md'), (1, 'README.zh-CN.md')])
def test_each_cell_is_a_recorded_outcome(language, page):
    _, *rows = table(page)
    for (title, names), (_, *cells) in zip(ROWS, rows, strict=False):
        for name, cell in zip(names, cells, strict=False):
            (word, *_) = [word[language] for key, word in WORDS.items() if key in RESULTS[name][title]]
            assert re.sub(r'^(?:Accelerate|Fabric)(?:: |：)', '', cell).startswith(word), (title, name)


@pytest.mark.parametrize('page', ['README.md', 'README.zh-CN.md'])
def test_the_versions_and_lines_are_those_of_the_tried_scripts(page):
    (_, *head), *_, (_, *counts) = table(page)
    tried = [RESULTS[name]['versions'].partition(',')[0].split(' ')[-1] for name in COLUMNS]
    assert [column.split(' ')[-1] for column in head[1:-1]] == tried[1:-1]
    assert [int(count) for count in counts] == [RESULTS[name]['lines'] for name in COLUMNS]


@pytest.mark.parametrize('name', RESULTS)
def test_a_script_has_as_many_lines_as_when_it_was_tried(name):
    assert lines(name) == RESULTS[name]['lines']
