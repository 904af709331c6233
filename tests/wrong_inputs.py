"""Wrong inputs of every kind: the broken parts and files of the tables in ``wrong_inputs.txt``."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from runnerkit.hooks import Hook

#: The config to which the lines of a row are added: three epochs of five iterations.
GOOD = """
model = dict(
    type='Supervised',
    model=[dict(type='Linear', in_features=4, out_features=8), dict(type='Linear', in_features=8, out_features=1)],
    loss=dict(type='MSELoss'),
    metrics=dict(error=dict(type='MeanSquaredError')),
)
data = dict(
    samples_per_gpu=4,
    workers_per_gpu=0,
    train=dict(type='support.Noisy'),
    val=dict(type='support.Noisy', length=6),
    test=dict(type='support.Noisy', length=6),
)
optimizer = dict(type='SGD', lr=0.1, momentum=0.9)
optimizer_config = dict()
lr_config = dict(policy='step', step=[2])
runner = dict(type='EpochBasedRunner', max_epochs=3)
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1, save_best='error')
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
workflow = [('train', 1)]
seed = 3
"""


class Wrong(NamedTuple):
    """A row of ``wrong_inputs.txt``.

    Attributes:
        code: the exit code: 2 for what the user wrote, 1 for a run that fails, 0 for a warning.
        written: lines that are added to a good config, or a command line.
        answer: the words that one part of the answer must contain, separated by ``…``. The answer to lines of a config
            must name the place of the first line, or the place among the words. Two words are not searched for:
            ``<nowhere>`` allows an answer without a place, and ``<traceback>`` one with the traceback of user code.
    """

    code: int
    written: str
    answer: str


def read_tables() -> dict[str, list[Wrong]]:
    """The tables of ``wrong_inputs.txt`` by name: ``[NAME] what it is of``, then rows of three columns with tabs."""
    tables: dict[str, list[Wrong]] = {}
    for line in Path(__file__).with_suffix('.txt').read_text(encoding='utf-8').splitlines():
        if line.startswith('['):
            rows = tables[line[1 : line.index(']')]] = []
        elif line and not line.startswith('# '):
            code, written, answer = (text.replace('\\n', '\n') for text in line.split('\t'))
            rows.append(Wrong(int(code), written, answer))
    return tables


TABLES = read_tables()


# --- broken parts ----------------------------------------------------------------------------------------------------


class NoLength:
    """A data set without a length."""

    def __getitem__(self, index):
        return torch.zeros(4), torch.zeros(1)


class NotIndexable:
    """A data set without items."""

    def __len__(self):
        return 8


class Nones:
    """A data set whose items are None."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return None


class Ragged(Nones):
    """A data set whose items have different shapes."""

    def __getitem__(self, index):
        return torch.zeros(index + 1), torch.zeros(1)


class Wide(Nones):
    """A data set whose samples are too wide for the model."""

    def __getitem__(self, index):
        return torch.zeros(5), torch.zeros(1)


class Classes(Nones):
    """A data set of three classes."""

    def __getitem__(self, index):
        return torch.zeros(4), index % 3


class Faulty(Nones):
    """A data set with a broken sample."""

    def __getitem__(self, index):
        if index == 2:
            raise OSError('sample 2 cannot be read')
        return torch.zeros(4), torch.zeros(1)


class TwoLosses(nn.Module):
    """A model whose loss is for an optimizer that is not there."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def train_step(self, data, optimizer):
        loss = self.head(self.body(data[0])).mean()
        return dict(loss=dict(body=loss, haed=loss), log_vars={}, num_samples=4)


class OnlyModes(nn.Module):
    """A model with steps of modes only."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def dis_step(self, data, optimizer):
        return {}


class Misspelt(Hook):
    """A hook with a misspelt point."""

    def after_train_itr(self, runner):
        """Never called."""


class Lightning(Hook):
    """A hook with a point of another library."""

    def on_train_epoch_end(self, runner):
        """Never called."""


class Deaf(Hook):
    """A hook that listens nowhere."""


class Bare(Hook):
    """A hook whose point does not take the runner."""

    def after_train_iter(self):
        """Cannot be called."""


class NotAHook:
    """No hook."""


class Stepless(nn.Linear):
    """A model without a step."""

    def __init__(self):
        super().__init__(4, 1)


class Frozen(Stepless):
    """A model with nothing to train."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(False)

    def train_step(self, data, optimizer):
        return {'loss': self(data[0]).mean(), 'log_vars': {}, 'num_samples': 4}


class ShortStep(Stepless):
    """A model whose step does not take an optimizer."""

    def train_step(self, data):
        return {'loss': self(data[0]).mean(), 'log_vars': {}, 'num_samples': 4}


class Step(Stepless):
    """A model whose step returns what it is given.

    Args:
        gives: what the step returns, instead of the right value of that key.
    """

    def __init__(self, **gives):
        super().__init__()
        self.gives = gives

    def train_step(self, data, optimizer):
        loss = self(data[0]).mean()
        right = {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': 4, **self.gives}
        return {key: value for key, value in right.items() if value != 'none'}

    val_step = train_step


class NoneStep(Stepless):
    """A model whose step returns nothing."""

    def train_step(self, data, optimizer):
        return None


class TensorStep(Stepless):
    """A model whose step returns its loss only."""

    def train_step(self, data, optimizer):
        return self(data[0]).mean()


class VectorStep(Stepless):
    """A model whose loss has a value for each sample."""

    def train_step(self, data, optimizer):
        return {'loss': self(data[0]), 'log_vars': {}, 'num_samples': 4}


class DetachedStep(Stepless):
    """A model whose loss has no gradient."""

    def train_step(self, data, optimizer):
        return {'loss': self(data[0]).mean().detach(), 'log_vars': {}, 'num_samples': 4}


# --- files ----------------------------------------------------------------------------------------------------------

#: Files beside the good config: broken ones, and good ones under wrong names.
_EXPERIMENT = "runner = dict(type='experiments.Line')\ntraining = "

FILES = {
    'experiment_0.py': f'{_EXPERIMENT}dict(max_iteration=3, valid_interval=0)\n',
    'experiment_1.py': f'{_EXPERIMENT}5\n',
    'experiment_2.py': f'{_EXPERIMENT}dict(max_iteration=3, valid_intervall=5)\n',
    'empty.py': '',
    'broken.py': 'model = dict(\n',
    'indented.py': 'a = 1\n  b = 2\n',
    'raises.py': 'a = 1\nb = undefined\n',
    'imports.py': 'import no_such_module\n',
    'circle.py': "_base_ = 'circle.py'\n",
    'baseless.py': "_base_ = 'nowhere.py'\n",
    'base_of_3.py': '_base_ = 3\n',
    'two_bases.py': "_base_ = ['good.py', 'seed.py']\n",
    'seed.py': 'seed = 4\n',
    'reserved.py': 'filename = 3\n',
    'reference.py': "_base_ = 'good.py'\nnet = {{ _base_.modl }}\n",
    'latin.py': 'a = 1\nb = "\xe9"\n'.encode('latin-1'),
    'config.txt': GOOD,
    'folder/good.py': GOOD,
    'broken.yaml': 'model: [\n',
    'tabs.yaml': 'model:\n\ttype: x\n',
    'text.yaml': 'some text\n',
    'twice.yaml': '_base_: good.py\nseed: 1\nseed: 2\n',
    'named.py': """_base_ = 'good.py'
noisy = dict(type='support.Noisy')
data = dict(val=dict(_delete_=True, clean=noisy, noisy=noisy))
""",
    'no_samples.py': "_base_ = 'good.py'\ndata = dict(test=dict(length=0))\n",
    'number.yaml': '_base_: good.py\noptimizer:\n  type: SGD\n  lr: 1e-3\n',
    'quoted.yaml': "_base_: good.py\nlog_config:\n  interval: '10'\n",
    'unread.yaml': '_base_: good.py\nrunner:\n  max_epoch: 3\n',
    'twice.json': '{"seed": 1, "seed": 2}',
    'broken.json': '{"model": \n',
    'list.json': '[1]',
    'quoted.json': '{"_base_": "good.py",\n "optimizer": {"lr": "0.1"}}',
    'text.pth': 'hello\n',
    'empty.pth': '',
    'checkpoints/notes.txt': 'none here\n',
}


#: A good search over the good config.
SEARCH = """
pipeline = ['nas']
nas = dict(
    pipe_step=dict(type='SearchPipeStep'),
    config='good.py',
    objectives=dict(error='min'),
    search_space={'optimizer.lr': dict(type='Float', low=1e-3, high=1e-1, log=True)},
)
"""
