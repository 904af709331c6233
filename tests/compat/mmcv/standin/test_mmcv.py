import sys

import pytest

import runnerkit
from runnerkit import fileio, utils


def test_versions(compat):
    import mmcv
    import mmcv.version

    assert mmcv.__version__ == mmcv.version.__version__ == '1.7.2'
    assert mmcv.version_info == (1, 7, 2)
    assert mmcv.parse_version_info('1.3.0') == (1, 3, 0, 0, 0, 0)
    assert mmcv.version is sys.modules['runnerkit.compat.mmcv.mmcv_version']
    assert runnerkit.__version__ != '1.7.2'


def test_names_of_utils_and_fileio_are_at_the_root(compat_alone):
    from mmcv import Config, ConfigDict, DictAction, ProgressBar, build_from_cfg, dump, is_str, load, mkdir_or_exist

    assert (Config, ConfigDict, DictAction) == (runnerkit.Config, runnerkit.ConfigDict, runnerkit.DictAction)
    assert build_from_cfg is runnerkit.build_from_cfg
    assert (dump, load) == (fileio.dump, fileio.load)
    assert (ProgressBar, is_str, mkdir_or_exist) == (utils.ProgressBar, utils.is_str, utils.mkdir_or_exist)


def test_names_of_image_are_the_installed_ones_and_lazy(compat):
    import mmcv

    assert 'mmcv.image' not in sys.modules
    assert mmcv.imread == 'imread'
    assert mmcv.image.imwrite == 'imwrite'
    assert 'imread' in dir(mmcv)
    assert 'is_str' in dir(mmcv)


def test_without_an_installed_mmcv_they_say_what_to_install(compat_alone):
    with pytest.raises(ImportError, match='pip install'):
        from mmcv import imread  # noqa: F401


def test_other_attributes_are_not_there(compat):
    import mmcv

    assert not any(hasattr(mmcv, name) for name in ('nothing', 'cnn', 'ops', 'hooks', 'timer'))
    with pytest.raises(AttributeError, match="module 'mmcv' has no attribute 'nothing'"):
        mmcv.nothing  # noqa: B018
