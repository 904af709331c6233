"""Make each change of `mutants.txt` in a copy of the repository and run the tests that find it: ``make mutants``.

    .venv/bin/python tests/run_mutants.py [--jobs 2] [id …]

The copy is made of hard links, in which one file is replaced, so the working tree never changes. This process has
imported torch and pytest, and each run of tests is a fork of it. First all named tests run without a change: they have
to pass. Then each change meets its named test; if that passes, the rest of that file, and of the test file at the
mirrored path. A run that exceeds a time limit counts as killed. The exit code is 1 if a change survives.
"""

import argparse
import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
PARTS = ('runnerkit', 'tests', 'configs', 'tools', 'docs', 'benchmarks', 'requirements')  # what tests read
LIMIT = 60  # seconds a test may take
ARGUMENTS = ['-x', '-m', '', '-p', 'no:cacheprovider', '-p', 'no:xdist', '--timeout', str(LIMIT), '--tb', 'short']


def entries(file=ROOT / 'tests' / 'mutants.txt'):
    """The entries of the list: (id, behaviour, file, old text, new text, test)."""
    for line in Path(file).read_text(encoding='utf-8').splitlines():
        if not line.startswith('#'):
            name, behaviour, changed, old, new, test = line.split('\t')
            yield name, behaviour, changed, old.replace('\\n', '\n'), new.replace('\\n', '\n'), test


@contextlib.contextmanager
def copy_of_the_repository():
    """A folder with hard links to the files."""
    (ROOT / 'work_dirs').mkdir(exist_ok=True)  # of the same file system, and ignored by git
    # A TemporaryDirectory would also be deleted at the end of a fork that a test makes and that exits as programs do.
    copy = Path(tempfile.mkdtemp(dir=ROOT / 'work_dirs', prefix='mutant-'))
    try:
        for part in PARTS:
            shutil.copytree(ROOT / part, copy / part, copy_function=os.link, symlinks=True)
        for file in ROOT.iterdir():
            if file.is_file():
                os.link(file, copy / file.name)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


class FirstFailure:
    """A plugin of pytest that writes down the first test that fails."""

    def __init__(self, file):
        self.file = file

    def pytest_runtest_logreport(self, report):
        """Called after each part of a test."""
        if report.failed and not self.file.exists():
            crash = getattr(report.longrepr, 'reprcrash', None)
            message = ' '.join(str(crash.message if crash else report.longrepr).split())
            self.file.write_text(f'{report.nodeid} ({message[:100]})', encoding='utf-8')


def run_tests(copy, tests, limit):
    """Run ``tests`` in a fork that imports runnerkit from ``copy``.

    Returns:
        pytest's exit code (0: all pass, 1: one fails; above: something else is wrong) and the first test that failed.
    """
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        _in_the_fork(copy, tests)
    end = time.monotonic() + limit
    try:
        while not (status := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # also what the tests have left behind
    if not status[0]:
        os.waitpid(pid, 0)
        return 1, f'{limit} s are over'
    failed = copy / 'failed'
    return os.waitstatus_to_exitcode(status[1]), failed.read_text(encoding='utf-8') if failed.exists() else ''


def _in_the_fork(copy, tests):
    import pytest

    code = 70
    try:
        with open(copy / 'output', 'ab') as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        os.chdir(copy)
        os.environ['PYTHONPATH'] = str(copy)
        sys.path[:] = [str(copy), *(each for each in sys.path if not each or Path(each) not in (ROOT, ROOT / 'tests'))]
        import runnerkit

        if Path(runnerkit.__file__).is_relative_to(copy):
            code = int(pytest.main([*ARGUMENTS, *tests], plugins=[FirstFailure(copy / 'failed')]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def find(entry):
    """Make the change of ``entry`` and look for a test that fails: (id, whether one did, what to print)."""
    name, behaviour, file, old, new, test = entry
    begin = time.monotonic()
    with copy_of_the_repository() as copy:
        text = (copy / file).read_text(encoding='utf-8')
        (copy / file).unlink()  # a hard link: writing would change the working tree
        (copy / file).write_text(text.replace(old, new), encoding='utf-8')
        _, *rooms, module = file.split('/')
        files = [test.split('::')[0], '/'.join(['tests', *rooms, f'test_{module}'])]
        code, failed = run_tests(copy, [test], 2 * LIMIT)
        if code == 0:
            code, failed = run_tests(copy, [each for each in dict.fromkeys(files) if (copy / each).exists()], 600)
        why = failed if code == 1 else (copy / 'output').read_text(errors='replace')[-2000:]
    named = failed.startswith(test) or failed.endswith('over')
    result = {0: f'SURVIVED: {behaviour}', 1: 'killed' if named else f'killed by {why}'}.get(code, f'NOT RUN: {why}')
    return name, code == 1, f'{name:5} {time.monotonic() - begin:5.1f} s  {result}'


def unchanged(tests):
    """Run ``tests`` without a change; returns what failed."""
    with copy_of_the_repository() as copy:
        code, failed = run_tests(copy, tests, 3600)
        return failed or (code and (copy / 'output').read_text(errors='replace')[-2000:])


def main(arguments=None):
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('ids', nargs='*', help='only these entries')
    parser.add_argument('--list', default=ROOT / 'tests' / 'mutants.txt', help='another list of changes')
    parser.add_argument('--jobs', type=int, default=1, help='how many run at once')
    options = parser.parse_args(arguments)
    chosen = [entry for entry in entries(options.list) if not options.ids or entry[0] in options.ids]
    os.environ.update(OMP_NUM_THREADS='1')
    for module in ('torch', 'torch._dynamo', 'pytest', 'pytest_timeout', 'numpy', 'matplotlib.figure'):
        with contextlib.suppress(ImportError):
            __import__(module)
    assert 'runnerkit' not in sys.modules
    begin = time.monotonic()
    failed = unchanged(list(dict.fromkeys(entry[-1] for entry in chosen)))
    if failed:
        print(f'fails without any change: {failed}')
        return 1
    print(f'the named tests pass without a change ({time.monotonic() - begin:.0f} s)', flush=True)
    survivors = []
    # The processes of a `Pool` are daemons: tests that start processes would fail in them without any change.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context('fork')) as pool:
        for name, found, line in pool.map(find, chosen):
            print(line, flush=True)
            survivors += [] if found else [name]
    print(f'{len(chosen) - len(survivors)} of {len(chosen)} are killed, {time.monotonic() - begin:.0f} s')
    print(f'survivors: {" ".join(survivors) or "none"}')
    return bool(survivors)


if __name__ == '__main__':
    sys.exit(main())
