"""Loaders for checkpoints that are not local files, one per URL scheme, and tables of pretrained models by name."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch

from runnerkit import fileio
from runnerkit.checkpoint.loader import CheckpointLoader, load_from_local, load_from_stream, load_from_url
from runnerkit.distributed import barrier, get_dist_info
from runnerkit.fileio.paths import plain_file_name
from runnerkit.utils.exceptions import WrongValue, raise_with_context
from runnerkit.utils.logging import printable
from runnerkit.utils.suggest import suggestion

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


ENV_MMCV_HOME = 'MMCV_HOME'
ENV_XDG_CACHE_HOME = 'XDG_CACHE_HOME'
DEFAULT_CACHE_DIR = '~/.cache'

#: MMCV's names of some torchvision models.
_OTHER_NAMES = {
    'inception_v3_google': 'inception_v3',
    'shufflenetv2_x0.5': 'shufflenet_v2_x0_5',
    'shufflenetv2_x1.0': 'shufflenet_v2_x1_0',
    'shufflenetv2_x1.5': 'shufflenet_v2_x1_5',
    'shufflenetv2_x2.0': 'shufflenet_v2_x2_0',
}


@CheckpointLoader.register_scheme(('http://', 'https://'))
def load_from_http(filename: str, map_location: Any = None, model_dir: str | None = None) -> Any:
    """Load from the web through a cache; see `load_url`.

    In distributed runs, the first process of each machine downloads the file while the others wait, so all processes
    must call this.
    """
    rank, _ = get_dist_info()
    if int(os.environ.get('LOCAL_RANK', rank)) != 0:
        barrier()
        return load_url(filename, model_dir=model_dir, map_location=map_location)
    try:
        return load_url(filename, model_dir=model_dir, map_location=map_location)
    finally:
        barrier()


@CheckpointLoader.register_scheme(r'(\S+\:)?s3://')
def load_from_ceph(filename: str, map_location: Any = None, backend: str = 'petrel') -> Any:
    """Load from S3 with MMCV's client if it is installed, otherwise with fsspec."""
    if backend not in ('petrel', 'ceph'):
        raise ValueError(f'Load from Backend {backend} is not supported.')
    from runnerkit.fileio.file_client import FileClient

    try:
        client = FileClient(backend=backend)
    except ImportError:
        if not filename.startswith('s3://'):  # with a cluster's name, which only that client understands
            raise
        return load_from_url(filename, map_location)
    return load_from_stream(io.BytesIO(client.get(filename)), filename, map_location)


@CheckpointLoader.register_scheme('pavi://')
def load_from_pavi(filename: str, map_location: Any = None) -> Any:
    """Load ``pavi://<model>`` from a Pavi model cloud."""
    if not filename.startswith('pavi://'):
        raise WrongValue(f'Expected filename startswith `pavi://`, but get {filename}')
    try:
        from pavi import modelcloud  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError('Please install pavi to load checkpoint from modelcloud: pip install pavi') from error
    model = modelcloud.get(filename[len('pavi://') :])
    with tempfile.TemporaryDirectory() as folder:
        # The name comes from the server: only the file type is taken from it.
        path = os.path.join(
            folder, 'checkpoint' + ('.safetensors' if str(model.name).endswith('.safetensors') else '.pth')
        )
        model.download(path)
        return load_from_local(path, map_location)


@CheckpointLoader.register_scheme(('modelzoo://', 'torchvision://'))
def load_from_torchvision(filename: str, map_location: Any = None) -> Any:
    """Load ``torchvision://resnet50`` or ``torchvision://ResNet50_Weights.IMAGENET1K_V2``."""
    scheme, _, name = filename.partition('://')
    if scheme == 'modelzoo':
        warnings.warn(
            'The URL scheme of "modelzoo://" is deprecated, please use "torchvision://" instead',
            DeprecationWarning,
            stacklevel=2,
        )
    url = _looked_up(name if '.' not in name else weights_key(name), get_torchvision_models(), filename)
    return load_from_http(url, map_location=map_location)


@CheckpointLoader.register_scheme(('open-mmlab://', 'openmmlab://'))
def load_from_openmmlab(filename: str, map_location: Any = None) -> Any:
    """Load a backbone of OpenMMLab, or of the user, by name; see `get_external_models`."""
    scheme, _, name = filename.partition('://')
    newer = get_deprecated_model_names().get(name)
    if newer is not None:
        warnings.warn(
            f'{filename} is deprecated in favor of {scheme}://{newer}',
            DeprecationWarning,
            stacklevel=2,
        )
    place = _looked_up(newer or name, get_external_models(), filename)
    if place.startswith(('http://', 'https://')):
        return load_from_http(place, map_location=map_location)
    return load_from_local(os.path.join(_get_mmcv_home(), place), map_location)


@CheckpointLoader.register_scheme('mmcls://')
def load_from_mmcls(filename: str, map_location: Any = None) -> Any:
    """Load the backbone of an MMClassification model by name."""
    url = _looked_up(filename.removeprefix('mmcls://'), get_mmcls_models(), filename)
    return _process_mmcls_checkpoint(load_from_http(url, map_location=map_location))


def _process_mmcls_checkpoint(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The weights below ``backbone``, without that prefix."""
    state = checkpoint.get('state_dict', checkpoint)
    prefix = 'backbone.'
    backbone = OrderedDict((name[len(prefix) :], value) for name, value in state.items() if name.startswith(prefix))
    return {'state_dict': backbone}


def _looked_up(name: str, table: Mapping[str, str], filename: str) -> str:
    if name not in table:
        raise KeyError(f'no checkpoint {filename}{suggestion(name, table)}')
    return table[name]


# --- tables of pretrained models: the URL of each name --------------------------------------------------------------


def get_torchvision_models() -> dict[str, str]:
    """The URLs of torchvision's weights, by model name and by ``<model>.<weights>``, in lower case.

    A model's name alone means its first weights: ``resnet50`` is ``resnet50.imagenet1k_v1``.
    """
    try:
        models = import_module('torchvision.models')
        names = models.list_models()
    except (ImportError, AttributeError) as error:
        raise ImportError(
            'torchvision:// needs torchvision 0.14 or later: pip install torchvision (a version for your torch)'
        ) from error
    urls: dict[str, str] = {}
    for name in names:
        all_weights = models.get_model_weights(name)
        for weights in all_weights:
            urls.setdefault(name, weights.url)
            # The enum is named after the model, in another spelling: ResNet50_Weights.IMAGENET1K_V1.
            urls[f'{weights_key(all_weights.__name__)}.{weights.name.lower()}'] = weights.url
    urls.update({ours: urls[theirs] for ours, theirs in _OTHER_NAMES.items() if theirs in urls})
    return urls


def weights_key(name: str) -> str:
    """Torchvision's spelling of ``name`` converted to that of `get_torchvision_models`."""
    return name.lower().replace('_weights', '')


def get_external_models() -> dict[str, str]:
    """OpenMMLab's backbones by name: URLs, or paths relative to MMCV's folder.

    The user's ``open_mmlab.json`` in that folder overrides them.
    """
    models = _table('open_mmlab')
    table = os.path.join(_get_mmcv_home(), 'open_mmlab.json')
    if os.path.exists(table):
        models.update(fileio.load(table))
    return models


def get_mmcls_models() -> dict[str, str]:
    """The URLs of MMClassification's models, by name."""
    return _table('mmcls')


def get_deprecated_model_names() -> dict[str, str]:
    """The new names of OpenMMLab's backbones, by their old names."""
    return _table('deprecated')


def _get_mmcv_home() -> str:
    """MMCV's folder, created if needed: ``$MMCV_HOME``, or ``mmcv`` in the user's cache folder."""
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    home = os.path.expanduser(os.getenv(ENV_MMCV_HOME, os.path.join(cache, 'mmcv')))
    os.makedirs(home, exist_ok=True)
    return home


def _table(name: str) -> Any:
    """A table from ``model_zoo`` of the imported mmcv, else of this package."""
    package = import_module(__name__.partition('.')[0])
    folders = [*getattr(sys.modules.get('mmcv'), '__path__', ()), *package.__path__]
    return fileio.load(
        next(path for path in (Path(folder, 'model_zoo', f'{name}.json') for folder in folders) if path.exists())
    )
