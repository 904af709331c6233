"""Pieces of HTML."""

import math
import re

import pytest

from runnerkit.flow.report import markup as module
from runnerkit.flow.report.markup import (
    Cell,
    command,
    folded,
    head,
    html_table,
    paragraph,
    picture,
    preformatted,
    section,
)

EVIL = '<b a="1">&\''


@pytest.mark.parametrize(
    'piece',
    [
        section(EVIL, 'x'), folded(EVIL, 'x'), preformatted(EVIL), paragraph(EVIL), head(EVIL, [EVIL]),
        module.fact(EVIL, EVIL, EVIL), html_table([EVIL], [[EVIL, EVIL]]),
        picture(b'', EVIL, EVIL), command(EVIL, EVIL),
    ],
)  # fmt: skip
def test_texts_are_escaped(piece):
    assert '&lt;b a=&quot;1&quot;&gt;&amp;&#x27;' in piece
    assert '<b a' not in piece


def test_nothing_has_no_place():
    assert section('a', '') == folded('a', '') == preformatted('') == paragraph('') == html_table(['a'], []) == ''


def test_long_texts_are_cut(monkeypatch):
    monkeypatch.setattr(module, 'MOST_TEXT', 3)
    assert preformatted('abcd') == '<pre>abc …</pre>'


def test_cells_are_sorted_by_their_values_and_numbers_are_on_the_right():
    rows = [['a', 1234567, 0.123456, None, math.nan, Cell(60, '1 min', 'n')]]
    found = html_table(['', 'whole', 'part', 'none', 'nan', 'time'], rows)
    assert re.findall(r'<td class="(\w*)" data-value="([^"]*)">([^<]*)', found) == [
        ('n', '1234567', '1,234,567'), ('n', '0.123456', '0.1235'), ('', '', ''), ('n', '', 'nan'),
        ('n', '60', '1 min'),
    ]  # fmt: skip
    assert re.findall(r'<th scope="col"( class="n")?>(<button>)?', found) == [
        ('', ''), (' class="n"', '<button>'), (' class="n"', '<button>'), ('', '<button>'), (' class="n"', '<button>'),
        (' class="n"', '<button>'),
    ]  # fmt: skip


def test_tables_and_cells_have_an_end(monkeypatch):
    monkeypatch.setattr(module, 'MOST_ROWS', 2)
    monkeypatch.setattr(module, 'MOST_OF_CELL', 3)
    found = html_table(['a', 'b'], ([i, 'abcd'] for i in range(3)))
    assert found.count('<tr>') == 3  # with the head
    assert found.count('>abc …<') == 2
    assert 'The table has more rows.' in found
    assert 'more rows' not in html_table(['a'], [[1], [2]])


def test_the_first_column_is_sorted_by_its_values_as_well():
    assert 'data-value="1000">1,000</th>' in html_table(['a'], [[1000]])
