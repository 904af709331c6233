"""``python -m runnerkit.compat script.py …`` or ``-m module …``: run it with runnerkit instead of MMCV."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from runnerkit.compat import install
from runnerkit.compat.mmcv_version import report_version

USAGE = 'usage: python -m runnerkit.compat [--as-mmcv VERSION] [-m] SCRIPT [ARGUMENT …]'


def main(argv: list[str]) -> int:
    """Run the script or module that ``argv`` names; its exceptions, including `SystemExit`, reach the caller."""
    if argv[:1] == ['--as-mmcv'] and len(argv) > 1:
        try:
            report_version(argv[1])
        except ValueError as error:
            print(f'error: --as-mmcv {error}', file=sys.stderr)
            return 2
        argv = argv[2:]
    as_module = argv[:1] == ['-m']
    arguments = argv[1:] if as_module else argv
    if not arguments or arguments[0].startswith('-'):
        asked = argv in (['-h'], ['--help'])
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    target = arguments[0]
    sys.argv = list(arguments)
    if as_module:
        install()
        with explained_version():
            runpy.run_module(target, run_name='__main__', alter_sys=True)
        return 0
    if not os.path.exists(target):
        print(f'error: there is no script {target}; a module needs -m before its name', file=sys.stderr)
        return 2
    if not getattr(sys.flags, 'safe_path', False):  # Python 3.11
        sys.path[0] = os.path.dirname(os.path.realpath(target))
    install()
    with explained_version():
        runpy.run_path(target, run_name='__main__')
    return 0


@contextmanager
def explained_version() -> Iterator[None]:
    """Name the way out where a package refuses the version of MMCV that is reported, as most do by an assertion."""
    try:
        yield
    except (AssertionError, ImportError, RuntimeError) as error:
        version = sys.modules['mmcv'].__version__
        if version in str(error) and 'mmcv' in str(error).lower():
            print(
                f'error: this code refuses MMCV {version}, which runnerkit reports. Name the version that it wants: '
                'python -m runnerkit.compat --as-mmcv VERSION …',
                file=sys.stderr,
            )
        raise


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
