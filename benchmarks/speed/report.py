"""Turn figures into RESULTS.md: tables, a sentence or two for each, and the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

Entry = dict[str, Any]
NAMES = {
    'plain': 'plain loop',
    'expert': 'expert loop',
    'runnerkit': '**runnerkit**',
    'mmcv': 'MMCV',
    'mmengine': 'MMEngine',
    'lightning': 'Lightning',
    'ignite': 'Ignite',
    'accelerate': 'Accelerate',
}
BY_HAND = ('plain', 'expert')
NOT_YET = 'not measured yet'


#: The largest number of Python calls in an iteration, by the runner's kind and whether it has the default hooks.
CALLS = {('epoch', False): 139, ('iter', False): 144, ('epoch', True): 154, ('iter', True): 158}


def report(results: dict[str, Any]) -> str:
    """RESULTS.md."""
    parts = [head(results), disturbed(results['entries'])]
    tiny = [entry for entry in results['entries'] if entry['job'] == 'tiny']
    digits = [entry for entry in results['entries'] if entry['job'] == 'digits']
    if tiny:
        length = results['sizes']['tiny']['length']
        parts += [promises(results), *(tiny_job(tiny, kind, length) for kind in (False, True)), start_up(tiny)]
    if digits:
        parts.append(real_job(digits, results['sizes']['digits']['epochs']))
    parts += [closer(results['rows']), not_measured(results['entries'], results['missing'])]
    return '\n\n'.join(part for part in parts if part) + '\n'


def head(results: dict[str, Any]) -> str:
    machine = results['machine']
    versions = {entry['engine']: version(entry) for entry in results['entries'] if version(entry)}
    wanted, done = results['wanted_rounds'], max(len(entry['rounds']) for entry in results['entries'])
    rounds = f'{wanted} round{"s" * (wanted > 1)}' if done == wanted else f'{done} of {wanted} rounds'
    quick = '**A quick run: its figures mean nothing.**\n\n' if results['quick'] else ''
    changed = ' with changes' if machine['changed'] else ''
    named = ', '.join(f'{NAMES[name].strip("*")} {number}' for name, number in versions.items() if name not in BY_HAND)
    pythons = {each['python'] for entry in results['entries'] for turn in entry['rounds'] for each in turn}
    return f"""# What the engine costs

{quick}Written by `make bench` ({results['minutes']:.0f} minutes, {rounds}) on {machine['date']}
at commit {machine['commit']}{changed}. {machine['cpu']}, {machine['cores']} cores,
{machine['memory_gib']} GiB of memory, {machine['system']}; load {machine['load']:.1f} before the start.
Python {', '.join(sorted(pythons))}, torch {versions.get('plain', '?')}, one thread; {named}.

CPU time is that of all threads of a process. A figure is the median of the rounds, with the least and the most in
brackets, unless a table says otherwise. Ratios are taken within a round, to the mean of the plain loop's two runs in
it; the plain loop's own ratio is that of each run to their mean, and shows the noise. Every training is a separate
process, on the same batches from the same torch DataLoader, and must end with the weights of the plain loop.
The trainings of a round start one after another and wait once they are warm. Then they take turns of 100 iterations (50
of the real job) in a changing order, so that other load on the machine affects all of them alike. Waiting is not
counted, but the cost of caches that other turns have filled is, for all of them. Garbage, of which imports leave a
lot, is collected once before the measurement."""


def disturbed(entries: list[Entry]) -> str:
    """A warning, if the plain loop has not taken the same time throughout."""
    plain = [entry for entry in entries if entry['engine'] == 'plain' and entry['job'] == 'tiny']
    spent = [each for entry in plain for each in figures(entry, 'cpu_us')]
    if not spent or max(spent) < 1.15 * min(spent):
        return ''
    return f"""**The machine was not quiet**: the plain loop itself took {min(spent):.0f} to {max(spent):.0f} µs an
iteration. Ratios between trainings that took turns are still valid; start-up and the closer looks, which have longer
turns, are not."""


def tiny_job(entries: list[Entry], default_like: bool, length: int) -> str:
    """One configuration of the tiny job."""
    chosen = [entry for entry in entries if entry['default_like'] == default_like or entry['engine'] == 'plain']
    chosen = [entry for entry in chosen if entry['rounds']]
    chosen.sort(key=lambda entry: median(ratios(entry, entries)))
    rows = []
    for entry in chosen:
        over = [(each - 1) * 100 for each in ratios(entry, entries)]
        calls = (entry['counted'] or {}).get('calls')
        rows.append(
            [
                NAMES[entry['engine']],
                entry['kind'],
                spread(ratios(entry, entries), 2),
                f'{median(over):+.0f} %',
                spread(figures(entry, 'cpu_us'), 0),
                spread(figures(entry, 'wall_us'), 0),
                spread(figures(entry, 'epoch_end_ms'), 1),
                '' if calls is None else f'{calls:.0f}',
            ]
        )
    title = 'default-like' if default_like else 'minimal'
    text = (
        'A learning rate for each iteration,\na timer, a log line every 50 iterations, a checkpoint every epoch: for '
        'each engine its nearest\nequivalent (see `benchmarks/engines/`). The plain loop does none of this, '
        'the expert loop all of it\nby hand.'
        if default_like
        else 'Training alone: every optional part of an engine is off.'
    )
    columns = ['engine', 'loop', 'CPU / plain', 'over it', 'CPU, µs', 'wall, µs', "an epoch's end, ms", 'calls']
    return f"""## The tiny job, {title}

Linear(64, 10), batches of 8, cross-entropy, SGD with momentum; CPU and wall time per iteration. These include the ends
of epochs, one in {length} iterations, which also have a separate column. Calls are those of Python functions in an
iteration. {text}

{table(columns, rows)}"""


def start_up(entries: list[Entry]) -> str:
    rows = []
    for entry in entries:
        if entry['rounds']:
            title = 'default-like' if entry['default_like'] else 'minimal'
            imports = f'{min(figures(entry, "import_cpu_s")):.3f}'
            started = [f'{least_beyond(entry, entries, key):.2f}' for key in ('startup_cpu_s', 'startup_wall_s')]
            memory = spread(beyond(entry, entries, 'memory_mib'), 1)
            rows.append([NAMES[entry['engine']], entry['kind'], title, imports, *started, memory])
    columns = [
        'engine',
        'loop',
        'configuration',
        'import, CPU s',
        'first step, CPU s',
        'first step, wall s',
        'memory, MiB',
    ]
    return f"""## Start-up and memory

Import: the engine's imports in addition to torch and torch.utils.data. First step: from the start of the process to the
end of the first iteration, beyond the plain script's. Both happen once in a process, and are the least of all rounds,
since other load on the machine only adds to them; the closer look compares more starts. Memory: the peak of the
process, beyond the plain script's. Files were in the page cache, and modules compiled.

{table(columns, rows)}"""


def real_job(entries: list[Entry], epochs: int) -> str:
    chosen = [entry for entry in entries if entry['rounds']]
    chosen.sort(key=lambda entry: median(ratios(entry, entries, 'training_cpu_s')))
    rows = [
        [
            NAMES[entry['engine']],
            spread(ratios(entry, entries, 'training_cpu_s'), 3),
            spread(ratios(entry, entries, 'training_wall_s'), 3),
            spread(figures(entry, 'training_cpu_s'), 2),
            spread(figures(entry, 'training_wall_s'), 2),
        ]
        for entry in chosen
    ]
    columns = ['engine', 'CPU / plain', 'wall / plain', 'CPU, s', 'wall, s']
    return f"""## The small real job

LeNet on 3,500 real digits (configs/mnist, {epochs} epochs, batches of 64, no augmentation and no evaluation), the whole
training from its third step on (before that see start-up), default-like; the plain loop only trains, the expert loop
does the same work as runnerkit.

{table(columns, rows)}"""


# --- the closer looks ------------------------------------------------------------------------------------------------


def closer(rows: dict[str, Any]) -> str:
    """runnerkit against the plain loop, most in one process each."""
    made = [SECTIONS[name](row) for name, row in rows.items()]
    if not made:
        return ''
    first = """## Closer: runnerkit against the plain loop

Unless noted, both take turns in one process, default-like; CPU microseconds per iteration."""
    return '\n\n'.join([first, *made])


def loops(row: dict[str, list[float]]) -> str:
    return f"""### Both loops

The tiny job again, with less noise than between processes.

{versus(row, lambda name: f'plain, {name.rpartition(", ")[2]}')}"""


def first_step(row: dict[str, list[float]]) -> str:
    rows = []
    for name, spent in row.items():
        over = [a - b for a, b in zip(spent, row[f'plain, {name.rpartition(", ")[2]}'], strict=True)]
        rows.append([name, spread(spent, 2), '' if name.startswith('plain') else spread(over, 2)])
    return f"""### The first step

From the start of a process to the end of its first iteration, of processes that alternate; minimal.

{table(['way', 'seconds', 'over the plain script'], rows)}"""


def epoch_end(row: dict[str, list[float]]) -> str:
    rows = [[name, spread(spent, 2)] for name, spent in row.items()]
    return f"""### The end of an epoch

Without a log line and a save, but with the start of the next epoch and of the loader's new pass: by how much the median
iteration from one epoch to the next (its backward pass and the next one's forward pass) is longer than within an epoch.
Epochs have 10 iterations.

{table(['way', 'CPU, ms'], rows)}"""


def modules(row: dict[str, list[float]]) -> str:
    return f"""### From 1 to 200 modules

The runner's overhead must not depend on the number of modules. 200 linear layers take so long that noise hides the
overhead; 200 nn.Identity do not.

{versus(row, lambda name: name.replace('runnerkit', 'plain'))}"""


def log_event(row: dict[str, list[float]]) -> str:
    costs = [a - b for a, b in zip(row['always'], row['never'], strict=True)]
    shares = [cost / one for cost, one in zip(costs, row['plain'], strict=True)]
    rows = [[spread(row['never'], 0), spread(row['always'], 0), spread(costs, 0), spread(shares, 2)]]
    columns = ['never, µs', 'every iteration, µs', 'an event, µs', 'of a plain iteration']
    return f"""### A log event

A line of text and one of JSON in every iteration, against none at all.

{table(columns, rows)}"""


def adamw(row: dict[str, list[float]]) -> str:
    return f"""### AdamW with the fused line

`optimizer=dict(type='AdamW', fused=True)` against the plain loop with default AdamW, and with the same line; 1 and
92 linear layers. Fused results differ from the default's in the last bits.

{versus(row, lambda name: f'plain, {name.rpartition(", ")[2]}', own='plain, ')}"""


def clipping(row: dict[str, list[float]]) -> str:
    return f"""### Clipping

`optimizer_config=dict(grad_clip=dict(max_norm=1.0))` with 184 parameters, against torch's clip_grad_norm_ by hand; the
runner also logs the norm.

{versus(row, lambda name: 'plain')}"""


def loading(row: dict[str, list[float]]) -> str:
    sizes = sorted({int(name.rpartition(', ')[2]) for name in row})
    extra = {
        size: [a - b for a, b in zip(row[f'runnerkit, {size}'], row[f'plain, {size}'], strict=True)] for size in sizes
    }
    rows = [
        [str(size), spread(row[f'plain, {size}'], 0), spread(row[f'runnerkit, {size}'], 0), spread(extra[size], 0)]
        for size in sizes
    ]
    sample = (median(extra[sizes[-1]]) - median(extra[sizes[0]])) / (sizes[-1] - sizes[0])
    batch = median(extra[sizes[0]]) - sizes[0] * sample
    columns = ['samples a batch', "torch's loader, µs a batch", 'build_dataloader, µs a batch', 'beyond, µs']
    return f"""### Seeded loading

In the main process, shuffled: beyond torch's loader, about {batch:.0f} µs a batch and {sample:.1f} µs a sample.

{table(columns, rows)}"""


def long_run(row: dict[str, dict[str, float]]) -> str:
    rows = [
        [
            kind,
            f'{each["first_us"]:.1f}',
            f'{each["last_us"]:.1f}',
            f'{each["grown_mib"]:.2f}',
            f'{each["grown_last_nine_tenths_mib"]:.2f}',
        ]
        for kind, each in row.items()
    ]
    iterations = next(iter(row.values()))['iterations']
    columns = ['runner', 'first, µs', 'last, µs', 'memory grown, MiB', 'in the last nine tenths, MiB']
    return f"""### {iterations:,} iterations

A step without arithmetic, with schedule, timer and a log line every 50 iterations: the runner's own time, after a
thousand iterations and at the end; one run each.

{table(columns, rows)}"""


SECTIONS: dict[str, Callable[[Any], str]] = {
    each.__name__: each
    for each in (loops, first_step, epoch_end, modules, log_event, adamw, clipping, loading, long_run)
}


def versus(row: dict[str, list[float]], plain: Callable[[str], str], own: str = 'plain') -> str:
    """A table of the ways of a row, with the ratio to the plain way that belongs to each."""
    rows = []
    for name, spent in row.items():
        base = row[name if name.startswith(own) else plain(name)]
        over = [a - b for a, b in zip(spent, base, strict=True)]
        ratio = [a / b for a, b in zip(spent, base, strict=True)]
        rows.append([name, spread(spent, 0), *(['', ''] if base is spent else [spread(ratio, 3), spread(over, 1)])])
    return table(['way', 'CPU, µs', 'of plain', 'over it, µs'], rows)


# --- goals -----------------------------------------------------------------------------------------------


def promises(results: dict[str, Any]) -> str:
    """runnerkit's goals, and whether they hold in this run."""
    entries = results['entries']
    rows = [
        [text, shown, 'yes' if held else '**no**']
        for text, shown, held in [*of_entries(entries), *of_rows(results['rows'])]
    ]
    if not rows:
        return ''
    return f"""## What was promised, and what this run shows

{table(['promise', 'measured', 'held'], rows)}"""


def of_entries(entries: list[Entry]) -> Iterable[tuple[str, str, bool]]:
    tiny = [entry for entry in entries if entry['job'] == 'tiny']
    ours = [entry for entry in tiny if entry['engine'] == 'runnerkit' and entry['rounds']]
    for entry in ours:
        bound = 1.0 if entry['default_like'] else 0.95
        title = 'default-like' if entry['default_like'] else 'minimal'
        ratio = median(ratios(entry, tiny))
        yield (
            f'tiny job, {title}, {entry["kind"]}: at most {bound:.2f} of the plain loop',
            f'{ratio:.3f}',
            ratio <= bound,
        )
    for entry in ours:
        title = 'default-like' if entry['default_like'] else 'minimal'
        by_hand = counterpart(entry, tiny)
        if by_hand is not None:
            ratio = median(ratios(entry, tiny, to=by_hand))
            yield (
                f'tiny job, {title}, {entry["kind"]}: at most 1.00 of the {NAMES[by_hand["engine"]]}',
                f'{ratio:.3f}',
                ratio <= 1,
            )
    for default_like in (False, True):
        mine = [median(ratios(entry, tiny)) for entry in ours if entry['default_like'] == default_like]
        theirs = {
            f'{NAMES[entry["engine"]]} {entry["kind"]}': median(ratios(entry, tiny))
            for entry in tiny
            if entry['engine'] not in (*BY_HAND, 'runnerkit')
            and entry['default_like'] == default_like
            and entry['rounds']
        }
        if mine and theirs:
            best = min(theirs, key=theirs.__getitem__)
            title = 'default-like' if default_like else 'minimal'
            yield (
                f'every peer behind, {title}',
                f'{max(mine):.3f}; best peer {theirs[best]:.3f} ({best})',
                max(mine) < theirs[best],
            )
    if ours:
        importing = max(min(figures(entry, 'import_cpu_s')) for entry in ours)
        yield (
            'import on top of torch, least of the rounds: at most 0.05 s of CPU',
            f'{importing:.3f} s',
            importing <= 0.05,
        )
        most = max(median(beyond(entry, tiny, 'memory_mib')) for entry in ours)
        yield 'memory over the plain script: at most 5 MiB', f'{most:.3f} MiB', most <= 5
        for entry in ours:
            calls = (entry['counted'] or {}).get('calls')
            if calls is not None:
                most = CALLS[entry['kind'], entry['default_like']]
                which = 'default-like' if entry['default_like'] else 'minimal'
                text = f'calls of Python functions, {entry["kind"]}, {which}: at most {most}'
                yield text, f'{calls:.0f}', round(calls) <= most
    digits = [entry for entry in entries if entry['job'] == 'digits']
    for entry in digits:
        if entry['engine'] == 'runnerkit' and entry['rounds']:
            found = ratios(entry, digits, 'training_cpu_s')
            most = max(ratios(bare(entry, digits), digits, 'training_cpu_s'))
            text = 'real job: no slower than the plain loop varies between runs'
            yield text, f'{spread(found, 3)}; plain loop up to {most:.3f}', median(found) <= most


def of_rows(rows: dict[str, Any]) -> Iterable[tuple[str, str, bool]]:
    if 'loops' in rows:
        row = rows['loops']
        for title in ('minimal', 'default-like'):
            by_iter, by_epoch = (row[f'runnerkit {title}, {kind}'] for kind in ('iter', 'epoch'))
            ratio = median(a / b for a, b in zip(by_iter, by_epoch, strict=True))
            yield f'iteration runner within 1 % of the epoch runner, {title}', f'{ratio:.3f}', ratio <= 1.01
    for clock in ('cpu', 'wall') if 'first_step' in rows else ():
        ours, plain = (rows['first_step'][f'{engine}, {clock}'] for engine in ('runnerkit', 'plain'))
        over = median(a - b for a, b in zip(ours, plain, strict=True))
        yield f'start-up, minimal, epoch, {clock}, over the plain script: at most 0.1 s', f'{over:.3f} s', over <= 0.1
    if 'epoch_end' in rows:
        spent = median(rows['epoch_end']['runnerkit'])
        yield 'the end of an epoch without a save: at most 0.5 ms', f'{spent:.2f} ms', spent <= 0.5
    if 'log_event' in rows:
        row = rows['log_event']
        share = median((a - b) / c for a, b, c in zip(row['always'], row['never'], row['plain'], strict=True))
        yield 'a log event: at most a fifth of a plain iteration', f'{share:.2f}', share <= 0.2
    if 'modules' in rows:
        row = rows['modules']
        one, many = (
            median(a - b for a, b in zip(row[f'runnerkit, {name}'], row[f'plain, {name}'], strict=True))
            for name in ('1 LinearChain', '200 IdentityChain')
        )
        share = (many - one) / median(row['plain, 1 LinearChain'])
        yield 'flat from 1 to 200 modules (to 5 % of a plain iteration)', f'{many - one:+.1f} µs', share <= 0.05
    for kind, each in rows.get('long_run', {}).items():
        ratio = each['last_us'] / each['first_us']
        text = f'flat to {each["iterations"]:,} iterations, {kind} (to 10 %, and 2 MiB)'
        flat = ratio <= 1.1 and each['grown_last_nine_tenths_mib'] <= 2
        yield text, f'ratio {ratio:.2f}, {each["grown_last_nine_tenths_mib"]:+.2f} MiB', flat
    if 'adamw' in rows:
        row = rows['adamw']
        for length in (1, 92):
            pairs = zip(row[f'runnerkit fused, {length}'], row[f'plain, {length}'], strict=True)
            ratio = median(a / b for a, b in pairs)
            yield f'fused AdamW below the default by hand, {length} layers', f'{ratio:.3f}', ratio < 1
    if 'loading' in rows:
        row = rows['loading']
        extra = median(a - b for a, b in zip(row['runnerkit, 32'], row['plain, 32'], strict=True))
        bound = 25 + 32 * 12
        yield f'seeded loading, 32 a batch: at most {bound} µs beyond torch', f'{extra:.0f} µs', extra <= bound


def not_measured(entries: list[Entry], missing: dict[str, str]) -> str:
    """Missing engines and closer looks, and the limits of the tables."""
    found = [f'- {name(entry)}: {entry["failed"]}' for entry in entries if entry['failed']]
    found += [f'- {name(entry)}: {NOT_YET}' for entry in entries if not (entry['failed'] or entry['rounds'])]
    found += [f'- closer look `{row}`: {why}' for row, why in missing.items()]
    all_there = 'All engines were installed, trained, and ended with the same weights.'
    return f"""## Not covered

{chr(10).join(found) or all_there}

This report does not cover GPUs (see `benchmarks/gpu.py`), several processes, workers of a loader, mixed precision or
large models: the tiny job is all overhead, to make overhead visible. MMCV and MMEngine sleep for two seconds before
each epoch or pass; here they do not. Do not trust wall time on a shared machine; CPU time is less disturbed, but not
exact."""


# --- figures ---------------------------------------------------------------------------------------------------------


def name(entry: Entry) -> str:
    title = 'default-like' if entry['default_like'] else 'minimal'
    return f'{NAMES[entry["engine"]].strip("*")}, {entry["kind"]}, {title}, {entry["job"]} job'


def version(entry: Entry) -> str | None:
    return entry['rounds'][0][0]['version'] if entry['rounds'] else None


def figures(entry: Entry, key: str) -> list[float]:
    """All rounds' figures; two per round for the plain loop."""
    return [each[key] for turn in entry['rounds'] for each in turn]


def bare(entry: Entry, entries: list[Entry]) -> Entry:
    """The plain loop of the same kind."""
    kind = entry['kind'].split()[0]
    return next(each for each in entries if each['engine'] == 'plain' and each['kind'] == kind)


def counterpart(entry: Entry, entries: list[Entry]) -> Entry | None:
    """The hand-written loop with the same work; None if it is not measured."""
    engine = 'expert' if entry['default_like'] else 'plain'
    found = (each for each in entries if each['engine'] == engine and each['kind'] == entry['kind'] and each['rounds'])
    return next(found, None)


def ratios(entry: Entry, entries: list[Entry], key: str = 'cpu_us', to: Entry | None = None) -> list[float]:
    """To the plain loop of the same round, or to another entry."""
    base = (to or bare(entry, entries))['rounds']
    return [each[key] / mean(twins, key) for turn, twins in zip(entry['rounds'], base, strict=True) for each in turn]


def beyond(entry: Entry, entries: list[Entry], key: str) -> list[float]:
    """Over the plain loop of the same round."""
    plain = bare(entry, entries)['rounds']
    return [each[key] - mean(twins, key) for turn, twins in zip(entry['rounds'], plain, strict=True) for each in turn]


def least_beyond(entry: Entry, entries: list[Entry], key: str) -> float:
    """The least of all rounds, over the plain loop's least."""
    return min(figures(entry, key)) - min(figures(bare(entry, entries), key))


def mean(twins: list[dict[str, float]], key: str) -> float:
    return sum(each[key] for each in twins) / len(twins)


def spread(values: list[float], digits: int) -> str:
    """Median, least and most."""
    if len(values) == 1:
        return f'{values[0]:.{digits}f}'
    return f'{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})'


def table(columns: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return f'{NOT_YET.capitalize()}.'
    lines = [columns, ['---'] + ['---:'] * (len(columns) - 1), *rows]
    return '\n'.join(f'| {" | ".join(line)} |' for line in lines)
