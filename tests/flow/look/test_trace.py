"""The moments of a training that `RUNNERKIT_TRACE_START` prints."""

import os
import subprocess
import sys

from planted import project


def test_where_the_time_goes(tmp_path, warm):
    """`RUNNERKIT_TRACE_START` prints the moments of a run in their order, and without it nothing is printed."""
    words = [sys.executable, '-m', 'runnerkit', 'train', 'cfg.py']
    for variable in ('1', ''):
        environment = {**os.environ, 'RUNNERKIT_TRACE_START': variable}
        done = subprocess.run(
            words, cwd=project(tmp_path).parent, env=environment, capture_output=True, text=True, check=True
        )
        lines = [line.split(maxsplit=6) for line in done.stderr.splitlines() if line.startswith('trace ')]
        if not variable:
            assert lines == []
            continue
        used, passed = zip(*((float(line[1]), float(line[4])) for line in lines), strict=True)
        assert sorted(used) == list(used)
        assert sorted(passed) == list(passed)
        moments = [line[6] for line in lines]
        assert moments[:3] == ['torch is loaded', 'everything is built', 'first batch of epoch 1']
        assert moments[-3:] == ['end of epoch 2', 'end of the run', 'exit']
