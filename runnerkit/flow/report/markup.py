"""Pieces of HTML: sections, tables, pictures, commands. All text is escaped."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any, NamedTuple

from runnerkit.utils.numbers import in_short

#: The most characters of a text, such as a config, in the page.
MOST_TEXT = 100_000

#: The most rows of a table, and characters of a cell.
MOST_ROWS, MOST_OF_CELL = 1000, 2000


class Cell(NamedTuple):
    """A cell of a table: the value by which its column is sorted, its HTML, its classes and style."""

    value: Any
    html: str
    kind: str = ''
    style: str = ''

    @classmethod
    def of(cls, value: Any) -> Cell:
        """The cell of a value; a cell itself."""
        if isinstance(value, Cell):
            return value
        is_number = isinstance(value, int | float)
        text = '' if value is None else f'{value:,}' if isinstance(value, int) else in_short(value)
        is_ordered = value is not None and not (isinstance(value, float) and not math.isfinite(value))
        return cls(value if is_ordered else '', escape(cut(text, MOST_OF_CELL)), 'n' * is_number)

    def tagged(self, tag: str = 'td') -> str:
        """Its HTML as an element."""
        style = f' style="{self.style}"' * bool(self.style)
        value = escape(str(self.value)[:MOST_OF_CELL])
        return f'<{tag} class="{self.kind}"{style} data-value="{value}">{self.html}</{tag[:2]}>'


def section(title: str, content: str) -> str:
    """A part of the page with a heading; nothing without content."""
    place = re.sub('[^a-z0-9]+', '-', title.lower())
    return f'<section id="{place}"><h2>{escape(title)}</h2>{content}</section>' if content else ''


def contents(body: str) -> str:
    """Links to the sections of ``body``."""
    links = re.findall('<section id="([^"]*)"><h2>(.*?)</h2>', body)
    listed = ''.join(f'<a href="#{place}">{title}</a>' for place, title in links)
    return f'<nav aria-label="Contents">{listed}</nav>' * bool(links)


def folded(title: str, content: str) -> str:
    """Content that opens on a click; nothing without content."""
    return f'<details><summary>{escape(title)}</summary>{content}</details>' if content else ''


def preformatted(text: str) -> str:
    """Text as it is; nothing if it is empty."""
    return f'<pre>{escape(cut(text, MOST_TEXT))}</pre>' if text else ''


def cut(text: str, most: int) -> str:
    """``text``, or its beginning with an ellipsis."""
    return text if len(text) <= most else f'{text[:most]} …'


def paragraph(text: str) -> str:
    """A remark; nothing if it is empty."""
    return f'<p class="soft">{escape(text)}</p>' if text else ''


def fact(name: str, value: str, more: str = '', is_bad: bool = False) -> str:
    """An entry of the list at the top of a page."""
    text = f'<dd{" class=bad" * is_bad}>{escape(value)} <small>{escape(more)}</small></dd>'
    return f'<div><dt>{escape(name)}</dt>{text}</div>'


def head(title: str, about: Iterable[str], facts: Iterable[str] = ()) -> str:
    """The top of a page: its title, what it is about, and a list of facts."""
    listed = ''.join(facts)
    line = escape(' · '.join(filter(None, about)))
    return f'<header><h1>{escape(title)}</h1><p>{line}</p></header>' + f'<dl class="facts">{listed}</dl>' * bool(listed)


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]], kind: str = '') -> str:
    """A table that can be sorted by its columns; nothing without rows."""
    body, numeric = '', set()
    rows = iter(rows)
    for row in islice(rows, MOST_ROWS):
        cells = [*map(Cell.of, row)]
        numeric |= {i for i, cell in enumerate(cells[1:], 1) if cell.kind.startswith('n')}
        body += f'<tr>{cells[0].tagged("th scope=row")}{"".join(map(Cell.tagged, cells[1:]))}</tr>'
    kinds = [' class="n"' * (i in numeric) for i in range(len(names))]
    buttons = (
        f'<th scope="col"{kind}>{f"<button>{escape(name)}</button>" * bool(name)}</th>'
        for kind, name in zip(kinds, names, strict=True)
    )
    top = f'<thead><tr>{"".join(buttons)}</tr></thead>'
    more = paragraph('The table has more rows.' if next(rows, None) else '')
    return f'<div class="scroll"><table class="{kind}">{top}<tbody>{body}</tbody></table></div>{more}' if body else ''


def picture(content: bytes, name: str, about: str, kind: str = '') -> str:
    """A PNG in a frame, with its name and more below it; ``kind`` is the class of the frame."""
    data = base64.b64encode(content).decode()
    text = f'<figcaption><b>{escape(name)}</b><span class="soft">{escape(about)}</span></figcaption>'
    frame = f'<figure class={kind}>' if kind else '<figure>'
    return f'{frame}<img alt="{escape(name)}" src="data:image/png;base64,{data}">{text}</figure>'


def command(label: str, text: str) -> str:
    """A command line that a button copies."""
    button = f'<button aria-label="Copy the command: {escape(label)}">Copy</button>'
    return f'<div class="command"><span class="soft">{escape(label)}</span><pre>{escape(text)}</pre>{button}</div>'


def controls(more: str, second: str = '', is_empty: bool = False) -> str:
    """The controls of the curves, and the places in which the page's script draws them."""
    none = '<p>No values have been logged yet.</p>' * is_empty
    speed = f'<h2>{escape(second)}</h2><div class="panels" id="speed"></div>' if second else ''
    return (
        f'{none}<div id="width"></div><div{" hidden" * is_empty}><h2>Scores and losses</h2>'
        '<div class="tools"><label>over <select id="axis"></select></label>'
        '<label>smoothing <input id="smooth" type="range" min="0" max="0.98" step="0.02" value="0"></label>'
        f'<label><input id="log" type="checkbox"> log axis</label>{more}</div><div class="panels" id="scores"></div>'
        f'{speed}<p class="soft">Horizontal axis: <span id="axis-name"></span>.</p></div>'
    )
