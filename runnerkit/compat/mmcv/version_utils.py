"""Comparing versions, and the commit of a git checkout."""

from __future__ import annotations

import os
import subprocess

from runnerkit.utils.env import acts_as_mmcv
from runnerkit.utils.exceptions import WrongValue

_STAGES = {'a': -3, 'b': -2, 'rc': -1}
_DEV = -4


def digit_version(version_str: str, length: int = 4) -> tuple[int, ...]:
    """A version as a tuple that can be compared: ``'1.2rc1'`` is ``(1, 2, 0, 0, -1, 1)``.

    Args:
        version_str: a version as in PEP 440; a local part (``+cu118``) is ignored.
        length: how many numbers of the release to use.

    Returns:
        The release, padded with zeros, its stage (dev -4, a -3, b -2, rc -1, the release itself 0, post 1) and the
        stage's number.

    Raises:
        ValueError: it is not a version.
    """
    from packaging.version import InvalidVersion, parse

    if not isinstance(version_str, str):
        raise TypeError(f'a version must be a str, but got {type(version_str)}: {version_str!r}')
    try:
        version = parse(version_str)
    except InvalidVersion as error:
        raise WrongValue(f'{error}: a version looks like 1.2.3rc1') from error
    release = (*version.release[:length], *[0] * (length - len(version.release)))
    if version.pre:
        stage, number = version.pre
        return (*release, _STAGES[stage], number)
    if version.is_prerelease:
        return (*release, _DEV, 0)
    return (*release, 1, version.post or 0) if version.is_postrelease else (*release, 0, 0)


def get_git_hash(fallback: str = 'unknown', digits: int | None = None) -> str:
    """The commit checked out in the current folder.

    Args:
        fallback: the result if this is not a git checkout, or git is missing. In code written for MMCV, the result
            outside of a checkout is empty, as there.
        digits: how many characters of the commit to return; None for all.
    """
    if digits is not None and not isinstance(digits, int):
        raise TypeError(f'digits must be None or an integer, but got {type(digits)}: {digits!r}')
    try:
        commit = _minimal_ext_cmd(['git', 'rev-parse', 'HEAD']).strip().decode('ascii')
    except OSError:
        return fallback
    return commit[:digits] or ('' if acts_as_mmcv() else fallback)


def _minimal_ext_cmd(cmd: list[str]) -> bytes:
    """The output of ``cmd``, in English. Tests of MMCV patch this name."""
    environment = {**os.environ, 'LANGUAGE': 'C', 'LANG': 'C', 'LC_ALL': 'C'}
    return subprocess.run(cmd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
