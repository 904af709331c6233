"""Whether this user's own run has written the config and the code in a work dir, as they are now.

A run seals both with a key of the user: a hash with that key (HMAC) is in the work dir's record. The key is outside of
all work dirs, in ``$XDG_STATE_HOME/runnerkit/work_dirs.key`` (``~/.local/state``), so a folder from elsewhere cannot
have the right seal. A work dir that is moved or copied keeps its seal. On a machine with another key, and once its code
has been edited, a work dir counts as one from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Collection, Mapping
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from runnerkit.config.parse import EXTENSIONS
from runnerkit.fileio.paths import is_url, local_path
from runnerkit.flow.work_dir.previous_runs import read_record
from runnerkit.flow.work_dir.snapshot import CODE

#: Why the code in a work dir is not executed, and the way out.
NOT_MADE_HERE = (
    'its config and code were not written by your runs on this machine, so they are not executed. If you trust '
    'the author, add --trust (trust=True)'
)

_LENGTH = 32  # bytes of a key

#: The ends of the names of files that runs write, and that could be configs.
_OF_RUNS = ('.log.json', 'run.json', 'scores.json', 'best_predictions.json')


def config_of(source: str | os.PathLike[str]) -> Path | None:
    """The config file that a run has written into the work dir ``source``; None if ``source`` is something else.

    A work dir of another program has it if there is one config in it.
    """
    place = local_path(source)
    folder = Path(place).expanduser()
    if is_url(place) or not folder.is_dir():
        return None
    name = read_record(folder).get('config')
    held = [path for path in sorted(folder.iterdir()) if path.suffix in EXTENSIONS and path.is_file()]
    found = [path for path in held if not path.name.startswith('.') and not path.name.endswith(_OF_RUNS)]
    noted = [path for path in found if path.name == name]  # the name may be anything, but the config lies in the folder
    return (noted or found)[0] if noted or len(found) == 1 else None


def seal(work_dir: Path, record: Mapping[str, Any]) -> str | None:
    """The seal of the config and code in ``work_dir``; None if no key can be kept.

    Args:
        work_dir: the folder.
        record: its ``config``, and the folder with its ``code``, by their names.
    """
    key = _key() or _new_key()
    return None if key is None else _seal(key, work_dir, record)


def strangers(work_dir: Path, record: Mapping[str, Any], own: Collection[str]) -> list[str]:
    """The names in ``work_dir`` of the files of code that a seal would be about, apart from a run's ``own``."""
    return [name for name, _ in _code(work_dir, record) if name not in own]


def is_made_here(config: Path) -> bool:
    """Whether a run of this user has written the ``config`` of a work dir and the code next to it as they are now."""
    record, key = read_record(config.parent), _key()
    sealed = record.get('seal')
    if key is None or not isinstance(sealed, str) or record.get('config') != config.name:
        return False
    try:
        return hmac.compare_digest(sealed.encode(), _seal(key, config.parent, record).encode())
    except (OSError, ValueError):
        return False


def _seal(key: bytes, work_dir: Path, record: Mapping[str, Any]) -> str:
    config = record['config']
    text = (work_dir / config).read_bytes()
    held = [(name, _digest(path)) for name, path in _code(work_dir, record)]
    content = json.dumps([config, hashlib.sha256(text).hexdigest(), held])
    return hmac.new(key, content.encode(), hashlib.sha256).hexdigest()


def _code(work_dir: Path, record: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """What may be imported with the config of ``record``: the names in ``work_dir``, and the paths."""
    code = os.path.basename(str(record.get('code') or CODE))
    named = f'{{{{ fileDirname }}}}/{code}/'.encode() in (work_dir / record['config']).read_bytes()
    return [
        (path.relative_to(work_dir).as_posix(), path)
        for path in (sorted((work_dir / code).rglob('*')) if named else [])
        if _is_importable(path) or (path.is_symlink() and path.is_dir())  # a folder may be a package
    ]


def _digest(path: Path) -> str:
    return 'a link' if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()


def _is_importable(path: Path) -> bool:
    return path.name.endswith(tuple(all_suffixes())) and '__pycache__' not in path.parts and path.is_file()


def _place() -> Path:
    """The file with the user's key."""
    state = os.environ.get('XDG_STATE_HOME', '')
    return Path(state if os.path.isabs(state) else Path.home() / '.local' / 'state', 'runnerkit', 'work_dirs.key')


def _key() -> bytes | None:
    try:
        found = _place().read_bytes()
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return found if len(found) == _LENGTH else None


def _new_key() -> bytes | None:
    """Make the user's key; another process may be faster, then its key counts."""
    try:
        path = _place()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f'.{path.name}.{os.getpid()}.{secrets.token_hex(4)}')
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), 'wb') as file:
            file.write(secrets.token_bytes(_LENGTH))
        try:
            os.link(temporary, path)  # unlike a rename, it replaces no other key
        finally:
            temporary.unlink()
    except FileExistsError:
        pass
    except (OSError, RuntimeError):
        return None
    return _key()
