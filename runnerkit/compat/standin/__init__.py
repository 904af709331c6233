"""A folder for ``sys.path``, with the ``mmcv`` that is imported where runnerkit stands in for MMCV 1.x."""
