"""Commands go through a socket of the owner's, or the network: who may, what is answered, what a killed run leaves."""

import contextlib
import json
import os
import socket
import stat
import tempfile
import threading
import time
from multiprocessing.connection import Client, answer_challenge

import pytest
from support import free_port

from runnerkit.utils import control
from runnerkit.utils.control import ADDRESS, COMMANDS, ControlError, ControlServer, ask, check_command, read_address

KEY = b'a key of this test'


def answer(command):
    if command == 'fail':
        raise ValueError('it failed')
    return {'command': command}


@pytest.fixture
def server(tmp_path):
    server = ControlServer(tmp_path, answer)
    yield server
    server.close()


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / 'key'
    path.touch(0o600)
    path.write_bytes(KEY + b'\n')
    return path


@pytest.fixture
def network(tmp_path, key_file):
    """The address of a server that answers the network."""
    (tmp_path / 'networked').mkdir()
    address = f'127.0.0.1:{free_port()}'
    server = ControlServer(tmp_path / 'networked', answer, address, key_file)
    yield address
    server.close()


def test_a_command_is_answered_and_only_the_owner_can_open_the_socket(server, tmp_path):
    assert ask(tmp_path, 'status', timeout=300) == {'command': 'status'}
    with pytest.raises(ControlError, match='it failed'):
        ask(tmp_path, 'fail')
    assert stat.S_IMODE(os.stat(tmp_path / ADDRESS).st_mode) == 0o600
    place = server._folder
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
    server.close()
    assert os.listdir(tmp_path) == []
    assert not os.path.exists(place)
    with pytest.raises(ControlError, match='no run can be controlled'):
        ask(tmp_path, 'status')


def test_a_command_by_network(network, key_file, tmp_path):
    assert ask(network, 'status', key_file=key_file) == {'command': 'status'}
    assert ask(tmp_path / 'networked', 'status') == {'command': 'status'}  # the socket is there as well
    key_file.write_bytes(b'another key of this test')
    with pytest.raises(ControlError, match='has another key'):
        ask(network, 'stop', key_file=key_file)
    with pytest.raises(ControlError, match='cannot be read'):
        ask(network, 'stop', key_file=key_file.with_name('none'))
    with pytest.raises(ControlError, match='check address and network'):
        ask(f'127.0.0.1:{free_port()}', 'stop', key_file=key_file)


@pytest.mark.parametrize(
    ('content', 'mode', 'text'),
    [(KEY, 0o640, 'chmod 600'), (KEY, 0o604, 'chmod 600'), (b'short', 0o600, 'at least 16')],
)
def test_a_key_file_that_is_not_safe(tmp_path, content, mode, text):
    path = tmp_path / 'key'
    path.write_bytes(content)
    path.chmod(mode)
    (tmp_path / 'run').mkdir()
    for call in (
        lambda: ControlServer(tmp_path / 'run', answer, '127.0.0.1:0', path),
        lambda: ask('127.0.0.1:1', 'status', key_file=path),
    ):
        with pytest.raises(ControlError, match=text):
            call()
    assert os.listdir(tmp_path / 'run') == []


def test_the_socket_of_another_run_has_another_key(server, tmp_path):
    address = read_address(tmp_path)
    (tmp_path / ADDRESS).write_text(json.dumps({**address, 'key': 'wrong'}))
    with pytest.raises(ControlError, match='has another key'):
        ask(tmp_path, 'stop')


def test_the_folder_may_be_named_in_any_way(server, tmp_path, monkeypatch):
    (tmp_path / 'link').symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for folder in ('.', 'link', tmp_path / 'link' / '..' / tmp_path.name):
        assert ask(folder, 'status') == {'command': 'status'}


@pytest.mark.parametrize('message', [b'not json', b'[1]', b'{"run": 3}', b'[' * 4000, b'x' * 5000])
def test_nonsense_harms_nobody(server, tmp_path, message):
    with Client(server._address['socket'], authkey=read_address(tmp_path)['key'].encode()) as connection:
        connection.send_bytes(message)
        if len(message) < 5000:
            assert json.loads(connection.recv_bytes())['ok'] is False
        else:
            with pytest.raises((EOFError, ConnectionResetError)):
                connection.recv_bytes()
    assert ask(tmp_path, 'status')['command'] == 'status'


@pytest.mark.parametrize('said', [b'', b'\0', b'GET / HTTP/1.1\r\n\r\n', b'\x7f\xff\xff\xff', b'\0\0\0\4nope'])
def test_a_stranger_is_hung_up_on_and_keeps_nobody_waiting(network, key_file, monkeypatch, said):
    """One that says nothing, or half of a message, for so long."""
    (stranger,) = connected(network, 1, monkeypatch)
    with stranger:
        stranger.sendall(said)
        assert ask(network, 'status', key_file=key_file)['command'] == 'status'
        reply = b''
        with contextlib.suppress(ConnectionResetError):
            while part := stranger.recv(1000):
                reply += part
    assert b'WELCOME' not in reply


def test_many_strangers_delay_others_only_for_a_while(network, key_file, monkeypatch):
    strangers = connected(network, control._MOST, monkeypatch)
    assert ask(network, 'status', key_file=key_file)['command'] == 'status'
    for stranger in strangers:
        stranger.close()


def connected(network, count, monkeypatch):
    """So many strangers that are listened to for half a second; other clients have all the time that they need."""
    monkeypatch.setattr(control, '_PATIENCE', 0.5)
    strangers = [socket.create_connection(network.split(':'), timeout=100) for _ in range(count)]
    for stranger in strangers:
        assert b'CHALLENGE' in stranger.recv(1000)
    monkeypatch.setattr(control, '_PATIENCE', 100.0)
    return strangers


def test_what_a_message_holds_is_never_unpickled(server, tmp_path):
    with Client(server._address['socket'], authkey=read_address(tmp_path)['key'].encode()) as connection:
        connection.send(Trap())
        assert json.loads(connection.recv_bytes())['ok'] is False
    assert not Trap.sprung


class Trap:
    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True


def test_what_a_killed_process_has_left_is_told_and_replaced(tmp_path):
    pid = os.fork()
    if pid == 0:
        try:
            ControlServer(tmp_path, answer)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert read_address(tmp_path)['pid'] == pid
    with pytest.raises(ControlError, match='it has ended or was killed'):
        ask(tmp_path, 'status')
    server = ControlServer(tmp_path, answer)
    assert ask(tmp_path, 'status')['command'] == 'status'
    server.close()


@pytest.mark.parametrize('content', [{'socket': 3}, {'socket': '\0/runnerkit-control-1/control.sock'}, [], {}])
def test_what_is_no_address_is_replaced(tmp_path, content):
    (tmp_path / ADDRESS).write_text(json.dumps(content))
    server = ControlServer(tmp_path, answer)
    assert ask(tmp_path, 'status')['command'] == 'status'
    server.close()


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


def test_the_later_of_two_runs_in_a_folder_is_commanded(server, tmp_path):
    later = ControlServer(tmp_path, lambda command: {'later': command})
    assert ask(tmp_path, 'status') == {'later': 'status'}
    server.close()
    assert ask(tmp_path, 'status') == {'later': 'status'}
    later.close()
    assert os.listdir(tmp_path) == []


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


@pytest.fixture
def other(tmp_path, monkeypatch):
    """A socket of a run that does what a test wants."""
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))
    place = tempfile.mkdtemp()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f'{place}/control.sock')
        server.listen()
        address = {'socket': f'{place}/control.sock', 'pid': 1, 'host': socket.gethostname(), 'key': 'k'}
        (tmp_path / ADDRESS).write_text(json.dumps(address))
        yield server


@pytest.mark.parametrize('dies', ['at once', 'with half an answer'])
def test_a_process_that_dies_while_it_answers(other, tmp_path, dies):
    def die():
        peer, _ = other.accept()
        with control._connection(peer) as connection:
            if dies != 'at once':
                control.deliver_challenge(connection, b'k')
                answer_challenge(connection, b'k')
                connection.recv_bytes()
                peer.sendall(b'\0\0\0\x0c{"ok": tr')

    thread = threading.Thread(target=die)
    thread.start()
    with pytest.raises(ControlError, match='no run answers'):
        ask(tmp_path, 'status', timeout=300)
    thread.join()


def test_no_answer_in_time(other, server_that_is_slow, tmp_path):
    with pytest.raises(ControlError, match='no answer to save in 0.05 seconds'):
        ask(tmp_path, 'save', timeout=0.05)  # nobody accepts
    with pytest.raises(ControlError, match='no answer to save in 0.3 seconds'):
        ask(server_that_is_slow, 'save', timeout=0.3)


@pytest.fixture
def server_that_is_slow(tmp_path):
    (tmp_path / 'slow').mkdir()
    server = ControlServer(tmp_path / 'slow', lambda command: time.sleep(5) or {})
    yield tmp_path / 'slow'
    server.close()


def test_a_closed_address_is_free_at_once(tmp_path, key_file):
    address = f'127.0.0.1:{free_port()}'
    for _ in range(3):
        ControlServer(tmp_path, answer, address, key_file).close()


def test_a_long_temporary_folder_is_not_used(tmp_path, monkeypatch):
    long = tmp_path / ('x' * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, 'tempdir', str(long))
    server = ControlServer(tmp_path, answer)
    try:
        assert ask(tmp_path, 'status') == {'command': 'status'}
    finally:
        server.close()


def test_right_and_wrong_commands():
    for command in COMMANDS:
        check_command(command)
    with pytest.raises(ValueError, match=r"unknown command 'paus' \(status, .*, stop\); did you mean 'pause'"):
        check_command('paus')
