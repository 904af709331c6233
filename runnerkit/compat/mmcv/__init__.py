"""MMCV 1.x: its module paths, names, storages and unchanged scripts."""
