"""A training run as a process that can be killed, and the comparison of two runs."""

import hashlib
import importlib
import json
import os
import pickle
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch


class Attempt:
    """A training run as a process: ``job(work_dir)``. Its return value is written to a file when it is complete."""

    def __init__(self, job, folder, name):
        self.result, self.errors = folder / f'{name}.result', folder / f'{name}.errors'
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run(job, folder / name)

    def _run(self, job, work_dir):
        code = 1
        try:
            os.setsid()  # its loader workers die with it
            errors = os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(errors, 1)
            os.dup2(errors, 2)
            found = job(work_dir)
            self.result.write_bytes(pickle.dumps(found))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def kill_after(self, seconds):
        """Whether the process was killed after this many seconds, rather than complete by then."""
        deadline = self.started + seconds
        while time.monotonic() < deadline:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return self._killed_workers()
            time.sleep(min(0.002, max(0.0, deadline - time.monotonic())))
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self._killed_workers()
        return os.WIFSIGNALED(status)

    def _killed_workers(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return False


def warm_up(chosen):
    """Import once, here, the modules that each process would import; none of them may start threads."""
    torch.set_num_threads(1)
    importlib.import_module('torch._dynamo')  # torch's optimizers need it
    try:
        importlib.import_module('torch.utils.tensorboard')
        importlib.import_module('tensorboard.backend.event_processing.event_accumulator')
    except ImportError:
        print('tensorboard is not installed: the cells run without it')
        for cell in chosen:
            cell['tensorboard'] = 'no'


def differences(left, right):
    return [key for key in left if left[key] != right.get(key)] + [key for key in right if key not in left]


def digest(value):
    """A hash of all bits of nested containers of tensors, arrays and plain values."""
    found = hashlib.sha256()

    def add(part):
        if isinstance(part, dict):
            add([list(pair) for pair in part.items()])
        elif isinstance(part, (list, tuple)):
            found.update(f'[{len(part)}'.encode())
            for each in part:
                add(each)
        elif torch.is_tensor(part):
            found.update(f'{part.dtype}{tuple(part.shape)}'.encode() + part.detach().contiguous().numpy().tobytes())
        elif isinstance(part, np.ndarray):
            found.update(part.tobytes())
        else:
            found.update(repr(part).encode())

    add(value)
    return found.hexdigest()


def log_of(work_dir):
    """The log's lines about moments of the run, in order, without times."""
    lines = [json.loads(text) for path in sorted(Path(work_dir).glob('*.log.json')) for text in path.open()]
    return [{key: line[key] for key in line if 'time' not in key} for line in lines if 'mode' in line]
