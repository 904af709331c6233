"""A folder for ``sys.path`` with the ``mmcv`` that is imported when runnerkit replaces MMCV 1.x."""
