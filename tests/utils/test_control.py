"""Commands go through a socket of the owner's: who may, what is answered, and what a killed process leaves."""

import json
import os
import socket
import stat
import tempfile
import threading

import pytest

from runnerkit.utils import control
from runnerkit.utils.control import ADDRESS, SOCKET, ControlError, ControlServer, ask, read_address


def answer(command):
    if command == 'fail':
        raise ValueError('it failed')
    return {'command': command}


@pytest.fixture
def server(tmp_path):
    server = ControlServer(tmp_path, answer)
    yield server
    server.close()


def test_a_command_is_answered_and_only_the_owner_can_open_the_socket(server, tmp_path):
    assert ask(tmp_path, 'status', timeout=300) == {'command': 'status'}
    with pytest.raises(ControlError, match='it failed'):
        ask(tmp_path, 'fail')
    for name in (SOCKET, ADDRESS):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
    server.close()
    assert os.listdir(tmp_path) == []
    with pytest.raises(ControlError, match='no run can be controlled'):
        ask(tmp_path, 'status')


@pytest.mark.parametrize('name', ['other.sock', 'control.sock'])
def test_a_folder_cannot_name_the_socket_of_somebody_else(tmp_path, name):
    (tmp_path / 'run').mkdir()
    address = {'socket': str(tmp_path / name), 'host': socket.gethostname()}
    (tmp_path / 'run' / ADDRESS).write_text(json.dumps(address))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / name))
        other.listen()
        other.setblocking(False)
        with pytest.raises(ControlError, match='no run answers'):
            ask(tmp_path / 'run', 'stop')
        with pytest.raises(BlockingIOError):
            other.accept()


def test_the_folder_may_be_named_in_any_way(server, tmp_path, monkeypatch):
    (tmp_path / 'link').symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for folder in ('.', 'link', tmp_path / 'link' / '..' / tmp_path.name):
        assert ask(folder, 'status') == {'command': 'status'}


@pytest.mark.parametrize('line', [b'not json\n', b'[1]\n', b'{"command": 3}\n', b'x' * 4000, b'[' * 4000, b''])
def test_nonsense_harms_nobody(server, tmp_path, line):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(server.socket)
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        said = connection.makefile('rb').read()
    assert not line or json.loads(said)['ok'] is False
    assert ask(tmp_path, 'status')['command'] == 'status'


def test_a_client_that_says_nothing_keeps_nobody_waiting(server, tmp_path):
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(server.socket)
        assert ask(tmp_path, 'status', timeout=300)['command'] == 'status'


def test_too_long_a_path_is_replaced_by_one_in_a_folder_of_its_own(tmp_path):
    folder = tmp_path / ('long' * 30)
    folder.mkdir()
    server = ControlServer(folder, answer)
    try:
        assert not server.socket.startswith(str(tmp_path))
        assert stat.S_IMODE(os.stat(os.path.dirname(server.socket)).st_mode) == 0o700
        assert ask(folder, 'status')['command'] == 'status'
    finally:
        place = os.path.dirname(server.socket)
        server.close()
    assert not os.path.exists(place)


def dead_process(folder):
    """What a killed process leaves in ``folder``: a socket that nobody listens to, and its address."""
    pid = os.fork()
    if pid == 0:
        server = ControlServer(folder, answer)
        os._exit(0 if server.socket else 1)
    assert os.waitpid(pid, 0)[1] == 0
    return read_address(folder)['socket']


@pytest.mark.parametrize('name', ['short', 'long' * 30])
def test_what_a_killed_process_has_left_is_told_and_replaced(tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    stale = dead_process(folder)
    with pytest.raises(ControlError, match='has ended or was killed'):
        ask(folder, 'status')
    server = ControlServer(folder, answer)
    try:
        assert ask(folder, 'status')['command'] == 'status'
        assert server.socket == stale or not os.path.exists(os.path.dirname(stale))
    finally:
        server.close()


@pytest.mark.parametrize('name', ['notes.txt', SOCKET, f'link/{SOCKET}', f'runnerkit-control-1/{SOCKET}'])
def test_only_sockets_of_runs_are_deleted(tmp_path, name):
    """The work dir may be somebody else's, and its control.json may name anything."""
    folder, path = tmp_path / 'run', tmp_path / name
    folder.mkdir()
    path.parent.mkdir(exist_ok=True)
    path.write_text('mine')
    (folder / ADDRESS).write_text(json.dumps({'socket': str(path), 'pid': 1, 'host': socket.gethostname()}))
    ControlServer(folder, answer).close()
    with socket.socket(socket.AF_UNIX) as stale:
        if name.startswith('link'):
            path.unlink()
            stale.bind(str(path))  # a socket of another program's
    (folder / ADDRESS).write_text(json.dumps({'socket': str(path), 'pid': 1, 'host': socket.gethostname()}))
    ControlServer(folder, answer).close()
    assert path.exists()


@pytest.mark.parametrize('content', [{'socket': 3}, {'socket': f'\0/runnerkit-control-1/{SOCKET}'}, [], {}])
def test_what_is_no_address_is_replaced(tmp_path, content):
    (tmp_path / ADDRESS).write_text(json.dumps(content))
    server = ControlServer(tmp_path, answer)
    assert ask(tmp_path, 'status')['command'] == 'status'
    server.close()


def test_a_place_that_is_taken_or_too_long_is_told(tmp_path, monkeypatch):
    (tmp_path / SOCKET).write_text('mine')
    with pytest.raises(ControlError, match=r'control\.sock is there, and is no socket that a run has left'):
        ControlServer(tmp_path, answer)
    assert os.listdir(tmp_path) == [SOCKET]
    folder = tmp_path / ('long' * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, 'tempdir', str(folder))
    with pytest.raises(ControlError, match='choose a shorter work dir, or a shorter TMPDIR'):
        ControlServer(folder, answer)
    assert os.listdir(folder) == []


def test_a_fork_that_outlives_a_killed_process_does_not_answer_for_it(tmp_path):
    """As workers of a data loader do, for some seconds."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        ControlServer(tmp_path, answer)
        forked, forks = os.pipe()
        if os.fork() == 0:
            os.write(forks, b'.')
            os.read(reading, 1)  # until the test is over
        else:
            os.read(forked, 1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    server = ControlServer(tmp_path, answer)
    assert ask(tmp_path, 'status', timeout=300)['command'] == 'status'
    server.close()
    os.close(writing)


def test_a_living_process_is_not_replaced(server, tmp_path):
    with pytest.raises(ControlError, match='another run is using this work dir'):
        ControlServer(tmp_path, answer)
    assert ask(tmp_path, 'status')['command'] == 'status'


def ask_as(uid, path):
    """What another user is answered who can reach the socket, and None if they cannot open it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setuid(uid)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                connection.sendall(b'{"command": "stop"}\n')
                os.write(writing, connection.makefile('rb').readline())
            code = 0
        except PermissionError:
            code = 13
        finally:
            os._exit(code)
    os.close(writing)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with os.fdopen(reading, 'rb') as file:
        said = file.read()
    assert code in (0, 13)
    return json.loads(said) if code == 0 else None


@pytest.mark.skipif(not hasattr(os, 'geteuid') or os.geteuid() != 0, reason='only root can be another user')
def test_another_user_is_kept_out_by_the_mode_and_then_by_who_they_are(tmp_path):
    heard = []
    folder = tmp_path / ('long' * 30)  # the socket comes to a folder that can be opened up
    folder.mkdir()
    server = ControlServer(folder, lambda command: heard.append(command) or {})
    try:
        os.chmod(os.path.dirname(server.socket), 0o755)
        assert ask_as(65534, server.socket) is None
        os.chmod(server.socket, 0o666)
        assert ask_as(65534, server.socket) == {
            'ok': False,
            'error': 'only the user who runs this process may control it',
        }
        assert heard == []
        assert ask_as(0, server.socket)['ok'] is True
    finally:
        server.close()


def test_a_peer_of_another_user_is_refused(server, tmp_path, monkeypatch):
    monkeypatch.setattr(control, 'peer_uid', lambda connection: os.geteuid() + 12345)
    with pytest.raises(ControlError, match='only the user who runs this process'):
        ask(tmp_path, 'stop')
    monkeypatch.setattr(control, 'peer_uid', lambda connection: None)  # a system that does not say
    assert ask(tmp_path, 'stop')['command'] == 'stop'


def test_ask_says_what_is_wrong_with_the_folder(tmp_path, monkeypatch):
    with pytest.raises(ControlError, match='no such folder'):
        ask(tmp_path / 'nowhere', 'status')
    (tmp_path / ADDRESS).write_text('{"socket": "/nowhere", "pid": 3, "host": "elsewhere"}')
    with pytest.raises(ControlError, match='is on elsewhere'):
        ask(tmp_path, 'status')
    (tmp_path / ADDRESS).write_text(json.dumps({'socket': '/nowhere', 'pid': 3, 'host': socket.gethostname()}))
    (tmp_path / ADDRESS).write_text('garbage')
    with pytest.raises(ControlError, match='no run can be controlled'):
        ask(tmp_path, 'status')


def test_an_answer_that_json_does_not_have_comes_as_text(tmp_path):
    server = ControlServer(tmp_path, lambda command: {'offset': b'17-0'})
    try:
        assert ask(tmp_path, 'status', timeout=300) == {'offset': "b'17-0'"}
    finally:
        server.close()


@pytest.mark.parametrize('said', [b'', b'{"ok": tr'])
def test_a_process_that_dies_while_it_answers(tmp_path, said):
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind(str(tmp_path / SOCKET))
        dying.listen()
        address = {'socket': str(tmp_path / SOCKET), 'pid': 1, 'host': socket.gethostname()}
        (tmp_path / ADDRESS).write_text(json.dumps(address))

        def die():
            connection, _ = dying.accept()
            connection.recv(1000)  # what is left unread would end the connection in another way
            connection.sendall(said)
            connection.close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(ControlError, match='no run answers'):
            ask(tmp_path, 'status', timeout=300)
        thread.join()


def test_no_answer_in_time(tmp_path):
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / SOCKET))
        deaf.listen()
        address = {'socket': str(tmp_path / SOCKET), 'pid': 1, 'host': socket.gethostname()}
        (tmp_path / ADDRESS).write_text(json.dumps(address))
        with pytest.raises(ControlError, match='no answer to save in 0.05 seconds'):
            ask(tmp_path, 'save', timeout=0.05)
