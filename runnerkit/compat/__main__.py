"""``python -m runnerkit.compat script.py …`` or ``-m module …``: run it with runnerkit instead of MMCV.

Also under torch's old launcher, ``python -m torch.distributed.launch … -m runnerkit.compat script.py …``, which puts
``--local-rank=N`` before the script.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from runnerkit.compat import install
from runnerkit.compat.mmcv import mmcv_version
from runnerkit.compat.mmcv.mmcv_version import report_version

_LOCAL_RANK = re.compile(r'--local[-_]rank(?:=(\d+))?')

USAGE = 'usage: python -m runnerkit.compat [--as-mmcv VERSION] [-m] SCRIPT [ARGUMENT …]'


def main(argv: list[str]) -> int:
    """Run the script or module that ``argv`` names; its exceptions, including `SystemExit`, reach the caller."""
    rank, argv = _without_local_rank(argv)
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
    if rank is not None:
        os.environ.setdefault('LOCAL_RANK', rank)
    if as_module:
        install()
        sys.argv[1:1] = _local_rank_for(_file_of(target), rank)
        with explained_version():
            runpy.run_module(target, run_name='__main__', alter_sys=True)
        return 0
    if not os.path.exists(target):
        print(f'error: there is no script {target}; a module needs -m before its name', file=sys.stderr)
        return 2
    if not getattr(sys.flags, 'safe_path', False):  # Python 3.11
        sys.path[0] = os.path.dirname(os.path.realpath(target))
    install()
    sys.argv[1:1] = _local_rank_for(target, rank)
    with explained_version():
        runpy.run_path(target, run_name='__main__')
    return 0


@contextmanager
def explained_version() -> Iterator[None]:
    """Name the way out where a package refuses the version of MMCV that is reported, as most do by an assertion."""
    try:
        yield
    except (AssertionError, ImportError, RuntimeError) as error:
        version = mmcv_version.__version__
        if version in str(error) and 'mmcv' in str(error).lower():
            print(
                f'error: this code refuses MMCV {version}, which runnerkit reports. Name the version that it wants: '
                'python -m runnerkit.compat --as-mmcv VERSION …',
                file=sys.stderr,
            )
        raise


def _without_local_rank(argv: list[str]) -> tuple[str | None, list[str]]:
    """The number that torch's old launcher puts first, if it does, and the other arguments."""
    found = _LOCAL_RANK.fullmatch(argv[0]) if argv else None
    if found is None:
        return None, argv
    return (found[1], argv[1:]) if found[1] else (''.join(argv[1:2]) or None, argv[2:])


def _file_of(module: str) -> str | None:
    """The file that ``python -m module`` runs."""
    try:
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(f'{module}.__main__')
    except ModuleNotFoundError:
        return None  # which `runpy` reports
    return None if spec is None else spec.origin


def _local_rank_for(file: str | None, rank: str | None) -> list[str]:
    """The number as the script expects it: scripts of MMCV's time have ``--local_rank``, later ones also the other one.

    One that names neither finds it in ``LOCAL_RANK``.
    """
    if rank is None or file is None:
        return []
    flags = {found[0] for found in _LOCAL_RANK.finditer(Path(file).read_text(encoding='utf-8', errors='replace'))}
    return [f'{flag}={rank}' for flag in ('--local-rank', '--local_rank') if flag in flags][:1]


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
