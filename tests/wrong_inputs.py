"""Wrong inputs of every kind, each with what the answer must name: the table of `test_wrong_inputs`."""

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
    """A wrong input.

    Attributes:
        written: lines that are added to a good config, or a command line.
        told: what one part of the answer must say, with ``…`` between the words. Where lines of a config are wrong,
            a place belongs to it: that of the first line unless another one is among the words. Two words are never
            said: ``<nowhere>`` allows an answer without a place, and ``<traceback>`` one with the traceback of code
            that is the user's.
        code: the exit code: 2 for wrong usage, 1 for what is found later, 0 for a warning.
    """

    written: str
    told: str
    code: int = 2


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


# --- the table -------------------------------------------------------------------------------------------------------

#: Lines of configs.
CONFIGS = (
    # --- top level
    Wrong("modle = dict(type='Supervised')", "modle … 'model'", 0),
    Wrong('evalution = dict(interval=2)', "evalution … 'evaluation'", 0),
    Wrong('epochs = 3', 'epochs … Write runner.max_epochs', 0),
    Wrong('batch_size = 3', 'batch_size … Write data.samples_per_gpu', 0),
    Wrong('unused = 3', 'unused … unused: neither a run nor a file of this config reads it', 0),
    Wrong('default_hooks = dict()\nenv_cfg = dict()', 'default_hooks … runnerkit ignores the keys of MMEngine', 0),
    Wrong('flow = dict(startp=None)', "flow.startp … unknown key of flow … Did you mean 'startup'?", 2),
    Wrong('flow = dict(runner=None)', 'flow.runner is None, but a run cannot do without it', 1),
    Wrong("flow = dict(startup='Startp')", "flow.startup: unknown stage 'Startp'; did you mean 'Startup'?", 1),
    Wrong("flow = dict(startup='nowhere.py')", "flow.startup: there is no file 'nowhere.py", 1),
    Wrong("flow = dict(startup='support.Tiny')", "Tiny … cannot be the stage 'startup': it must be a subclass", 1),
    Wrong('flow = 3', 'flow must be a dict such as … but got 3', 1),
    Wrong('total_epochs = 12', 'total_epochs … is ignored, because runner sets the length of the run', 0),
    # --- model
    Wrong('model = 3', 'model … must be a dict with a type, or a torch.nn.Module, but got 3', 1),
    Wrong('model = None', "the config wrong.py has no 'model' … a run needs model, data, optimizer, runner", 1),
    Wrong('model = dict(_delete_=True)', 'must contain the key "type"', 1),
    Wrong("model = dict(type='Supervise')", "Supervise is not in the model registry … 'Supervised'", 1),
    Wrong("model = dict(lss=dict(type='MSELoss'))", "Supervised … 'lss' … 'loss'", 1),
    Wrong("model = dict(loss=dict(type='MSELos'))", "Supervised: MSELos is not in the loss registry … 'MSELoss'", 1),
    Wrong("model = dict(loss=dict(type='MSELoss', reducton='sum'))", "MSELoss … 'reducton' … 'reduction'", 1),
    Wrong('model = dict(loss=3)', 'Supervised: loss=3 is neither a config nor callable', 1),
    Wrong('model = dict(loss=None)', 'Supervised: loss=None is neither a config nor callable', 1),
    Wrong(
        "model = dict(loss='MSELoss')",
        "Supervised: loss: MSELoss is not in the function registry … dict(type='MSELoss')",
        1,
    ),
    Wrong('model = dict(model=3)', "Supervised: cfg must be a dict, but got <class 'int'>: 3", 1),
    Wrong('model = dict(model=[])', 'SGD: optimizer got an empty parameter list … good.py:15', 1),
    Wrong("model = dict(model=[dict(type='Linear', in_features=4)])", "Linear … 'out_features'", 1),
    Wrong(
        "model = dict(model=[dict(type='Linear', in_features=4, out_features=1, bais=False)])",
        "Linear … 'bais' … 'bias'",
        1,
    ),
    Wrong(
        "model = dict(model=[dict(type='Linear', in_features='4', out_features=1)])",
        "Supervised: Linear: empty(): argument 'size' failed to unpack",
        1,
    ),
    Wrong(
        "model = dict(model=[dict(type='Linear', in_features=5, out_features=1)])",
        '(4x4 and 5x1) … model.0 (Linear), input (4, 4) float32: got 4 features, expects 5: set in_features=4',
        1,
    ),
    Wrong(
        "model = dict(model=[dict(type='Liner', in_features=4, out_features=1)])",
        "Supervised: Liner is not in the model registry … 'Linear'",
        1,
    ),
    Wrong(
        "model = dict(metrics=dict(error=dict(type='MeanSquareError')))",
        "Supervised: MeanSquareError is not in the metric registry … 'MeanSquaredError'",
        1,
    ),
    Wrong('model = dict(metrics=3)', 'Supervised: metric 3 is neither a config nor', 1),
    Wrong(
        "model = dict(metrics=dict(error=dict(type='Accuracy', task='multiclas', num_classes=2)))",
        'Supervised: Accuracy: Invalid Classification: expected one of',
        1,
    ),
    Wrong("model = dict(init_cfg=dict(type='Kaimin'))", "Kaimin is not in the initializer registry … 'Kaiming'", 1),
    Wrong(
        "model = dict(model=dict(type='ReLU'), _delete_=True, type='Supervised', loss=dict(type='MSELoss'))",
        'SGD: optimizer got an empty parameter list … good.py:15',
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='wrong_inputs.Stepless')",
        'Stepless has no train_step(data, optimizer): write one that',
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='wrong_inputs.Step')",
        "evaluation.save_best … Write rule='greater' or rule='less' … good.py:20",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', num_samples=None)",
        "num_samples of Step's step must be a number, but got None … <nowhere>",
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='wrong_inputs.Frozen')", 'model … all 2 parameters of Frozen are frozen', 1
    ),
    Wrong(
        "model = dict(_delete_=True, type='wrong_inputs.ShortStep')",
        'model … Write def train_step(self, data, optimizer, **kwargs)',
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', loss='none')",
        "Step's step returned no 'loss' (it returned ['log_vars', … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', loss=1.0)",
        "the loss of Step's step must be a tensor with a gradient, but got … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', log_vars=3)",
        'log values must be a dict of numbers by name, but got <class … <nowhere>',
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', log_vars=dict(acc='high'))",
        "the log value 'acc' must be a number or a tensor of one element, … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', log_vars=dict(acc=[1]))",
        "the log value 'acc' must be a number or a tensor of one element, … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', num_samples='none')",
        "Step's step returned no 'num_samples' (it returned ['log_vars', … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', num_samples='4')",
        "num_samples of Step's step must be a number, but got '4' … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.Step', num_samples=-4)",
        "num_samples of Step's step must not be negative, but got -4 … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.NoneStep')",
        "NoneStep's step must return a dict(loss=…, log_vars=…, … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.TensorStep')",
        "TensorStep's step must return a dict(loss=…, log_vars=…, … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.VectorStep')",
        "the loss of VectorStep's step must be one number, but has the … <nowhere>",
        1,
    ),
    Wrong(
        "evaluation = None\nmodel = dict(_delete_=True, type='wrong_inputs.DetachedStep')",
        "the loss of DetachedStep's step has no gradient: it does not … <nowhere>",
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='support.Noisy')",
        "the model config {'type': 'support.Noisy'} gives a Noisy, but",
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='json.dumps', obj=3)",
        "the model config {'type': 'json.dumps', 'obj': 3} gives a str,",
        1,
    ),
    # --- data
    Wrong('data = 3', 'data … must be a dict, but got 3', 1),
    Wrong('data = []', 'data … must be a dict, but got []', 1),
    Wrong('data = dict(samples_per_gp=4)', "data.samples_per_gp … 'samples_per_gpu'"),
    Wrong("data = dict(trian=dict(type='support.Noisy'))", "data.trian … 'train'"),
    Wrong('data = dict(shuffle=True)', 'data.shuffle … Write data.train_dataloader.shuffle'),
    Wrong('data = dict(train_dataloder=dict(shuffle=True))', "data.train_dataloder … 'train_dataloader'"),
    Wrong('data = dict(train_dataloader=dict(shufle=True))', "data.train_dataloader.shufle … 'shuffle'"),
    Wrong('data = dict(train_dataloader=3)', 'data.train_dataloader … must be a dict, but got 3', 1),
    Wrong(
        'data = dict(val_dataloader=dict(samples_per_gpus=3))',
        "data.val_dataloader.samples_per_gpus … 'samples_per_gpu'",
    ),
    Wrong('data = dict(samples_per_gpu=4, batch_size=4)', 'data.batch_size … duplicates data.samples_per_gpu'),
    Wrong(
        'data = dict(train_dataloader=dict(num_workers=1, workers_per_gpu=0))',
        'data.train_dataloader.num_workers … duplicates data.train_dataloader.workers_per_gpu',
    ),
    Wrong("data = dict(samples_per_gpu='4')", "data.samples_per_gpu … Write 4 in place of '4'", 1),
    Wrong('data = dict(samples_per_gpu=0)', 'data.samples_per_gpu … must be a whole number of at least 1', 1),
    Wrong('data = dict(samples_per_gpu=2.5)', 'data.samples_per_gpu … must be a whole number of at least 1', 1),
    Wrong('data = dict(workers_per_gpu=-1)', 'data.workers_per_gpu … must be a whole number of at least 0', 1),
    Wrong(
        'data = dict(workers_per_gpu=None)', 'data.workers_per_gpu (wrong.py:2) must be a whole number of at least 0', 1
    ),
    Wrong('data = dict(persistent_workers=True)', 'data.persistent_workers … has no effect without workers', 0),
    Wrong("data = dict(persistent_workers='True')", "data.persistent_workers … Write True in place of 'True'", 1),
    Wrong('data = dict(pin_memory=1)', 'data.pin_memory … Write True in place of 1', 1),
    Wrong("data = dict(seeded='no')", "data.seeded … Write False in place of 'no'", 1),
    Wrong(
        "data = dict(train_dataloader=dict(shuffle='False'))",
        "data.train_dataloader.shuffle … Write False in place of 'False'",
        1,
    ),
    Wrong(
        "data = dict(train_dataloader=dict(drop_last='False'))",
        "data.train_dataloader.drop_last … Write False in place of 'False'",
        1,
    ),
    Wrong(
        "data = dict(train_dataloader=dict(timeout='1'))",
        "data.train_dataloader.timeout … Write 1.0 in place of '1'",
        1,
    ),
    Wrong(
        'data = dict(train_dataloader=dict(prefetch_factor=0))',
        'data.train_dataloader.prefetch_factor … must be a whole number of at least 1',
        1,
    ),
    Wrong(
        'data = dict(train_dataloader=dict(prefetch_factor=2))',
        'data.train_dataloader.prefetch_factor … has no effect without workers',
        0,
    ),
    Wrong(
        'data = dict(train_dataloader=dict(max_batches=0.5))',
        'data.train_dataloader.max_batches … must be a whole number of at least 1, but got 0.5',
        1,
    ),
    Wrong(
        'data = dict(val_dataloader=dict(max_batches=9))',
        'data.val_dataloader.max_batches … has no effect: the data has 2 batches, and the limit is 9',
        0,
    ),
    Wrong('limit_val_batches = 9', 'limit_val_batches … Write data.val_dataloader.max_batches', 0),
    Wrong('steps_per_epoch = 9', 'steps_per_epoch … Write data.train_dataloader.max_batches', 0),
    Wrong(
        'data = dict(train_dataloader=dict(sampler=3))',
        'data.train_dataloader.sampler … must be a dict or a sampler, but got 3',
        1,
    ),
    Wrong(
        "data = dict(train_dataloader=dict(sampler=dict(type='EpochSampler', order='feistl')))",
        "order must be 'randperm' or 'feistel', but got 'feistl'; did you mean 'feistel'?",
        1,
    ),
    Wrong(
        'data = dict(train_dataloader=dict(samples_per_gpu=-1))',
        'data.train_dataloader.samples_per_gpu … must be a whole number of at least 1',
        1,
    ),
    Wrong('data = dict(train=None)', "data.train: the config's data has no 'train' section; it has val,", 1),
    Wrong('data = dict(train=3)', 'data.train … must be a dict with a type, a list of them or a data set', 1),
    Wrong(
        "data = dict(train='support.Noisy')", 'data.train … must be a dict with a type, a list of them or a data set', 1
    ),
    Wrong("data = dict(train=dict(type='Nosy'))", 'Nosy is not in the dataset registry … custom_imports', 1),
    Wrong("data = dict(train=dict(type='support.Nosy'))", "support.Nosy is not in the dataset registry … 'Noisy'", 1),
    Wrong(
        "data = dict(train=dict(type='suport.Noisy'))",
        "suport.Noisy is not in the dataset registry … no module 'suport'",
        1,
    ),
    Wrong(
        "data = dict(train=dict(type='nowhere.py:Noisy'))",
        "nowhere.py:Noisy: there is no file 'nowhere.py', neither in … nor beside",
        1,
    ),
    Wrong(
        'data = dict(train=dict(_delete_=True, length=3))', "data.train: a dict without 'type' must hold data sets", 1
    ),
    Wrong(
        "data = dict(train=dict(length='20'))", "data.train: the length of the data set Noisy: 'str' object cannot", 1
    ),
    Wrong('data = dict(train=dict(lenght=20))', "Noisy … 'lenght' … 'length'", 1),
    Wrong('data = dict(train=dict(length=0))', 'data.train: the data set Noisy is empty: a loader needs at least', 1),
    Wrong('data = dict(val=dict(length=0))', 'data.val: the data set Noisy is empty: a loader needs at least', 1),
    Wrong(
        "data = dict(train=dict(type='RepeatDatset', times=2, dataset=dict(type='support.Noisy')))",
        "RepeatDatset is not in the dataset registry … 'RepeatDataset'",
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='RepeatDataset', times=2, datset=dict(type='support.Noisy')))",
        "RepeatDataset … 'datset' … 'dataset'",
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='RepeatDataset', times='2', dataset=dict(type='support.Noisy')))",
        'RepeatDataset: times must be a whole number of at least 1',
        1,
    ),
    Wrong('data = dict(val=None)', 'evaluation … there is no data.val to evaluate on … good.py:20', 1),
    Wrong('data = dict(val=3)', 'data.val … must be a dict with a type, a list of them or a data set', 1),
    Wrong('data = dict(train=[])', 'data.train: a list of data sets needs at least one config', 1),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.NoLength'))",
        'data.train: the data set NoLength has no __len__: write it',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.NotIndexable'))",
        'data.train: the data set NotIndexable has no __getitem__:',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.Nones'))",
        'NoneType … of the data set Nones … <nowhere>',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.Ragged'))",
        'a batch of the samples 3, 7, 5, 4 of the data set Ragged … <nowhere>',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.Wide'))",
        '(4x5 and 4x8) … model.0 (Linear), input (4, 5) float32: '
        'got 5 features, expects 4: set in_features=5 … <nowhere>',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.Classes'))\nmodel = dict(loss=dict(type="
        "'CrossEntropyLoss'))",
        'out of bounds … CrossEntropyLoss: outputs (4, 1) float32, targets (4,) int64 … the network needs 3 outputs … '
        '<nowhere>',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.Faulty'), samples_per_gpu=8)",
        'sample 2 of the data set Faulty … <nowhere> … <traceback>',
        1,
    ),
    Wrong(
        "data = dict(val=dict(_delete_=True, type='wrong_inputs.Nones'))",
        'NoneType … of the data set Nones … <nowhere>',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='wrong_inputs.NotAHook'))",
        'data.train: the data set NotAHook has no __len__: write it',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='torch.nn.Linear', in_features=1, out_features=1))",
        'data.train: the data set Linear has no __len__: write it (a data',
        1,
    ),
    Wrong(
        'data = dict(samples_per_gpu=64, train_dataloader=dict(drop_last=True))',
        'drop_last=True leaves no batch: 20 samples do not fill one batch',
        1,
    ),
    # --- optimizer
    Wrong(
        "model = dict(init_cfg=dict(type='Pretrained', checkpoint='good.pth', prefix='1.', part='model.1'))",
        "1. is not in the pretrained model good.pth; it has model; did you mean 'model.1.' … good.py:4",
        1,
    ),
    Wrong(
        "model = dict(init_cfg=dict(type='Pretrained', checkpoint='good.pth', prefix='model.1.', part='model.0'))",
        "not one of the weights below 'model.1.' in good.pth (weight, bias) fits Linear (weight, bias) … good.py:4",
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='wrong_inputs.TwoLosses')\nevaluation = None\n"
        "optimizer = dict(_delete_=True, body=dict(type='SGD', lr=0.1), head=dict(type='SGD', lr=0.1))",
        "unknown optimizer 'haed'; available: ['body', 'head']; did you mean 'head' … <nowhere>",
        1,
    ),
    Wrong(
        "model = dict(_delete_=True, type='wrong_inputs.OnlyModes')\nevaluation = None",
        "calls train_step, but OnlyModes has only dis_step: write workflow = [('dis', 1)] … <nowhere>",
        1,
    ),
    Wrong('optimizer = 3', 'optimizer … must be a dict, but got 3', 1),
    Wrong("optimizer = 'SGD'", "optimizer … must be a dict, but got 'SGD'", 1),
    Wrong("optimizer = dict(type='SDG')", "SDG is not in the optimizer registry … 'SGD'", 1),
    Wrong("optimizer = dict(lr='0.1')", "optimizer.lr … Write 0.1 in place of '0.1'", 1),
    Wrong(
        "optimizer = dict(params=['modle.0.*'])",
        "the pattern 'modle.0.*' matches no parameter of Supervised; did you mean 'model.0.*'",
        1,
    ),
    Wrong('optimizer = dict(params=3)', 'optimizer.params … must be a list of strings, but got 3', 1),
    Wrong("optimizer = dict(params=['model.0.*'])", '2 trainable parameters are in no optimizer and never change', 0),
    Wrong(
        "optimizer = dict(_delete_=True, a=dict(type='SGD', lr=0.1, params='*weight'), "
        "b=dict(type='SGD', lr=0.1, params=['model.1.*', '*.0.bias']))",
        "the parameter model.1.weight is in two optimizers, 'a' and 'b'",
        1,
    ),
    Wrong('optimizer = dict(lr=-0.1)', 'optimizer.lr … Write 0.1', 1),
    Wrong('optimizer = dict(lr=None)', 'optimizer.lr … is None', 1),
    Wrong('optimizer = dict(lr=0)', 'optimizer.lr … is 0: the weights never change', 0),
    Wrong("optimizer = dict(momentum='0.9')", "optimizer.momentum … Write 0.9 in place of '0.9'", 1),
    Wrong('optimizer = dict(momentum=1.5)', 'optimizer.momentum … Write 0.9 or so', 1),
    Wrong('optimizer = dict(momentum=-1)', 'SGD: Invalid momentum value: -1', 1),
    Wrong('optimizer = dict(wieght_decay=0.1)', "SGD … 'wieght_decay' … 'weight_decay'", 1),
    Wrong("optimizer = dict(nesterov='yes')", "optimizer.nesterov … Write True in place of 'yes'", 1),
    Wrong(
        "optimizer = dict(_delete_=True, type='Adam', lr=0.1, betas=0.9)",
        'optimizer.betas … must be a list of numbers, but got 0.9',
        1,
    ),
    Wrong(
        "optimizer = dict(_delete_=True, type='Adam', lr=0.1, betas=(0.9, 1.5))",
        'Adam: Invalid beta parameter at index 1: 1.5',
        1,
    ),
    Wrong('optimizer = dict(_delete_=True, lr=0.1)', 'must contain the key "type"', 1),
    Wrong('optimizer = dict(_delete_=True)', 'must contain the key "type"', 1),
    Wrong('optimizer = None', "the config wrong.py has no 'optimizer' … a run needs model, data, optimizer, runner", 1),
    Wrong(
        "optimizer = dict(constructor='DefaultConstructor')",
        "DefaultConstructor is not in the optimizer builder registry … 'DefaultOptimizerConstructor'",
        1,
    ),
    Wrong('optimizer = dict(paramwise_cfg=3)', 'optimizer.paramwise_cfg … must be a dict, but got 3', 1),
    Wrong(
        'optimizer = dict(paramwise_cfg=dict(bias_lr_mul=2))', "optimizer.paramwise_cfg.bias_lr_mul … 'bias_lr_mult'"
    ),
    Wrong(
        "optimizer = dict(paramwise_cfg=dict(bias_lr_mult='2'))",
        "optimizer.paramwise_cfg.bias_lr_mult … Write 2.0 in place of '2'",
        1,
    ),
    Wrong(
        'optimizer = dict(paramwise_cfg=dict(norm_decay_mult=0))',
        'optimizer: DefaultOptimizerConstructor: norm_decay_mult',
        1,
    ),
    Wrong(
        'optimizer = dict(paramwise_cfg=dict(custom_keys=3))',
        'optimizer.paramwise_cfg.custom_keys … must be a dict, but got 3',
        1,
    ),
    Wrong(
        'optimizer = dict(paramwise_cfg=dict(custom_keys=dict(head=dict(lr_mul=2))))',
        "optimizer.paramwise_cfg.custom_keys.head.lr_mul … 'lr_mult'",
    ),
    Wrong(
        'optimizer = dict(paramwise_cfg=dict(custom_keys=dict(head=dict(lr_mult=2))))',
        "optimizer.paramwise_cfg.custom_keys.head … Write a part of a parameter's name, or leave it out",
        0,
    ),
    Wrong(
        'optimizer = dict(paramwise_cfg=dict(custom_keys=dict(head=2)))',
        'optimizer.paramwise_cfg.custom_keys.head … must be a dict, but got 2',
        1,
    ),
    Wrong(
        "optimizer = dict(_delete_=True, model=dict(type='SGD', lr=0.1), head=dict(type='SGD', lr=0.1))",
        "there is an optimizer for 'head', but Supervised has no submodule",
        1,
    ),
    # --- optimizer_config
    Wrong('optimizer_config = 3', 'optimizer_config … must be a dict or a hook, but got 3', 1),
    Wrong('optimizer_config = dict(grad_clp=dict(max_norm=1))', "optimizer_config.grad_clp … 'grad_clip'"),
    Wrong('optimizer_config = dict(grad_clip=3)', 'optimizer_config.grad_clip … must be a dict, but got 3', 1),
    Wrong('optimizer_config = dict(grad_clip=35.0)', 'optimizer_config.grad_clip … must be a dict, but got 35.0', 1),
    Wrong('optimizer_config = dict(grad_clip=dict(maxnorm=1))', "optimizer_config.grad_clip.maxnorm … 'max_norm'"),
    Wrong(
        "optimizer_config = dict(grad_clip=dict(max_norm='35'))",
        "optimizer_config.grad_clip.max_norm … Write 35.0 in place of '35'",
        1,
    ),
    Wrong(
        'optimizer_config = dict(grad_clip=dict(max_norm=0))',
        'optimizer_config.grad_clip.max_norm … clips every gradient to a norm of 0',
        1,
    ),
    Wrong(
        'optimizer_config = dict(grad_clip=dict(max_norm=-1))',
        'optimizer_config.grad_clip.max_norm … clips every gradient to a norm of -1',
        1,
    ),
    Wrong(
        'optimizer_config = dict(grad_clip=dict())',
        'optimizer_config.grad_clip … Write grad_clip=dict(max_norm=35), or grad_clip=None',
        1,
    ),
    Wrong(
        "optimizer_config = dict(grad_clip=dict(max_norm=1, norm_type='two'))",
        "optimizer_config.grad_clip.norm_type … must be a number, but got 'two'",
        1,
    ),
    Wrong(
        "optimizer_config = dict(grad_clip=dict(max_norm=1, error_if_nonfinite='yes'))",
        "optimizer_config.grad_clip.error_if_nonfinite … Write True in place of 'yes'",
        1,
    ),
    Wrong(
        "optimizer_config = dict(type='OptimzerHook')", "OptimzerHook is not in the hook registry … 'OptimizerHook'", 1
    ),
    Wrong(
        "optimizer_config = dict(type='GradientCumulativeOptimizerHook', cumulative_iters=0)",
        'optimizer_config.cumulative_iters … must be a whole number of at least 1',
        1,
    ),
    Wrong(
        "optimizer_config = dict(type='GradientCumulativeOptimizerHook', cumulative_iters='4')",
        "optimizer_config.cumulative_iters … Write 4 in place of '4'",
        1,
    ),
    Wrong(
        'optimizer_config = dict(cumulative_iters=2.5)',
        'optimizer_config.cumulative_iters … must be a whole number of at least 1',
        1,
    ),
    Wrong(
        'optimizer_config = dict(cumulative_iters=100)',
        'optimizer_config.cumulative_iters … 100 batches make one update, but the run has 15 iterations',
        0,
    ),
    Wrong("optimizer_config = dict(amp='fp8')", "optimizer_config.amp … must be 'bf16' or 'fp16', but got 'fp8'", 1),
    Wrong(
        "optimizer_config = dict(amp='bf16')\namp = 'fp16'", 'optimizer_config.amp … differs from the top-level amp', 1
    ),
    Wrong(
        "optimizer_config = dict(loss_scale='dynamc')",
        "optimizer_config.loss_scale … must be a number above 0, 'dynamic' or a dict",
        1,
    ),
    Wrong(
        'optimizer_config = dict(loss_scale=dict(init_scal=2))', "optimizer_config.loss_scale.init_scal … 'init_scale'"
    ),
    Wrong(
        'optimizer_config = dict(loss_scale=-1)',
        "optimizer_config.loss_scale … must be a number above 0, 'dynamic' or a dict",
        1,
    ),
    Wrong(
        "optimizer_config = dict(detect_anomalous_params='no')",
        "optimizer_config.detect_anomalous_params … Write False in place of 'no'",
        1,
    ),
    Wrong(
        "optimizer_config = dict(type='CheckpointHook')",
        'optimizer_config … no OptimizerHook is registered, and the step of Supervised',
        0,
    ),
    Wrong(
        'optimizer_config = None', 'optimizer_config … no OptimizerHook is registered, and the step of Supervised', 0
    ),
    # --- lr_config
    Wrong('lr_config = 3', 'lr_config … must be a dict or a hook, but got 3', 1),
    Wrong("lr_config = 'step'", "lr_config … must be a dict or a hook, but got 'step'", 1),
    Wrong('lr_config = []', 'lr_config … must be a dict or a hook, but got []', 1),
    Wrong("lr_config = dict(policy='stp')", "there is no policy 'stp' … 'Step'", 1),
    Wrong("lr_config = dict(polic='step')", "lr_config.polic … 'policy'"),
    Wrong(
        'lr_config = dict(_delete_=True, step=[2])',
        "a schedule's config names its policy, as in dict(policy='step',",
        1,
    ),
    Wrong("lr_config = dict(_delete_=True, policy='step')", "StepLrUpdaterHook … 'step'", 1),
    Wrong('lr_config = dict(policy=3)', 'policy must be a name such as "step", got 3', 1),
    Wrong('lr_config = dict(stp=[3])', "lr_config.stp … 'step'"),
    Wrong("lr_config = dict(step='2')", "lr_config.step … Write 2 in place of '2'", 1),
    Wrong('lr_config = dict(step=[1.5])', 'lr_config.step … must be a whole number or a list of them', 1),
    Wrong('lr_config = dict(step=[8, 11])', 'lr_config.step … none of its steps is reached', 0),
    Wrong('lr_config = dict(step=[2, 8])', 'lr_config.step … 8 is not reached', 0),
    Wrong('lr_config = dict(step=[])', 'lr_config.step … is empty: the lr never changes', 0),
    Wrong('lr_config = dict(step=0)', 'StepLrUpdaterHook: "step" must be positive integers (epochs', 1),
    Wrong('lr_config = dict(step=-1)', 'StepLrUpdaterHook: "step" must be positive integers (epochs', 1),
    Wrong('lr_config = dict(step=[2, 1])', 'StepLrUpdaterHook: "step" must be in ascending order, but got [2,', 1),
    Wrong("lr_config = dict(gamma='0.1')", "lr_config.gamma … Write 0.1 in place of '0.1'", 1),
    Wrong('lr_config = dict(gamma=10)', 'lr_config.gamma … Write 0.1 to lower it', 0),
    Wrong('lr_config = dict(gamma=0)', 'lr_config.gamma … gamma=0 makes the learning rate 0', 1),
    Wrong('lr_config = dict(gamma=-1)', 'lr_config.gamma … gamma=-1 makes the learning rate negative', 1),
    Wrong(
        "lr_config = dict(warmup='liner', warmup_iters=2)",
        "lr_config.warmup … must be 'constant', 'linear' or 'exp'",
        1,
    ),
    Wrong("lr_config = dict(warmup='linear')", 'StepLrUpdaterHook: "warmup_iters" must be at least 1, got 0; for', 1),
    Wrong(
        "lr_config = dict(warmup='linear', warmup_iters=0)",
        'StepLrUpdaterHook: "warmup_iters" must be at least 1, got 0; for',
        1,
    ),
    Wrong(
        "lr_config = dict(warmup='linear', warmup_iters=500)",
        'lr_config.warmup_iters … the warm-up takes 500 iterations, but the run has 15',
        0,
    ),
    Wrong("lr_config = dict(warmup='linear', warmup_iters='5')", "lr_config.warmup_iters … Write 5 in place of '5'", 1),
    Wrong(
        "lr_config = dict(warmup='linear', warmup_iters=2, warmup_ratio=0)",
        'StepLrUpdaterHook: "warmup_ratio" is a share of the regular',
        1,
    ),
    Wrong(
        "lr_config = dict(warmup='linear', warmup_iters=2, warmup_ratio=2)",
        'StepLrUpdaterHook: "warmup_ratio" is a share of the regular',
        1,
    ),
    Wrong(
        'lr_config = dict(warmup_iters=3)',
        'lr_config.warmup … no warm-up takes place: its length or ratio is given, but not warmup … good.py:17',
        0,
    ),
    Wrong("lr_config = dict(by_epoch='True')", "lr_config.by_epoch … Write True in place of 'True'", 1),
    Wrong('lr_config = dict(min_lr=1)', 'lr_config.min_lr … min_lr=1 is above the learning rate 0.1', 0),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineAnnealing')",
        'CosineAnnealingLrUpdaterHook: exactly one of min_lr',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr='1e-5')",
        "lr_config.min_lr … Write 1e-05 in place of '1e-5'",
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr=0, min_lr_ratio=0.1)",
        'CosineAnnealingLrUpdaterHook: exactly one of min_lr',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr=0, gamma=0.1)",
        'lr_config.gamma … unknown key of',
    ),
    Wrong("lr_config = dict(_delete_=True, policy='poly', pwer=0.9)", "lr_config.pwer … 'power'"),
    Wrong("lr_config = dict(_delete_=True, policy='exp')", "ExpLrUpdaterHook … 'gamma'", 1),
    Wrong(
        "lr_config = dict(_delete_=True, policy='exp', gamma='x')", "lr_config.gamma … must be a number, but got 'x'", 1
    ),
    Wrong("lr_config = dict(_delete_=True, policy='inv', gama=0.1)", "lr_config.gama … 'gamma'"),
    Wrong("lr_config = dict(_delete_=True, policy='fixed', step=3)", 'lr_config.step … unknown key of'),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineRestart', periods=[1], min_lr=0)",
        'lr_config.periods … the periods add up to 1, but the run has 3 epochs',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineRestart', periods=[1, 2], restart_weights=[1], min_lr=0)",
        'CosineRestartLrUpdaterHook: every period needs one weight',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='CosineRestart', periods=3, min_lr=0)",
        'lr_config.periods … must be a list of whole numbers',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='cyclic', cyclic_times=0)",
        'lr_config.cyclic_times … must be a whole number of at least 1',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='cyclic', cyclic_times=99)",
        'lr_config.cyclic_times … 99 cycles do not fit into 15 iterations',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='cyclic', target_ratio='big')",
        'CyclicLrUpdaterHook: target_ratio is a number, or two of them',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='cyclic', step_ratio_up=2)",
        'CyclicLrUpdaterHook: "step_ratio_up" is a share in [0, 1), got 2',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='cyclic', by_epoch=True)",
        'CyclicLrUpdaterHook: CyclicLrUpdaterHook counts iterations',
        1,
    ),
    Wrong("lr_config = dict(_delete_=True, policy='OneCycle')", "OneCycleLrUpdaterHook … 'max_lr'", 1),
    Wrong(
        "lr_config = dict(_delete_=True, policy='OneCycle', max_lr='1')",
        "lr_config.max_lr … Write 1 in place of '1'",
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='OneCycle', max_lr=1, total_steps=3)",
        'lr_config.total_steps … the cycle has 3 steps, but the run has 15 iterations',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='OneCycle', max_lr=1, pct_start=3)",
        'OneCycleLrUpdaterHook: "pct_start" is a share in [0, 1], got 3',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='OneCycle', max_lr=1, anneal_strategy='cosine')",
        "OneCycleLrUpdaterHook: there is no anneal_strategy 'cosine';",
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, policy='FlatCosineAnnealing', min_lr=0, start_percent=2)",
        'FlatCosineAnnealingLrUpdaterHook: "start_percent" is a share',
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, type='StepLrUpdaterHok', step=[2])",
        "StepLrUpdaterHok is not in the hook registry … 'StepLrUpdaterHook'",
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, type='CosineAnnealingLR', T_max='3')",
        "lr_config.T_max … Write 3.0 in place of '3'",
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, type='TorchLrUpdaterHook', scheduler='CosineAnealingLR', T_max=3)",
        "TorchLrUpdaterHook: torch.optim.lr_scheduler has no … 'CosineAnnealingLR'",
        1,
    ),
    Wrong(
        "lr_config = dict(_delete_=True, type='TorchLrUpdaterHook', scheduler='CosineAnnealingLR', T_mx=3)",
        "CosineAnnealingLR … 'T_max'",
        1,
    ),
    # --- momentum_config
    Wrong('momentum_config = 3', 'momentum_config … must be a dict or a hook, but got 3', 1),
    Wrong("momentum_config = dict(policy='stp')", "there is no policy 'stp' … 'Step'", 1),
    Wrong("momentum_config = dict(policy='step', stp=[2])", "momentum_config.stp … 'step'"),
    Wrong("momentum_config = dict(policy='step')", "StepMomentumUpdaterHook … 'step'", 1),
    Wrong("momentum_config = dict(policy='step', step=[9])", 'momentum_config.step … none of its steps is reached', 0),
    Wrong(
        "momentum_config = dict(policy='step', step=[1], warmup='x')",
        "momentum_config.warmup … must be 'constant', 'linear' or 'exp'",
        1,
    ),
    Wrong(
        "optimizer = dict(_delete_=True, type='Adagrad', lr=0.1)\nmomentum_config = dict(policy='step', step=[1])",
        'momentum_config … Adagrad has no momentum to schedule … wrong.py:3',
        1,
    ),
    # --- runner
    Wrong('runner = 3', 'runner … must be a dict, but got 3', 1),
    Wrong("runner = 'EpochBasedRunner'", 'runner … must be a dict', 1),
    Wrong('runner = None', "the config has no 'runner', a dict such as", 1),
    Wrong('runner = dict(max_epoch=3)', "runner.max_epoch … 'max_epochs'"),
    Wrong("runner = dict(max_epochs='3')", "runner.max_epochs … Write 3 in place of '3'", 1),
    Wrong('runner = dict(max_epochs=3.5)', 'runner.max_epochs … must be a whole number of at least 0', 1),
    Wrong('runner = dict(max_epochs=-1)', 'runner.max_epochs … must be a whole number of at least 0', 1),
    Wrong('runner = dict(max_epochs=0)', 'runner.max_epochs … is 0: nothing is trained', 0),
    Wrong('runner = dict(max_epochs=None)', 'runner … does not set the length of the run', 1),
    Wrong(
        'runner = dict(max_iters=100)', 'runner.max_iters … max_epochs and max_iters both set the length of the run', 1
    ),
    Wrong("runner = dict(type='EpochRunner')", "EpochRunner is not in the runner registry … 'EpochBasedRunner'", 1),
    Wrong('runner = dict(_delete_=True, max_epochs=3)', 'must contain the key "type"', 1),
    Wrong("runner = dict(_delete_=True, type='EpochBasedRunner')", 'runner … does not set the length of the run', 1),
    Wrong(
        "runner = dict(_delete_=True, type='IterBasedRunner', max_iters='10')",
        "runner.max_iters … Write 10 in place of '10'",
        1,
    ),
    Wrong('runner = dict(model=3)', 'EpochBasedRunner: int has no train_step(data, optimizer):', 1),
    Wrong('runner = dict(work_dir=3)', 'EpochBasedRunner: "work_dir" must be a str, a path or None', 1),
    Wrong('runner = dict(batch_processor=3)', 'runner.batch_processor … must be a function, its name', 1),
    Wrong("runner = dict(constructor='X')", 'X is not in the runner builder registry.', 1),
    Wrong("total_epochs = '12'\nrunner = None", "total_epochs … Write 12 in place of '12'", 1),
    # --- workflow
    Wrong('workflow = 3', 'workflow … workflow must be a list of', 1),
    Wrong("workflow = 'train'", 'workflow … workflow must be a list of', 1),
    Wrong('workflow = []', 'workflow … an empty workflow trains nothing', 1),
    Wrong("workflow = ['train']", 'workflow … workflow must be a list of', 1),
    Wrong("workflow = [('train', 0)]", 'workflow … the number in the workflow entry', 1),
    Wrong("workflow = [('train', '1')]", 'workflow … the number in the workflow entry', 1),
    Wrong("workflow = [('train', 1.5)]", 'workflow … the number in the workflow entry', 1),
    Wrong("workflow = [('train', -1)]", 'workflow … the number in the workflow entry', 1),
    Wrong("workflow = [('train',)]", 'workflow … a workflow entry is', 1),
    Wrong("workflow = [('train', 1, 2)]", 'workflow … a workflow entry is', 1),
    Wrong("workflow = [('trian', 1)]", 'workflow … "trian" … \'train\'', 1),
    Wrong("workflow = [('fly', 1)]", 'workflow … runner has no method named "fly" to run an epoch', 1),
    Wrong(
        "workflow = [('train', 1), ('val_hard', 1)]", 'workflow … data.val_hard, which is missing … train, val, test', 1
    ),
    Wrong("workflow = [('val', 1)]", "workflow … [('val', 1)] never trains, so the run never ends", 1),
    Wrong("workflow = [(1, 'train')]", 'workflow … mode in workflow must be a str', 1),
    Wrong("workflow = ('train', 1)", 'workflow … workflow must be a list of', 1),
    Wrong(
        "workflow = [('train', 1), ('val', 1)]\ndata = dict(val=None)\nevaluation = None",
        "workflow … its 'val' entry validates on data.val, which is missing",
        1,
    ),
    Wrong("workflow = [('run', 1)]", 'workflow … runner has no method named "run" to run an epoch', 1),
    Wrong(
        "workflow = [('save_checkpoint', 1)]",
        'workflow … runner has no method named "save_checkpoint" to run an epoch,',
        1,
    ),
    Wrong("workflow = [('train_step', 1)]", 'workflow … runner has no method named "train_step" to run an epoch', 1),
    Wrong("workflow = [('test', 1)]", 'workflow … never trains, so the run never ends', 1),
    # --- checkpoint_config
    Wrong('checkpoint_config = 3', 'checkpoint_config … must be a dict or a hook, but got 3', 1),
    Wrong('checkpoint_config = dict(intervall=1)', "checkpoint_config.intervall … 'interval'"),
    Wrong("checkpoint_config = dict(interval='1')", "checkpoint_config.interval … Write 1 in place of '1'", 1),
    Wrong(
        'checkpoint_config = dict(interval=1.5)', 'checkpoint_config.interval … must be a whole number, but got 1.5', 1
    ),
    Wrong('checkpoint_config = dict(interval=10)', 'checkpoint_config.interval … 10 is more than the run has', 0),
    Wrong(
        "checkpoint_config = dict(max_keep_ckpts='3')", "checkpoint_config.max_keep_ckpts … Write 3 in place of '3'", 1
    ),
    Wrong(
        'checkpoint_config = dict(max_keep_ckpts=0)',
        'checkpoint_config.max_keep_ckpts … Write -1 to keep all, or 1 to keep the newest only',
        0,
    ),
    Wrong('checkpoint_config = dict(max_keep_ckpts=-5)', 'a number below 1 keeps all checkpoints … Write -1', 0),
    Wrong("checkpoint_config = dict(by_epoch='no')", "checkpoint_config.by_epoch … Write False in place of 'no'", 1),
    Wrong('checkpoint_config = dict(out_dir=3)', 'checkpoint_config.out_dir … must be a path, but got 3', 1),
    Wrong("checkpoint_config = dict(out_dir='good.py')", "out_dir='good.py' of checkpoint_config cannot be used", 1),
    Wrong(
        "checkpoint_config = dict(out_dir='s4://bucket/x')",
        "out_dir='s4://bucket/x' of checkpoint_config cannot be used",
        1,
    ),
    Wrong(
        "checkpoint_config = dict(filename_tmpl='epoch.pth')",
        'CheckpointHook: filename_tmpl must have {} for the number, as',
        1,
    ),
    Wrong(
        "checkpoint_config = dict(filename_tmpl='epoch_{:d.pth')",
        "CheckpointHook: filename_tmpl must be like 'epoch_{}.pth'",
        1,
    ),
    Wrong(
        'checkpoint_config = dict(filename_tmpl=3)', 'checkpoint_config.filename_tmpl … must be a text, but got 3', 1
    ),
    Wrong("checkpoint_config = dict(save_last='no')", "checkpoint_config.save_last … Write False in place of 'no'", 1),
    Wrong(
        'checkpoint_config = dict(save_optimizer=1)', 'checkpoint_config.save_optimizer … Write True in place of 1', 1
    ),
    Wrong(
        "checkpoint_config = dict(on_error='x')",
        "CheckpointHook: on_error must be 'continue' or 'stop', but got 'x'",
        1,
    ),
    Wrong(
        'checkpoint_config = dict(file_client_args=3)',
        'checkpoint_config.file_client_args … must be a dict, but got 3',
        1,
    ),
    Wrong(
        "checkpoint_config = dict(file_client_args=dict(backend='dsk'))",
        "checkpoint_config: Backend dsk is not supported. Currently … 'disk'",
        1,
    ),
    Wrong(
        "checkpoint_config = dict(type='CheckpointHok')",
        "CheckpointHok is not in the hook registry … 'CheckpointHook'",
        1,
    ),
    Wrong('checkpoint_config = dict(meta=3)', 'checkpoint_config.meta … must be a dict, but got 3', 1),
    # --- evaluation
    Wrong('evaluation = 3', 'evaluation … must be a dict, but got 3', 1),
    Wrong('evaluation = True', 'evaluation … must be a dict, but got True', 1),
    Wrong(
        'evaluation = dict(intervall=1)',
        "evaluation: EvalHook got an unexpected argument 'intervall', and … 'interval'",
        1,
    ),
    Wrong("evaluation = dict(interval='1')", "evaluation.interval … Write 1 in place of '1'", 1),
    Wrong('evaluation = dict(interval=0)', 'evaluation.interval … must be a whole number of at least 1', 1),
    Wrong('evaluation = dict(interval=-1)', 'evaluation.interval … must be a whole number of at least 1', 1),
    Wrong(
        'evaluation = dict(interval=9)',
        'evaluation.interval … the first evaluation would follow 9 epochs, but the run has 3',
        0,
    ),
    Wrong(
        'evaluation = dict(start=9)',
        'evaluation.start … the first evaluation would follow 9 epochs, but the run has 3',
        0,
    ),
    Wrong("evaluation = dict(start='1')", "evaluation.start … Write 1 in place of '1'", 1),
    Wrong('evaluation = dict(start=-1)', 'evaluation.start … must be a whole number of at least 0', 1),
    Wrong(
        "evaluation = dict(save_best='eror')",
        "evaluation.save_best … unknown score 'eror'; available: error, loss; did you mean 'error'?",
        1,
    ),
    Wrong('evaluation = dict(save_best=True)', 'evaluation.save_best … must be a text, but got True', 1),
    Wrong("evaluation = dict(save_best='error', rule='smaller')", "evaluation.rule … must be 'greater' or 'less'", 1),
    Wrong("evaluation = dict(save_best='error', rule='max')", "evaluation.rule … must be 'greater' or 'less'", 1),
    Wrong("evaluation = dict(by_epoch='no')", "evaluation.by_epoch … Write False in place of 'no'", 1),
    Wrong("evaluation = dict(metric='error')", "evaluation: EvalHook got an unexpected argument 'metric'", 1),
    Wrong("evaluation = dict(type='EvalHok')", "evaluation: EvalHook got an unexpected argument 'type', and Noisy", 1),
    Wrong('evaluation = dict(greater_keys=3)', 'evaluation.greater_keys … must be a list of strings, but got 3', 1),
    Wrong('evaluation = dict(out_dir=3)', 'evaluation.out_dir … must be a path, but got 3', 1),
    Wrong(
        "evaluation = dict(by_epoch=True)\nrunner = dict(_delete_=True, type='IterBasedRunner', max_iters=10)",
        'evaluation.by_epoch … counts epochs, but an iteration runner has none',
        0,
    ),
    # --- log_config
    Wrong('log_config = 5', 'log_config … must be a dict, but got 5', 1),
    Wrong('log_config = dict(intervall=10)', "log_config.intervall … 'interval'"),
    Wrong("log_config = dict(interval='10')", "log_config.interval … Write 10 in place of '10'", 1),
    Wrong('log_config = dict(interval=0)', 'log_config.interval … must be a whole number of at least 1', 1),
    Wrong(
        'log_config = dict(interval=500)',
        'log_config.interval … TextLoggerHook logs every 500 iterations, but an epoch has 5',
        0,
    ),
    Wrong('log_config = dict(hook=[])', "log_config.hook … 'hooks'"),
    Wrong('log_config = dict(hooks=3)', 'log_config.hooks … must be a list of dicts, hooks or names of hooks', 1),
    Wrong(
        "log_config = dict(hooks='TextLoggerHook')",
        'log_config.hooks … must be a list of dicts, hooks or names of hooks',
        1,
    ),
    Wrong(
        "log_config = dict(hooks=['TextLogerHook'])",
        "TextLogerHook is not in the hook registry; did you mean 'TextLoggerHook'",
        1,
    ),
    Wrong(
        "log_config = dict(hooks=[dict(type='TextLogger')])",
        "TextLogger is not in the hook registry … 'TextLoggerHook'",
        1,
    ),
    Wrong(
        "log_config = dict(hooks=[dict(type='TextLoggerHook', intervl=3)])",
        "TextLoggerHook … 'intervl' … 'interval'",
        1,
    ),
    Wrong(
        "log_config = dict(hooks=[dict(type='TextLoggerHook', interval='3')])",
        "log_config.hooks[0].interval … Write 3 in place of '3'",
        1,
    ),
    Wrong(
        "log_config = dict(hooks=[dict(type='TextLoggerHook', interval=0)])",
        'log_config.hooks[0].interval … must be a whole number of at least 1',
        1,
    ),
    Wrong(
        "log_config = dict(hooks=[dict(type='TextLoggerHook', by_epoch='no')])",
        "log_config.hooks[0].by_epoch … Write False in place of 'no'",
        1,
    ),
    Wrong('log_config = dict(hooks=[dict(interval=3)])', 'must contain the key "type"', 1),
    Wrong(
        "log_config = dict(hooks=[dict(type='TensorboardLoggerHook', log_dir=3)])",
        'log_config.hooks[0].log_dir … must be a path, but got 3',
        1,
    ),
    Wrong(
        "log_config = dict(interval=500, hooks=[dict(type='TextLoggerHook')])",
        'log_config.interval … TextLoggerHook logs every 500 iterations, but an epoch has 5',
        0,
    ),
    # --- custom_hooks
    Wrong("custom_hooks = ['X']", 'X is not in the hook registry', 1),
    Wrong("custom_hooks = 'EMAHook'", 'custom_hooks … must be a list of dicts, hooks or names of hooks', 1),
    Wrong('custom_hooks = 3', 'custom_hooks … must be a list of dicts, hooks or names of hooks', 1),
    Wrong(
        "custom_hooks = [dict(type='VegaCallbacks', callbacks=['ModelStatistic'])]",
        'VegaCallbacks: ModelStatistic is not in the callback registry',
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='VegaCallbacks', callbacks=[])]",
        "custom_hooks[0] … VegaCallbacks is called before the EvalHook … priority='LOW'",
        1,
    ),
    Wrong("custom_hooks = [dict(type='EMAHok')]", "EMAHok is not in the hook registry … 'EMAHook'", 1),
    Wrong("custom_hooks = [dict(typ='EMAHook')]", 'must contain the key "type"', 1),
    Wrong("custom_hooks = [dict(type='EMAHook', momentm=0.1)]", "EMAHook … 'momentm' … 'momentum'", 1),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', momentum='0.1')]",
        "custom_hooks[0].momentum … Write 0.1 in place of '0.1'",
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', momentum=2)]", 'EMAHook: momentum must lie between 0 and 1, but got 2', 1
    ),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', momentum=0.9998)]",
        'custom_hooks[0].momentum … momentum=0.9998 is the weight of the newest parameters',
        0,
    ),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', priority='HIHG')]",
        "there is no priority named 'HIHG'; the names are HIGHEST (0),",
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', priority=200)]",
        'priority must be between 0 (first) and 100 (last), but got 200',
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', interval=0)]",
        'EMAHook: interval must be a whole number of at least 1, but got 0',
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='EMAHook', interval=500)]",
        'custom_hooks[0].interval … EMAHook acts every 500 iterations, but the run has 15',
        0,
    ),
    Wrong(
        "custom_hooks = [dict(type='wrong_inputs.Misspelt')]",
        'Misspelt.after_train_itr would never be called: a run has no such point',
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='wrong_inputs.Lightning')]",
        'custom_hooks[0] … the runner never calls Lightning.on_train_epoch_end',
        0,
    ),
    Wrong("custom_hooks = [dict(type='wrong_inputs.Deaf')]", 'custom_hooks[0] … Deaf is never called', 0),
    Wrong(
        "custom_hooks = [dict(type='wrong_inputs.Bare')]",
        'custom_hooks[0] … Write def after_train_iter(self, runner)',
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='wrong_inputs.NotAHook')]",
        'hook must be an instance of runnerkit.hooks.Hook, but got',
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='wrong_inputs.Mispelt')]",
        "wrong_inputs.Mispelt is not in the hook registry … 'Misspelt'",
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='IterTimerHook'), dict(type='IterTimerHook')]",
        'custom_hooks[0] … two IterTimerHooks are registered',
        0,
    ),
    Wrong(
        "custom_hooks = [dict(type='OptimizerHook')]",
        'custom_hooks[0] … OptimizerHook updates nothing: OptimizerHook runs before',
        0,
    ),
    Wrong(
        "custom_hooks = [dict(type='EmptyCacheHook', after_iter='no')]",
        "custom_hooks[0].after_iter … Write False in place of 'no'",
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='CaptureHook', modules=['modle.1'])]",
        "custom_hooks[0].modules … Supervised has no submodule 'modle.1'; did you mean 'model.1'",
        1,
    ),
    Wrong(
        "custom_hooks = [dict(type='CaptureHook', modules='model.1', log=['nrom'])]",
        "CaptureHook: log must be among mean, std, norm, max, zeros, but got 'nrom'; did you mean 'norm'?",
        1,
    ),
    Wrong("custom_hooks = [dict(type='NonFiniteHook', acton='stop')]", "NonFiniteHook … 'acton' … 'action'", 1),
    Wrong(
        "custom_hooks = [dict(type='NonFiniteHook', action='sotp')]",
        "NonFiniteHook: action must be one of stop, skip, rollback, but … 'stop'",
        1,
    ),
    Wrong('custom_hooks = [3]', 'custom_hooks … must be a list of dicts, hooks or names of hooks', 1),
    Wrong('custom_hooks = [None]', 'custom_hooks … must be a list of dicts, hooks or names of hooks', 1),
    Wrong('custom_hooks = [dict()]', 'must contain the key "type"', 1),
    Wrong('custom_hooks = [dict(type=None)]', "type must be a str or valid type, but got <class 'NoneType'>", 1),
    Wrong('custom_hooks = [dict(type=3)]', "type must be a str or valid type, but got <class 'int'>: 3", 1),
    # --- custom_imports
    Wrong("custom_imports = 'abc'", "custom_imports (wrong.py:2) must be dict(imports=['a.module']", 1),
    Wrong('custom_imports = dict(imports=3)', "custom_imports must be a list but got type <class 'int'>", 1),
    Wrong("custom_imports = dict(import_=['a'])", "custom_imports.import_ … 'imports'"),
    Wrong(
        "custom_imports = dict(imports=['no_such_module'])",
        'custom_imports: Failed to import no_such_module: No module named',
        1,
    ),
    # --- model_wrapper
    Wrong("model_wrapper = 'FSDP2'", "model_wrapper … must be a dict, but got 'FSDP2'", 1),
    Wrong(
        "model_wrapper = dict(type='FSDP')",
        "model_wrapper.type … unknown model wrapper 'FSDP' … Did you mean 'FSDP2'?",
        1,
    ),
    Wrong("model_wrapper = dict(type='XXXXXXXXXXX')", "model_wrapper.type … Write 'DDP' or 'FSDP2', or register", 1),
    Wrong(
        "model_wrapper = dict(type='DDP', find_unused_parameter=True)",
        "model_wrapper.find_unused_parameter … unknown key of DDP … Did you mean 'find_unused_parameters'?",
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', module_class=['Linear'])",
        "model_wrapper.module_class … unknown key of FSDP2 … Did you mean 'module_classes'?",
    ),
    Wrong("model_wrapper = dict(static_graph='yes')", "model_wrapper.static_graph … Write True in place of 'yes'", 1),
    Wrong(
        "model_wrapper = dict(type='FSDP2', module_classes='Linear')",
        'model_wrapper.module_classes … must be a list of names, but got',
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', mp_policy=dict(param_dtype='bf32'))",
        "model_wrapper.mp_policy.param_dtype … must be 'bf16', 'fp16' or 'fp32', but got 'bf32'",
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', mp_policy=dict(param_type='bf16'))",
        "model_wrapper.mp_policy.param_type … Did you mean 'param_dtype'?",
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', reshard_after_forward=1)",
        'model_wrapper.reshard_after_forward … must be True, False or a number of ranks of at least 2, but got 1',
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', min_num_params=-5)",
        'model_wrapper.min_num_params … must be a number above 0, but got -5',
        1,
    ),
    Wrong('model_wrapper = dict(bucket_cap_mb=0)', 'model_wrapper.bucket_cap_mb … must be a number above 0', 1),
    Wrong(
        "model_wrapper = dict(type='FSDP2', min_num_params='1e6')",
        "model_wrapper.min_num_params … Write 1000000.0 in place of '1e6'",
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', module_classes=['Linear'], min_num_params=10)",
        'model_wrapper.min_num_params … both select what is sharded … Keep one of them',
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', module_classes=['Linaer'])",
        "module_classes: Supervised has no module of a class 'Linaer'; did you mean 'Linear'?",
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2', module_classes=['Linear'], activation_checkpointing=['Block'])",
        "activation_checkpointing: Supervised has no module of a class 'Block'",
        1,
    ),
    Wrong(
        "model_wrapper = dict(type='FSDP2')\nchannels_last = True",
        'channels_last … FSDP2 does not support channels_last weights … wrong.py:3',
        1,
    ),
    Wrong(
        "optimizer_config = dict(detect_anomalous_params=True)\nmodel_wrapper = dict(type='FSDP2')",
        'optimizer_config.detect_anomalous_params … gathered copies of the weights',
        1,
    ),
    Wrong(
        'find_unused_parameters = True\nmodel_wrapper = dict(find_unused_parameters=False)',
        'find_unused_parameters … differs from model_wrapper.find_unused_parameters=False … Keep one of them',
        1,
    ),
    Wrong("broadcast_buffers = 'no'", "broadcast_buffers … Write False in place of 'no'", 1),
    Wrong("sync_batchnorm = 'torch'", "sync_batchnorm … must be True or False, but got 'torch'", 1),
    Wrong("sync_bn = 'torch'", 'sync_bn … unused: neither a run nor a file of this config reads it', 0),
    # --- amp, fp16, compile
    Wrong('fp16 = 3', "fp16 … fp16 must be a dict such as fp16=dict(loss_scale='dynamic')", 1),
    Wrong('fp16 = dict(loss_scal=2)', "fp16.loss_scal … 'loss_scale'"),
    Wrong("fp16 = dict(loss_scale='dynamc')", "fp16.loss_scale … must be a number above 0, 'dynamic' or a dict", 1),
    Wrong("amp = 'fp8'", "amp … amp must be 'bf16', 'fp16' or None", 1),
    Wrong('amp = True', "amp … amp must be 'bf16', 'fp16' or None", 1),
    Wrong('compile = 3', 'compile … compile must be True, False or a dict such as', 1),
    Wrong("compile = dict(mod='x')", "compile … compile has no key 'mod'", 1),
    Wrong("compile = dict(mode='x')", 'compile: torch refuses these settings: Unrecognized mode=x,', 1),
    Wrong("amp = 'bf16'\nfp16 = dict()", 'fp16 … amp and fp16 ask for different precisions … wrong.py:3', 1),
    # --- auto_scale_lr
    Wrong('auto_scale_lr = 3', 'auto_scale_lr … must be a dict, but got 3', 1),
    Wrong('auto_scale_lr = dict(enabel=True)', "auto_scale_lr.enabel … 'enable'"),
    Wrong('auto_scale_lr = dict(enable=True)', '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=…)', 1),
    Wrong(
        'auto_scale_lr = dict(enable=True, base_batch_size=0)',
        'auto_scale_lr.base_batch_size … must be a whole number of at least 1',
        1,
    ),
    Wrong(
        "auto_scale_lr = dict(enable='yes', base_batch_size=8)",
        "auto_scale_lr.enable … Write True in place of 'yes'",
        1,
    ),
    # --- dist_params
    Wrong('dist_params = 3', 'dist_params … must be a dict, but got 3', 1),
    Wrong("dist_params = dict(backend='glo')", "dist_params.backend … no backend 'glo' … Did you mean 'gloo'?", 1),
    Wrong("dist_params = dict(backend='zzzz')", "dist_params.backend … no backend 'zzzz' … Torch has gloo", 1),
    Wrong('dist_params = dict(backend=3)', "dist_params.backend … must be a name such as 'gloo', but got 3", 1),
    Wrong("dist_params = dict(timeout='10 min')", 'dist_params.timeout … must be a number of seconds above 0', 1),
    Wrong('dist_params = dict(timeout=0)', 'dist_params.timeout … must be a number of seconds above 0, but got 0', 1),
    Wrong("dist_params = dict(backnd='gloo')", "dist_params.backnd … 'backend'"),
    Wrong('dist_params = dict(end_within=0)', 'dist_params.end_within … must be a number above 0, but got 0', 1),
    Wrong("dist_params = dict(hang_after='10 min')", 'dist_params.hang_after … must be a number above 0', 1),
    Wrong('dist_params = dict(join_within=-1)', 'dist_params.join_within … must be a number above 0, but got -1', 1),
    Wrong('dist_params = dict(join_witin=60)', "dist_params.join_witin … 'join_within'"),
    # --- timer_config, profiler_config
    Wrong('timer_config = 3', 'timer_config … must be a dict or a hook, but got 3', 1),
    Wrong("timer_config = dict(type='IterTimerHok')", "IterTimerHok is not in the hook registry … 'IterTimerHook'", 1),
    Wrong('timer_config = dict(interval=1)', 'timer_config.interval … unknown key'),
    Wrong('profiler_config = 3', 'profiler_config … must be a dict or a hook, but got 3', 1),
    Wrong('profiler_config = dict(byepoch=True)', "profiler_config.byepoch … 'by_epoch'"),
    Wrong(
        "profiler_config = dict(profile_iters='three')",
        'profiler_config.profile_iters … must be a whole number of at least 1',
        1,
    ),
    Wrong('profiler_config = dict(schedule=dict(wiat=1))', "profiler_config.schedule.wiat … 'wait'"),
    # --- paths, seed, switches
    Wrong("load_from = 'missing.pth'", 'load_from: no checkpoint missing.pth', 1),
    Wrong('load_from = 3', 'load_from … must be a path, but got 3', 1),
    Wrong("load_from = 'good.py'", 'load_from: good.py is not a checkpoint: it begins with', 1),
    Wrong("load_from = 'nofolder/'", 'load_from: no checkpoint nofolder/', 1),
    Wrong("load_from = 'htp://x.y/z.pth'", 'load_from: Protocol not known: htp', 1),
    Wrong("resume_from = 'missing.pth'", 'resume_from: no checkpoint missing.pth', 1),
    Wrong('resume_from = 3', 'resume_from … must be a path, but got 3', 1),
    Wrong(
        "load_from = 'a.pth'\nresume_from = 'b.pth'",
        'resume_from: no checkpoint b.pth … wrong.py:3',
        1,
    ),
    Wrong('work_dir = 3', 'work_dir … must be a path, but got 3', 1),
    Wrong("auto_resume = 'yes'", "auto_resume … Write True in place of 'yes'", 1),
    Wrong("seed = '3'", "seed … Write 3 in place of '3'", 1),
    Wrong('seed = -1', 'seed … must be a whole number of at least 0', 1),
    Wrong('seed = 1.5', 'seed … must be a whole number of at least 0', 1),
    Wrong('seed = True', 'seed … must be a whole number of at least 0', 1),
    Wrong("deterministic = 'yes'", "deterministic … Write True in place of 'yes'", 1),
    Wrong('num_threads = 0', 'num_threads … must be a whole number of at least 1', 1),
    Wrong("num_threads = '2'", "num_threads … Write 2 in place of '2'", 1),
    Wrong("log_level = 'INF'", 'log_level … must be a number or one of CRITICAL, FATAL, ERROR, WARN,', 1),
    Wrong("log_level = 'info'", "log_level … Write 'INFO' in place of 'info'", 1),
    Wrong('log_level = True', 'log_level … must be a number or one of CRITICAL, FATAL, ERROR, WARN,', 1),
    Wrong("channels_last = 'yes'", "channels_last … Write True in place of 'yes'", 1),
    Wrong('cudnn_benchmark = 1', 'cudnn_benchmark … Write True in place of 1', 1),
    Wrong('cudnn_benchmark = True\ndeterministic = True', 'cudnn_benchmark … has no effect in a deterministic run', 0),
    Wrong("tf32 = 'on'", "tf32 … Write True in place of 'on'", 1),
    Wrong("prefetch = 'yes'", "prefetch … Write True in place of 'yes'", 1),
    Wrong("find_unused_parameters = 'False'", "find_unused_parameters … Write False in place of 'False'", 1),
)

#: What only a run shows.
RUNS = (
    # --- streams
    Wrong(
        "data = dict(train=dict(_delete_=True, type='Stream', source=dict(type='DirectorySource', path='events')))",
        "good.py:22 … reads a stream, which has no epochs … runner=dict(type='IterBasedRunner'",
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='Stream', source=dict(type='DirectorySource', path='good.py')))",
        'path must be a folder … good.py is a file',
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='Stream', source=dict(type='DirectorySorce', path='events')))",
        "DirectorySorce is not in the source registry … 'DirectorySource'",
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='Stream', source=dict(type='EndpointSource', url='host:7007')))",
        "url must be tcp://host:port or http://host:port/path … 'host:7007'",
        1,
    ),
    Wrong(
        "data = dict(train=dict(_delete_=True, type='Stream', "
        "source=dict(type='DirectorySource', path='events', read_files='delet')))",
        "read_files must be 'keep', 'delete' or a folder … did you mean 'delete'?",
        1,
    ),
    Wrong("data = dict(train=dict(_delete_=True, type='Stream', source='events'))", "source … 'events'", 1),
    Wrong(
        "data = dict(workers_per_gpu=2, train=dict(_delete_=True, type='Stream', "
        "source=dict(type='DirectorySource', path='events')))",
        'makes its own loader … workers_per_gpu=2',
        1,
    ),
    Wrong("custom_hooks = [dict(type='ControlHook', http='8000')]", "Write 8000 in place of '8000'", 1),
    Wrong("custom_hooks = [dict(type='ControlHook', http=80000)]", 'http must be a port from 0 to 65535 … 80000', 1),
    Wrong("work_dir = 'good.py'", 'work dir … cannot be created … --work-dir', 1),
    Wrong("work_dir = 'good.py/sub'", 'work dir … cannot be created … --work-dir', 1),
    Wrong('optimizer = dict(lr=1e30)', 'the weights are NaN or infinite … smaller learning rate … <nowhere>', 3),
    Wrong('optimizer_config = None', 'THE WEIGHTS HAVE NOT CHANGED in 5 iterations … <nowhere>', 0),
    Wrong(
        "evaluation = None\nmodel = dict(model=[dict(type='Linear', in_features=4, out_features=2)])",
        'the loss broadcasts them to (4, 2) … wrong.py:3',
        0,
    ),
)

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

#: Command lines. What they start from lies in `FILES`, or is made by the test: good.pth, its broken copies, other.pth.
COMMANDS = (
    # --- commands
    Wrong('', 'a command is missing'),
    Wrong('trian good.py', "'trian' … 'train'"),
    Wrong('fit good.py', "'fit' … use runnerkit train"),
    Wrong('validate good.py', "'validate' … use runnerkit test"),
    Wrong('good.py', 'use runnerkit train good.py'),
    Wrong('--seed 3', 'flags follow a command'),
    # --- flags of train
    Wrong('train', 'config'),
    Wrong('train good.py more.py', 'more.py'),
    Wrong('train good.py --sed 3', "--sed … '--seed'"),
    Wrong('train good.py --verbos', "--verbos … '--verbose'"),
    Wrong('train good.py --epochs 3', '--epochs … --cfg-options runner.max_epochs=3'),
    Wrong('train good.py --lr 3', '--lr … --cfg-options optimizer.lr=3'),
    Wrong('train good.py --batch-size 3', '--batch-size … --cfg-options data.batch_size=3'),
    Wrong('train good.py --amp', '--amp … amp=bf16'),
    Wrong('train good.py --resume', '--resume … --auto-resume'),
    Wrong('train good.py --eval', '--eval … no flag is needed'),
    # flags of Lightning's CLI
    Wrong('train good.py --trainer.max_epochs=3', '--trainer.max_epochs … runner.max_epochs=3'),
    Wrong('train good.py --trainer.accelerator gpu', '--trainer.accelerator … --device cuda'),
    Wrong('train good.py --trainer.accumulate_grad_batches 4', 'optimizer_config.cumulative_iters=4'),
    Wrong('train good.py --trainer.deterministic true', "--trainer.deterministic … '--deterministic'"),
    Wrong('train good.py --trainer.max_time 00:08:00:00', '--trainer.max_time … timeout 8h runnerkit train'),
    Wrong('train good.py --trainer.val_check_interval 9', 'evaluation.by_epoch=False evaluation.interval=9'),
    Wrong('train good.py --trainer.callbacks+=EarlyStopping', '--trainer.callbacks+ … custom_hooks'),
    Wrong('train good.py --trainer.logger.save_dir logs', '--trainer.logger.save_dir … log_config.hooks'),
    Wrong('train good.py --trainer.limit_train_batchs 3', 'unknown flag --trainer.limit_train_batchs'),
    Wrong('train good.py --ckpt_path last', '--ckpt_path … --auto-resume'),
    Wrong('test good.py --ckpt_path good.pth', '--ckpt_path … second argument … runnerkit test CONFIG CHECKPOINT'),
    Wrong('predict folder test --ckpt_path good.pth', '--ckpt_path … --checkpoint good.pth'),
    Wrong('train good.py --lr_scheduler.gamma 0.1', '--lr_scheduler.gamma … --cfg-options lr_config.gamma=0.1'),
    Wrong('train good.py --model Net', '--model … --cfg-options'),
    Wrong('train good.py --seed x', "--seed … 'x'"),
    Wrong('train good.py --seed -3', "--seed … '-3'"),
    Wrong('train good.py --launcher slrum', "--launcher … 'slrum' … 'slurm'"),
    Wrong('train good.py --launcher slurm', 'SLURM_PROCID … srun … --launcher none', 1),
    Wrong('train good.py --launcher pytorch', 'RANK … torchrun … --launcher none', 1),
    Wrong('train good.py --gpu-id x', "--gpu-id … 'x'"),
    Wrong('train good.py --local-rank x', "--local-rank … 'x'"),
    Wrong('train good.py --device gpu', "'gpu' … use --device cpu, cuda", 1),
    Wrong('train good.py --if-used keep', "--if-used … 'keep' … 'aside'"),
    Wrong('train good.py --auto-resume --if-used aside', '--auto-resume … --if-used aside … contradict'),
    Wrong('train good.py --auto-scale-lr --dry-run', '--auto-scale-lr needs auto_scale_lr=dict(base_batch_size=…)', 1),
    Wrong('train good.py --work-dir', '--work-dir'),
    Wrong('train good.py --work-dir good.py', 'good.py cannot be created … --work-dir', 1),
    Wrong('train good.py optimizer.lr=0.1', '--cfg-options optimizer.lr=0.1'),
    Wrong('train good.py --cfg-options optimizer.lr', "'optimizer.lr' must be key=value"),
    Wrong('train good.py --cfg-options =3', "'=3' must be key=value"),
    Wrong('train good.py --cfg-options lr_config.step=[1,2', "'lr_config.step=[1,2' … brackets"),
    Wrong('train good.py --cfg-options optimizer.lr.x=3', '--cfg-options does not fit good.py … lr='),
    Wrong('train good.py --cfg-options model.model.5.bias=False', 'Index 5 exceeds the length of list model'),
    Wrong('train good.py --cfg-options model.model.x.bias=False', 'model.x names none of its items'),
    Wrong('train good.py --cfg-options optmizer.lr=3', "optmizer (--cfg-options) … 'optimizer'"),
    Wrong('train good.py --cfg-options runner.max_epoch=3', "runner.max_epoch (--cfg-options) … 'max_epochs'"),
    Wrong('train good.py --cfg-options optimizer.lrr=3', "'lrr' … 'lr' … (--cfg-options)", 1),
    Wrong('train good.py --cfg-options optimizer.lr=abc', "optimizer.lr (--cfg-options) … 'abc'", 1),
    Wrong('train good.py --cfg-options runner.max_epochs=1e3', '(--cfg-options) … Write 1000 in place of', 1),
    # --- ctl
    Wrong('ctl', 'work_dir, COMMAND'),
    Wrong('ctl trained', 'COMMAND'),
    Wrong('ctl trained sing', "unknown command 'sing' … status, pause"),
    Wrong('ctl trained paus', "unknown command 'paus' … did you mean 'pause'?"),
    Wrong('ctl trained lr', "lr takes a number of at least 0, or 'schedule', but got none"),
    Wrong('ctl trained lr fast', "lr takes a number … 'fast'"),
    Wrong('ctl trained save now', "save takes no value, but got 'now'"),
    Wrong('ctl trained status --timeout soon', "--timeout … 'soon'"),
    Wrong('ctl trained status', "no run can be controlled in trained … custom_hooks=[dict(type='ControlHook')]", 1),
    Wrong('ctl nowhere status', 'no such folder: nowhere', 1),
    # --- flags of the others
    Wrong('test', 'required: config'),
    Wrong('test good.py', 'no checkpoint … work_dirs/good', 1),
    Wrong('test good.pth good.py', 'good.pth is neither a config nor a work dir … runnerkit test CONFIG good.pth'),
    Wrong('test good.py --checkpoint good.pth', '--checkpoint … second argument'),
    Wrong('test good.py good.pth --show', '--show'),
    Wrong('test good.py good.pth --device gpu', "'gpu'", 1),
    Wrong('test good.py good.pth --split tset', "'tset' … 'test'", 1),
    Wrong('test good.py good.pth --out nowhere/x.json', '--out nowhere/x.json … no such folder: nowhere'),
    Wrong('test good.py good.pth --out folder', '--out folder is a folder'),
    Wrong('test good.py good.pth --cfg-options model.loss.type=MSELos', "MSELos … (--cfg-options) … 'MSELoss'", 1),
    Wrong('profile', 'config'),
    Wrong('profile good.py --iters 0', "--iters … '0'"),
    Wrong('profile good.py --sort speed', "--sort … 'speed' … 'total'"),
    Wrong('profile good.py --warmup 1000', 'ends after 15 iterations, within --warmup 1000'),
    Wrong('profile good.py --trace nowhere/x.json', '--trace nowhere/x.json … no such folder: nowhere'),
    Wrong('profile good.py --trace folder', '--trace folder is a folder'),
    Wrong('profile good.py --epochs 3', '--epochs … runner.max_epochs=3'),
    Wrong('batch good.py', '--epoch, --batch'),
    Wrong('batch good.py --epoch 0 --batch 1', "--epoch … '0'"),
    Wrong('batch good.py --epoch 1 --batch x', "--batch … 'x'"),
    Wrong('batch good.py --epoch 1 --batch 99', '--batch 99 … (5)'),
    Wrong('batch good.py --epoch 1 --batch 1 --split tran', "--split … 'tran' … train, val, test"),
    Wrong('batch good.py --epoch 1 --batch 1 --rank 3', '--rank … but got 3'),
    Wrong('batch good.py --epoch 1 --batch 1 --world-size 0', "--world-size … '0'"),
    Wrong('batch good.py --epoch 1 --batch 1 --out nowhere/x.pth', '--out nowhere/x.pth … no such folder: nowhere'),
    Wrong('batch good.py --epoch 1 --batch 1 --cfg-options seed=None', 'has no seed … --seed'),
    Wrong('print-config', 'config'),
    Wrong('print-config good.py --seed 3', '--seed'),
    Wrong('print-config good.py --style pep9', "'pep9' … pep8", 1),
    Wrong('print-config missing.py', 'missing.py" does not exist', 1),
    Wrong('print-config folder', 'folder is a folder', 1),
    Wrong('print-config broken.py', 'broken.py … line 1', 1),
    Wrong('print-config good.py --cfg-options modle.x=3', "modle (--cfg-options) … 'model'", 0),
    Wrong('completion', 'shell'),
    Wrong('completion tcsh', "'tcsh' … 'bash'"),
    # --- experiments
    Wrong('train experiment_0.py', 'training.valid_interval … of at least 1, but got 0 … experiment_0.py:1', 1),
    Wrong('train experiment_1.py', 'experiment_1.py:2 … training … dict', 1),
    Wrong('train experiment_2.py', "experiment_2.py:2 … valid_intervall … 'valid_interval'", 0),
    # --- using a model
    Wrong('predict trained tset', "tset … did you mean 'test'", 1),
    Wrong('predict traind test', "traind … did you mean 'trained'", 1),
    Wrong('predict trained test --out x.txt', 'x.txt … .json, .csv, .npy'),
    Wrong('predict trained test --batch-size 0', '--batch-size … 0'),
    Wrong('predict named.py val --checkpoint good.pth', 'data.val has several … val/clean or val/noisy', 1),
    Wrong('predict named.py val/claen --checkpoint good.pth', "val/claen … 'val/clean'", 1),
    Wrong('predict no_samples.py test --checkpoint good.pth', 'data.test … is empty … no_samples.py:2', 1),
    Wrong('predict good.pth test', "names code … 'support.Noisy' … --trust", 1),
    Wrong('infer trained test', "'infer' … runnerkit predict"),
    Wrong('export trained', '--out'),
    Wrong('export trained --out x.onx', "x.onx … '.onnx'"),
    Wrong('export trained --out x.pb', 'x.pb … .safetensors, .pt2, .onnx'),
    Wrong('export trained --out nowhere/x.pt2', '--out nowhere/x.pt2 … no such folder: nowhere'),
    Wrong('export trained --format onnx', '--format … --out FILE.onnx'),
    Wrong('export trained --out x.pt2 --imgsz 224', '--imgsz … --shape 3,224,224'),
    Wrong('export trained --out x.pt2 --dynamic', '--dynamic … expected at least one argument'),
    Wrong('export trained --out x.pt2 --shape 4,x', "--shape … 1,28,28 … '4,x'"),
    Wrong('export trained --out x.pt2 --shape 4 4', 'does not fit forward … --shape', 1),
    Wrong('export trained --out x.pt2 --shape 5', 'does not compute anything from input (2, 5)', 1),
    Wrong('export trained --out x.pt2 --shape 4 --inputs val', '--inputs … --shape … one of them'),
    Wrong('export trained --out x.pt2 --inputs vla', "vla … 'val' … --shape", 1),
    Wrong('export trained --out x.pt2 --method forwrad', "'forwrad' … 'forward'", 1),
    Wrong('export trained --out x.pt2 --tolerance -1', '--tolerance'),
    Wrong('export other.pth --out x.pt2', 'other.pth holds no config', 1),
    Wrong('export good.py --checkpoint other.pth --out x.pt2 --shape 4', 'other.pth does not fit the model', 1),
    Wrong('convert trained', 'OUT'),
    Wrong('convert good.pth x.onnx', 'x.onnx … name.pth … name.safetensors … runnerkit export'),
    Wrong('convert good.pth folder', 'folder … name.pth … a folder of a file … name.safetensors'),
    Wrong('convert good.pth other.pth', 'OUT other.pth exists'),
    Wrong('convert good.pth nowhere/x.pth', 'OUT nowhere/x.pth … no such folder: nowhere'),
    Wrong('convert goood.pth x.pth', "goood.pth … 'good.pth'", 1),
    Wrong('convert truncated.pth x.pth', 'truncated.pth is damaged: its end is missing', 1),
    Wrong('convert list.pth x.pth', 'list.pth holds no weights', 1),
    Wrong('convert code.pth x.pth', 'code.pth … could run code … --trust-pickles', 1),
    Wrong('publish good.pth', 'OUT'),
    Wrong('publish good.pth x.onnx', 'x.onnx … runnerkit export'),
    Wrong('publish good.pth folder', 'OUT folder is a folder'),
    Wrong('publish goood.pth x.pth', "goood.pth … 'good.pth'", 1),
    Wrong('publish truncated.pth x.pth', 'truncated.pth is damaged: its end is missing', 1),
    Wrong('publish list.pth x.pth', 'list.pth holds no weights', 1),
    Wrong('publish code.pth x.pth', 'code.pth … could run code … --trust-pickles', 1),
    # --- config files
    Wrong('train missing.py', 'missing.py'),
    Wrong('train goood.py', "goood.py … 'good.py'"),
    Wrong('train folder', 'folder is a folder, not a config file … good.py'),
    Wrong('train config.txt', 'py/yml/yaml/json … config.txt', 1),
    Wrong('train empty.py', "empty.py has no 'data' … model, optimizer, runner", 1),
    Wrong('train broken.py', 'broken.py … line 1', 1),
    Wrong('train indented.py', 'indented.py … line 2', 1),
    Wrong('train latin.py', 'latin.py:2 … UTF-8', 1),
    Wrong('train raises.py', "raises.py:2 … 'undefined'", 1),
    Wrong('train imports.py', "imports.py:1 … 'no_such_module'", 1),
    Wrong('train circle.py', 'circle … circle.py', 1),
    Wrong('train baseless.py', 'nowhere.py … baseless.py', 1),
    Wrong('train base_of_3.py', '_base_ in … base_of_3.py … is 3', 1),
    Wrong('train two_bases.py', "['seed'] … seed.py … two_bases.py", 1),
    Wrong('train reserved.py', 'filename is reserved … reserved.py:1', 1),
    Wrong('train reference.py', "_base_.modl … reference.py … 'model'", 1),
    Wrong('train broken.yaml', 'broken.yaml:2 … invalid YAML', 1),
    Wrong('train tabs.yaml', 'tabs.yaml:2 … invalid YAML', 1),
    Wrong('train text.yaml', 'text.yaml must hold a dict', 1),
    Wrong('train twice.yaml', "twice.yaml … duplicate key 'seed' in line 3", 1),
    Wrong('train twice.json', "twice.json … duplicate key 'seed'", 1),
    Wrong('train number.yaml', 'optimizer.lr (number.yaml:4) … Write lr: 1.0e-3', 1),
    Wrong('train quoted.yaml', "log_config.interval (quoted.yaml:3) … '10'", 1),
    Wrong('train unread.yaml', "runner.max_epoch (unread.yaml:3) … 'max_epochs'"),
    Wrong('train broken.json', 'broken.json:2 … invalid JSON', 1),
    Wrong('train list.json', 'list.json must hold a dict', 1),
    Wrong('train quoted.json', "optimizer.lr (quoted.json:2) … '0.1'", 1),
    # --- checkpoints
    Wrong('train good.py --load-from missing.pth', 'missing.pth … cannot be found', 1),
    Wrong('train good.py --load-from goood.pth', "goood.pth … 'good.pth'", 1),
    Wrong('train good.py --load-from checkpoints', 'no checkpoint in checkpoints', 1),
    Wrong('train good.py --load-from empty.pth', 'empty.pth is damaged: it is empty', 1),
    Wrong('train good.py --load-from text.pth', 'text.pth is damaged … not a file of torch.save', 1),
    Wrong('train good.py --load-from good.py', 'good.py is not a checkpoint: it begins with', 1),
    Wrong('train good.py --load-from truncated.pth', 'truncated.pth is damaged: its end is missing', 1),
    Wrong('train good.py --load-from flipped.pth', 'flipped.pth is damaged: the checksum', 1),
    Wrong('train good.py --load-from other.pth', 'other.pth is a checkpoint of another model … Supervised', 1),
    Wrong('train good.py --load-from list.pth', 'list.pth: it holds a list', 1),
    Wrong('train good.py --load-from number.pth', 'number.pth: its state_dict is a int', 1),
    Wrong('train good.py --load-from nothing.pth', 'nothing.pth: its state_dict is an empty dict', 1),
    Wrong('train good.py --load-from code.pth', 'code.pth … could run code … --trust-pickles', 1),
    Wrong('train good.py --resume-from missing.pth', 'missing.pth … cannot be found', 1),
    Wrong('train good.py --resume-from checkpoints', 'no checkpoint in checkpoints', 1),
    Wrong('train good.py --resume-from truncated.pth', 'truncated.pth is damaged: its end is missing', 1),
    Wrong('train good.py --resume-from other.pth', 'other.pth cannot be resumed … --load-from', 1),
    Wrong('search search.py --work-dir s3://bucket/x', 'must be a folder of this machine … out_dir'),
    Wrong('test good.py missing.pth', 'missing.pth … cannot be found', 1),
    Wrong('test good.py checkpoints', 'no checkpoint in checkpoints', 1),
    Wrong('test good.py truncated.pth', 'truncated.pth is damaged: its end is missing', 1),
    Wrong('test good.py other.pth', 'other.pth does not fit the model of good.py', 1),
    Wrong('test good.py list.pth', 'list.pth: it holds a list', 1),
)

#: Search spaces in a config: `Space.of` refuses them, or `Space.check_config` their keys.
SPACES = (
    Wrong("search_space = {'optimizer.lr': dict(type='Flaot', low=0, high=1)}", "optimizer.lr: Flaot … 'Float'"),
    Wrong("search_space = {'optimizer.lr': dict(type='Float', lo=0, high=1)}", "optimizer.lr: Float: … 'lo' … 'low'"),
    Wrong("search_space = {'optimizer.lr': dict(type='Float', low=1, high=0)}", 'low=1 must not be above high=0'),
    Wrong(
        "search_space = {'optimizer.lr': dict(type='Float', low=0, high=1, log=True)}", 'low must be above 0 on a log'
    ),
    Wrong("search_space = {'optimizer.lr': []}", 'optimizer.lr: choices must have at least one value'),
    Wrong("search_space = {'optimizer.lr': (1e-4, 0.1)}", 'optimizer.lr: … write Float(0.0001, 0.1) or Int(…)'),
    Wrong("search_space = {'optimizer.lr': 0.1}", 'optimizer.lr: … must be a list of choices, a dict( … got 0.1'),
    Wrong("search_space = {'optimizer.momentun': [0.1]}", "optimizer has no 'momentun'; did you mean 'momentum'?"),
    Wrong("search_space = {'optmizer.lr': [0.1]}", "optmizer.lr: the config has no 'optmizer' … 'optimizer'"),
    Wrong("search_space = {'model.model.5.bias': [True]}", "model.model is a list of 2, in which '5' is no index"),
    Wrong(
        "search_space = dict(parameters={'seed': [1]}, conditions=[dict(child='seed', parent='sede', range=1)])",
        "the parent of a condition is 'sede', but there is no such parameter; did you mean 'seed'?",
    ),
    Wrong(
        "search_space = dict(parameters={'a': [1], 'b': [1]}, conditions=[dict(child='a', parent='b', range=2)])",
        'range has 2, but b must be one of 1',
    ),
    Wrong(
        "search_space = dict(parameters={'a': [1], 'b': [1]}, conditions=[dict(child='a', parent='b', range=1), "
        "dict(child='b', parent='a', range=1)])",
        'the conditions lead in a circle … a → b',
    ),
    Wrong("search_space = dict(parameters={'seed': [1]}, forbidden=[dict(sede=1)])", "'sede' … did you mean 'seed'?"),
    Wrong("search_space = dict(parameters={'seed': [1]}, forbidden=[dict(seed=1)])", 'the space forbids everything'),
    Wrong("search_space = dict(parametrs={'seed': [1]})", "'parametrs' … did you mean 'parameters'?"),
    Wrong(
        "search_space = dict(hyperparameters=[dict(key='seed', type='INTT', range=[1, 2])])",
        "seed: type must be one of CATEGORY, … 'INTT'; did you mean 'INT'?",
    ),
    Wrong(
        "search_space = dict(hyperparameters=[dict(key='seed', type='INT', rage=[1, 2])])",
        "a hyperparameter has no 'rage'; did you mean 'range'?",
    ),
    Wrong(
        "search_space = dict(hyperparameters=[dict(key='seed', type='INT_EXP', range=[0, 2])])",
        'seed: range of INT_EXP: low must be above 0',
    ),
)

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

#: A search among networks that cannot be built, up to the algorithm.
NETWORKS = "nas = dict(search_space=dict(_delete_=True, modules=['backbone'], backbone=dict(type='Net', base_chn=[8]))"

#: Lines that are added to it.
SEARCHES = (
    Wrong("pipeline = ['nsa']", "no section 'nsa' … did you mean 'nas'?"),
    Wrong('pipeline = 3', 'a list of names of steps … 3'),
    Wrong("nas = dict(pipe_step=dict(type='SearchStep'))", "SearchStep … did you mean 'SearchPipeStep'"),
    Wrong("nas = dict(objective=dict(error='min'))", "nas has no key 'objective'; did you mean 'objectives'?"),
    Wrong("nas = dict(objectives=dict(error='mim'))", "'error' … 'mim'; did you mean 'min'"),
    Wrong("nas = dict(config='god.py')", "config: there is no file god.py … did you mean 'good.py'"),
    Wrong("nas = dict(config='search.py')", 'search.py is a search itself; give the config of one training'),
    Wrong("nas = dict(search_space={'optimzer.lr': [1.0]})", "optimzer.lr … did you mean 'optimizer'"),
    Wrong("nas = dict(search_algorithm=dict(type='TEPE'))", "no search algorithm 'TEPE' … TPE"),
    Wrong("nas = dict(search_algorithm='HeboAdaptor')", 'HeboAdaptor is not built … GP'),
    Wrong(f"{NETWORKS}, search_algorithm='TPE')", 'TPE chooses values, but search_space describes a network … PruneEA'),
    Wrong(f"{NETWORKS}, search_algorithm='PruneEA')", "cannot be built … 'model', which the key network names"),
    Wrong(f"{NETWORKS}, network='modell', search_algorithm='PruneEA')", "no 'modell'; did you mean 'model'?"),
    Wrong(f"{NETWORKS}, search_algorithm=dict(type='PruneEA', codec='PrunCodec'))", "'PruneCodec'"),
    Wrong(f"{NETWORKS}, search_algorithm=dict(type='PruneEA', trials=9))", "'trials' … policy"),
    Wrong(
        f"{NETWORKS}, search_algorithm=dict(type='PruneEA', policy=dict(lenght=8)))",
        "policy has no 'lenght'; did you mean 'length'?",
    ),
    Wrong(
        f"{NETWORKS}, search_algorithm=dict(type='PruneEA', policy=dict(length=464)))",
        'policy.length … got 464: the network has 8 channels',
    ),
    Wrong(
        f"{NETWORKS}, search_algorithm=dict(type='PruneEA', policy=dict(random_samples=0)))",
        'policy.random_samples … at least 1, but got 0',
    ),
    Wrong("nas = dict(search_algorithm='PruneEA')", 'search_space must describe the network to prune'),
    Wrong(
        "nas = dict(search_space=dict(_delete_=True, modules=['backbone']), search_algorithm='PruneEA')",
        'needs base_chn and base_chn_node … it has modules',
    ),
    Wrong(
        "nas = dict(search_space=dict(_delete_=True, modules=['backbone'], hyperparameters=[]))",
        'describes a network, in modules, and names values, in hyperparameters: leave one of them out',
    ),
    Wrong("nas = dict(executor=dict(type='Lokal'))", "Lokal … did you mean 'Local'"),
    Wrong("nas = dict(executor=dict(type='Local', worker=2))", 'worker'),
    Wrong("nas = dict(quota='parms < 3')", "'parms'; did you mean 'params'"),
    Wrong("nas = dict(overrides={'runner.max_epoch': 3})", "runner.max_epoch (overrides) … 'max_epochs' … <nowhere>"),
    Wrong(
        "bench = dict(pipe_step=dict(type='BenchmarkPipeStep'), latency=dict(round=3)); pipeline = ['nas', 'bench']",
        "latency has no key 'round'; did you mean 'rounds'? (wrong.py:2)\n",
    ),
    Wrong('nas = dict(overrides=3)', 'overrides must be a dict … 3'),
    Wrong('nas = dict(objectives=dict(_delete_=True))', 'objectives must name at least one score'),
    Wrong(
        "nas = dict(objectives=dict(_delete_=True, eror='min'))",
        "'eror' … no such score; did you mean 'error' … <nowhere>",
        code=1,
    ),
    Wrong("nas = dict(storage='study.db')", "storage must be the URL of a database … 'study.db'"),
    Wrong("nas = dict(executor='torch.nn.ReLU')", 'executor must be an Executor … ReLU'),
    Wrong(
        "best = dict(pipe_step=dict(type='TrainPipeStep'), load_weights='yes'); pipeline = ['nas', 'best']",
        "best: load_weights must be True or False … 'yes'",
    ),
    Wrong(
        "best = dict(pipe_step=dict(type='TrainPipeStep'), hps=3, config='good.py', objectives=dict(error='min')); "
        "pipeline = ['best']",
        'hps must be a dict … 3',
    ),
    Wrong(
        "bench = dict(pipe_step=dict(type='BenchmarkPipeStep'), split='tset'); pipeline = ['nas', 'bench']",
        "split is 'tset' … no data.tset; did you mean 'test'",
    ),
    Wrong("nas = dict(pipe_step='SearchPipeStep')", "'nas' needs pipe_step=dict(type="),
    Wrong("nas = dict(overrides={'optimizer.type': '3'})", "optimizer.type='3' cannot be written on a command line"),
    Wrong(
        "nas = dict(search_space={'optimizer.type': ['1']})", "optimizer.type='1' cannot be written on a command line"
    ),
    Wrong('nas = dict(seed=-1)', 'seed must be a whole number of at least 0, but got -1'),
    Wrong('nas = dict(threads=0)', 'threads must be a whole number of at least 1, but got 0'),
    Wrong("nas = dict(search_algorithm=dict(type='TPE', trials=0))", 'TPE: trials must be … at least 1'),
    Wrong("nas = dict(search_algorithm=dict(type='TPE', trials='5'))", "TPE: trials must be … '5'"),
    Wrong("nas = dict(search_algorithm=dict(type='TPE', pruner='AHSA'))", "no pruner 'AHSA'; did you mean 'ASHA'"),
    Wrong("nas = dict(search_algorithm=dict(type='TPE', candidates=3))", 'TPESampler of Optuna … candidates'),
    Wrong("nas = dict(search_algorithm=dict(type='GridSearch'))", 'a grid over the numbers … needs points'),
)
