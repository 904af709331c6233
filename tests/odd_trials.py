"""Jobs whose trials crash, hang, or are killed, and what is left of them."""

from pathlib import Path

from studies import config_file

from runnerkit.search.job import Job

MODEL = '''
import os, signal, time
from support import Tiny

class Odd(Tiny):
    """Behaves as its argument says, in its third step."""
    def __init__(self, what='well'):
        super().__init__()
        self.what, self.steps = what, 0

    def train_step(self, data, optimizer, **kwargs):
        self.steps += 1
        if self.steps == 3:
            if self.what == 'crash':
                os._exit(7)
            if self.what == 'kill':
                os.kill(os.getpid(), signal.SIGKILL)
            if self.what == 'raise':
                raise RuntimeError('this is odd')
            if self.what == 'hang':
                open(os.path.join(os.path.dirname(__file__), 'hangs'), 'w').close()
                while True:
                    time.sleep(1)
            if self.what == 'child':
                if os.fork() == 0:
                    while True:
                        time.sleep(1)
                os._exit(3)
        return super().train_step(data, optimizer)
'''


def job(folder, what, number=0):
    Path(folder, 'odd.py').write_text(MODEL)
    config = config_file(folder, model={'type': f'{folder}/odd.py:Odd'}, evaluation={'interval': 1})
    work_dir = f'{folder}/{number}/run'
    return Job(number, str(config), {'model.what': what}, work_dir, 5, {'loss': 'min'})


def run(executor, *jobs, report=lambda step, scores: False):
    ended = []
    with executor:
        for each in jobs:
            executor.start(each, report)
        while executor.running:
            ended += executor.wait(0.5)
    return {each.job.number: each.result for each in ended}


def members(group):
    """The processes of a process group."""
    found = []
    for entry in Path('/proc').iterdir():
        try:
            fields = (entry / 'stat').read_text().rsplit(')', 1)[1].split()
        except (OSError, IndexError):
            continue
        if int(fields[2]) == group and fields[0] != 'Z':
            found.append(entry.name)
    return found
