"""One validation batch before the training."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import runnerkit
from runnerkit.config import Config
from runnerkit.config.origin import PreflightError
from runnerkit.nn import MODELS, Supervised

CONFIG = """
model = dict(
    type='Supervised',
    model=[dict(type='Linear', in_features=4, out_features=3)],
    loss=dict(type='CrossEntropyLoss'),
    metrics=dict(
        accuracy=dict(type='MulticlassAccuracy', num_classes=3),
    ),
)
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type=FILE + ':Rows'), val=dict(type=FILE + ':Rows'))
optimizer = dict(type='SGD', lr=0.1)
runner = dict(type='EpochBasedRunner', max_epochs=2)
evaluation = dict(interval=1)
log_config = checkpoint_config = None
report = False
"""


class Rows:
    """Random rows, each sample of which is counted."""

    def __init__(self, target=torch.int64, width=4):
        self.target, self.width, self.asked, self.generator = target, width, [], torch.Generator().manual_seed(1)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        self.asked.append(index)
        noise = torch.rand(self.width, generator=self.generator) + random.random() + np.random.rand()
        return (noise + torch.rand(self.width)).float(), torch.tensor(index % 3).to(self.target)


@MODELS.register_module()
class Traces(Supervised):
    """Changes whatever it can in a step."""

    def __init__(self, **options):
        super().__init__(**options)
        self.register_buffer('seen', torch.zeros(()))
        self.count, self.given, self.last = 0, [], torch.zeros(2)

    def _step(self, data):
        self.count += 1
        self.given.append(len(data))
        self.last += 1
        self.seen += 1
        self.new = 1
        self.register_buffer('late', torch.zeros(1)) if not hasattr(self, 'late') else None
        return super()._step(data)


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def made(changes=(), text=CONFIG):
        Path('cfg.py').write_text(text.replace('FILE', repr(__file__)))
        cfg = Config.fromfile('cfg.py')
        cfg.merge_from_dict(dict(changes))
        return cfg

    return made


def refused(cfg):
    with pytest.raises(PreflightError) as caught:
        runnerkit.train(cfg, 'run', seed=1, device='cpu')
    return str(caught.value)


def test_a_wrong_number_of_outputs_is_found_with_its_line(config):
    cfg = config(text=CONFIG.replace('out_features=3', 'out_features=4'))
    said = refused(cfg)
    assert "model.metrics.accuracy (cfg.py:7): the network has 4 outputs, the metric 'accuracy' expects 3" in said
    assert 'write num_classes=4' in said
    result = runnerkit.train(config({'evaluation': None}, CONFIG.replace('s=3)]', 's=4)]')), 'run', seed=1)
    assert result.outcome.kind == 'complete'


@pytest.mark.parametrize(
    'changes, words',
    [
        ({'data.val.target': torch.float32}, 'model (cfg.py:2): Supervised fails with the first validation batch'),
        ({'data.val.width': 5}, 'got 5 features, expects 4'),
        ({'model.metrics': {'error': {'type': 'MeanSquaredError'}}}, "model.metrics.error (cfg.py:6): the metric 'error'"),
    ],
)
def test_other_errors_that_would_come_after_the_first_epoch(config, changes, words):
    assert words in refused(config(changes))


def test_a_wrong_name_of_a_metric_is_an_error_as_before(config):
    with pytest.raises(KeyError, match="did you mean 'MulticlassAccuracy'"):
        runnerkit.train(config({'model.metrics.accuracy.type': 'MulticlassAcuracy'}), 'run', seed=1)


class Own(torch.nn.Linear):
    """Its validation needs what a training step makes."""

    def __init__(self, returns=None):
        super().__init__(4, 3)
        self.centre, self.returns = None, returns

    def train_step(self, data, optimizer):
        self.centre = data[0].mean()
        return {'loss': self(data[0]).mean(), 'log_vars': {}, 'num_samples': 4}

    def val_step(self, data, optimizer):
        if self.returns is not None:
            return self.returns
        return {'loss': self(data[0] - self.centre).mean(), 'log_vars': {'loss': 1.0}, 'num_samples': 4}


def test_an_error_of_a_step_of_the_users_own_is_a_warning(config, caplog):
    """What is missing may come with the training."""
    own = {'model': {'_delete_': True, 'type': Own}}
    assert runnerkit.train(config(own), 'run', seed=1, device='cpu').outcome.kind == 'complete'
    assert 'Own fails with the first validation batch: TypeError' in Path('run').joinpath(log()).read_text()


def log():
    return next(each.name for each in Path('run').glob('*.log'))


def bits(result):
    return {name: value.tolist() for name, value in result.model.state_dict().items()}, result.scores


TRACES = """
model = dict(type='Traces', loss=dict(type='CrossEntropyLoss'), metrics=dict(
    accuracy=dict(type='MulticlassAccuracy', num_classes=3)), model=[
    dict(type='Linear', in_features=4, out_features=8), dict(type='BatchNorm1d', num_features=8),
    dict(type='Dropout'), dict(type='Linear', in_features=8, out_features=3)])
"""


@pytest.mark.parametrize('seeded', [True, False])
def test_a_run_ends_with_the_same_bits(config, seeded):
    def trained(check, **changes):
        more = {'check_validation': check, 'data.val_dataloader': {'shuffle': True}, 'data.seeded': seeded, **changes}
        cfg = config(more, CONFIG + TRACES)
        return runnerkit.train(cfg, f'run{check}', seed=1, device='cpu')

    on, off = trained(True), trained(False)
    assert bits(on) == bits(off)
    assert (on.model.count, on.model.given, on.model.last.tolist()) == (
        off.model.count,
        off.model.given,
        off.model.last.tolist(),
    )
    assert on.history == pytest.approx(off.history) or len(on.history) == len(off.history)


def made(config, changes=()):
    """The plan of a run, as the flow checks it."""
    from runnerkit.flow import Flow, Options
    from runnerkit.flow.preflight import Plan
    from runnerkit.flow.stages.training import RunnerBase

    held = []

    class Look(RunnerBase):
        def run(self, context):
            held.append(Plan.of(context))

    cfg = config({'check_validation': False, **dict(changes)}, CONFIG + TRACES)
    Flow(cfg, Options(work_dir='look', dry_run=True, device='cpu', seed=1), runner=Look).run()
    held[0].cfg.check_validation = True
    return held[0]
