"""Make docs/images/terminal.svg: the first seconds of ``runnerkit train configs/mnist/lenet.py`` on a terminal.

``python tools/terminal_picture.py`` trains for real, on a pseudo-terminal, in a temporary folder (Unix; ten seconds).
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from fcntl import ioctl
from io import StringIO
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
COMMAND = 'runnerkit train configs/mnist/lenet.py'
WIDTH = 116

#: The line before the last line of the picture, and the number of bar states before it.
UNTIL, STATES = 'Epoch [3][25/55]', 2

#: The escapes with which rich restarts a line, and hides or shows the cursor.
_AGAIN, _CURSOR = re.compile(r'\r(?:\x1b\[2K)?'), re.compile(r'\x1b\[\?25[lh]')


def watched(command: list[str], folder: Path) -> str:
    """The output of ``command`` on a terminal until `UNTIL` was written and the bar has moved; then it is killed."""
    here, there = pty.openpty()
    ioctl(there, TIOCSWINSZ, pack('HHHH', 40, WIDTH, 0, 0))
    colours = {'TERM': 'xterm-256color', 'COLUMNS': str(WIDTH)}
    process = subprocess.Popen(command, cwd=folder, stdin=there, stdout=there, stderr=there, env=os.environ | colours)
    os.close(there)
    written = b''
    try:
        while written.partition(UNTIL.encode())[2].count(b'epoch 3') < STATES:
            written += os.read(here, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(here)
    return written.decode()


def lines_of(written: str) -> list[str]:
    """The lines that a terminal shows then."""
    return [_AGAIN.split(line)[-1] for line in _CURSOR.sub('', written).replace('\r\n', '\n').split('\n')]


def picture(lines: list[str]) -> str:
    """The lines as an SVG that loads no external font."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system='truecolor')
    console.print(f'[bold]$ {COMMAND}')
    for line in lines:
        console.print(Text.from_ansi(line.expandtabs()), soft_wrap=True, highlight=False)
    plain = re.sub(r'@font-face \{\{.*?\}\}', '', CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace('Fira Code, ', '')
    return console.export_svg(title='runnerkit', code_format=plain, unique_id='terminal') + '\n'


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / 'configs').symlink_to(ROOT / 'configs')
        program = [sys.executable, '-m', *COMMAND.split()]
        lines = [line for line in lines_of(watched(program, Path(folder))) if line.strip()]
    (ROOT / 'docs' / 'images' / 'terminal.svg').write_text(picture(lines), encoding='utf-8')


if __name__ == '__main__':
    main()
