"""``runnerkit replay``, ``diff``, ``verify``: any moment of a run again, and what sets two runs apart."""

from __future__ import annotations

import code
import json
import signal
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runnerkit.cli.arguments import argument, count, flag
from runnerkit.cli.errors import check_writable
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.cli.records import aligned, in_plain
from runnerkit.utils.ending import DIFFERENT, SIGNALLED, CommandLineExit, UsageError
from runnerkit.utils.logging import print_out, printable, shortened

if TYPE_CHECKING:
    from runnerkit.flow.moment.diff import Diff, Row
    from runnerkit.flow.moment.measured import Iteration
    from runnerkit.flow.moment.replay import Moment


#: The arguments of all commands that replay one run.
REPLAYING = (
    argument('work_dir', metavar='WORK_DIR', help='the work dir of the run'),
    *('--trust', '--device', '--launcher', '--local-rank'),
)


@command_line(
    'runnerkit replay',
    'Train a run again up to the moment before an iteration, in a scratch folder, compare its log, and show that '
    'iteration.',
    *REPLAYING,
    argument(
        '--to', required=True, metavar='N', help='how many iterations are done; or a place of the log, such as [3][50]'
    ),
    argument('--batch', metavar='FILE.pth', help='write the batch, as the step gets it, with torch.save'),
    argument('--save', metavar='FILE.pth', help='write a checkpoint of the moment, which a run can resume'),
    [
        argument('--for', dest='count', type=count, metavar='K', help='train K iterations, with a row for each'),
        flag('--shell', 'open Python with run, model, batch and step()'),
    ],
    argument('--hook', action='append', default=[], metavar='FILE.py:CLASS', help='add your hook'),
)
def replay_main(args: Namespace) -> int:
    """Replay, and show the moment."""
    for name in ('batch', 'save'):
        if getattr(args, name):
            check_writable(f'--{name}', getattr(args, name))
    import torch

    from runnerkit.distributed import from_first_rank, get_dist_info
    from runnerkit.flow.moment.history import history_of
    from runnerkit.flow.moment.measured import measured_step
    from runnerkit.flow.moment.replay import replay
    from runnerkit.hooks import HOOKS
    from runnerkit.registry import build_from_cfg

    with wrong_usage(FileNotFoundError):
        history = history_of(Path(args.work_dir))
    with wrong_usage(ValueError, of='--to: '):
        number = history.iteration_at(args.to)
    with ranks(args.launcher, args.work_dir):
        hooks = [build_from_cfg({'type': name}, HOOKS) for name in args.hook]
        is_first = get_dist_info()[0] == 0
        if args.shell and get_dist_info()[1] > 1:
            raise UsageError('--shell needs a run of one process: on several, use --batch, --save or --hook')
        with replay(args.work_dir, number, trust=args.trust, hooks=hooks, device=args.device) as moment:
            say = print_out if is_first else _nothing
            say('\n'.join(moment_lines(moment)))
            if args.batch and is_first:
                torch.save(moment.batch, args.batch)
                say(f'batch: {args.batch}')
            if args.save:
                say(f'checkpoint: {moment.save(args.save)}')
            if args.shell:
                names = {'moment': moment, 'run': moment.run, 'model': moment.model, 'batch': moment.batch}
                with suppress(SystemExit):  # of exit()
                    code.interact(banner='', local={**names, 'step': moment.step}, exitmsg='')
            rows: list[Iteration] = []
            while not args.shell and len(rows) < (args.count or 1) and not moment.has_ended:
                rows.append(measured_step(moment))
            if rows:
                say(iteration_table(rows) if args.count else iteration_text(rows[0]))
            if moment.length is not None and moment.iter > moment.length:
                say(f'The run has trained {moment.length} iterations; what follows them is new.')
            if args.count and len(rows) < args.count:
                say(f'The run ends after {moment.iter} iterations: {len(rows)} of {args.count} rows.')
            different = from_first_rank(lambda: moment.differences)
            equal = 'All log lines on the way are equal.' if moment.compared else 'No log line on the way to compare.'
            say(f'DIFFERENT: {different[0]}' if different else equal)
            if not different and rows and rows[-1].error is not None:
                raise rows[-1].error
    return DIFFERENT if different else 0


def _nothing(text: str) -> None:
    """In place of printing, on other ranks than the first."""


def _leave(number: int, frame: Any) -> None:
    """End after SIGTERM as after Ctrl-C: without leaving a scratch folder."""
    raise CommandLineExit(SIGNALLED + number)


@contextmanager
def ranks(launcher: str, work_dir: str) -> Iterator[None]:
    """Within it, this process has joined those that ``launcher`` has started, as the run had."""
    if launcher == 'none':
        former = signal.signal(signal.SIGTERM, _leave)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, former)
        return
    from runnerkit.distributed import init_dist, shutdown
    from runnerkit.flow.report.record import read_run

    backend = read_run(work_dir).settings.get('dist_params.backend')
    init_dist(launcher, backend if isinstance(backend, str) else 'nccl')
    try:
        yield
    finally:
        shutdown()


def moment_lines(moment: Moment) -> Iterator[str]:
    """What is known of the moment before its iteration is trained."""
    for text in moment.doubts:
        yield f'Perhaps not exact: {text}'
    for text in moment.discarded:
        yield f'Note: {text}'
    run = moment.run
    place = f'[{moment.epoch + 1}][{run.inner_iter + 1}]' if run.by_epoch else f'[{moment.iter + 1}]'
    yield f'iteration {moment.iter} ({place} in the log), replayed from {moment.since} iterations on'
    samples = moment.samples
    if samples is None:
        yield 'samples: not known, as the loader has its own order'
    else:
        named = [each.name if each.name == str(each.index) else f'{each.index} ({each.name})' for each in samples]
        yield f'samples: {shortened(named, 64)}'


def iteration_text(found: Iteration) -> str:
    """An iteration for the terminal."""
    from runnerkit.utils.numbers import in_short

    values = [f'{printable(name)}: {in_short(value)}' for name, value in found.values.items()]
    titles = ('part', 'gradient norm', 'largest', 'non-finite', 'update / weight')
    rows = [
        [each.name, *map(in_short, (each.gradient, each.largest, each.non_finite, each.update))] for each in found.parts
    ]
    return '\n'.join([*values, '', aligned(titles, rows)])


def iteration_table(rows: Sequence[Iteration]) -> str:
    """Iterations for the terminal, a row for each."""
    from runnerkit.utils.numbers import in_short

    names = list(dict.fromkeys(name for row in rows for name in row.values))
    cells = [
        [str(row.number), str(row.epoch), *(in_short(row.values.get(name)) for name in names)]
        + [in_short(row.parts[0].gradient), in_short(row.parts[0].update)]
        for row in rows
    ]
    return aligned(['iteration', 'epoch', *names, 'gradient norm', 'update / weight'], cells)


#: How many rows of a section are shown.
_MOST = 12


@command_line(
    'runnerkit diff',
    'Compare two runs from the outside in: config, code, machine, data, seeds, log lines, checkpoints. '
    f'The exit code is 0 if all are equal, {DIFFERENT} if something differs.',
    *(argument(name.lower(), metavar=name, help='a work dir or a checkpoint') for name in 'AB'),
    flag('--exactly', 'replay both runs, and find what parted first'),
    flag('--json', 'print the comparison as JSON'),
    *('--trust', '--launcher', '--local-rank'),
)
def diff_main(args: Namespace) -> int:
    """Print the comparison."""
    from runnerkit.distributed import get_dist_info  # imports torch
    from runnerkit.flow.moment.diff import as_plain, diff

    is_first = True
    with wrong_usage(OSError, ValueError):
        found = diff(args.a, args.b)
        if args.exactly:
            from runnerkit.flow.moment.exactly import exactly

            with ranks(args.launcher, args.a):
                found = exactly(found, args.trust)
                is_first = get_dist_info()[0] == 0
    if not (found.rows or found.is_equal or found.parting):
        raise UsageError(found.sentence)
    if is_first:
        print_out(json.dumps(in_plain(as_plain(found))) if args.json else diff_text(found))
    return 0 if found.is_equal else DIFFERENT


def diff_text(found: Diff) -> str:
    """A comparison for the terminal: the differences of each section, and the sentence."""
    from runnerkit.flow.moment.diff import SECTIONS

    parts = []
    for section in SECTIONS:
        own = [row for row in found.rows if row.section == section]
        lines = [text for row in own[:_MOST] for text in _row_lines(row)]
        if len(own) > _MOST:
            lines.append(f'… and {len(own) - _MOST} more; --json has all')
        parts += ['\n'.join([section, *(f'  {line}' for line in lines)])] if lines else []
    return '\n\n'.join([*parts, *(['\n'.join(found.notes)] if found.notes else []), found.sentence])


def _row_lines(row: Row) -> Iterator[str]:
    yield f'{row.name}: {row.note}' if row.note else row.name
    if row.a or row.b:
        yield f'  A  {row.a}'
        yield f'  B  {row.b}'


@command_line(
    'runnerkit verify',
    'Replay a run from one kept checkpoint to the next, and compare all that both files hold. The exit code is 0 '
    f'if they are equal, {DIFFERENT} if not.',
    *REPLAYING,
    flag('--all', 'from the beginning of the run, through all kept checkpoints (default: between the two newest ones)'),
    flag('--json', 'print the result as JSON'),
)
def verify_main(args: Namespace) -> int:
    """Verify."""
    from runnerkit.distributed import get_dist_info
    from runnerkit.flow.moment.verify import verify

    with ranks(args.launcher, args.work_dir):
        found = verify(args.work_dir, args.all, trust=args.trust, device=args.device)
        is_first = get_dist_info()[0] == 0
    lines = [f'Perhaps not exact: {text}' for text in found.doubts] + [f'Note: {text}' for text in found.discarded]
    for each in found.stretches:
        what = 'equal' if each.is_equal else f'DIFFERENT: {each.difference}'
        lines.append(f'iterations {each.begin} to {each.end}, {each.checkpoint} ({each.compared}): {what}')
    lines.append(f'{args.work_dir} {"reproduces here" if found.is_equal else "does not reproduce here"}')
    if is_first:
        print_out(json.dumps(asdict(found), indent=1) if args.json else '\n'.join(lines))
    return 0 if found.is_equal else DIFFERENT
