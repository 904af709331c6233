"""Code written for MMCV 1.x, unchanged: ``python -m runnerkit.compat train.py …``, or `install` before the first
``import mmcv``.

`runnerkit.compat.aliases` maps MMCV's paths to ours. Packages of MMCV that have nothing to do with training
(``mmcv.cnn``, ``mmcv.image``, ``mmcv.ops`` …) come from the installed mmcv.
"""

from runnerkit.compat.mmcv_finder import install

__all__ = ['install']
