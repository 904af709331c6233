"""What forks that stand for Python programs do as programs do."""

import os
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, os, sys
atexit.register(lambda: print('the end'))
print(__name__, sys.argv, os.getcwd(), os.environ.get('ONE'), sys.stdin.read(), flush=True)
print('aside', file=sys.stderr)
exec(sys.argv[1])
"""


@pytest.mark.parametrize(
    ('code', 'ends'),
    [
        ('', 0),
        ('sys.exit(7)', 7),
        ('sys.exit("no")', 1),
        ('1 / 0', 1),
        ('os.kill(os.getpid(), 9)', -signal.SIGKILL),
        ('raise KeyboardInterrupt', -signal.SIGINT),
    ],
)
@pytest.mark.parametrize('words', [['program.py'], ['-m', 'program']])
def test_a_fork_ends_as_a_program(words, code, ends, tmp_path, warm):
    (tmp_path / 'program.py').write_text(PROGRAM)
    options = dict(cwd=tmp_path, env={'ONE': '1', 'PYTHONPATH': ''}, input='hello', text=True, capture_output=True)
    done = subprocess.run([sys.executable, *words, code], **options)
    assert done.returncode == ends
    first, *rest = done.stdout.splitlines()
    name = 'program.py' if words == ['program.py'] else str(tmp_path / 'program.py')
    assert first == f'__main__ {[name, code]} {tmp_path} 1 hello'
    assert rest == (['the end'] if ends >= 0 else rest)
    assert done.stderr.startswith('aside\n')
    assert ('ZeroDivisionError' in done.stderr) == ('/' in code)
    assert os.environ.get('ONE') is None


def test_a_fork_has_the_files_that_it_is_given_alone(tmp_path, warm):
    reads, writes = os.pipe()
    other, _ = os.pipe()
    (tmp_path / 'program.py').write_text(
        'import os, sys\nos.write(int(sys.argv[1]), b"here")\nos.fstat(int(sys.argv[2]))'
    )
    command = [sys.executable, str(tmp_path / 'program.py'), str(writes), str(other)]
    process = subprocess.Popen(command, pass_fds=[writes], start_new_session=True, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    assert b'here' == os.read(reads, 100)
    assert os.read(reads, 1) == b''  # nobody else holds the other end
    assert 'Bad file descriptor' in process.communicate()[1]
    assert process.returncode == 1
