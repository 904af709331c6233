"""What a run notes about itself in its work dir, and whether this user's own run has written the config and code there.

A run seals config and code with a key of the user: a hash with that key (HMAC) is in the record. The key is outside of
all work dirs, in ``$XDG_STATE_HOME/runnerkit/work_dirs.key`` (``~/.local/state``), so a folder from elsewhere cannot
have the right seal. A work dir that is moved or copied keeps its seal. On a machine with another key, and once its code
has been edited, a work dir counts as one from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config.parse import EXTENSIONS
from runnerkit.fileio.paths import is_url, local_path, plain_file_name
from runnerkit.log_files import logs_in
from runnerkit.utils.small_files import open_regular, read_json

#: The file with the record: the names of the run's config, of the folder with the user's files and of all that it has
#: left, its seed, its seal, the jobs that it belongs to.
RECORD = '.flow.json'

#: The key of a config that names the script with a loop of the user's own.
SCRIPT = 'loop'

#: The folder with the user's files, unless the record says otherwise.
CODE = 'code'

#: The folder with configs and code of earlier starts of the run, where a later one has replaced them.
STARTS = 'starts'

#: What a run may write with the ending of a config.
JSON_FILES = ('scores.json', 'best_predictions.json', 'run.json', 'control.json')

#: Why nothing is built of a config, and the way out.
NOT_MADE_HERE = (
    'none of your runs on this machine has written its config and code, so nothing of them is executed or built. If '
    'you trust the author, add --trust (trust=True)'
)

_KEY_LENGTH = 32  # bytes


def read_record(work_dir: Path) -> dict[str, Any]:
    """What `write_record` has written; of a run of an older version, the config that its log names.

    Values of a wrong kind are left out: others may have written the file, and it says where files are written.
    """
    try:
        found = read_json(work_dir / RECORD)
    except (OSError, ValueError):
        found = {}
        for log in logs_in(work_dir)[-1:]:
            with open(open_regular(log), encoding='utf-8', errors='replace') as file:
                named = re.search(r'"exp_name": "([^"/\\]+)"', file.readline())
            found = {'config': named[1]} if named else {}
    kinds = {
        'config': _names_a_file,
        'code': _names_a_file,
        'jobs': _are_texts,
        'files': _are_texts,
        'others': _are_texts,
    }
    found = found if isinstance(found, dict) else {}
    return {key: value for key, value in found.items() if key not in kinds or kinds[key](value)}


def _names_a_file(value: Any) -> bool:
    """Whether ``value`` is the name of a file in a folder, and leads nowhere else."""
    with suppress(ValueError):
        return isinstance(value, str) and plain_file_name(value) == value
    return False


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def write_record(work_dir: Path, **items: Any) -> None:
    """Note ``items`` about the run in ``work_dir``."""
    content = json.dumps({**read_record(work_dir), **items}, indent=1).encode()
    write_atomically(work_dir / RECORD, content)


def config_of(source: str | os.PathLike[str]) -> Path | None:
    """The config file that a run has written into the work dir ``source``; None if ``source`` is something else.

    A work dir of another program has it if there is one config in it.
    """
    place = local_path(source)
    folder = Path(place).expanduser()
    if is_url(place) or not folder.is_dir():
        return None
    noted = read_record(folder).get('config')
    configs = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in EXTENSIONS
        and path.is_file()
        and path.name not in JSON_FILES
        and not path.name.startswith('.')
        and not path.name.endswith('.log.json')
    ]
    wanted = [path for path in configs if path.name == noted] or configs
    return wanted[0] if len(wanted) == 1 else None


# --- the seal ---------------------------------------------------------------------------------------------------------


def seal(work_dir: Path, record: Mapping[str, Any], code: Collection[str] | None = None) -> str | None:
    """The seal of the config in ``work_dir`` and of the run's files of ``code``, by default all; None without a key."""
    key = _key(make=True)
    return None if key is None else _seal(key, work_dir, record, code)


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


def check_made_here(config: Path, trust: bool) -> Path:
    """Return the ``config`` of a work dir; a ValueError if it is neither trusted nor made here."""
    if not (trust or is_made_here(config)):
        raise ValueError(f'{config.parent}: {NOT_MADE_HERE}')
    return config


def _seal(key: bytes, work_dir: Path, record: Mapping[str, Any], code: Collection[str] | None = None) -> str:
    config = record['config']
    text = (work_dir / config).read_bytes()
    folder = record.get('code') or CODE
    files = [
        [name, 'a link' if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()]
        for name, path in (_code_files(work_dir, folder) if f'{{{{ fileDirname }}}}/{folder}/'.encode() in text else ())
        if code is None or name in code
    ]
    content = json.dumps([config, hashlib.sha256(text).hexdigest(), files])
    return hmac.new(key, content.encode(), hashlib.sha256).hexdigest()


def _code_files(work_dir: Path, code: str) -> Iterator[tuple[str, Path]]:
    """What may be imported from the folder ``code``: the names in ``work_dir``, and the paths."""
    for path in sorted((work_dir / code).rglob('*')):
        is_code = path.name.endswith(tuple(all_suffixes())) and '__pycache__' not in path.parts and path.is_file()
        if is_code or (path.is_symlink() and path.is_dir()):  # a folder may be a package
            yield path.relative_to(work_dir).as_posix(), path


def _key(make: bool = False) -> bytes | None:
    """The user's key; None if there is none. With ``make``, a missing one is made, if possible."""
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        state = os.environ.get('XDG_STATE_HOME', '')
        folder = Path(state if os.path.isabs(state) else Path.home() / '.local' / 'state', 'runnerkit')
        path = folder / 'work_dirs.key'
        if make and not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder) as file:  # for its owner alone
                file.write(secrets.token_bytes(_KEY_LENGTH))
                file.flush()
                with suppress(FileExistsError):  # another process was faster, and its key counts
                    os.link(file.name, path)
        key = path.read_bytes()
        return key if len(key) == _KEY_LENGTH else None
    return None
