"""The report: one HTML file without links to anything, for one run or several.

All text of a run is escaped. The numbers are in a JSON block, and the page may run no other script than ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import shlex
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.flow.report.comparison import Comparison, compare, short_names
from runnerkit.flow.report.record import RunRecord, read_run
from runnerkit.utils.losses import names_a_loss
from runnerkit.utils.texts import in_bytes, in_seconds, in_short, moment
from runnerkit.version import __version__

#: How many numbers all curves of a page have together, about; longer ones are drawn from averages and extremes.
NUMBERS = 60_000

#: The most characters of a config, and of an environment, in the page.
MOST_TEXT = 100_000

#: Curves of the second section, last.
_SPEED = ('lr', 'momentum', 'grad_norm', 'time', 'data_time', 'time_max', 'data_time_max', 'memory')

#: What the marks above the curves of one run say.
LEGEND = '<span class="soft">★ best &ensp; ↻ resumed &ensp; ↓ learning rate &ensp; ✕ not finite</span>'

#: What of each start is shown.
_OF_STARTS = 'begin end outcome reason host device ranks threads git versions resumed_from seconds command'

#: What the time goes to: a colour and a label.
_SPENT = {
    'step': ('--c0', 'training step'),
    'data': ('--c1', 'waiting for data'),
    'evaluation': ('--c2', 'evaluation'),
    'saving': ('--c7', 'saving'),
    'other': ('--rule', 'everything else (start, and what is not recorded)'),
}


def write_report(
    work_dirs: Iterable[str | os.PathLike[str]] | str | os.PathLike[str], out: str | os.PathLike[str] = ''
) -> Path:
    """Write the report of one run, or of several in comparison, as one HTML file.

    Args:
        work_dirs: of the runs. They are only read.
        out: the file; by default ``report.html`` in the only work dir, else in the current folder.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: one of them is no work dir of a run.
        ValueError: there is none.
    """
    folders = [work_dirs] if isinstance(work_dirs, str | os.PathLike) else list(work_dirs)
    if not folders:
        raise ValueError('a report needs at least one work dir')
    found = [read_run(folder) for folder in folders]
    path = Path(out or (found[0].folder / 'report.html' if len(found) == 1 else 'report.html'))
    write_atomically(path, methodcaller('write', page_of(found).encode('utf-8', errors='replace')))
    return path


def page_of(runs: Sequence[RunRecord]) -> str:
    """The report as text."""
    style, script = (Path(__file__).with_name(f'page.{kind}').read_text(encoding='utf-8') for kind in ('css', 'js'))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    # In JSON, < is only inside texts: without it, no text can end the block or begin a comment.
    data = json.dumps(page_data(runs), separators=(',', ':'), allow_nan=False).replace('<', '\\u003c')
    title = runs[0].name if len(runs) == 1 else f'{len(runs)} runs'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title><style>{style}</style></head><body>'
        f'{_one(runs[0]) if len(runs) == 1 else _several(runs)}'
        f'<p class="soft">Written by runnerkit {__version__}.</p><div id="status" class="sr" role="status"></div>'
        f'<script type="application/json" id="data">{data}</script><script>{script}</script></body></html>'
    )


# --- data -------------------------------------------------------------------------------------------------------------


def page_data(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """What the page's script draws."""
    count = sum(len(run.curves) for run in runs)
    buckets = min(400, max(40, NUMBERS // (4 * max(1, count))))
    panels: dict[str, dict[str, Any]] = {}
    for number, run in enumerate(runs):
        for (mode, name), points in run.curves.items():
            title, _, label = name.partition(' ') if name.startswith(('lr ', 'momentum ')) else (name, '', '')
            section = 'speed' if title in _SPEED else 'scores'
            panel = panels.setdefault(title, {'title': title, 'section': section, 'series': []})
            curve = thinned(points, buckets)
            panel['series'].append({'run': number, 'mode': mode, 'label': label, **curve})
    order = {title: number for number, title in enumerate(_SPEED, 1)}
    ordered = sorted(panels.values(), key=lambda each: (not names_a_loss(each['title']), order.get(each['title'], 0)))
    return {'runs': [*map(_run_data, runs, short_names(runs))], 'panels': ordered}


def _run_data(run: RunRecord, name: str) -> dict[str, Any]:
    clock = thinned(run.clock, 200)
    return {
        'name': name,
        'epoch_length': run.epoch_length,
        'clock': [clock['x'], [value or 0 for value in clock['y']]] if run.clock and run.clock[-1][1] else [[], []],
        'marks': [{'step': step, 'kind': kind, 'text': text} for step, kind, text in marks_of(run) if kind != 'nan'],
    }


def thinned(points: Sequence[tuple[int, float]], buckets: int) -> dict[str, Any]:
    """A curve as lists: ``x``, ``y``, ``last``, ``bad`` (where values begin not to be finite).

    A curve with many points gets the average of each bucket as ``y``, with its extremes as ``low`` and ``high``.
    """
    pairs = pairwise([(0, 0.0), *points])
    bad = [step for (_, before), (step, value) in pairs if math.isfinite(before) and not math.isfinite(value)]
    found: dict[str, Any] = {'last': _number(points[-1][1]) if points else None, 'bad': bad[:50]}
    if len(points) <= 2 * buckets:
        return {'x': [step for step, _ in points], 'y': [_number(value) for _, value in points], **found}
    found |= {'x': [], 'y': [], 'low': [], 'high': []}
    for i in range(buckets):
        part = points[i * len(points) // buckets : (i + 1) * len(points) // buckets]
        finite = [value for _, value in part if math.isfinite(value)]
        found['x'].append(part[len(part) // 2][0])
        mean = math.fsum(finite) / len(finite) if finite else math.nan
        found['y'].append(_number(mean))
        found['low'].append(_number(min(finite, default=mean)))
        found['high'].append(_number(max(finite, default=mean)))
    return found


def _number(value: float) -> float | None:
    """``value`` with six digits; None if it is not finite."""
    if isinstance(value, int) and abs(value) < 2**53:
        return value
    return float(f'{value:.6g}') if math.isfinite(value) else None


def marks_of(run: RunRecord) -> list[tuple[int, str, str]]:
    """Moments of a run: the completed iterations, ``'best'``, ``'resume'``, ``'rate'`` or ``'nan'``, and a text."""
    found = [(step, 'resume', 'resumed') for step in run.resumed_at]
    best = run.best
    if best is not None and best.step is not None and best.value is not None and math.isfinite(best.value):
        found.append((best.step, 'best', f'best {best.score} {in_short(best.value)}'))
    for (mode, name), points in run.curves.items():
        bad = next((step for step, value in points if not math.isfinite(value)), None)
        if bad is not None:
            found.append((bad, 'nan', f'{mode} {name} is not finite'))
    rates = next((points for (_, name), points in run.curves.items() if name.split(' ')[0] == 'lr'), [])
    steady = [rate for _, rate in rates]
    for i in range(2, len(rates) - 1):  # a change between two steady stretches: a schedule by steps
        if steady[i - 2] == steady[i - 1] != steady[i] == steady[i + 1]:
            text = f'learning rate {steady[i - 1]:.4g} → {steady[i]:.4g}'
            found += [(rates[i][0], 'rate', text)]
    return sorted(found)[:200]


# --- text -------------------------------------------------------------------------------------------------------------


def _one(run: RunRecord) -> str:
    start = run.last_start
    count = start.get('parameters')
    ended = 'last sign of life' if run.outcome in ('running', 'killed', 'unknown') else 'ended'
    about = [str(run.folder.absolute()), moment(run.ended) and f'{ended} {moment(run.ended)}']
    about += [f'{start.get("model")} with {count:,} parameters'] if isinstance(count, int) else []
    parts = [
        f'<header><h1>{escape(run.name)}</h1><p>{escape(" · ".join(filter(None, about)))}</p></header>',
        f'<dl class="facts">{"".join(_facts(run))}</dl>',
        _tools(LEGEND, is_empty=not run.curves),
        _section('Moments', _table(('iterations', 'what'), ((f'{step:,}', text) for step, _, text in marks_of(run)))),
        _section('Where the time goes', _spent(run)),
        _section('Warnings', _table(('level', 'text', 'times'), ((*each[:2], str(each[2])) for each in run.warnings))),
        _section('Commands', ''.join(_commands(run))),
        _section('Config', _config(run)),
        _section('Starts of the run', _starts(run)),
        _section('Checkpoints', _table(('file', 'size', 'written'), (
            (each['name'], in_bytes(each['bytes']), moment(each['written'])) for each in run.checkpoints
        ))),
        _section('Environment', _folded('Versions and devices', _pre(_environment(run)))),
    ]  # fmt: skip
    return ''.join(parts)


def _several(runs: Sequence[RunRecord]) -> str:
    found = compare(runs)
    boxes = ''.join(
        f'<label><input type="checkbox" checked data-run="{i}"><i style="color:var(--c{i % 8})">●</i>'
        f'{escape(name)}</label>' for i, name in enumerate(found.names)
    )  # fmt: skip
    return ''.join((
        f'<header><h1>{len(runs)} runs</h1><p>{escape(", ".join(str(run.folder) for run in runs))}</p></header>',
        _section('Comparison', _comparison(found)),
        _section('Runs that differ by their seed alone', _spread(found)),
        _section('What differs in their configs', _table(
            ('key', *found.names), ([key, *map(in_short, values)] for key, values in found.differing.items()))),
        _tools(boxes + '<span class="soft">thin: training</span>' * any(len(run.curves) > 1 for run in runs)),
    ))  # fmt: skip


def _facts(run: RunRecord) -> Iterable[str]:
    is_bad = run.outcome in ('failed', 'diverged', 'killed', 'interrupted')
    yield _fact('outcome', run.outcome, run.reason, is_bad)
    best = run.best
    if best is not None:
        when = '' if best.step is None else f'after {best.step:,} iterations'
        yield _fact(f'best {best.score}', in_short(best.value), when)
    for name, value in list(run.scores.items())[:6]:
        yield _fact(f'last {name}', in_short(value), '', not math.isfinite(value))
    yield _fact('trained', f'{run.step:,}', 'iterations' + (f', epoch {run.epoch}' if run.epoch_length else ''))
    if run.busy is not None:
        yield _fact('duration', in_seconds(run.busy), f'{len(run.resumed_at) + 1} starts' if run.resumed_at else '')
    if run.seed is not None:
        yield _fact('seed', str(run.seed))


def _fact(name: str, value: str, more: str = '', is_bad: bool = False) -> str:
    text = f'<dd{" class=bad" * is_bad}>{escape(value)} <small>{escape(more)}</small></dd>'
    return f'<div><dt>{escape(name)}</dt>{text}</div>'


def _tools(more: str, is_empty: bool = False) -> str:
    none = '<p>The run has logged no values yet.</p>' * is_empty
    return (
        f'{none}<div id="width"></div><div{" hidden" * is_empty}><h2>Scores and losses</h2>'
        '<div class="tools"><label>over <select id="axis"></select></label>'
        '<label>smoothing <input id="smooth" type="range" min="0" max="0.98" step="0.02" value="0"></label>'
        f'<label><input id="log" type="checkbox"> log axis</label>{more}</div>'
        '<div class="panels" id="scores"></div><h2>Learning rate, gradients, speed</h2>'
        '<div class="panels" id="speed"></div><p class="soft">Horizontal axis: <span id="axis-name"></span>.</p></div>'
    )


def _section(title: str, content: str) -> str:
    return f'<section><h2>{escape(title)}</h2>{content}</section>' if content else ''


def _pre(text: str) -> str:
    return f'<pre>{escape(text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + " …")}</pre>' if text else ''


def _folded(title: str, content: str) -> str:
    return f'<details><summary>{escape(title)}</summary>{content}</details>' if content else ''


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = ''.join(f'<tr>{"".join(f"<td>{escape(cell)}</td>" for cell in row)}</tr>' for row in rows)
    names = ''.join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return _framed('wrap', names, body) if body else ''


def _framed(kind: str, head: str, body: str) -> str:
    head = f'<thead><tr>{head}</tr></thead>'
    return f'<div class="scroll"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>'


def _spent(run: RunRecord) -> str:
    spent = {name: run.time_spent[name] for name in _SPENT if name in run.time_spent}
    total = sum(spent.values())
    if not total:
        return ''
    bars = labels = ''
    for name, seconds in spent.items():
        (colour, label), part = _SPENT[name], seconds / total
        bars += f'<i style="flex:{part:.4f};background:var({colour})"></i>'
        text = f'{label}: {in_seconds(seconds)} <span class="soft">{part:.0%}</span>'
        labels += f'<li><i style="background:var({colour})"></i>{text}</li>'
    steps = spent.get('step', 0) + spent.get('data', 0)
    speed = f'{run.step / steps:.3g} iterations per second' if steps else ''
    if steps and run.batch:
        speed += f', about {run.step / steps * run.batch:,.0f} samples per second'
    bar = f'<div class="bar" aria-hidden="true">{bars}</div>'
    return f'{bar}<ul class="legend">{labels}</ul><p class="soft">{speed}</p>'


def _commands(run: RunRecord) -> Iterable[str]:
    folder = shlex.quote(str(run.folder.absolute()))
    name = run.meta.get('exp_name')
    commands = {'test': f'runnerkit test {folder}', 'predict': f'runnerkit predict {folder} test'}
    if isinstance(name, str) and (run.folder / os.path.basename(name)).is_file():
        config = shlex.quote(str(run.folder.absolute() / os.path.basename(name)))
        commands = {'resume': f'runnerkit train {config} --work-dir {folder} --auto-resume', **commands}
    for label, command in commands.items():
        text = escape(command)
        button = f'<button data-copy="{text}" aria-label="Copy the command: {label}">Copy</button>'
        yield f'<div class="command"><span class="soft">{label}</span><pre>{text}</pre>{button}</div>'


def _config(run: RunRecord) -> str:
    rows = [[str(cell) for cell in row] for row in run.last_start.get('changed', []) if isinstance(row, list)]
    table = _table(('key', 'value', 'set at'), rows)
    base = f'<p>Set outside its base files:</p>{table}' if table else ''
    code = f'<p class="soft">Kept code: {escape(", ".join(run.code))}</p>' if run.code else ''
    return base + _folded('The whole config', _pre(run.config)) + code


def _starts(run: RunRecord) -> str:
    shown = [key for key in _OF_STARTS.split() if any(start.get(key) for start in run.starts)]
    rows = [[key.replace('_', ' '), *(_shown(key, start.get(key)) for start in run.starts)] for key in shown]
    return _table(('', *(f'start {number}' for number in range(1, len(run.starts) + 1))), rows)


def _shown(key: str, value: Any) -> str:
    if key in ('begin', 'end'):
        return moment(value) or in_short(value)
    if isinstance(value, dict):
        return ', '.join(f'{name} {_shown("", each)}' for name, each in value.items())
    return ' '.join(map(shlex.quote, map(str, value))) if isinstance(value, list) else in_short(value)


def _environment(run: RunRecord) -> str:
    text = str(run.meta.get('env_info', ''))
    return '\n'.join(line for line in text.splitlines() if line.strip() and not line.startswith('  - '))


def _comparison(found: Comparison) -> str:
    kinds = ['', '', *[' class="n"'] * len(found.columns)]
    names = zip(kinds, found.columns, strict=False)
    head = ''.join(f'<th scope="col"{kind}><button>{escape(name)}</button></th>' for kind, name in names)
    rows = ''
    for row in found.rows:
        cells = ''.join(map(partial(_cell, found), found.columns[1:], row[1:]))
        rows += f'<tr><th scope="row">{escape(str(row[0]))}</th>{cells}</tr>'
    return _framed('sortable', head, rows)


def _cell(found: Comparison, column: str, value: Any) -> str:
    is_number = isinstance(value, int | float)
    text = '' if value is None else in_seconds(value) if column == 'duration' else in_short(value)
    kind = ' class="n best"' if is_number and found.best.get(column) == value else ' class="n"' * is_number
    return f'<td{kind} data-value="{escape(str(value)) if value is not None else ""}">{escape(text)}</td>'


def _spread(found: Comparison) -> str:
    rows = [
        [', '.join(group.names), name, f'{mean:.4g} ± {deviation:.2g}', f'{low:.4g} to {high:.4g}']
        for group in found.groups for name, (mean, deviation, low, high) in group.scores.items()
    ]  # fmt: skip
    return _table(('runs', 'score', 'mean ± standard deviation', 'range'), rows)
