"""A small kill loop; the whole one is `python benchmarks/faults.py`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

FAULTS = Path(__file__).resolve().parent.parent / 'benchmarks' / 'faults.py'


def test_killed_runs_end_like_undisturbed_ones(warm):
    options = ['--cells', '1', '--kills', '2', '--kills-per-run', '2']
    done = subprocess.run([sys.executable, str(FAULTS), *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    kills, damaged = re.search(r'(\d+) kills .* 0 runs that ended differently, (\d+) damaged', done.stdout).groups()
    assert int(kills) >= 2
    assert int(damaged) == 0


@pytest.mark.thorough  # tests/runner/test_ranks_change.py, test_sharded.py
@pytest.mark.parametrize('wrapper', ['DDP', 'FSDP2'])
@pytest.mark.distributed
def test_a_rank_that_is_killed_under_torchrun_changes_nothing(wrapper):
    options = ['--ranks', '1', '--wrapper', wrapper]
    done = subprocess.run([sys.executable, str(FAULTS), *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f'1 kills of a rank under {wrapper}, 0 runs that ended differently' in done.stdout
