"""What a checkpoint says of itself: whether its weights, optimizer states and training losses are finite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import is_checkpoint_folder
from runnerkit.checkpoint.safe_load import safe_load
from runnerkit.utils.logging import printable

#: In ``meta``: what is not finite, in words by kind (``weights``, ``optimizer``, ``loss``); empty if all is. Files
#: without it count as finite.
NON_FINITE = 'non_finite'
#: In ``meta``: the names of buffers and frozen parameters that were not finite when the run began.
AT_START = 'not_finite_at_start'


def why_not_finite(checkpoint: Any) -> str | None:
    """What is not finite in ``checkpoint``, the content of a file, as it says itself; None if all is finite, or if it
    does not say."""
    meta = checkpoint.get('meta') if isinstance(checkpoint, Mapping) else None
    found = meta.get(NON_FINITE) if isinstance(meta, Mapping) else None
    if not isinstance(found, Mapping) or not found:
        return None
    return 'NaN or infinite values in ' + printable(', '.join(map(str, found.values())), 300)


def why_file_not_finite(path: Path) -> str | None:
    """`why_not_finite` of the checkpoint at a local path; None too if it cannot be read."""
    try:
        if not is_checkpoint_folder(path):
            return why_not_finite(safe_load(path, mmap=True))  # reads no tensor
        from runnerkit.checkpoint.folder import read_rest

        return why_not_finite(read_rest(path))
    except Exception:  # the code that uses the file reports what is wrong with it
        return None


def describe_counts(bad: Mapping[str, str]) -> str:
    """The tensors of `find_non_finite` on one line: the first one, and how many there are."""
    name, count = next(iter(bad.items()))
    more = f' and {len(bad) - 1} other tensor{"s" * (len(bad) > 2)}' if len(bad) > 1 else ''
    return f'{name} ({count}){more}'
