"""Other systems' files and names, unchanged: one room for each system.

Core packages import none of these. They find config readers, hooks, storages and module paths by the entry points of
setup.py, and other packages add theirs in the same way (`runnerkit.utils.lazy`).

MMCV 1.x: ``python -m runnerkit.compat train.py …``, or `install` before the first ``import mmcv``.
`runnerkit.compat.mmcv.aliases` maps MMCV's paths to ours. Packages of MMCV that have nothing to do with training
(``mmcv.cnn``, ``mmcv.image``, ``mmcv.ops`` …) come from the installed mmcv.
"""

from runnerkit.compat.mmcv import finder
from runnerkit.compat.mmcv.mmcv_finder import install

__all__ = ['install']

finder.install()
