"""The package. Everything about tools (lint, types, tests, layers) is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def requirements(name: str) -> list[str]:
    """The lines of requirements/<name>.txt that name a package."""
    lines = (ROOT / 'requirements' / f'{name}.txt').read_text(encoding='utf-8').splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith('#')]


def version() -> str:
    text = (ROOT / 'runnerkit' / 'version.py').read_text(encoding='utf-8')
    found = re.search(r"__version__ = '([^']+)'", text)
    if found is None:
        raise RuntimeError("runnerkit/version.py holds no line __version__ = '…'")
    return found[1]


setup(
    name='runnerkit',
    version=version(),
    description="A hook-driven training engine in the MMCV style, on today's PyTorch",
    long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    packages=find_packages(include=['runnerkit', 'runnerkit.*']),
    package_data={'runnerkit': ['py.typed', 'model_zoo/*.json', 'config/*.json', 'flow/report/page.*']},
    python_requires='>=3.11',
    install_requires=requirements('runtime'),
    extras_require={
        'plot': ['matplotlib>=3.7'],
        'tensorboard': ['tensorboard>=2.14'],
        'safetensors': ['safetensors>=0.4'],
        'onnx': requirements('onnx'),
        'search': requirements('search'),
        'ray': requirements('search') + requirements('ray'),
        'large-data': requirements('large_data'),
        'all': requirements('optional'),
        # With the newest torchvision, pip installs another torch, unless the command names one: docs/first_steps.md.
        'vision': ['torch', 'torchvision'],
        'trackers': requirements('trackers'),
        'tests': requirements('tests'),
    },
    entry_points={
        'console_scripts': ['runnerkit = runnerkit.cli.main:main'],
        # Core packages do not name those of other systems: they find them here, as they find those of other packages.
        'runnerkit.paths': ['mmcv = runnerkit.compat.mmcv.finder:install'],
        'runnerkit.storage_backends': [
            'ceph = runnerkit.compat.mmcv.clusters:CephBackend',
            'lmdb = runnerkit.compat.mmcv.clusters:LmdbBackend',
            'memcached = runnerkit.compat.mmcv.clusters:MemcachedBackend',
            'petrel = runnerkit.compat.mmcv.clusters:PetrelBackend',
        ],
        'runnerkit.config_readers': ['paddlerec = runnerkit.compat.paddlerec.config:PaddleRecReader'],
        'runnerkit.hooks': ['VegaCallbacks = runnerkit.compat.vega.callbacks:VegaCallbacks'],
        'runnerkit.pipelines': ['vega = runnerkit.compat.vega.steps:VegaPipeline'],
        'runnerkit.search_algorithms': ['PruneEA = runnerkit.compat.vega.prune:PruneEA'],
        'runnerkit.codecs': ['PruneCodec = runnerkit.compat.vega.prune:PruneCodec'],
        'runnerkit.search_parameters': [
            'AdjacencyList = runnerkit.compat.vega.space:AdjacencyList',
            'BinaryCode = runnerkit.compat.vega.space:BinaryCode',
        ],
        'runnerkit.search_spaces': [
            'hyperparameters = runnerkit.compat.vega.space:space_of',
            'modules = runnerkit.compat.vega.networks:SearchSpace',
        ],
    },
)
