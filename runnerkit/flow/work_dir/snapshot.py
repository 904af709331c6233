"""What a run writes into its work dir when it begins: the config and the user's files, all that it takes to use the
trained model wherever the folder is, and a seal that says who has written them."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import sweep, write_atomically
from runnerkit.config import Config
from runnerkit.config.pretty import has_text, objects_in, path_of
from runnerkit.data.builder import DATASETS, SAMPLERS, TRANSFORMS
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context
from runnerkit.flow.work_dir.record import (
    CODE,
    RECORD,
    STARTS,
    config_of,
    is_made_here,
    read_record,
    seal,
    write_record,
)
from runnerkit.flow.work_dir.resume import used_files
from runnerkit.hooks import HOOKS
from runnerkit.log_files import JOURNAL, number_of_starts, starts_in
from runnerkit.nn.builder import LOSSES, METRICS, MODELS
from runnerkit.optim.builder import OPTIMIZER_BUILDERS, OPTIMIZERS
from runnerkit.utils.logging import shortened
from runnerkit.utils.numbers import values_in
from runnerkit.utils.small_files import own_folder
from runnerkit.utils.user_files import file_of_module, with_neighbours

_HERE = '{{ fileDirname }}'
#: The placeholder of `_HERE` until the config is printed, since braces in a value are escaped. It has the same length.
_MARK = 'runnerkit_WORKDIR'

#: Where a class may be registered that a config names.
REGISTRIES = (MODELS, LOSSES, METRICS, DATASETS, SAMPLERS, TRANSFORMS, OPTIMIZERS, OPTIMIZER_BUILDERS, HOOKS)

#: ``path/to/file.py``, or ``path/to/file.py:Name``.
_IN_FILE = re.compile(r'(.+\.py)(:[\w.]+)?')


def take_over(context: Context) -> None:
    """Make the work dir this run's, on rank 0."""
    work_dir, cfg = context.work_dir, context.cfg
    place = Path(os.path.realpath(work_dir))
    sweep(place.parent, f'.{place.name}.')  # of a start that was killed while it renamed the work dir of an earlier run
    saves_elsewhere = any(getattr(hook, 'out_dir', None) for hook in getattr(context.runner, 'hooks', ()))
    has_moved = False
    if not context.continues and (context.others or saves_elsewhere):
        from runnerkit.flow.work_dir.previous_runs import make_room  # a new work dir needs none of it

        has_moved = make_room(context, sources_in(work_dir, cfg))
    others = [] if has_moved else sorted({*context.others} - {*used_files(context)})
    record, before = read_record(work_dir), config_of(work_dir)
    was_own = before is not None and is_made_here(before)
    former = keep_former(work_dir, before) if context.continues and before is not None else None
    written = write_snapshot(work_dir, cfg, record)
    its_jobs = sorted({*record.get('jobs', []), *context.jobs})
    noted = {**record, **written}
    # In a work dir from elsewhere, the code of others stays unsealed, so that the work dir counts as one from there.
    copies = _copies(user_files(cfg)).values()
    own = None if was_own else [f'{noted.get("code") or CODE}/{copy.as_posix()}' for copy in copies]
    sealed = seal(work_dir, noted, own)
    found = {'others': others, 'files': None}  # its own are known when it ends
    write_record(work_dir, **written, **found, seal=sealed, seed=context.seed, jobs=its_jobs, process=os.getpid())
    if former is not None and sealed is not None and sealed == record.get('seal'):
        shutil.rmtree(former)  # nothing has changed
    if sealed is None:
        context.logger.info(
            'your key cannot be stored (XDG_STATE_HOME, else ~/.local/state), so the work dir is not sealed: to '
            'run its code later, add --trust'
        )
    objects = list(objects_in(cfg._cfg_dict))
    if objects:
        context.logger.info(
            'the work dir alone is not enough to use the model elsewhere: its config cannot hold the Python '
            'objects %s. To load the model or to resume, give this config again',
            shortened(objects),
        )
    for file in files_needed(cfg):
        context.logger.info(
            'using the work dir elsewhere needs %s, which registers classes of the config and is not copied. To '
            'copy it: custom_imports=dict(imports=[%r])',
            shown(file),
            str(file),
        )


def keep_former(work_dir: Path, config: Path) -> Path:
    """Keep the config and the code of the starts so far, which this one may replace, in ``starts/<how many>``: a replay
    trains each iteration as the start did that trained it. The seal is kept as well. Returns the folder."""
    folder = own_folder(work_dir / STARTS) / str(number_of_starts(starts_in(work_dir / JOURNAL)))
    if not folder.exists():  # else a start was killed that replaced them, before it trained anything
        half = folder.with_name(f'.{folder.name}.tmp')
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir()
        for name in (config.name, RECORD):
            shutil.copy2(work_dir / name, half / name, follow_symlinks=False)
        code = read_record(work_dir).get('code')
        if code is not None and (work_dir / code).is_dir():
            ignored = shutil.ignore_patterns('__pycache__')
            shutil.copytree(work_dir / code, half / code, symlinks=True, ignore=ignored)
        os.rename(half, folder)
    return folder


def user_files(cfg: Any) -> list[Path]:
    """The absolute paths of the Python files that a config names, with the neighbours that they import."""
    found: dict[Path, None] = {}
    named = [_file_in(value, alone=True) for value in _imports(cfg)] + [
        _file_in(value) for _, value in values_in(cfg._cfg_dict)
    ]
    for file in filter(None, named):
        found.update(dict.fromkeys(with_neighbours(file)))
    return list(found)


def sources_in(folder: Path, cfg: Any) -> set[str]:
    """The names of the files and folders in ``folder`` that a run of ``cfg`` reads."""
    files = [*user_files(cfg), *([Path(cfg.filename).resolve()] if cfg.filename else [])]
    folder = folder.resolve()
    return {file.relative_to(folder).parts[0] for file in files if folder in file.parents}


def write_snapshot(work_dir: Path, cfg: Any, record: Mapping[str, Any]) -> dict[str, str]:
    """Write the config, and the user's files that it names; returns the names of both by ``config`` and ``code``.

    The config names them, and everything in the work dir, relative to its own place. Nothing that a run has not written
    is overwritten: ``record`` says what an earlier start of this one has.
    """
    config = Path(cfg.filename).name if cfg.filename else 'config.py'
    if (work_dir / config).exists() and record.get('config') != config:
        stem, extension = os.path.splitext(config)
        config = f'{stem}_run{extension}'
    copies = _copies(user_files(cfg))
    code = record.get('code') or CODE
    is_own = bool(copies)
    if copies and record.get('code') is None and (work_dir / code).exists():
        is_own = not all(_is_same_file(work_dir / code / copy, file) for file, copy in copies.items())
        code = f'{CODE}_run' if is_own else code
    if is_own:
        _write_code(work_dir / code, copies)
    places = {str(file): f'{_MARK}/{code}/{copy.as_posix()}' for file, copy in copies.items()}
    values = _portable(cfg._cfg_dict, str(work_dir), places)
    text = Config(values, cfg_text='', filename=config).dump() or ''
    write_atomically(work_dir / config, text.replace(_MARK, _HERE).encode())
    return {'config': config, **({'code': code} if is_own else {})}


def files_needed(cfg: Any) -> list[Path]:
    """The user's files that register classes which a config names, and that are not copied: it does not import them."""
    names = {value for _, value in values_in(cfg._cfg_dict) if isinstance(value, str)}
    registered = [made for each in REGISTRIES for name, made in each.loaded.items() if name in names]
    files = {_file_in(made) for made in registered if made.__module__ not in _imports(cfg)}
    return sorted(file for file in files - {*user_files(cfg)} if file is not None)


def _imports(cfg: Any) -> list[str]:
    found = (cfg.get('custom_imports') or {}).get('imports') or []
    return [found] if isinstance(found, str) else list(found)


def _text_of(value: Any) -> str:
    """A string itself; the path of a class or function, with its file if it is the user's; '' for other values."""
    if isinstance(value, str):
        return value
    if not (inspect.isclass(value) or inspect.isroutine(value)) or not has_text(value):
        return ''
    module = value.__module__ or ''
    file = getattr(sys.modules.get(module), '__file__', None)
    if file_of_module(module) is not None or '.' in module or module == 'runnerkit' or not isinstance(file, str):
        return path_of(value)
    is_installed = 'site-packages' in file or file.startswith((sys.prefix, sys.base_prefix))
    return path_of(value) if is_installed else f'{file}:{value.__qualname__}'


def _file_in(value: Any, alone: bool = False) -> Path | None:
    """The user's file that a value of a config is in, or names; ``alone``: also without a name in it."""
    found = _IN_FILE.fullmatch(_text_of(value))
    if found is None or not (found[2] or alone):
        return None
    file = Path(found[1]).expanduser().resolve()
    return file if file.is_file() else None


def _copies(files: list[Path]) -> dict[Path, Path]:
    """Where each file goes, relative to the folder for them: neighbours stay neighbours."""
    if not files:
        return {}
    common = os.path.commonpath([file.parent for file in files])
    return {file: file.relative_to(common) for file in files}


def _write_code(folder: Path, copies: dict[Path, Path]) -> None:
    """Write the copies into the work dir; refuse a link that leads out of it, to files of unknown origin."""
    for file, copy in copies.items():
        if not (folder / copy).parent.resolve().is_relative_to(folder.parent.resolve()):
            raise ValueError(
                f'{(folder / copy).parent} leads out of the work dir, so the code of the run is not written there: '
                'remove the link, or choose another work dir (--work-dir)'
            )
        if not _is_same_file(folder / copy, file):
            write_atomically(folder / copy, file.read_bytes())


def _portable(value: Any, work_dir: str, places: Mapping[str, str]) -> Any:
    """``value`` with the user's files at their ``places``, and paths in ``work_dir`` relative to the config."""
    if isinstance(value, dict):
        return {key: _portable(item, work_dir, places) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_portable(item, work_dir, places) for item in value)
    found = _IN_FILE.fullmatch(_text_of(value))
    if found is not None:
        file = str(Path(found[1]).expanduser().resolve())
        if file in places:
            return places[file] + (found[2] or '')
    if isinstance(value, str) and (value == work_dir or value.startswith(work_dir + os.sep)):
        return _MARK + value[len(work_dir) :]
    return value


def _is_same_file(path: Path, other: str | os.PathLike[str] | None) -> bool:
    return other is not None and path.exists() and os.path.exists(other) and path.samefile(other)
