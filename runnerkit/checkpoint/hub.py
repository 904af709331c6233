"""Downloads checkpoints into torch's cache, and checks the hash in their names."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch

from runnerkit.checkpoint.loader import load_from_local
from runnerkit.fileio.paths import plain_file_name
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.logging import printable

#: The first digits of a file's SHA-256 at the end of its name, ``resnet50-0676ba61.pth``; a date does not count.
HASH_IN_NAME = re.compile(r'-(?!20\d\d[01]\d[0-3]\d\.)([0-9a-f]{8,64})\.')


def load_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """Load a checkpoint from the web, or from the cache if it has been downloaded before.

    Args:
        url: its address.
        model_dir: the cache folder; by default that of `torch.hub`, below ``$TORCH_HOME``.
        map_location: as in `torch.load`.
        progress: show a progress bar.
        check_hash: require a hash in the name. If there is one, it is always checked.
        file_name: the name in the cache, without folders; by default that in the URL.
        weights_only: accepted as in torch, and ignored: `runnerkit.checkpoint.trusted_pickles` decides whether code in
            a file may run.

    Raises:
        OSError: the download failed.
        ValueError: the name could lead out of the cache; ``check_hash`` is set but the name has no hash; or the file is
            corrupt, or could run code.
        RuntimeError: the file does not match the hash.
    """
    in_url = os.path.basename(urlparse(url).path)  # not unquoted, as in torch: %2F would become a folder
    try:
        name = plain_file_name(in_url if file_name is None else file_name)
    except ValueError as error:
        raise ValueError(f'{printable(url)} gives no name for the cache: {error}. Give one (file_name)') from None
    path = Path(model_dir or os.path.join(torch.hub.get_dir(), 'checkpoints')) / name
    if not path.exists():
        found = HASH_IN_NAME.search(name) or HASH_IN_NAME.search(in_url)
        if check_hash and not found:
            raise ValueError(
                f'{printable(url)} has no hash in its name, as in name-<8 hexadecimal digits or more>.pth, to check'
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            torch.hub.download_url_to_file(url, str(path), found[1] if found else None, progress=progress)
        except OSError as error:
            what = f'downloading {printable(url)} to {path}'
            raise_with_context(error, f'{what}: ', note=what)
    return load_from_local(str(path), map_location)
