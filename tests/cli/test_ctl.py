"""``runnerkit ctl`` gives a command to another process and prints its answer."""

import json
import subprocess
import sys

import pytest
from support import free_port

from runnerkit.cli.main import main
from runnerkit.utils.control import ControlServer


def answer(command):
    if command == 'save':
        raise RuntimeError('the disk is full')
    return {'did': command}


@pytest.fixture
def work_dir(tmp_path):
    server = ControlServer(tmp_path, answer)
    yield str(tmp_path)
    server.close()


def test_the_answer_is_printed_as_json(work_dir, capsys):
    assert main(['ctl', work_dir, 'status']) == 0
    assert json.loads(capsys.readouterr().out) == {'did': 'status'}
    assert main(['ctl', work_dir, 'pause', '--timeout', '5']) == 0
    assert json.loads(capsys.readouterr().out) == {'did': 'pause'}


def test_by_network(tmp_path, capsys):
    key, address = tmp_path / 'key', f'127.0.0.1:{free_port()}'
    key.touch(0o600)
    key.write_text('0123456789abcdef')
    server = ControlServer(tmp_path, answer, address, key)
    try:
        assert main(['ctl', address, 'stop', '--key-file', str(key)]) == 0
    finally:
        server.close()
    assert json.loads(capsys.readouterr().out) == {'did': 'stop'}


def test_a_command_that_fails_is_told(work_dir, capsys):
    assert main(['ctl', work_dir, 'save']) == 1
    assert capsys.readouterr().err == 'error: the disk is full\n'


@pytest.mark.parametrize(
    ('words', 'told'),
    [
        (['pause', '3'], 'unrecognized arguments: 3'),
        (['status', '--timeout', '0'], "'0'"),
        (['paus'], "; did you mean 'pause'"),
        (['status', '--key-file', 'key'], "the address must be 'host:port'"),
    ],
)
def test_wrong_usage(tmp_path, words, told, capsys):
    try:
        code = main(['ctl', str(tmp_path), *words])  # whether there is a run or not
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    assert told in capsys.readouterr().err


def test_no_torch_is_imported(tmp_path):
    code = (
        'import sys; from runnerkit.cli.main import main; '
        f"assert main(['ctl', {str(tmp_path)!r}, 'status']) == 1; assert 'torch' not in sys.modules"
    )
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    assert 'no run can be controlled' in ended.stderr
