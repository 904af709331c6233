"""The report: one HTML file without links to anything, for one run or several.

All text of a run is escaped. The numbers are in a JSON block, and the page may run no other script than ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.flow.look.log_lines import thinned
from runnerkit.flow.report.charts import Line, parallel
from runnerkit.flow.report.markup import Cell, controls, head, html_table, paragraph, section
from runnerkit.flow.report.one_run import one_run
from runnerkit.flow.report.record import RunRecord, read_run, short_names
from runnerkit.utils.numbers import in_seconds, in_short, names_a_loss
from runnerkit.version import __version__

if TYPE_CHECKING:
    from runnerkit.flow.report.comparison import Comparison

#: How many numbers all curves of a page have together, about; longer ones are drawn from averages and extremes.
NUMBERS = 60_000

#: How many charts a page has, at most.
MOST_PANELS = 300

#: How many of the settings that differ between runs have an axis, at most.
MOST_AXES = 8

#: Curves of the second section, last.
_SPEED = ('lr', 'momentum', 'grad_norm', 'time', 'data_time', 'time_max', 'data_time_max', 'memory')


def write_runs(work_dirs: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str] = '') -> Path:
    """Write the report of one run, or of several in comparison; see `runnerkit.write_report`."""
    if not work_dirs:
        raise ValueError('a report needs at least one work dir')
    found = [read_run(folder) for folder in work_dirs]
    path = Path(out or (found[0].folder / 'report.html' if len(found) == 1 else 'report.html'))
    write_atomically(path, page_of(found).encode('utf-8', errors='replace'))
    return path


def page_of(runs: Sequence[RunRecord]) -> str:
    """The report of one run or several as text."""
    if len(runs) > 1:
        from runnerkit.flow.report.comparison import by_best_score

        runs = by_best_score(runs)
        return html_page(f'{len(runs)} runs', _several(runs), page_data(runs))
    return html_page(runs[0].name, one_run(runs[0]), page_data(runs))


def html_page(title: str, body: str, data: dict[str, Any]) -> str:
    """A page without links to anything."""
    style, script = (Path(__file__).with_name(f'page.{kind}').read_text(encoding='utf-8') for kind in ('css', 'js'))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )
    # In JSON, < is only inside texts: without it, no text can end the block or begin a comment.
    text = json.dumps(data, separators=(',', ':'), allow_nan=False).replace('<', '\\u003c')
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><style>{style}</style></head><body><main>{body}</main>'
        f'<p class="soft">Written by runnerkit {__version__}.</p><div id="status" class="sr" role="status"></div>'
        f'<script type="application/json" id="data">{text}</script><script>{script}</script></body></html>'
    )


def _several(runs: Sequence[RunRecord]) -> str:
    from runnerkit.flow.report.comparison import compare

    found = compare(runs)
    boxes = ''.join(
        f'<label><input type="checkbox" checked data-run="{i}"><i style="color:var(--c{i % 8})">●</i>'
        f'{escape(name)}</label>' for i, name in enumerate(found.names)
    )  # fmt: skip
    spreads = [
        [', '.join(group.names), name, f'{mean:.4g} ± {deviation:.2g}', f'{low:.4g} to {high:.4g}']
        for group in found.groups for name, (mean, deviation, low, high) in group.scores.items()
    ]  # fmt: skip
    rows = (
        [_compared(found, row, name, value) for name, value in zip(found.columns, row, strict=True)]
        for row in found.rows
    )
    differing = ([key, *map(in_short, values)] for key, values in found.differing.items())
    return ''.join((
        head(f'{len(runs)} runs', [', '.join(str(run.folder) for run in runs)]),
        section('Comparison', html_table(found.columns, rows) + _best_run(found)),
        section('Runs that differ by their seed alone',
                html_table(('runs', 'score', 'mean ± standard deviation', 'range'), spreads)),
        section('What differs in their configs', html_table(('key', *found.names), differing) + _axes(found)),
        controls(boxes + '<span class="soft">thin: training</span>' * any(len(run.curves) > 1 for run in runs),
                 'Learning rate, gradients, speed', is_empty=not any(run.curves for run in runs)),
    ))  # fmt: skip


def _leading(found: Comparison) -> str:
    """The column of the best score by which the runs are ordered; empty if there is none."""
    return next((name for name in found.columns[2:3] if name.startswith('best ') and name in found.best), '')


def _compared(found: Comparison, row: Sequence[Any], column: str, value: Any) -> Any:
    if column == 'run' and (leading := _leading(found)) and row[2] == found.best[leading]:
        return Cell(value, f'★ {escape(value)}', 'best')
    if column == 'duration' and value is not None:
        return Cell(value, in_seconds(value), 'n')
    return Cell(value, in_short(value), 'n best') if value is not None and found.best.get(column) == value else value


def _best_run(found: Comparison) -> str:
    leading = _leading(found)
    return paragraph(
        f'★ the run with the best {leading.removeprefix("best ")}; the best value of each column is marked. '
        '“at best”: in the same evaluation as the best score; “last”: in the last evaluation.'
        if leading
        else 'The best value of each column is marked.' * bool(found.best)
    )


def _axes(found: Comparison) -> str:
    """A line for each run over the settings that differ and its best score."""
    from runnerkit.flow.report.comparison import SEEDS

    column = _leading(found)
    keys = [key for key in found.differing if key.split('.')[-1] not in SEEDS][:MOST_AXES]
    if not column or not keys:
        return ''
    lines = []
    for i, (name, row) in enumerate(zip(found.names, found.rows, strict=True)):
        values = [*(found.differing[key][i] for key in keys), row[2]]
        words = ', '.join(f'{key} {in_short(value)}' for key, value in zip([*keys, column], values, strict=True))
        kind = 'best' if row[2] == found.best[column] else ''
        lines.append(Line(values, kind, 1 - i / len(found.rows), f'{name}: {words}', f'--c{i % 8}'))
    return parallel(f'Settings and {column}', [*keys, column], lines)


# --- data -------------------------------------------------------------------------------------------------------------


def page_data(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """What the page's script draws."""
    count = sum(min(MOST_PANELS, len(run.curves)) for run in runs)
    buckets = min(400, max(10, NUMBERS // (4 * max(1, count))))
    panels: dict[str, dict[str, Any]] = {}
    left = set()
    for number, run in enumerate(runs):
        for (mode, name), points in run.curves.items():
            title, _, label = name.partition(' ') if name.startswith(('lr ', 'momentum ')) else (name, '', '')
            if title not in panels and len(panels) == MOST_PANELS:
                left.add(title)
                continue
            section = 'speed' if title in _SPEED else 'scores'
            panel = panels.setdefault(title, {'title': title, 'section': section, 'series': []})
            curve = thinned(points, buckets)
            is_side = len(runs) > 1 and mode == 'train' and ('val', name) in run.curves
            panel['series'].append({'run': number, 'mode': mode, 'label': label, 'kind': 'thin' * is_side, **curve})
    order = {title: number for number, title in enumerate(_SPEED, 1)}
    ordered = sorted(panels.values(), key=lambda each: (not names_a_loss(each['title']), order.get(each['title'], 0)))
    described = []
    for name, run in zip(short_names(runs), runs, strict=True):
        clock = thinned(run.clock if run.clock and run.clock[-1][1] else [], 200)
        marks = [{'step': step, 'kind': kind, 'text': text} for step, kind, text in run.marks if kind != 'nan']
        times = [clock['x'], [value or 0 for value in clock['y']]]
        described.append({'name': name, 'epoch_length': run.epoch_length, 'clock': times, 'marks': marks})
    return {'runs': described, 'panels': ordered, 'left': len(left), 'several': len(runs) > 1}
