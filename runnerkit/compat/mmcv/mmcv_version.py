"""The version of MMCV that our ``mmcv`` reports; downstream packages refuse other versions."""

from __future__ import annotations

import os
import re

from runnerkit.utils.exceptions import WrongValue

#: The environment variable with another version of MMCV 1.x to report; ``--as-mmcv`` sets it, also for workers.
AS_MMCV = 'RUNNERKIT_AS_MMCV'


__version__ = '1.7.2'
version_info: tuple[int, ...] = (1, 7, 2)


def report_version(text: str) -> None:
    """Report another version of MMCV 1.x, in this process and in those that it starts; before ``mmcv`` is imported.

    Raises:
        WrongValue: ``text`` is not one, such as 1.4.0.
    """
    global __version__, version_info
    if not re.fullmatch(r'1\.\d+\.\d+', text):
        raise WrongValue(f'{text!r} is not a version of MMCV 1.x to report: write one such as 1.4.0')
    os.environ[AS_MMCV] = __version__ = text
    version_info = tuple(int(part) for part in text.split('.'))


if os.environ.get(AS_MMCV):
    report_version(os.environ[AS_MMCV])

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
