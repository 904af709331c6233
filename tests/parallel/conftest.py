"""One start of two processes for the wrappers."""

from pathlib import Path

import pytest


@pytest.fixture(scope='session')
def results(on_ranks):
    """What `ddp_runs.everything` returns on each rank."""
    return on_ranks(Path(__file__).with_name('ddp_runs.py'), 'everything')
