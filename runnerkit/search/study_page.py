"""The report of a study, from the records of its trials: what they scored, what mattered, when they ran."""

from __future__ import annotations

import ast
import math
import os
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.flow.look.log_lines import Points, curves_of, is_number, read_log, thinned
from runnerkit.flow.report import page
from runnerkit.flow.report.charts import Axis, Line, Point, parallel, scatter, timeline
from runnerkit.flow.report.markup import Cell, command, controls, fact, folded, head, html_table, paragraph, section
from runnerkit.search.record import COMPLETED, FAILED, PRUNED, RUNNING, Record, front
from runnerkit.search.report import REPORTS, STUDY, completed, ranked
from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.numbers import in_seconds, in_short, moment
from runnerkit.utils.small_files import read_json

#: The most trials of a step that are shown, the newest ones, and that have a curve.
MOST_TRIALS, MOST_CURVES = 500, 150

#: From how many trials with a score on the importance of their values is shown: of fewer, it is mostly chance.
LEAST_TRIALS = 20


def write_report(
    work_dirs: Iterable[str | os.PathLike[str]] | str | os.PathLike[str], out: str | os.PathLike[str] = ''
) -> Path:
    """Write the report of one run, of several in comparison, or of a study, as one HTML file.

    Args:
        work_dirs: of the runs, or of one study. They are only read.
        out: the file; by default ``report.html`` in the only work dir, else in the current folder.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: one of them is no work dir of a run or study.
        ValueError: there is none, or a study among others.
    """
    folders = [work_dirs] if isinstance(work_dirs, str | os.PathLike) else list(work_dirs)
    studies = [folder for folder in folders if (Path(folder) / REPORTS).is_file()]
    if not studies:
        return page.write_runs(folders, out)
    if len(folders) > 1:
        raise WrongValue(f'{os.fspath(studies[0])} is a study: report it alone, or name the work dirs of its trials')
    path = Path(out or Path(folders[0]) / 'report.html')
    write_atomically(path, study_page(Path(folders[0])).encode('utf-8', errors='replace'))
    return path


def study_page(folder: Path) -> str:
    """The report of a study or a pipeline as text."""
    records = readable_records(folder)
    names = dict.fromkeys(each.step for each in records)
    steps = {step: [each for each in records if each.step == step][-MOST_TRIALS:] for step in names}
    best = {step: found[0] for step, trials in steps.items() if (found := ranked(completed(trials)))}
    ended = max((each.end for each in records), default=0.0)
    studies = {step: _study(folder, step) for step in steps}
    legend = '<span class="soft">orange: the best trial; grey: pruned or failed</span>'
    data = _page_data(folder, steps, best)
    charts = (
        section(
            f'Step {step}', f'<div class="panels">{_charts(trials, best.get(step), _axes(studies[step], trials))}</div>'
        )
        for step, trials in steps.items()
    )
    body = (
        head(folder.absolute().name, [str(folder.absolute()), moment(ended or None)], _headline(records, best)),
        *(section(f'Best trial of {step}', _best(each, studies[step])) for step, each in best.items()),
        *charts,
        controls(legend, is_empty=not data['panels']),
        *(section(f'Trials of {step}', _trials(trials, best.get(step))) for step, trials in steps.items()),
        paragraph('' if records else 'No trial has been recorded yet.'),
        paragraph(
            f'Shown are the newest {MOST_TRIALS} trials of a step.'
            if len(records) > sum(map(len, steps.values()))
            else ''
        ),
    )
    return page.html_page(folder.absolute().name, ''.join(body), data)


def readable_records(folder: Path) -> list[Record]:
    """The records in the report of a study, by number; those that are damaged are left out."""
    try:
        content = read_json(folder / REPORTS)
    except ValueError as error:
        raise WrongValue(f'{folder / REPORTS} is damaged: {error}') from None
    found = []
    for each in content if isinstance(content, list) else []:
        with suppress(WrongValue):
            record = Record.from_dict(each)
            if all(map(is_number, (record.start, record.end, *record.performance.values()))):
                found.append(record)
    return sorted(found, key=lambda each: each.number)


def _study(folder: Path, step: str) -> dict[str, Any]:
    """What the study of a step has kept about itself; empty if it cannot be read."""
    for place in (folder / step if Path(step).name == step else folder, folder):
        with suppress(OSError, ValueError):
            if isinstance(content := read_json(place / STUDY), dict):
                return content
    return {}


def _axes(study: Mapping[str, Any], trials: Sequence[Record]) -> dict[str, Axis]:
    """The axis of each value, as the space says: its choices, or a linear or logarithmic scale."""
    parameters: dict[str, dict[str, Any]] = {}
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):  # the space is kept as Python's text of it
        text = ast.parse(str(study.get('search_space')), mode='eval').body
        if isinstance(text, ast.Call) and text.args and isinstance(text.args[0], ast.Dict):
            for key, made in zip(text.args[0].keys, text.args[0].values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(made, ast.Call):
                    given = {each.arg: ast.literal_eval(each.value) for each in made.keywords if each.arg}
                    parameters[str(key.value)] = given
    found: dict[str, Axis] = {}
    for name in _keys(trials):
        given = parameters.get(name, {})
        choices = [list(each) if isinstance(each, tuple) else each for each in given.get('choices', ())]
        is_log = given['log'] if isinstance(given.get('log'), bool) else None
        found[name] = Axis((each.hps.get(name) for each in trials), choices, is_log)
    return found


def _best(record: Record, study: Mapping[str, Any]) -> str:
    """The values of the best trial, and the commands that repeat it and train it longer."""
    values = html_table(
        ('value', 'best trial'), ((key, Cell(value, escape(in_short(value)))) for key, value in record.hps.items())
    )
    commands = command('repeat', record.command) if record.command else ''
    if longer := longer_command(record, study):
        commands += command('longer', longer)
    return f'{values}{commands}'


def longer_command(record: Record, study: Mapping[str, Any]) -> str:
    """The command that trains a trial for twice as long, in a separate work dir; empty if none is known."""
    config = study.get('config')
    runner = config.get('runner') if isinstance(config, Mapping) else None
    unit = next((key for key in ('max_epochs', 'max_iters') if isinstance(runner, Mapping) and runner.get(key)), '')
    try:
        words = shlex.split(record.command)
    except ValueError:
        return ''
    if not unit or '--work-dir' not in words[:-1] or record.epoch < 1:
        return ''
    place = words.index('--work-dir') + 1
    words[place] = f'{words[place].removesuffix("_again")}_longer'
    key = f'runner.{unit}='
    words = [word for word in words if not word.startswith(key)]
    if '--cfg-options' not in words:
        words.append('--cfg-options')
    words.insert(words.index('--cfg-options') + 1, f'{key}{2 * record.epoch}')
    return shlex.join(words)


def _page_data(folder: Path, steps: Mapping[str, list[Record]], best: Mapping[str, Record]) -> dict[str, Any]:
    """The curve of each trial, for the page's script."""
    found = [
        (step, each, points)
        for step, trials in steps.items()
        for each in trials[:: -(-len(trials) // MOST_CURVES)]
        if (points := _curve(folder, each))
    ]
    panels: dict[str, dict[str, Any]] = {}
    for number, (step, each, points) in enumerate(found):
        title = f'{step}: {next(iter(each.objectives))}'
        is_best, is_bad = best.get(step) is each, each.status in (PRUNED, FAILED)
        look = {'kind': 'best' if is_best else 'thin', 'colour': '--c1' if is_best else '--soft' if is_bad else '--c0'}
        curve = thinned(points, max(20, page.NUMBERS // (4 * len(found))))
        series = {'run': number, 'mode': 'val', 'label': '', **look, **curve}
        panels.setdefault(title, {'title': title, 'section': 'scores', 'series': []})['series'].append(series)
    runs: list[Any] = [
        {'name': f'trial {each.number}', 'epoch_length': None, 'clock': [[], []], 'marks': []} for _, each, _ in found
    ]
    return {'runs': runs, 'panels': list(panels.values()), 'several': True}


def _curve(folder: Path, record: Record) -> Points:
    """The first objective over the iterations, from the log in the trial's folder inside of the study."""
    parts = Path(record.work_dir.lstrip(os.sep)).parts
    inside = [folder.joinpath(*parts[-count:]) for count in (4, 3, 2, 1) if '..' not in parts]
    place = next((each for each in inside if any(each.glob('*.log.json'))), None)
    name = next(iter(record.objectives), '')
    return [] if place is None else curves_of(read_log(place).lines).get(('val', name), [])


def _headline(records: Sequence[Record], best: Mapping[str, Record]) -> Iterator[str]:
    for status in (COMPLETED, PRUNED, FAILED, RUNNING):
        count = sum(each.status == status for each in records)
        if count or status == COMPLETED:
            yield fact(status, str(count), 'trials', status == FAILED)
    for step, each in best.items():
        name = next(iter(each.objectives))
        yield fact(f'best {name}', in_short(each.performance[name]), f'trial {each.number} of {step}')
    starts = [each.start for each in records if each.start > 0]
    if starts:
        yield fact('duration', in_seconds(max(each.end for each in records) - min(starts)))


def _keys(trials: Iterable[Record]) -> list[str]:
    return list(dict.fromkeys(key for each in trials for key in each.hps))


def _charts(trials: Sequence[Record], best: Record | None, axes: Mapping[str, Axis]) -> str:
    scored = [each for each in trials if each.values is not None]
    texts = {each.number: _tooltip(each) for each in trials}
    kinds = {each.number: 'best' if each is best else each.status for each in trials}
    spans = [
        (each.start, each.end, kinds[each.number], texts[each.number]) for each in trials if each.end > each.start > 0
    ]
    if not scored:
        return timeline('Trials by worker', spans)
    name, *others = scored[0].objectives
    scored = [each for each in scored if each.objectives == scored[0].objectives]
    keys = [key for key in _keys(trials) if len({str(each.hps.get(key)) for each in trials}) > 1]

    def points(x: Any, y: Any) -> list[Point]:
        return [
            Point(x(each), y(each), kinds[each.number], texts[each.number]) for each in scored if x(each) is not None
        ]

    def score(record: Record) -> float:
        return record.performance[name]

    so_far: list[tuple[int, float]] = []
    for i, each in enumerate(scored):
        if leading := ranked(completed(scored[: i + 1])):
            so_far.append((each.number, score(leading[0])))
    order = {each.number: 1 - i / len(trials) for i, each in enumerate(ranked(completed(scored)))}
    worth = importance(scored, keys) if len(scored) >= LEAST_TRIALS else {}
    by_worth = sorted(keys, key=lambda key: -worth.get(key, 0.0))
    parts = [scatter('History, and the best so far', ('trial', name), points(lambda each: each.number, score), so_far)]
    for other in others[:1]:
        able = sorted((score(each), each.performance[other]) for each in front(completed(scored)))
        chosen = points(score, lambda each, other=other: each.performance[other])
        parts.append(scatter(f'Front of {name} and {other}', (name, other), chosen, able))
    parts.append(_bars(worth))
    parts += (
        scatter(
            f'{name} over {key}', (key, name), points(lambda each, key=key: each.hps.get(key), score), across=axes[key]
        )
        for key in by_worth
    )
    rows = [
        Line(
            [*(each.hps.get(key) for key in keys), score(each)],
            kinds[each.number],
            order.get(each.number, 0.0),
            texts[each.number],
        )
        for each in scored
    ]
    if len(keys) > 1:
        scales = [*(axes[key] for key in keys), Axis(map(score, scored), is_cut=True)]
        parts.append(parallel(f'Values and {name}', [*keys, name], rows, scales))
    return ''.join([*parts, timeline('Trials by worker', spans)])


def _tooltip(record: Record) -> str:
    values = {**{name: record.performance.get(name) for name in record.objectives}, **record.hps}
    words = ', '.join(f'{key} {in_short(value)}' for key, value in values.items())
    return f'trial {record.number} ({record.status}): {words}'


def _trials(trials: Sequence[Record], best: Record | None) -> str:
    """A table of the trials: the completed ones first, the best one above all."""
    done = ranked(completed(trials))
    numbers = {each.number for each in done}
    trials = [*done, *(each for each in trials if each.number not in numbers)]
    keys = _keys(trials)
    scores = list(dict.fromkeys(name for each in trials for name in (*each.objectives, *each.performance)))
    names = ['trial', 'status', *scores, *keys, 'epoch', 'duration', 'message', 'command']
    return html_table(names, (
        [
            Cell(each.number, f'★ {each.number}', 'n best') if each is best else each.number, each.status,
            *map(each.performance.get, scores), *(_cell(each.hps.get(key)) for key in keys),
            each.epoch, Cell(each.runtime, in_seconds(each.runtime), 'n'), each.message[:300],
            Cell('', folded('show', command('repeat', each.command)) if each.command else ''),
        ]
        for each in trials
    ))  # fmt: skip


def _cell(value: Any) -> Any:
    return value if value is None or is_number(value) else str(value)


def importance(trials: Sequence[Record], keys: Iterable[str]) -> dict[str, float]:
    """The share of the variance of the first objective that each value explains alone, corrected for chance.

    It is the variance between groups of trials: one for each value, or four of equal size for numbers with more values.
    """
    found = {}
    for key in keys:
        pairs = [(each.hps[key], each.values[0]) for each in trials if key in each.hps and each.values]
        numbers = sorted({value for value, _ in pairs if is_number(value) and math.isfinite(value)})
        cuts = [numbers[len(numbers) * i // 4] for i in (1, 2, 3)] if len(numbers) > 4 else []
        groups: dict[Any, list[float]] = {}
        for value, score in pairs:
            groups.setdefault(
                sum(value >= cut for cut in cuts) if cuts and is_number(value) else str(value), []
            ).append(score)
        with suppress(OverflowError):  # a score like 1e300
            total = statistics.pvariance([score for _, score in pairs]) * len(pairs) if pairs else 0.0
            if 0 < total < math.inf and 1 < len(groups) < len(pairs):
                inside = sum(statistics.pvariance(each) * len(each) for each in groups.values())
                found[key] = max(0.0, 1 - inside / total * (len(pairs) - 1) / (len(pairs) - len(groups)))
    return found


def _bars(worth: Mapping[str, float]) -> str:
    ordered = sorted(worth.items(), key=lambda pair: -pair[1])
    text = html_table(('value', 'share'), (
        (key, Cell(part, f'{part:.0%}', 'n share', f'--part:{part:.0%}')) for key, part in ordered
    ))  # fmt: skip
    about = paragraph('How much of the change in score each value explains by itself.')
    return f'<figure><figcaption><b>Importance</b></figcaption>{text}{about}</figure>' if text else ''
