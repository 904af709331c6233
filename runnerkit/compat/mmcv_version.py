"""The version of MMCV that our ``mmcv`` reports; downstream packages refuse other versions."""

from __future__ import annotations

from runnerkit.utils.exceptions import WrongValue

__version__ = '1.7.2'
version_info = (1, 7, 2)

__all__ = ['__version__', 'parse_version_info', 'version_info']


def parse_version_info(version_str: str, length: int = 4) -> tuple[int | str, ...]:
    """Return a version as a tuple.

    ``'1.3.0'`` is ``(1, 3, 0, 0, 0, 0)``, ``'2.0.0rc1'`` is ``(2, 0, 0, 0, 'rc', 1)``.

    Args:
        version_str: the version to split.
        length: the number of entries for the release; two more entries describe a pre- or post-release.

    Raises:
        WrongValue: the text is not a version.
    """
    from packaging.version import InvalidVersion, parse

    try:
        version = parse(version_str)
    except InvalidVersion as error:
        raise WrongValue(f'{version_str!r} is not a version; it should look like 1.7.2 or 2.0.0rc1') from error
    release = version.release[:length]
    padding = (0,) * (length - len(release))
    if version.pre is not None:
        return release + padding + version.pre
    if version.is_postrelease:
        return release + padding + ('post', version.post or 0)
    return release + padding + (0, 0)
