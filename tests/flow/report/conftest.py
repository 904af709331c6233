"""Fixtures of the reports' tests: a work dir, and a browser that opens reports."""

import pytest
from browsers import browser as browser
from run_files import lines_of, write_log


@pytest.fixture
def work_dir(tmp_path):
    """Of a completed run of three epochs, whose second was the best."""
    folder = write_log(tmp_path / 'run', lines_of())
    for name in ('epoch_3.pth', 'best_acc_epoch_2.pth'):
        (folder / name).write_bytes(b'never read')
    (folder / 'net.py').write_text('seed = 0\n')
    return folder
