"""The one switch for checkpoints that could run code when they are loaded: off, unless somebody says otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ENV_TRUST_PICKLES = 'RUNNERKIT_TRUST_PICKLES'

#: What a refusal tells about the way out; the flag is that of the tools.
HOW_TO_TRUST = (
    f'If you trust whoever made the file, say so with --trust-pickles, {ENV_TRUST_PICKLES}=1 or '
    '"with runnerkit.checkpoint.trusted_pickles():". Whatever code is in it then runs with your rights.'
)

_YES = ('1', 'true', 'yes', 'on')
_trusted: ContextVar[bool] = ContextVar('trusted_pickles', default=False)


@contextmanager
def trusted_pickles() -> Iterator[None]:
    """Inside, checkpoints are loaded even where that runs code that is in them; only in this thread.

    Every reader of checkpoints obeys: loading, resuming, pretrained weights, all URL schemes. Use it for single files
    of known origin, and save what you need of them again.
    """
    token = _trusted.set(True)
    try:
        yield
    finally:
        _trusted.reset(token)


def pickles_are_trusted() -> bool:
    """Whether code in checkpoints may run now: inside `trusted_pickles`, or by the environment."""
    return _trusted.get() or os.environ.get(ENV_TRUST_PICKLES, '').strip().lower() in _YES
