"""Code written for MMCV 1.x, unchanged: ``python -m runnerkit.compat train.py …``, or `install` before the first
``import mmcv``.

`runnerkit.compat.aliases` says which old path is what here. Packages of MMCV that have nothing to do with training
(``mmcv.cnn``, ``mmcv.image``, ``mmcv.ops`` …) come from the mmcv that is installed.
"""

from runnerkit.compat.mmcv_finder import install

__all__ = ['install']
