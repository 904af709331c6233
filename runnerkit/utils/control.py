"""A way to talk to a running process: a Unix socket that only its owner can open, and HTTP on loopback if wanted.

A request is one line of JSON, ``{"command": "lr", "value": "0.01"}``, and so is the answer, ``{"ok": true, …}`` or
``{"ok": false, "error": "…"}``. Where to connect is in the file ``control.json`` of the folder.
"""

from __future__ import annotations

import errno
import hmac
import json
import os
import secrets
import shutil
import socket
import socketserver
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from runnerkit.utils.small_files import read_json

#: The file that says where to connect, and the socket in the same folder.
ADDRESS, SOCKET = 'control.json', 'control.sock'

#: How the folder of a socket begins that has no place in the work dir.
_PREFIX = 'runnerkit-control-'

_LONGEST = 4096  # bytes of a request
_PATIENCE = 10.0  # seconds for a request to come in whole

#: Answers a command and its value (None if it has none); its errors are sent to the client.
Answer = Callable[[str, Any], dict[str, Any]]


class ControlError(RuntimeError):
    """A command that cannot be given or obeyed; the message says why."""


class ControlServer:
    """Answers commands in background threads, until `close`.

    The socket is ``control.sock`` in the folder. Where that path is too long (about 107 bytes), or the file system has
    no sockets, it is in a new folder of the system's temporary one. It can be opened by its owner alone; besides, a
    peer of another user is refused where the system says who it is (Linux). Files that a killed process has left are
    replaced.

    Args:
        folder: an existing folder.
        answer: called in the thread of each connection.
        http: also answer HTTP requests on 127.0.0.1, on this port; 0 lets the system choose one. None: no HTTP. The
            token that they need is in ``control.json``.

    Raises:
        ControlError: another process answers in this folder, or this system has no Unix sockets.
        OSError: the socket, the port or ``control.json`` cannot be opened.
    """

    def __init__(self, folder: str | os.PathLike[str], answer: Answer, http: int | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.token = secrets.token_urlsafe(24)
        self._servers: list[socketserver.BaseServer] = []
        self._own_folder: str | None = None
        self.socket: str | None = None
        self.url: str | None = None
        self._replace_stale()
        try:
            if hasattr(socket, 'AF_UNIX'):
                self._servers.append(self._unix_server(answer))
            elif http is None:
                raise ControlError('this system has no Unix sockets: allow HTTP on loopback, ControlHook(http=0)')
            if http is not None:
                over_http = _HttpServer(('127.0.0.1', http), answer, self.token)
                self._servers.append(over_http)
                self.url = f'http://127.0.0.1:{over_http.server_port}'
            self._write_address()
        except BaseException:
            self.close()
            raise
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.1,), name='runnerkit-control', daemon=True).start()
        self._is_served = True
        _open_servers.add(self)

    _is_served = False

    def close(self) -> None:
        """Answer no more, and delete the socket and ``control.json``."""
        servers, self._servers = self._servers, []
        _open_servers.discard(self)
        for server in servers:
            if self._is_served:
                server.shutdown()
            server.server_close()
        for path in (self.socket, str(self.folder / ADDRESS) if servers else None):
            if path is not None:
                with suppress(OSError):
                    os.unlink(path)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
        self.socket = self._own_folder = None

    def _unix_server(self, answer: Answer) -> socketserver.BaseServer:
        path = str(self.folder / SOCKET)
        try:
            server = _UnixServer(path, answer)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ControlError(f'{path} is there, and is no socket that a run has left: remove it') from None
            # The path is too long, or this file system has no sockets.
            self._own_folder = tempfile.mkdtemp(prefix=_PREFIX)
            path = os.path.join(self._own_folder, SOCKET)
            try:
                server = _UnixServer(path, answer)
            except OSError as other:
                raise ControlError(
                    f'there can be no socket in {self.folder} ({error}), nor at {path} ({other}): choose a shorter '
                    'work dir, or a shorter TMPDIR'
                ) from None
        self.socket = path
        return server

    def _write_address(self) -> None:
        address = {'socket': self.socket, 'pid': os.getpid(), 'host': socket.gethostname()}
        if self.url is not None:
            address.update(http=self.url, token=self.token)
        temporary = self.folder / f'.{ADDRESS}.{os.getpid()}'
        with suppress(FileNotFoundError):
            temporary.unlink()
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'w', encoding='utf-8') as file:
            json.dump(address, file)
        os.replace(temporary, self.folder / ADDRESS)

    def _replace_stale(self) -> None:
        """Delete what a killed process has left.

        Raises:
            ControlError: the process is alive.
        """
        former = read_address(self.folder)
        for path in {str(self.folder / SOCKET), str(former.get('socket'))}:
            if not _is_of_a_run(path, self.folder):  # the file may come from elsewhere, and name anything
                continue
            if _answers(path):
                raise ControlError(
                    f'process {former.get("pid", "?")} is controlled by {path}: another run is using this work '
                    'dir. Stop it, or choose another work dir'
                )
            with suppress(OSError):
                os.unlink(path)
            if os.path.dirname(path) != str(self.folder):
                with suppress(OSError):
                    os.rmdir(os.path.dirname(path))


def _is_of_a_run(path: str, folder: Path) -> bool:
    """Whether ``path`` is a socket where a run in ``folder`` puts it: there, or in its temporary folder."""
    place, name = os.path.split(path)
    is_there = os.path.isabs(place) and os.path.realpath(place) == os.path.realpath(folder)
    if name != SOCKET or not (is_there or os.path.basename(place).startswith(_PREFIX)):
        return False
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


#: Those of this process.
_open_servers: set[ControlServer] = set()


def _forget() -> None:
    """In a forked process: close the inherited sockets. Loader workers that outlive a killed run must not seem to
    answer in its place."""
    for control in _open_servers:
        for server in control._servers:
            server.server_close()
    _open_servers.clear()


if hasattr(os, 'register_at_fork'):
    os.register_at_fork(after_in_child=_forget)


def read_address(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``control.json`` in ``folder`` says; empty if there is none, or it is none of ours."""
    try:
        found = read_json(Path(folder) / ADDRESS)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def ask(folder: str | os.PathLike[str], command: str, value: Any = None, timeout: float | None = None) -> Any:
    """Give a command to the process that is controlled in ``folder``, and return its answer.

    Args:
        folder: the work dir of a run with a ControlHook.
        command: such as ``'status'`` or ``'save'``.
        value: what belongs to the command.
        timeout: how many seconds to wait for the answer; None: until it comes.

    Raises:
        ControlError: no process answers, or the command is refused or failed.
    """
    address = read_address_of(folder)
    if not hasattr(socket, 'AF_UNIX'):
        raise ControlError(f'this system has no Unix sockets: ask over HTTP (ControlHook(http=0), see {ADDRESS})')
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            if not _is_of_a_run(address['socket'], Path(folder)):  # the file may come from elsewhere
                raise FileNotFoundError(address['socket'])
            connection.connect(address['socket'])
            connection.sendall(_as_line({'command': command, 'value': value}))
            with connection.makefile('rb') as file:
                line = file.readline()
    except TimeoutError:
        raise ControlError(
            f'no answer to {command} in {timeout:g} seconds. The run obeys it at the end of its running iteration'
        ) from None
    except (ConnectionError, FileNotFoundError):
        line = b''
    except PermissionError:
        raise ControlError(
            f'the run in {folder} belongs to another user, and takes commands from its owner alone'
        ) from None
    if not line.endswith(b'\n'):
        raise ControlError(
            f'no run answers in {folder}: process {address.get("pid", "?")} has ended or was killed. Continue it '
            'with --auto-resume'
        )
    answer = json.loads(line)
    if not answer.pop('ok', False):
        raise ControlError(str(answer.get('error')))
    return answer


def read_address_of(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """As `read_address`, of a process on this machine.

    Raises:
        ControlError: there is none.
    """
    if not os.path.isdir(folder):
        raise ControlError(f'no such folder: {os.fspath(folder)}; give the work dir of a run')
    try:
        address = read_address(folder)
    except PermissionError:
        raise ControlError(
            f'the run in {folder} belongs to another user, and takes commands from its owner alone'
        ) from None
    if not isinstance(address.get('socket'), str):
        raise ControlError(
            f'no run can be controlled in {os.fspath(folder)}: it has ended, or its config lacks the hook '
            "(custom_hooks=[dict(type='ControlHook')])"
        )
    host = address.get('host')
    if host != socket.gethostname():
        raise ControlError(
            f'the run in {folder} is on {host}, and a socket does not reach there: give the command there'
        )
    return address


def peer_uid(connection: socket.socket) -> int | None:
    """The number of the user at the other end of a Unix socket; None where the system does not say."""
    option = getattr(socket, 'SO_PEERCRED', None)
    if option is None:
        return None
    credentials = connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize('3i'))
    return struct.unpack('3i', credentials)[1]


def _answers(path: str) -> bool:
    """Whether a process listens to the socket ``path``."""
    if not hasattr(socket, 'AF_UNIX'):
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(path)
        except TimeoutError:
            return True
        except OSError:
            return False
    return True


def _obey(answer: Answer, command: Any, value: Any) -> tuple[bool, dict[str, Any]]:
    """Whether the command was obeyed, and what to answer."""
    if not isinstance(command, str):
        return False, {'ok': False, 'error': 'a request is {"command": "status"}, with a "value" where it needs one'}
    try:
        return True, {'ok': True, **answer(command, value)}
    except Exception as error:
        return False, {'ok': False, 'error': str(error) or repr(error)}


def _as_line(content: Mapping[str, Any]) -> bytes:
    """A line of JSON; of an answer, what JSON does not have (an offset of a source's own) as text."""
    return json.dumps(content, default=str).encode() + b'\n'


def _is_owner(uid: int | None) -> bool:
    return uid is None or uid in (os.geteuid(), 0)


if hasattr(socketserver, 'UnixStreamServer'):

    class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
        block_on_close = False

        def __init__(self, path: str, answer: Answer) -> None:
            self.answer = answer
            super().__init__(path, _LineHandler, bind_and_activate=False)
            try:
                self.server_bind()
                os.chmod(path, 0o600)  # before it listens: until then no client can connect
                self.server_activate()
            except BaseException:
                self.server_close()
                raise

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A peer that goes away is no error of the run."""


class _LineHandler(socketserver.StreamRequestHandler):
    timeout = _PATIENCE

    def handle(self) -> None:
        line = self.rfile.readline(_LONGEST)  # first: what is left unread would cut off the answer
        if not _is_owner(peer_uid(self.connection)):
            self._say({'ok': False, 'error': 'only the user who runs this process may control it'})
            return
        if not line:
            return
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError):
            asked = None
        asked = asked if isinstance(asked, dict) else {}
        self._say(_obey(self.server.answer, asked.get('command'), asked.get('value'))[1])  # type: ignore[attr-defined]

    def _say(self, answer: dict[str, Any]) -> None:
        self.wfile.write(_as_line(answer))


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], answer: Answer, token: str) -> None:
        self.answer, self.token = answer, token
        super().__init__(address, _HttpHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that goes away is no error of the run."""


class _HttpHandler(BaseHTTPRequestHandler):
    """``GET /status``, and ``POST /<command>`` with the value as the JSON body; both need the token."""

    server: _HttpServer
    timeout = _PATIENCE
    server_version, sys_version = 'runnerkit', ''

    def do_GET(self) -> None:
        """Answer questions, which change nothing."""
        if self.path.strip('/') != 'status':
            self._say(405, {'ok': False, 'error': 'commands are POST requests'})
        else:
            self._answer(None)

    def do_POST(self) -> None:
        """Obey a command."""
        try:
            length = int(self.headers.get('Content-Length') or 0)
            if not 0 <= length <= _LONGEST:
                raise ValueError(length)
            body = self.rfile.read(length)
            value = json.loads(body) if body.strip() else None
        except (ValueError, RecursionError):
            self._say(400, {'ok': False, 'error': f'the body is a JSON value of at most {_LONGEST} bytes'})
            return
        self._answer(value)

    def _answer(self, value: Any) -> None:
        given = (self.headers.get('Authorization') or '').encode()
        if not hmac.compare_digest(given, f'Bearer {self.server.token}'.encode()):
            self._say(401, {'ok': False, 'error': f'the token is missing or wrong; {ADDRESS} in the work dir has it'})
            return
        obeyed, answer = _obey(self.server.answer, self.path.strip('/'), value)
        self._say(200 if obeyed else 400, answer)

    def _say(self, code: int, answer: dict[str, Any]) -> None:
        body = _as_line(answer)
        self.send_response(code)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the commands are, by the run."""
