from runnerkit.compat.mmcv.old_names import INSTALLED, PACKAGES


def test_each_name_has_one_package():
    assert INSTALLED['imread'] == 'image'
    assert INSTALLED['VideoReader'] == 'video'
    assert INSTALLED['quantize'] == 'arraymisc'
    assert INSTALLED['imshow'] == 'visualization'
    assert len(INSTALLED) == 75
    assert set(INSTALLED.values()) < set(PACKAGES)
