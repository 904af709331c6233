"""One start of two processes for all tests of this folder."""

from pathlib import Path

import pytest


@pytest.fixture(scope='session')
def ranks(on_ranks, tmp_path_factory):
    """The results of `all_calls.everything` by name, of rank 0 and of rank 1."""
    first, second = on_ranks(
        Path(__file__).with_name('all_calls.py'), 'everything', str(tmp_path_factory.mktemp('ranks'))
    )
    return {name: (first[name], second[name]) for name in first}
