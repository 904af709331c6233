"""A way to talk to a running process: a Unix socket that only its owner can open.

A request is one line of JSON, ``{"command": "save"}``, and so is the answer, ``{"ok": true, …}`` or
``{"ok": false, "error": "…"}``. Where to connect is in the file ``control.json`` of the folder.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import socketserver
import stat
import struct
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from runnerkit.utils.small_files import read_json

#: The file that says where to connect, and the socket in the same folder.
ADDRESS, SOCKET = 'control.json', 'control.sock'

#: How the folder of a socket begins that has no place in the work dir.
_PREFIX = 'runnerkit-control-'

_LONGEST = 4096  # bytes of a request
_PATIENCE = 10.0  # seconds for a request to come in whole


#: Answers a command; its errors are sent to the client.
Answer = Callable[[str], dict[str, Any]]


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

    Raises:
        ControlError: another process answers in this folder.
        OSError: the socket or ``control.json`` cannot be opened.
    """

    def __init__(self, folder: str | os.PathLike[str], answer: Answer) -> None:
        self.folder = Path(folder).absolute()
        self.socket = str(self.folder / SOCKET)
        self._own_folder: str | None = None
        self._replace_stale()
        self._server = self._open(answer)
        try:
            self._write_address()
        except BaseException:
            self._remove_files()
            raise
        _open_servers.add(self._server)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name='runnerkit-control', daemon=True).start()

    def close(self) -> None:
        """Answer no more, and delete the socket and ``control.json``."""
        if self._server in _open_servers:
            _open_servers.discard(self._server)
            self._server.shutdown()
            self._remove_files()

    def _remove_files(self) -> None:
        self._server.server_close()
        for path in (self.socket, self.folder / ADDRESS):
            with suppress(OSError):
                os.unlink(path)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def _open(self, answer: Answer) -> _UnixServer:
        try:
            return _UnixServer(self.socket, answer)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ControlError(f'{self.socket} is there, and is no socket that a run has left: remove it') from None
            # The path is too long, or this file system has no sockets.
            self._own_folder = tempfile.mkdtemp(prefix=_PREFIX)
            self.socket = os.path.join(self._own_folder, SOCKET)
            try:
                return _UnixServer(self.socket, answer)
            except OSError as other:
                os.rmdir(self._own_folder)
                raise ControlError(
                    f'there can be no socket in {self.folder} ({error}), nor at {self.socket} ({other}): choose a '
                    'shorter work dir, or a shorter TMPDIR'
                ) from None

    def _write_address(self) -> None:
        address = {'socket': self.socket, 'pid': os.getpid(), 'host': socket.gethostname()}
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
_open_servers: set[socketserver.BaseServer] = set()


def _forget() -> None:
    """In a forked process: close the inherited sockets. Loader workers that outlive a killed run must not seem to
    answer in its place."""
    for server in _open_servers:
        server.server_close()
    _open_servers.clear()


os.register_at_fork(after_in_child=_forget)


def read_address(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What ``control.json`` in ``folder`` says; empty if there is none, or it is none of ours."""
    try:
        found = read_json(Path(folder) / ADDRESS)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def ask(folder: str | os.PathLike[str], command: str, timeout: float | None = None) -> Any:
    """Give a command to the process that is controlled in ``folder``, and return its answer.

    Args:
        folder: the work dir of a run with a ControlHook.
        command: such as ``'status'`` or ``'save'``.
        timeout: how many seconds to wait for the answer; None: until it comes.

    Raises:
        ControlError: no process answers, or the command is refused or failed.
    """
    address = read_address_of(folder)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            if not _is_of_a_run(address['socket'], Path(folder)):  # the file may come from elsewhere
                raise FileNotFoundError(address['socket'])
            connection.connect(address['socket'])
            connection.sendall(_as_line({'command': command}))
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
    address = read_address(folder)
    if not isinstance(address.get('socket'), str):
        raise ControlError(
            f'no run can be controlled in {os.fspath(folder)}: it has ended, it belongs to another user, or its '
            "config lacks the hook (custom_hooks=[dict(type='ControlHook')])"
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
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(path)
        except TimeoutError:
            return True
        except OSError:
            return False
    return True


def _obey(answer: Answer, line: bytes) -> dict[str, Any]:
    """The answer to a request."""
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or not isinstance(asked.get('command'), str):
        return {'ok': False, 'error': 'a request is {"command": "status"}'}
    try:
        return {'ok': True, **answer(asked['command'])}
    except Exception as error:
        return {'ok': False, 'error': str(error) or repr(error)}


def _as_line(content: Mapping[str, Any]) -> bytes:
    """A line of JSON; of an answer, what JSON does not have (an offset of a source's own) as text."""
    return json.dumps(content, default=str).encode() + b'\n'


def _is_owner(uid: int | None) -> bool:
    return uid is None or uid in (os.geteuid(), 0)


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
            self.wfile.write(_as_line({'ok': False, 'error': 'only the user who runs this process may control it'}))
        elif line:
            self.wfile.write(_as_line(_obey(self.server.answer, line)))  # type: ignore[attr-defined]
