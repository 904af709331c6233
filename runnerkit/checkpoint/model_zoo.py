"""Tables of pretrained models: the URL of each name."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from runnerkit import fileio

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


def get_torchvision_models() -> dict[str, str]:
    """The URLs of torchvision's weights, by model name and by ``<model>.<weights>``, in lower case.

    A model's name alone means its first weights: ``resnet50`` is ``resnet50.imagenet1k_v1``.

    Raises:
        ImportError: torchvision is missing or older than 0.14.
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
    own = os.path.join(_get_mmcv_home(), 'open_mmlab.json')
    if os.path.exists(own):
        models.update(fileio.load(own))
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
