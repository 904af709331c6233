"""Files from the web: fetched once, checked against the hash in their names, kept in torch's cache."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import torch

from runnerkit.checkpoint.loader import load_from_local

#: The start of a file's SHA-256 at the end of its name, ``resnet50-0676ba61.pth``, and not a date.
_HASH = re.compile(r'-(?!20\d\d[01]\d[0-3]\d\.)([0-9a-f]{8,64})\.')


def load_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """Load a checkpoint from the web, or from the cache if it has been fetched before.

    Args:
        url: where it is.
        model_dir: the folder of the cache; by default that of `torch.hub`, below ``$TORCH_HOME``.
        map_location: as in `torch.load`.
        progress: show how much has come.
        check_hash: insist on a hash in the name. Where there is one, it is checked in any case.
        file_name: the name in the cache; by default that in the URL.
        weights_only: taken for torch's sake; whether code in a file may run is not its affair, but that of
            `runnerkit.checkpoint.trusted_pickles`.

    Raises:
        OSError: the file cannot be fetched.
        ValueError: it has no hash and ``check_hash`` wants one; or it is damaged, or could run code.
        RuntimeError: it is not the file that its hash belongs to.
    """
    path = Path(model_dir or os.path.join(torch.hub.get_dir(), 'checkpoints')) / (file_name or _name_in(url))
    if not path.exists():
        found = _HASH.search(path.name) or _HASH.search(_name_in(url))
        if check_hash and not found:
            raise ValueError(f'{url} has no hash in its name, as in name-<8 hexadecimal digits or more>.pth, to check')
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), found[1] if found else None, progress=progress)
    return load_from_local(str(path), map_location)


def _name_in(url: str) -> str:
    return unquote(os.path.basename(urlparse(url).path))
