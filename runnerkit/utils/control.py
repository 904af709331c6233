"""A way to talk to a running process: a Unix socket for its owner and, if asked for, a TCP address for the network.

Messages are JSON, sent as bytes by `multiprocessing.connection`; nothing is pickled. A request is
``{"command": "save"}``, the answer ``{"ok": true, …}`` or ``{"ok": false, "error": "…"}``. Before, both sides prove
that they have the same key: for the socket it is in ``control.json`` of the folder, which only its owner can read, for
the network in a file of the user's. Nothing is encrypted.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.small_files import read_json
from runnerkit.utils.suggest import did_you_mean

#: The commands, and what they do.
COMMANDS = {
    'status': 'show the state of the run',
    'start': 'begin a run that waits for it',
    'pause': 'wait after the running iteration',
    'resume': 'continue after a pause',
    'save': 'save a checkpoint after the running iteration',
    'stop': 'end the run after the running iteration',
}

#: The file that says where to connect.
ADDRESS = 'control.json'

_LONGEST = 4096  # bytes of a request
_LONGEST_ANSWER = 2**20
_SHORTEST_KEY = 16
_PATIENCE = 10.0  # seconds for the keys and the request
_MOST = 64  # clients of a listener at a time; others wait
_LONGEST_FOLDER = 60  # characters before the name of the socket, whose path may have 107

#: What a connection raises whose other end has gone, has another key, or says what it should not (the last one before
#: Python 3.12).
_BROKEN = (AuthenticationError, EOFError, OSError, AssertionError, ValueError)

#: Answers a command; its errors are sent to the client.
Answer = Callable[[str], dict[str, Any]]


class ControlError(RuntimeError):
    """A command that cannot be given or obeyed; the message says why."""


def check_command(command: str) -> None:
    """Refuse what is no command."""
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise WrongValue(f'unknown command {command!r} ({", ".join(COMMANDS)}); {hint}'.rstrip('; '))


class ControlServer:
    """Answers commands in background threads, until `close`.

    The socket is in a new folder of the system's temporary one; ``control.json`` in ``folder`` names it.

    Args:
        folder: an existing folder.
        answer: called in the thread of each client.
        address: where to answer the network as well: ``'host:port'``.
        key_file: the file with the key for it; see `read_key`.

    Raises:
        ControlError: the key file is not safe.
        OSError: the socket, ``control.json`` or the address cannot be opened.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        answer: Answer,
        address: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._path, self._answer = Path(folder).absolute() / ADDRESS, answer
        self._listeners: list[tuple[socket.socket, threading.Thread]] = []
        network_key = None if key_file is None else read_key(key_file)
        is_short = len(tempfile.gettempdir()) < _LONGEST_FOLDER
        self._folder = tempfile.mkdtemp(prefix='runnerkit-control-', dir=None if is_short else '/tmp')
        path, key = os.path.join(self._folder, 'control.sock'), secrets.token_hex(32)
        self._address = {'socket': path, 'pid': os.getpid(), 'host': socket.gethostname(), 'key': key}
        try:
            server = socket.socket(socket.AF_UNIX)
            server.bind(path)
            server.listen()
            self._listen(server, key.encode())
            if address is not None and network_key is not None:
                self._listen(socket.create_server(host_and_port(address)), network_key)
            temporary = self._path.with_name(f'.{ADDRESS}.{os.getpid()}')
            temporary.unlink(missing_ok=True)
            with open(temporary, 'x', encoding='utf-8', opener=partial(os.open, mode=0o600)) as file:
                json.dump(self._address, file)
            os.replace(temporary, self._path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Answer no more, and delete the socket and ``control.json``."""
        for server, thread in self._listeners:
            _open_servers.discard(server)
            server.close()
            thread.join()  # else the address is in use until it has looked
        if read_address(self._path.parent) == self._address:
            with suppress(OSError):
                self._path.unlink()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self, server: socket.socket, key: bytes) -> None:
        server.settimeout(0.1)
        _open_servers.add(server)
        thread = threading.Thread(target=self._accept, args=(server, key), name='runnerkit-control', daemon=True)
        self._listeners.append((server, thread))
        thread.start()

    def _accept(self, server: socket.socket, key: bytes) -> None:
        places = threading.Semaphore(_MOST)  # of each listener, so that the network takes none of this machine's
        while server.fileno() >= 0:
            if not places.acquire(timeout=0.1):
                continue
            try:
                peer, _ = server.accept()
            except OSError:  # no client came, it has gone at once, or the listener is closed
                places.release()
                continue
            threading.Thread(target=self._serve, args=(peer, key, places), name='runnerkit-client', daemon=True).start()

    def _serve(self, peer: socket.socket, key: bytes, places: threading.Semaphore) -> None:
        """Answer one client, in a separate thread; one without the key is hung up on."""
        try:
            with suppress(*_BROKEN), _connection(peer) as connection:
                with _time_limit(peer, _PATIENCE):
                    deliver_challenge(connection, key)
                    answer_challenge(connection, key)
                    request = connection.recv_bytes(_LONGEST)
                connection.send_bytes(_obey(self._answer, request))
        finally:
            places.release()


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The key in a file that only its owner can read."""
    try:
        opened = open(os.path.expanduser(path), 'rb')  # noqa: SIM115
    except OSError as error:
        raise ControlError(f'the key file {os.fspath(path)} cannot be read: {error.strerror}') from None
    with opened as file:
        state = os.fstat(file.fileno())
        if stat.S_IMODE(state.st_mode) & 0o077 or state.st_uid != os.geteuid():
            raise ControlError(f'the key file {os.fspath(path)} must belong to you alone: chmod 600 {os.fspath(path)}')
        key = file.read(4096).strip()
    if len(key) < _SHORTEST_KEY:
        raise ControlError(
            f'the key file {os.fspath(path)} must hold at least {_SHORTEST_KEY} characters: '
            f'(umask 077; openssl rand -hex 32 > {os.fspath(path)})'
        )
    return key


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``host:port``."""
    host, _, port = address.rpartition(':')
    if not host or not port.isdecimal() or int(port) > 65535:
        raise WrongValue(f"the address must be 'host:port', such as '0.0.0.0:7008', but got {address!r}")
    return host, int(port)


def read_address(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``control.json`` in ``folder`` says; empty if there is none, or it is none of ours."""
    try:
        content = read_json(Path(folder) / ADDRESS)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def ask(
    place: str | os.PathLike[str],
    command: str,
    timeout: float | None = None,
    key_file: str | os.PathLike[str] | None = None,
) -> Any:
    """Give a command to another process, and return its answer."""
    named = os.fspath(place)
    if key_file is None:
        address = _local_address(named)
        to, key = address['socket'], str(address.get('key')).encode()
    else:
        to, key = host_and_port(named), read_key(key_file)
    try:
        with socket.socket(socket.AF_UNIX if key_file is None else socket.AF_INET) as peer:
            peer.settimeout(_PATIENCE)
            peer.connect(to)
            peer.settimeout(None)
            with _connection(peer) as connection:
                with _time_limit(peer, _PATIENCE if timeout is None else min(timeout, _PATIENCE)):
                    answer_challenge(connection, key)
                    deliver_challenge(connection, key)
                connection.send_bytes(json.dumps({'command': command}).encode())
                if not connection.poll(timeout):
                    raise TimeoutError
                answer = dict(json.loads(connection.recv_bytes(_LONGEST_ANSWER)))
    except TimeoutError:
        raise ControlError(
            f'no answer to {command} in {_PATIENCE if timeout is None else timeout:g} seconds. The run obeys it at the '
            'end of its running iteration'
        ) from None
    except AuthenticationError:
        raise ControlError(f'the run at {named} has another key') from None
    except (*_BROKEN, RecursionError, TypeError, ValueError) as error:
        why = 'check address and network' if key_file else 'it has ended or was killed. Continue it with --auto-resume'
        raise ControlError(f'no run answers at {named} ({error or "it has hung up"}): {why}') from None
    if not answer.pop('ok', False):
        raise ControlError(str(answer.get('error')))
    return answer


def _local_address(folder: str) -> dict[str, Any]:
    """As `read_address`, of a process on this machine."""
    if not os.path.isdir(folder):
        raise ControlError(f'no such folder: {folder}; give the work dir of a run, or an address with --key-file')
    address = read_address(folder)
    if not isinstance(address.get('socket'), str):
        raise ControlError(
            f'no run can be controlled in {folder}: it has ended, it belongs to another user, or its config lacks the '
            "hook (custom_hooks=[dict(type='ControlHook')])"
        )
    if (host := address.get('host')) != socket.gethostname():
        raise ControlError(
            f'the run in {folder} is on {host}, and a socket does not reach there: give the command there, or give the '
            'hook an address and a key_file'
        )
    return address


@contextmanager
def _connection(peer: socket.socket) -> Iterator[Connection]:
    with closing(peer), Connection(os.dup(peer.fileno())) as connection:
        yield connection


@contextmanager
def _time_limit(peer: socket.socket, seconds: float) -> Iterator[None]:
    """Hang up if this takes longer."""
    over = threading.Event()

    def hang_up() -> None:
        over.set()
        with suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (EOFError, OSError):
        if over.is_set():
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def _obey(answer: Answer, request: bytes) -> bytes:
    """The answer to a request. What JSON does not have (an offset of a source's own) is sent as text."""
    content: dict[str, Any]
    try:
        content = {'ok': True, **answer(str(json.loads(request)['command']))}
    except Exception as error:
        content = {'ok': False, 'error': str(error) or repr(error)}
    return json.dumps(content, default=str).encode()


#: Those of this process.
_open_servers: set[socket.socket] = set()


def _close_inherited_sockets() -> None:
    """In a forked process: close the inherited sockets. Loader workers that outlive a killed run must not seem to
    answer in its place."""
    for server in _open_servers:
        server.close()
    _open_servers.clear()


os.register_at_fork(after_in_child=_close_inherited_sockets)
