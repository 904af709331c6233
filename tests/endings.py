"""A small project whose code ends where and how a test says: by the variables PLACE, HOW and ENDS (on which ranks)."""

#: How code can end: what it executes, the row of the page's table that is about it, and the exit code.
HOWS = {
    'sys.exit()': ('SystemExit', 1),
    'sys.exit(0)': ('SystemExit', 1),
    'sys.exit(False)': ('SystemExit', 1),
    'sys.exit(256)': ('SystemExit', 1),
    'sys.exit(1)': ('SystemExit', 1),
    'sys.exit(True)': ('SystemExit', 1),
    'sys.exit(3)': ('SystemExit', 3),
    'sys.exit(-1)': ('SystemExit', 255),
    'sys.exit(143)': ('SystemExit', 143),
    'sys.exit("no data")': ('SystemExit', 1),
    'sys.exit([])': ('SystemExit', 1),
    'raise KeyboardInterrupt': ('KeyboardInterrupt', 130),
    'raise GeneratorExit': ('any other', 1),
    'raise asyncio.CancelledError': ('any other', 1),
    'raise Own("mine")': ('any other', 1),
    'raise StopIteration': ('any other', 1),
    'raise ValueError("boom")': ('any other', 1),
    'raise MemoryError': ('any other', 1),
    'raise NonFiniteError("boom")': ('NonFiniteError', 5),
}

#: In the config, an ``Exception`` is an error of reading it.
UNREADABLE = ('raise StopIteration', 'raise ValueError("boom")', 'raise MemoryError', 'raise NonFiniteError("boom")')

#: Places before the run begins.
BEFORE = ('config', 'data set', 'model', 'startup')
#: Places in the run before a save.
UNSAVED = (
    *('begin of around_run', 'before_run', 'before_train_epoch', 'sampler', 'train sample', 'before_train_iter'),
    *('forward', 'after_forward', 'after_train_iter', 'log', 'own loop', 'state_dict'),
)
#: Places in an evaluation, after which the training so far is saved.
EVALUATING = (
    *('before_val_epoch', 'val sample', 'before_val_iter', 'val_step', 'after_val_iter', 'after_val_epoch'),
    *('around_val', 'after_evaluate'),
)
#: Places after the last save.
SAVED = (*('around_save', 'after_save', 'after_run', 'logger', 'end of around_run', 'end of own stage', 'terminal'),)
CHECKPOINTS = {
    **dict.fromkeys((*BEFORE, *UNSAVED), []),
    **dict.fromkeys((*EVALUATING, 'after_train_epoch'), ['iter_4.pth', 'latest.pth']),
    **dict.fromkeys(SAVED, ['epoch_2.pth', 'latest.pth']),
    'load_state_dict': ['epoch_1.pth', 'latest.pth'],
}

#: Lines of the config that make a place.
LINES = {
    **dict.fromkeys(('own loop', 'end of own stage'), "flow = dict(runner=here + 'Loop')"),
    'startup': "flow = dict(startup=here + 'Startup')",
    'terminal': "flow = dict(terminal=here + 'Terminal')",
    'sampler': "data['train_dataloader'] = dict(sampler=dict(type=here + 'Order'))",
}

MODULE = '''
import asyncio
import os
import sys
from contextlib import contextmanager

import torch
from torch.utils.data import Dataset, IterableDataset

from torch.utils.data import SequentialSampler

from runnerkit.flow import RunnerBase, StartupBase, TerminalBase
from runnerkit.hooks import Hook
from runnerkit.hooks.logger import LoggerHook
from runnerkit.utils.exceptions import NonFiniteError


class Own(BaseException):
    """Of the user."""


def at(place):
    if os.environ.get('PLACE') == place and os.environ.get('RANK', '0') in os.environ.get('ENDS', '0 1'):
        exec(os.environ['HOW'])


class Points(Dataset):
    def __init__(self, of='train'):
        at('data set')
        self.of = of

    def __len__(self):
        return 8

    def __getitem__(self, i):
        if i == 5:
            at(f'{self.of} sample')
        return torch.full((4,), i / 8), torch.ones(1)


class Stream(IterableDataset):
    def __iter__(self):
        yield from (Points()[i] for i in range(4))


class Order(SequentialSampler):
    def __iter__(self):
        at('sampler')
        return super().__iter__()


class Model(torch.nn.Linear):
    def __init__(self, large=False):
        at('model')
        super().__init__(4, 1)
        self.large = torch.nn.Parameter(torch.zeros(100_000)) if large else None

    def forward(self, x):
        at('forward')
        return super().forward(x)

    def train_step(self, data, optimizer):
        loss = self(data[0]).pow(2).mean()
        return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data[0]))

    def val_step(self, data, optimizer=None):
        at('val_step')
        return self.train_step(data, optimizer)


POINTS = """before_run before_train_epoch before_train_iter after_forward after_train_iter after_train_epoch
before_val_epoch before_val_iter after_val_iter after_val_epoch after_save after_run""".split()


class Ends(Hook):
    n = 0

    def after_evaluate(self, runner, scores):
        at('after_evaluate')

    def state_dict(self):
        at('state_dict')
        return dict(n=1)

    def load_state_dict(self, state):
        at('load_state_dict')

    @contextmanager
    def around_run(self, runner):
        at('begin of around_run')
        yield
        at('end of around_run')

    @contextmanager
    def around_save(self, runner):
        yield
        at('around_save')

    @contextmanager
    def around_val(self, runner):
        yield
        at('around_val')


def _point(name):
    return lambda self, runner: at(name)


def _after_train_epoch(self, runner):
    at('after_train_epoch')
    if os.environ['PLACE'] == 'stop':
        exec(os.environ['HOW'])


for name in POINTS:
    setattr(Ends, name, _point(name))
Ends.after_train_epoch = _after_train_epoch


class Logger(LoggerHook):
    def log(self, runner):
        at('log')

    def after_run(self, runner):
        at('logger')


class Startup(StartupBase):
    def startup(self, context):
        super().startup(context)
        at('startup')


class Loop(RunnerBase):
    def run(self, context):
        if os.environ.get('PLACE', '').startswith('own'):
            for _ in range(2):
                context.runner.train(context.loaders[0])
                at('own loop')
        else:
            context.runner.run(context.loaders, context.workflow)
        at('end of own stage')


class Terminal(TerminalBase):
    def terminal(self, context):
        at('terminal')
'''

CONFIG = """
import asyncio
import os
import sys
from runnerkit.utils.exceptions import NonFiniteError
Own = BaseException
if os.environ['PLACE'] == 'config':
    exec(os.environ['HOW'])
here = '{{ fileDirname }}/ends.py:'
model = dict(type=here + 'Model')
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,
    train=dict(type=here + 'Points'),
    val=dict(type=here + 'Points', of='val'),
)
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict()
runner = dict(type='EpochBasedRunner', max_epochs=2)
checkpoint_config = dict(interval=2)
evaluation = dict(interval=1)
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook'), dict(type=here + 'Logger')])
custom_hooks = [dict(type=here + 'Ends')]
report = False
seed = 3
"""


def make(folder, place, *lines):
    """Write the project into ``folder``; returns the path of its config."""
    (folder / 'ends.py').write_text(MODULE)
    (folder / 'cfg.py').write_text('\n'.join([CONFIG, LINES.get(place, ''), *lines]))
    return folder / 'cfg.py'
