"""An mmcv of a few lines, installed; and runnerkit in MMCV's place for the length of a test."""

import sys

import pytest

from runnerkit.compat import install

FILES = {
    '__init__.py': 'raise RuntimeError("the installed root must not be imported: it imports what runnerkit replaces")',
    'version.py': '__version__ = "2.2.0"',
    'image/__init__.py': 'from .io import imread, imwrite',
    'image/io.py': 'from mmcv.fileio import FileClient\nimread, imwrite = "imread", "imwrite"',
    'cnn/__init__.py': 'from .utils import constant_init\nfrom ..runner import Sequential',
    'cnn/utils/__init__.py': 'from .weight_init import constant_init',
    'cnn/utils/weight_init.py': 'raise RuntimeError("a second registry of initializers")',
    'ops/__init__.py': 'from .nms import nms, ext_module',
    'ops/nms.py': 'from ..utils import ext_loader\n'
    'ext_module = ext_loader.load_ext("_ext", ["nms", "softnms"])\n'
    'def nms(boxes):\n    return ext_module.nms(boxes)',
    'runner/__init__.py': 'raise RuntimeError("replaced by runnerkit")',
}


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages, with an mmcv."""
    for name, text in FILES.items():
        file = tmp_path / 'site' / 'mmcv' / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / 'site'


@pytest.fixture
def process(monkeypatch):
    """What installing changes in this process is undone at the end."""
    monkeypatch.setattr(sys, 'path', list(sys.path))
    monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
    drop_mmcv()
    yield
    drop_mmcv()


@pytest.fixture
def compat(process, site):
    """runnerkit in the place of the mmcv of `site`."""
    sys.path.insert(1, str(site))
    install()


@pytest.fixture
def compat_alone(process, monkeypatch):
    """runnerkit in MMCV's place, and no mmcv installed."""
    monkeypatch.setattr('runnerkit.compat.mmcv.mmcv_finder.installed_folders', list)
    install()


def drop_mmcv():
    for name in [name for name in sys.modules if name.partition('.')[0] == 'mmcv']:
        del sys.modules[name]
