"""Loading checkpoints from files and URLs: one loader per URL scheme."""

from __future__ import annotations

import io
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from runnerkit.checkpoint.atomic import is_checkpoint_folder
from runnerkit.checkpoint.integrity import Damage, check_file, why_damaged
from runnerkit.checkpoint.names import plain_names
from runnerkit.checkpoint.safe_load import HOW_TO_TRUST, pickles_are_trusted, safe_load
from runnerkit.checkpoint.store import behind_link, resolve_checkpoint
from runnerkit.fileio.paths import is_url, local_path, open_file
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.logging import print_log, printable, shortened
from runnerkit.utils.suggest import did_you_mean, suggestion

logger = logging.getLogger('runnerkit')

Loader = Callable[..., Any]

#: How zip archives and pickles begin, those of old protocols included.
_STARTS = (b'PK', b'\x80', b'(', b'c', b'}', b']')


def load_tensors(path: Any, map_location: Any = 'cpu', name: str | None = None) -> Any:
    """`torch.load` that never runs code from the file: tensors, plain values, numpy scalars and arrays.

    A file that holds anything else is loaded only if the user trusts it (`runnerkit.checkpoint.safe_load`).
    """
    name = printable(path if name is None else name)
    try:
        return safe_load(path, map_location)
    except Exception as error:
        if not _is_refusal(str(error)):
            raise
        found = re.search(r'GLOBAL (\S+)', str(error))
        what = f' ({printable(found[1], 100)})' if found else ''
        no_opcode = 'Unsupported operand' in str(error)
    if not pickles_are_trusted():
        if no_opcode and not isinstance(path, io.IOBase) and not _start_of(path).startswith(_STARTS):
            raise ValueError(f'{name} is not a checkpoint: it begins with {_start_of(path)!r}, unlike files of torch')
        raise ValueError(
            f'{name} holds objects{what} that could run code when loaded, so it was not loaded. Checkpoints of '
            f'runnerkit hold only tensors and plain values. {HOW_TO_TRUST}'
        )
    logger.warning('%s holds objects%s that can run code; it is loaded because pickles are trusted', name, what)
    if hasattr(path, 'seek'):
        path.seek(0)
    return torch.load(path, map_location=map_location, weights_only=False)


def load_safetensors(path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Any]:
    """The weights of a ``.safetensors`` file, by name.

    Such files have no checksums: a truncated one is refused, but a flipped bit in a tensor is not noticed.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError(f'{path} needs the package safetensors: pip install safetensors') from error
    try:
        weights: dict[str, Any] = load_file(os.fspath(path))
    except SafetensorError as error:
        raise ValueError(f'the checkpoint {path} is damaged: {printable(error)}') from error
    return _on_device(weights, map_location)


def _on_device(content: dict[str, Any], map_location: Any) -> dict[str, Any]:
    """``content``, whose tensors are on the CPU, where ``map_location`` of `torch.load` says."""
    if map_location in (None, 'cpu', torch.device('cpu')):
        return content
    buffer = io.BytesIO()  # a function or a mapping of devices: only torch.load can apply it
    torch.save(content, buffer)
    buffer.seek(0)
    moved: dict[str, Any] = safe_load(buffer, map_location)
    return moved


def _start_of(path: Any) -> bytes:
    with open(path, 'rb') as file:
        return file.read(8)


def _is_refusal(message: str) -> bool:
    """Whether ``message`` is torch's refusal to run code."""
    return 'weights_only' in message or 'Weights only' in message


#: The module that registers the schemes of URLs, which few runs need.
_SCHEMES = 'runnerkit.checkpoint.schemes'


class CheckpointLoader:
    """Chooses a loader by the prefix of a checkpoint's name (``https://``, ``s3://`` …). Names without a known prefix
    are local paths, or URLs that fsspec can open.

    `register_scheme` adds a loader::

        @CheckpointLoader.register_scheme('lab://')
        def load_from_lab(filename, map_location=None): ...
    """

    _schemes: dict[str, Loader] = {}

    @classmethod
    def _register_scheme(cls, prefixes: str | Sequence[str], loader: Loader, force: bool = False) -> None:
        prefixes = [prefixes] if isinstance(prefixes, str) else prefixes
        if not isinstance(prefixes, (list, tuple)):
            raise WrongType(f'prefixes must be a string, or a list or tuple of them, but got {prefixes!r}')
        if not getattr(loader, '__module__', '').startswith('runnerkit.checkpoint.'):
            import_module(_SCHEMES)  # which may have the same prefixes
        for prefix in prefixes:
            if prefix in cls._schemes and not force:
                raise KeyError(
                    f'{prefix} is already registered as a loader backend, add "force=True" if you want to override it'
                )
        # The longest prefix is tried first, the empty one (local paths) last.
        schemes = {**cls._schemes, **dict.fromkeys(prefixes, loader)}
        cls._schemes = dict(sorted(schemes.items(), key=lambda item: len(item[0]), reverse=True))

    @classmethod
    def register_scheme(cls, prefixes: str | Sequence[str], loader: Loader | None = None, force: bool = False) -> Any:
        """Register ``loader(filename, map_location=None)`` for names that start with one of ``prefixes`` (regular
        expressions). Without ``loader``, this is a decorator.

        Raises:
            KeyError: a prefix already has a loader and ``force`` is false.
            TypeError: ``prefixes`` is neither a string nor a list of strings.
        """
        if loader is not None:
            cls._register_scheme(prefixes, loader, force=force)
            return loader

        def register(loader: Loader) -> Loader:
            cls._register_scheme(prefixes, loader, force=force)
            return loader

        return register

    @classmethod
    def _get_checkpoint_loader(cls, path: str) -> Loader:
        if '://' in path:
            import_module(_SCHEMES)
        return next(loader for prefix, loader in cls._schemes.items() if re.match(prefix, path))

    @classmethod
    def load_checkpoint(
        cls, filename: str | os.PathLike[str], map_location: Any = None, logger: logging.Logger | str | None = None
    ) -> Any:
        """Load ``filename`` with the loader of its scheme, and log which one to ``logger``.

        Of a folder, the best checkpoint is loaded, else the latest; see `resolve_checkpoint`.
        """
        filename = resolve_checkpoint(filename, best=True)
        loader = cls._get_checkpoint_loader(filename)
        if logger is not None:
            kind = getattr(loader, '__name__', type(loader).__name__).removeprefix('load_from_')
            print_log(f'load checkpoint from {kind} path: {printable(filename)}', logger)
        return loader(filename, map_location)


@CheckpointLoader.register_scheme('')
def load_from_local(filename: str, map_location: Any = None) -> Any:
    """Load from a local path after checking its checksums; a URL goes to `load_from_url`.

    A folder (a sharded checkpoint) is put together in memory, without the states of optimizers.
    """
    if is_url(filename):
        return load_from_url(filename, map_location)
    return _load_whole(behind_link(_local_file(filename)), filename, map_location)


def find_checkpoint(filename: str | os.PathLike[str], best: bool = False) -> str:
    """The checkpoint that ``filename`` means, as in `resolve_checkpoint`; a local one exists.

    Raises:
        FileNotFoundError: there is no such local file, or no checkpoint in the folder; the nearest names are given.
    """
    found = resolve_checkpoint(filename, best)
    if CheckpointLoader._get_checkpoint_loader(found) is load_from_local and not is_url(found):
        _local_file(found)
    return found


def _local_file(filename: str) -> Path:
    path = Path(local_path(filename)).expanduser()
    if path.is_file() and is_checkpoint_folder(path.parent):
        raise FileNotFoundError(f'{filename} is a part of a sharded checkpoint: give its folder, {path.parent}')
    if path.is_file() or is_checkpoint_folder(path):
        return path
    if path.is_dir():
        why = f'{path.absolute()} is a folder'
    elif path.exists():
        why = f'{path.absolute()} is not a regular file'
    else:
        held = sorted(other.name for other in path.parent.glob('*.pth') if other.exists())
        hint = did_you_mean(path.name, held) or (f'its folder holds {shortened(held)}' if held else '')
        why = f'{path.absolute()} cannot be found' + (f'; {hint}' if hint else '')
    raise FileNotFoundError(f'no checkpoint {filename}: {why}')


def load_from_url(filename: str, map_location: Any = None) -> Any:
    """Load from any URL that fsspec can open: ``https://``, ``s3://``, ``memory://`` …."""
    with open_file(filename, 'rb') as file:
        return load_from_stream(file, filename, map_location)


def load_from_stream(file: IO[bytes], filename: str, map_location: Any = None) -> Any:
    """Load from an open remote file called ``filename``: it is copied to the disk and checked like a local file."""
    with tempfile.TemporaryDirectory(prefix='runnerkit-') as folder:
        path = Path(folder) / ('checkpoint' + Path(filename).suffix[:20])
        with path.open('wb') as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
        return _load_whole(path, filename, map_location)


def _load_whole(path: Path, filename: str, map_location: Any) -> Any:
    """The content of the local file or folder ``path``, which messages call ``filename``."""
    if path.is_dir():
        return load_folder(path, map_location, optimizer=False)
    if path.suffix == '.safetensors':
        return load_safetensors(path, map_location)
    try:
        return load_checked(path, map_location, filename)
    except Damage as damage:
        if damage.__cause__ is not None and _is_refusal(str(damage)):  # says how to trust the file
            raise damage.__cause__ from None
        raise ValueError(
            f'the checkpoint {filename} is damaged: {damage}. Use an older one, or --auto-resume, which skips it.'
        ) from None


def load_checked(path: str | os.PathLike[str], map_location: Any = 'cpu', name: str | None = None) -> Any:
    """`load_tensors` of a local file whose checksums are right; it is unpickled once.

    Args:
        path: the file.
        map_location: as in `torch.load`.
        name: what messages call the file.

    Raises:
        Damage: the file is corrupt, or none of torch's.
    """
    # Not through a map of the file: a module may keep what it is given, and the file may be cut off while it runs.
    try:
        check_file(path)
        return load_tensors(path, map_location, name)
    except Damage as damage:
        raise Damage(printable(damage)) from None
    except Exception as error:
        reason = why_damaged(path)  # or is it map_location that fails, or a file that has to be trusted?
        if reason is None:
            raise
        raise Damage(reason) from error


def load_small(path: Path, load: Callable[[Any], Any] = load_tensors) -> Any:
    """What ``load`` makes of a file; of a folder, all but large tensors, in whose places there is None."""
    if not is_checkpoint_folder(path):
        return load(path)
    from runnerkit.checkpoint.folder import read_rest

    return read_rest(path, load)


def load_whole(checkpoint: str | os.PathLike[str], map_location: Any = None) -> Any:
    """The content of a checkpoint with all that a resume needs, also the states of optimizers in a folder."""
    if is_url(checkpoint) or not is_checkpoint_folder(local_path(checkpoint)):
        return _load_checkpoint(checkpoint, map_location)
    return load_folder(local_path(checkpoint), map_location)


def load_folder(
    path: str | os.PathLike[str],
    map_location: Any = None,
    layout: Mapping[tuple[Any, ...], Tensor] | None = None,
    optimizer: bool = True,
) -> dict[str, Any]:
    """The content of a sharded checkpoint; each process reads for itself. Arguments as of
    `runnerkit.checkpoint.folder.read_folder`; ``map_location`` is for what ``layout`` does not say.
    """
    from runnerkit.checkpoint.folder import read_folder

    try:
        content = read_folder(Path(path), layout, optimizer, load_tensors)
    except (ValueError, OSError) as error:
        raise ValueError(
            f'the checkpoint {os.fspath(path)} cannot be read: {error}. Use an older one, or --auto-resume, which '
            'skips it.'
        ) from None
    return content if layout else _on_device(content, map_location)


def _load_checkpoint(
    filename: str | os.PathLike[str], map_location: Any = None, logger: logging.Logger | str | None = None
) -> Any:
    """Load the checkpoint ``filename``; see `CheckpointLoader`."""
    return CheckpointLoader.load_checkpoint(filename, map_location, logger)


def weights_in(checkpoint: Any, filename: str | os.PathLike[str]) -> Mapping[str, Any]:
    """The weights in ``checkpoint``, the content of the file ``filename``."""
    if not isinstance(checkpoint, Mapping):
        raise RuntimeError(f'No state_dict found in checkpoint file {filename}: it holds a {type(checkpoint).__name__}')
    found = checkpoint.get('state_dict', checkpoint)
    if not isinstance(found, Mapping) or not found:
        what = 'an empty dict' if isinstance(found, Mapping) else f'a {type(found).__name__}'
        raise RuntimeError(f'No weights found in checkpoint file {filename}: its state_dict is {what}')
    return found


def _load_checkpoint_with_prefix(
    prefix: str, filename: str | os.PathLike[str], map_location: Any = None
) -> dict[str, Any]:
    """The weights below ``prefix``, with the prefix removed: those of one submodule.

    Raises:
        RuntimeError: the file holds no weights.
        ValueError: nothing in the file starts with ``prefix``.
    """
    state = plain_names(weights_in(_load_checkpoint(filename, map_location), filename))
    start = prefix if prefix.endswith('.') else prefix + '.'
    part = {name[len(start) :]: value for name, value in state.items() if name.startswith(start)}
    if not part:
        tops = sorted({name.split('.')[0] for name in state})
        parts = [name.split('.') for name in state]
        modules = dict.fromkeys('.'.join(part[:length]) + '.' for part in parts for length in range(1, len(part)))
        deeper = [name for name in modules if f'.{name}'.endswith(f'.{start}')]  # model.backbone. for backbone.
        hint = f'; did you mean {deeper[0]!r}?' if deeper else suggestion(start, modules)
        raise WrongValue(f'{prefix} is not in the pretrained model {filename}; it has {shortened(tops)}{hint}')
    return part
