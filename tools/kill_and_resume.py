"""Kill a training run, resume it, and compare its weights with those of an undisturbed run.

    python tools/kill_and_resume.py configs/mnist/lenet.py
    python tools/kill_and_resume.py my_config.py --svg docs/images/kill_and_resume.svg

SIGKILL ends the first training inside its third epoch, and ``--auto-resume`` resumes it. The work dirs are
``work_dirs/killed`` and ``work_dirs/undisturbed``, which are deleted first. ``--svg`` writes the commands' output as a
recording that plays in a browser (Unix). It begins one second before the kill, with pauses of at most half a second.
"""

from __future__ import annotations

import argparse
import os
import pty
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path

RUNNERKIT = [sys.executable, '-m', 'runnerkit']
COMPARE = """\
import torch
a, b = (torch.load(f'work_dirs/{name}/latest.pth')['state_dict'] for name in ('killed', 'undisturbed'))
print('equal, bit for bit:', all(torch.equal(a[key], b[key]) for key in a | b))"""

#: One printed line: its time in seconds, its text, and its colour.
Line = tuple[float, str, str]

PLAIN, COMMAND, KILLED = '#d0d0d0', '#7fd88f', '#ff7b72'
COLUMNS, ROWS, LINE_HEIGHT = 112, 16, 18  # of the recording's terminal; the height in pixels
TITLE = 'A training run is killed and resumed, and ends with the weights of an undisturbed run'
FIRST_PAUSE, LONGEST_PAUSE, LAST_PAUSE = 1.0, 0.5, 6.0  # of the recording, in seconds


def main() -> int:
    """Run the commands; the exit code says whether the weights are equal."""
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('config', help='a config with at least three epochs')
    parser.add_argument('--svg', help='write the recording to this file')
    args = parser.parse_args()
    lines = list(scene(args.config))
    if args.svg:
        Path(args.svg).write_text(recording(lines), encoding='utf-8')
    return int(lines[-1][1] != 'equal, bit for bit: True')


def scene(config: str) -> Iterator[Line]:
    """The lines of all commands, printed as they come."""
    for name in ('killed', 'undisturbed'):
        shutil.rmtree(f'work_dirs/{name}', ignore_errors=True)
    undisturbed = ['train', config, '--work-dir', 'work_dirs/undisturbed']
    yield from command(f'runnerkit {shlex.join(undisturbed)} 2> /dev/null', RUNNERKIT + undisturbed, log=os.devnull)
    killed = ['train', config, '--work-dir', 'work_dirs/killed']
    yield from command(f'runnerkit {shlex.join(killed)}', RUNNERKIT + killed, kill_at='Epoch [3][')
    yield from command(f'runnerkit {shlex.join(killed)} --auto-resume', [*RUNNERKIT, *killed, '--auto-resume'])
    yield from command(f'python -c "{COMPARE}"', [sys.executable, '-c', COMPARE])


def command(shown: str, arguments: list[str], log: str = '', kill_at: str | None = None) -> Iterator[Line]:
    """The terminal output of a command, which is killed at the first line that contains ``kill_at``.

    With ``log``, its stderr goes to that file.
    """
    for line in f'$ {shown}'.splitlines():
        yield said(line, COMMAND)
    process, terminal = pty.fork()
    if process == 0:
        if log:
            os.dup2(os.open(log, os.O_WRONLY), 2)
        os.execve(arguments[0], arguments, os.environ | {'TERM': 'dumb'})  # without a progress bar
    for line in lines_of(terminal):
        yield said(line, PLAIN)
        if kill_at is not None and kill_at in line:
            os.kill(process, signal.SIGKILL)
            break
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if kill_at is not None and code != -signal.SIGKILL:
        sys.exit(f'{shown}\nended before its third epoch, with exit code {code}')
    if kill_at is not None:
        yield said('Killed (kill -9)', KILLED)
    elif code:
        sys.exit(f'{shown}\nended with exit code {code}')


def lines_of(terminal: int) -> Iterator[str]:
    """The lines written to the other end of a pseudo-terminal."""
    rest = b''
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # EIO: the other end is closed
            chunk = b''
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b'\n')
        yield from (line.decode().rstrip('\r').expandtabs() for line in lines)
    if rest:
        yield rest.decode()


def said(text: str, colour: str) -> Line:
    """A line, printed."""
    print(text, flush=True)
    return time.monotonic(), text, colour


def recording(lines: list[Line]) -> str:
    """An SVG of a terminal into which the lines scroll. Without animation, it shows the last ones."""
    kill = next(number for number, (*_, colour) in enumerate(lines) if colour == KILLED)
    seconds = [0.0, FIRST_PAUSE]  # the first frame has all lines before the kill
    for (before, *_), (after, *_) in pairwise(lines[kill:]):
        seconds.append(seconds[-1] + min(after - before, LONGEST_PAUSE))
    duration = seconds[-1] + LAST_PAUSE
    offsets = [LINE_HEIGHT * (ROWS - number) for number in range(kill, len(lines) + 1)]  # the newest line is the lowest
    width, height = 8 * COLUMNS, LINE_HEIGHT * (ROWS + 1)
    here = f'{os.getcwd()}/'
    texts = [
        f'<text y="{LINE_HEIGHT * number}" fill="{colour}">{escape(text.replace(here, "")[:COLUMNS])}</text>'
        for number, (_, text, colour) in enumerate(lines, start=1)
    ]
    return '\n'.join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" '
            'font-size="13" xml:space="preserve">',
            f'<title>{escape(TITLE)}</title>',
            f'<rect width="{width}" height="{height}" rx="6" fill="#16181d"/>',
            f'<svg x="10" y="2" width="{width - 20}" height="{height - 14}">',
            f'<g transform="translate(0 {offsets[-1]})">',
            '<animateTransform attributeName="transform" type="translate" calcMode="discrete" '
            f'repeatCount="indefinite" dur="{duration:.1f}s"',
            f'keyTimes="{";".join(f"{second / duration:.4f}" for second in seconds)}"',
            f'values="{";".join(f"0 {offset}" for offset in offsets)}"/>',
            *texts,
            '</g></svg></svg>',
            '',
        ]
    )


if __name__ == '__main__':
    sys.exit(main())
