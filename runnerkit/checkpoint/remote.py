"""Checkpoints in a storage that is reached by URL: finding the newest one that is whole, and tidying up."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.files import checkpoint_number, find_latest_checkpoint, why_damaged
from runnerkit.fileio.backends import HardDiskBackend
from runnerkit.fileio.file_client import FileClient
from runnerkit.fileio.paths import join, local_path

logger = logging.getLogger('runnerkit')


def find_latest_at(place: str, file_client_args: dict[str, Any] | None = None) -> tuple[float, str] | None:
    """The newest checkpoint at ``place`` that is whole, and when it was written; None if there is none.

    At a URL there is no ``latest.pth``: the youngest file wins. Each candidate is fetched and its checksums are read.

    Args:
        place: a folder, or the URL of one.
        file_client_args: of the storage; by default the URL says which it is.
    """
    place = local_path(place)
    client = FileClient.infer_client(file_client_args, place)
    if type(client.client) is HardDiskBackend:
        path = find_latest_checkpoint(place)
        return None if path is None else (path.stat().st_mtime, str(path))
    for written, _, url in _candidates(client, place):
        with client.get_local_path(url) as copy:
            damage = why_damaged(copy)
        if damage is None:
            return written, url
        logger.warning('%s is skipped: %s', url, damage)
    return None


def sweep_at(url: str, file_client_args: dict[str, Any] | None = None) -> list[str]:
    """Delete what killed runs have left half-written at ``url``, whichever machine they were on."""
    client = FileClient.infer_client(file_client_args, url)
    names = [name for name in _names(client, url) if name.startswith('.') and name.endswith('.pth.tmp')]
    for name in names:
        client.remove(join(url, name))
    return names


def _candidates(client: FileClient, url: str) -> list[tuple[float, int, str]]:
    # A storage that does not tell the time has at least the numbers in the names.
    written = getattr(client.client, 'modified', lambda path: 0.0)
    numbered = [(checkpoint_number(name), join(url, name)) for name in _names(client, url)]
    return sorted(((written(path), n, path) for n, path in numbered if n is not None), reverse=True)


def _names(client: FileClient, url: str) -> list[str]:
    try:
        return [Path(name).name for name in client.list_dir_or_file(url, list_dir=False)]
    except FileNotFoundError:  # nothing has been saved yet
        return []
