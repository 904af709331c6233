"""The switch that allows loading checkpoints that could run code; it is off by default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ENV_TRUST_PICKLES = 'RUNNERKIT_TRUST_PICKLES'

#: The end of the message about a refused file; the flag is that of the tools.
HOW_TO_TRUST = (
    f'If you trust the author of the file, say so with --trust-pickles, {ENV_TRUST_PICKLES}=1 or '
    '"with runnerkit.checkpoint.trusted_pickles():". Code in it then runs with your permissions.'
)

_YES = ('1', 'true', 'yes', 'on')
_trusted: ContextVar[bool] = ContextVar('trusted_pickles', default=False)


@contextmanager
def trusted_pickles(trust: bool = True) -> Iterator[None]:
    """Inside this context, in this thread, checkpoints are loaded even if that runs code inside them.

    It applies to loading, resuming, pretrained weights and all URL schemes. Use it for single files of known origin,
    and save what you need from them in a new file.

    Args:
        trust: if False, the context changes nothing.
    """
    token = _trusted.set(trust or _trusted.get())
    try:
        yield
    finally:
        _trusted.reset(token)


def pickles_are_trusted() -> bool:
    """Whether code in checkpoints may run now: inside `trusted_pickles`, or allowed by the environment variable."""
    return _trusted.get() or os.environ.get(ENV_TRUST_PICKLES, '').strip().lower() in _YES
