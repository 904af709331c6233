import pytest

from runnerkit.compat.mmcv.mmcv_version import __version__, parse_version_info, report_version, version_info


def test_the_version_is_the_last_of_1_x():
    assert __version__ == '1.7.2'
    assert version_info == (1, 7, 2)


@pytest.mark.parametrize(
    ('version', 'length', 'parts'),
    [
        ('1.3.0', 4, (1, 3, 0, 0, 0, 0)),
        ('1.3', 4, (1, 3, 0, 0, 0, 0)),
        ('2.0.0rc1', 4, (2, 0, 0, 0, 'rc', 1)),
        ('1.2.3.4.5', 3, (1, 2, 3, 0, 0)),
    ],
)
def test_parts(version, length, parts):
    assert parse_version_info(version, length) == parts


def test_what_is_no_version_is_refused():
    with pytest.raises(ValueError, match="'new' is not a version"):
        parse_version_info('new')


def test_the_version_to_report():
    for wrong in ('2.0.0', '1.4', 'new', '1.4.0rc1', ''):
        with pytest.raises(ValueError, match=f'{wrong!r} is not a version of MMCV 1.x to report'):
            report_version(wrong)
