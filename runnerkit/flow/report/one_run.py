"""The sections of a report about one run."""

from __future__ import annotations

import math
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from html import escape
from itertools import chain, zip_longest
from typing import Any

from runnerkit.flow.look.log_lines import is_number
from runnerkit.flow.report import markup as html
from runnerkit.flow.report.markup import Cell, folded, html_table, paragraph, section
from runnerkit.flow.report.record import RunRecord
from runnerkit.flow.work_dir.record import SCRIPT
from runnerkit.log_files import FIRST_BATCH, MOST_COLUMNS
from runnerkit.utils.numbers import in_bytes, in_seconds, in_short, moment
from runnerkit.utils.small_files import read_small

#: What the marks above the curves say.
LEGEND = (
    '<span class="soft">★ best &ensp; ↻ resumed &ensp; ■ ended early &ensp; ↓ learning rate &ensp; ✕ not finite</span>'
)

#: What of each start is shown, and of how many starts.
_OF_STARTS = 'begin end outcome reason host device ranks threads git versions resumed_from seconds command'
_MOST_STARTS = 20

#: The most bytes of all pictures of a page.
MOST_PICTURES = 1 << 20

#: The most classes of a confusion matrix.
MOST_CLASSES = 25

#: The signs of samples whose class is predicted rightly and wrongly.
_SIGNS = {'right': '✓ ', 'wrong': '✗ ', '': ''}

#: What the time goes to: a colour and a label.
_SPENT = {
    'step': ('--c0', 'training step'),
    'data': ('--c1', 'waiting for data'),
    'evaluation': ('--c2', 'evaluation'),
    'saving': ('--c7', 'saving'),
    'other': ('--rule', 'everything else (start, and what is not recorded)'),
}


class _Pictures:
    """PNG files of a work dir as HTML, as long as there is room for them."""

    def __init__(self, run: RunRecord) -> None:
        self._run, self._room = run, MOST_PICTURES

    def html(self, path: str, name: str, about: str, kind: str = '') -> str:
        """The picture; empty if it cannot be read, is behind a link, is no PNG, or there is no room."""
        file = self._run.folder.resolve() / path
        try:
            content = read_small(file, self._room)
        except OSError:
            return ''
        if file.resolve() != file or not content.startswith(b'\x89PNG'):
            return ''
        self._room -= len(content)
        return html.picture(content, name, about, kind)


def one_run(run: RunRecord) -> str:
    """The body of the page."""
    start, pictures = run.last_start, _Pictures(run)
    count = start.get('parameters')
    ended = 'last sign of life' if run.outcome in ('running', 'killed', 'unknown') else 'ended'
    about = [str(run.folder.absolute()), moment(run.ended) and f'{ended} {moment(run.ended)}']
    about += [f'{start.get("model")} with {count:,} parameters'] if isinstance(count, int) else []
    files = (
        (each['name'], Cell(each['bytes'], in_bytes(each['bytes']), 'n'), moment(each['written']))
        for each in run.checkpoints
    )
    keys = ('name', 'type', 'parameters', 'trainable')
    modules: tuple[list[Any], list[Any]] = [], []  # with parameters, and without any
    for module in run.model:
        modules[module.get('parameters') == 0].append([Cell.of(module.get(key, '-')) for key in keys])
    bare = f'{len(modules[1])} modules without parameters'
    inexact = ''.join(f'<li>{escape(text)}</li>' for text in run.exactness)
    is_exact = not inexact and any('exactness' in start for start in run.starts)
    lines = str(run.meta.get('env_info', '')).splitlines()
    environment = (line for line in lines if line.strip() and not line.startswith('  - '))
    body = ''.join((
        html.controls(LEGEND, 'Learning rate, gradients, speed', is_empty=not run.curves),
        section('Moments', html_table(('iterations', 'what'), ((step, text) for step, _, text in run.marks))),
        section('Where the time goes', _spent(run)),
        section('Predictions of the best evaluation', ''.join(best_predictions(run, pictures))),
        section('First training batch', _first_samples(run, pictures)),
        section('Reported pictures', _reported(run, pictures)),
        section('Warnings', html_table(('level', 'text', 'times'), run.warnings)),
        section('Commands', ''.join(html.command(*each) for each in _commands(run))),
        section('Model', html_table(('module', *keys[1:]), modules[0])
                + folded(bare, html_table(('module', keys[1]), (row[:2] for row in modules[1])))),
        section('Config', settings_and_code(run)),
        section('Exactness of resumes', f'<ul>{inexact}</ul>' if inexact else
                paragraph('The log names nothing that is not exact.' * is_exact)),
        section('Starts of the run', _starts(run)),
        section('Checkpoints', html_table(('file', 'size', 'written'), files)),
        section('Environment', folded('Versions and devices', html.preformatted('\n'.join(environment)))),
    ))  # fmt: skip
    return html.head(run.name, about, key_facts(run)) + html.contents(body) + body


def key_facts(run: RunRecord) -> Iterator[str]:
    """The facts at the top of the page."""
    yield html.fact('outcome', run.outcome, run.reason, run.outcome in ('failed', 'diverged', 'killed', 'interrupted'))
    best = run.best
    if best is not None:
        when = '' if best.step is None else f'after {best.step:,} iterations'
        yield html.fact(f'best {best.score}', in_short(best.value), when)
    for name, value in list(run.scores.items())[:6]:
        yield html.fact(f'last {name}', in_short(value), '', not math.isfinite(value))
    epoch = f', epoch {run.epoch}' if run.epoch_length else ''
    yield html.fact('trained', f'{run.iterations:,}', f'iterations{epoch}')
    if run.busy is not None:
        yield html.fact('duration', in_seconds(run.busy), f'{len(run.resumed_at) + 1} starts' if run.resumed_at else '')
    if run.seed is not None:
        yield html.fact('seed', str(run.seed))


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
    return f'<div class="bar" aria-hidden="true">{bars}</div><ul class="legend">{labels}</ul>{paragraph(speed)}'


# --- predictions and pictures -----------------------------------------------------------------------------------------


def best_predictions(run: RunRecord, pictures: _Pictures) -> Iterator[str]:
    """The samples with the highest and the lowest loss, wrong ones first, and how well each class is recognised."""
    found, best = run.predictions, run.best
    if found is None:
        return
    if best is not None and best.step not in (None, found.get('iterations')):
        return  # of a best evaluation that the run has lost: it was resumed from an earlier checkpoint
    samples = [each for each in found['samples'] if is_number(each.get('loss')) and math.isfinite(each['loss'])]
    names = found.get('classes') if isinstance(found.get('classes'), list) else None
    where = f', after {found["iterations"]:,} iterations' if isinstance(found.get('iterations'), int) else ''
    pairs = [(each.get('target'), each.get('prediction')) for each in samples if each.get('confidence') is not None]
    are_classes = bool(pairs) and all(type(each) is int for pair in pairs for each in pair)
    samples.sort(key=lambda each: (are_classes and each.get('target') == each.get('prediction'), -each['loss']))
    are_wrong = are_classes and any(one != other for one, other in pairs)
    wrong = f', {sum(one != other for one, other in pairs):,} of them misclassified' if are_classes else ''
    yield paragraph(f'{len(found["samples"]):,} samples{wrong}, best {found.get("score")}{where}.')
    seen = [each for each in samples if each.get('picture') or each.get('row')] or samples
    for title, chosen in (
        ('Wrong, and highest loss' if are_wrong else 'Highest loss', seen[:12]),
        ('Lowest loss', seen[12:][:-13:-1]),
    ):
        rows = []
        for each in chosen:
            target, prediction = (class_name(each.get(key), names) for key in ('target', 'prediction'))
            sure = f' ({each["confidence"]:.0%})' if is_number(each.get('confidence')) else ''
            kind = ('right' if each.get('target') == each.get('prediction') else 'wrong') if are_classes else ''
            text = f'{_SIGNS[kind]}{target}, predicted {prediction}{sure}'
            rows.append((str(each.get('name')), Cell(text, escape(text), kind), each))
        shown = [
            pictures.html(each['picture'], name, text.value, text.kind)
            for name, text, each in rows
            if each.get('picture')
        ]
        columns = _columns_of(chosen)
        listed = html_table(
            ('sample', 'target and prediction', 'loss', *columns),
            ((name, text, each['loss'], *_row(each, columns)) for name, text, each in rows),
        )
        if rows:
            yield f'<h3>{title}</h3>' + (f'<div class="pictures">{"".join(shown)}</div>' if any(shown) else listed)
    if are_classes:
        yield _classes(Counter(pairs), names)


def _columns_of(samples: list[dict[str, Any]]) -> list[str]:
    rows = (each['row'] for each in samples if isinstance(each.get('row'), dict))
    return list(dict.fromkeys(chain.from_iterable(rows)))[:MOST_COLUMNS]


def _row(sample: dict[str, Any], columns: list[str]) -> list[Any]:
    row = sample.get('row')
    return [row.get(key) if isinstance(row, dict) else None for key in columns]


def class_name(value: Any, names: list[Any] | None) -> str:
    """A class by its name, if it has one; any other value in short."""
    return str(names[value]) if names and type(value) is int and 0 <= value < len(names) else in_short(value)


def _classes(counts: Counter[tuple[int, int]], names: list[Any] | None) -> str:
    classes = sorted({each for pair in counts for each in pair})
    labels = {each: class_name(each, names) for each in classes}
    of_target, of_prediction, mistaken = Counter[int](), Counter[int](), dict[int, int]()
    for (target, prediction), count in sorted(counts.items()):
        of_target[target] += count
        of_prediction[prediction] += count
        if target != prediction and (target not in mistaken or count > counts[target, mistaken[target]]):
            mistaken[target] = prediction
    rows = []
    for each in classes:
        right, n, given = counts[each, each], of_target[each], of_prediction[each]
        parts = (right / n if n else None, right / given if given else None)
        f1 = 2 * right / (n + given) if n + given else None
        other = mistaken.get(each)
        confused = '' if other is None else f'{labels[other]} ({counts[each, other]})'
        rows.append((labels[each], n, *parts, f1, confused))
    text = html_table(('class', 'samples', 'recall', 'precision', 'F1', 'most often mistaken for'), rows)
    matrix = ''
    if len(classes) <= MOST_CLASSES:
        shares = []
        for one in classes:
            cells = []
            for other in classes:
                count, kind = counts[one, other], 'n' if one == other else 'n wrong'
                share = f'--part:{count / max(1, of_target[one]):.0%}'
                cells.append(Cell(count, f'{count:,}' if count else '', kind, share))
            shares.append((labels[one], *cells))
        table = html_table(('target \\ predicted', *labels.values()), shares, 'matrix')
        matrix = f'<h3>Confusion matrix</h3>{table}'
    return f'{matrix}<h3>Classes</h3>{text}'


def _first_samples(run: RunRecord, pictures: _Pictures) -> str:
    """Samples as the first training step got them: pictures, or rows of a table."""
    samples, columns = run.first_samples, _columns_of(run.first_samples)
    about = paragraph('As the training step got them, with all augmentations.')
    if columns:
        rows = ((each.get('target'), *_row(each, columns)) for each in samples)
        return about + html_table(('target', *columns), rows)
    targets = (in_short(each.get('target')) for each in samples[:MOST_COLUMNS])
    shown = [pictures.html(f'{FIRST_BATCH}/{number}.png', name, '') for number, name in enumerate(targets)]
    return f'{about}<div class="pictures">{"".join(shown)}</div>' if any(shown) else ''


def _reported(run: RunRecord, pictures: _Pictures) -> str:
    """The newest pictures of each name, as many as there is room for."""
    names = list(dict.fromkeys(each.name for each in run.images))
    rounds = zip_longest(*([each for each in reversed(run.images) if each.name == name] for name in names))
    shown = {}
    for each in filter(None, chain.from_iterable(rounds)):
        path, about = str(each.file.relative_to(run.folder)), f'after {each.iterations:,} iterations'
        if text := pictures.html(path, each.name, about):
            shown[each.name, each.iterations] = text
    left = len(run.images) - len(shown)
    more = paragraph(f'{left:,} more are in the work dir.' if left else '')
    return (
        f'<div class="pictures wide">{"".join(shown[key] for key in sorted(shown))}</div>{more}' if run.images else ''
    )


# --- settings ---------------------------------------------------------------------------------------------------------


def _commands(run: RunRecord) -> Iterator[tuple[str, str]]:
    folder, ranks = shlex.quote(str(run.folder.absolute())), run.last_start.get('ranks')
    is_spread = isinstance(ranks, int) and ranks > 1
    before, after = (f'torchrun --nproc_per_node {ranks} -m ', ' --launcher pytorch') if is_spread else ('', '')
    bad = next((step for step, kind, _ in run.marks if kind == 'nan'), run.iterations)
    replay = 'replay', f'{before}runnerkit replay {folder} --to {max(0, bad - 1)}{after}'
    if SCRIPT in run.settings:  # a loop of the user's own, which continues by itself
        if words := [str(each) for each in run.last_start.get('command', ())]:
            start = 'python' if not is_spread else f'torchrun --nproc_per_node {ranks}'
            yield 'resume', f'cd {shlex.quote(str(run.last_start.get("folder", ".")))} && {start} {shlex.join(words)}'
        yield replay
        return
    name = run.meta.get('exp_name')
    if isinstance(name, str) and (run.folder / os.path.basename(name)).is_file():
        config = shlex.quote(str(run.folder.absolute() / os.path.basename(name)))
        yield 'resume', f'{before}runnerkit train {config} --work-dir {folder} --auto-resume{after}'
    # The splits of the config; a config that is not known may have all of them.
    splits = {key.split('.')[1] for key in run.settings if key.startswith('data.') and key.count('.') > 1}
    split = next((each for each in ('test', 'val', 'train') if each in splits), None if splits else 'test')
    if split is not None:
        yield 'test', f'runnerkit test {folder}' + ('' if split == 'test' else f' --split {split}')
        yield 'predict', f'runnerkit predict {folder} {split}'
    yield replay


def settings_and_code(run: RunRecord) -> str:
    """The values of the config with their places, its text, and the names of the kept files."""
    rows = run.last_start.get('settings', [])
    names = ('key', 'value', 'set at')
    whole = html_table(names, ([str(cell) for cell in row[:3]] for row in rows))
    own = html_table(names, ([str(cell) for cell in row[:3]] for row in rows if row[3]))
    base = f'<p>Set outside its base files:</p>{own}' if own else ''
    text = folded('Where each value is set', whole) + folded('The whole config', html.preformatted(run.config))
    return base + text + paragraph(f'Kept code: {", ".join(run.code)}' if run.code else '')


def _starts(run: RunRecord) -> str:
    starts = run.starts[-_MOST_STARTS:]
    shown = [key for key in _OF_STARTS.split() if any(start.get(key) for start in starts)]
    rows = [[key.replace('_', ' '), *(entry_in_words(key, start.get(key)) for start in starts)] for key in shown]
    first = 1 + len(run.starts) - len(starts)
    names = (f'start {start.get("number", number)}' for number, start in enumerate(starts, first))
    return html_table(('', *names), rows)


def entry_in_words(key: str, value: Any) -> str:
    """The value of an entry of a start: a moment, a command, versions."""
    if key in ('begin', 'end'):
        return moment(value) or in_short(value)
    if isinstance(value, dict):
        return ', '.join(f'{name} {entry_in_words("", each)}' for name, each in value.items())
    return ' '.join(map(shlex.quote, map(str, value))) if isinstance(value, list) else in_short(value)
