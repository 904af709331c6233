"""One validation batch before the training."""

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torchmetrics

import runnerkit
from runnerkit.config import Config
from runnerkit.config.origin import PreflightError
from runnerkit.flow import Flow, Options
from runnerkit.flow.preflight import Plan
from runnerkit.flow.preflight.batch import validation_batch
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.hooks import EvalHook, Hook
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


def mean_of(outputs, target):
    return outputs.mean()


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
    assert result.outcome.kind == 'completed'


@pytest.mark.parametrize(
    'changes, words',
    [
        ({'data.val.target': torch.float32}, 'model (cfg.py:2): Supervised fails with the first validation batch'),
        ({'data.val.width': 5}, 'got 5 features, expects 4'),
        ({'model.metrics': {'error': {'type': 'MeanSquaredError'}}}, "the metric 'error' fails with the first"),
        ({'model.metrics': {'auc': {'type': 'BinaryAUROC'}}}, 'Use the Multiclass metric with num_classes=3, or'),
        (
            {'model.model.0.out_features': 1, 'model.loss.type': f'{__file__}:mean_of'},
            'Give the last layer 3 outputs, or use a metric of one output: BinaryAccuracy for two classes',
        ),
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


def test_an_error_of_a_step_of_the_users_own_is_a_warning(config):
    """What is missing may come with the training."""
    own = {'model': {'_delete_': True, 'type': Own}}
    assert runnerkit.train(config(own), 'run', seed=1, device='cpu').outcome.kind == 'completed'
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
    assert on.history == off.history


def plan_of(config, changes=(), text=CONFIG + TRACES):
    """The plan of a run, as the flow checks it, and what the check finds."""
    held = []

    class Look(RunnerBase):
        def run(self, context):
            held.append(Plan.of(context))

    cfg = config({'check_validation': False, **dict(changes)}, text)
    Flow(cfg, Options(work_dir='look', dry_run=True, device='cpu', seed=1), stages={'runner': Look}).run()
    held[0].cfg.check_validation = True
    return held[0]


def state_of(plan):
    model = plan.model
    (hook,) = plan.hooks_of(EvalHook)
    dataset = hook.dataloader.dataset
    return {
        'rng': (random.random, random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()),
        'modes': [module.training for module in model.modules()],
        'buffers': {name: value.tolist() for name, value in model.named_buffers()},
        'attributes': (model.count, list(model.given), model.last.tolist(), hasattr(model, 'new')),
        'metric': [metric._update_count for metric in model.metrics.values()],
        'data': (list(dataset.asked), dataset.generator.get_state().tolist()),
        'log': (dict(plan.runner.log_buffer.output), plan.runner.outputs, plan.runner.iter),
        'filters': list(warnings.filters),
    }


def test_nothing_is_left_of_the_check(config):
    plan = plan_of(config)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    plan.model.model[1].eval()  # a frozen one
    before = state_of(plan)
    steps = []
    plan.model.loss.register_forward_hook(
        lambda loss, *args: steps.append((torch.is_grad_enabled(), plan.model.training))
    )
    assert list(validation_batch(plan)) == []
    assert steps == [(False, False)]
    assert state_of(plan) == before


def test_nothing_is_left_of_a_check_that_fails(config):
    plan = plan_of(config, {'data.val.target': torch.float32})
    before = state_of(plan)
    assert [each.level for each in validation_batch(plan)] == ['error']
    assert state_of(plan) == before


class Flips:
    """A transform with a generator, deeper than a run looks for one."""

    def __init__(self):
        self.inner = {'rng': [np.random.default_rng(1)]}

    def __call__(self):
        return self.inner['rng'][0].random()


class Flipped(Rows):
    def __init__(self):
        super().__init__()
        self.flips = Flips()

    def __getitem__(self, index):
        self.flips()
        return super().__getitem__(index)


def test_generators_deep_in_a_data_set_are_put_back(config):
    plan = plan_of(config, {'data.val.type': Flipped}, CONFIG)
    (hook,) = plan.hooks_of(EvalHook)
    assert list(validation_batch(plan)) == []
    assert hook.dataloader.dataset.flips() == Flips()()


class Watches(Hook):
    def before_val_iter(self, runner):
        """It may change the batch."""


class Lists(Rows):
    def evaluate(self, results, logger=None):
        return {'accuracy': 1.0}


def no_test(model, loader):
    return []


WRONG = {'data.val.width': 5}


@pytest.mark.parametrize(
    'changes',
    [
        {'check_validation': False},
        {'custom_hooks': [{'type': Watches}]},
        {'evaluation.test_fn': no_test, 'data.val.type': Lists},
        {'data.val_dataloader': {'sampler': [3, 4]}},
        {'data.val_dataloader': {'worker_init_fn': print}},
        {'model.model': [{'type': 'LazyLinear', 'out_features': 3}]},
    ],
)
def test_where_the_check_is_left_out(config, changes):
    plan = plan_of(config, {**WRONG, **changes}, CONFIG)
    plan.cfg.check_validation = changes.get('check_validation', True)
    assert list(validation_batch(plan)) == []


def test_with_workers_the_batch_is_made_in_this_process(config):
    more = {'data.val_dataloader': {'num_workers': 1, 'persistent_workers': True}}
    plan = plan_of(config, {**WRONG, **more}, CONFIG)
    (finding,) = validation_batch(plan)
    assert 'got 5 features' in finding.what
    (hook,) = plan.hooks_of(EvalHook)
    assert hook.dataloader._iterator is None


def test_a_metric_that_refuses_the_values_of_an_untrained_network_is_left_alone(config):
    class Strict(torchmetrics.MeanSquaredError):
        def update(self, preds, target):
            if (preds < 0).any():
                raise ValueError('preds must be positive')

    plan = plan_of(config, text=CONFIG)
    with torch.no_grad():
        plan.model.model[0].bias.fill_(-9)
    plan.model.metrics = {'strict': Strict()}
    assert list(validation_batch(plan)) == []


@pytest.mark.parametrize('metric', [torchmetrics.R2Score(), torchmetrics.classification.BinaryAUROC(ignore_index=0)])
def test_a_metric_that_needs_more_than_the_first_samples_is_left_alone(config, metric):
    plan = plan_of(config, {'data.samples_per_gpu': 1}, CONFIG)
    plan.model.metrics = {'score': metric}
    plan.model.val_step = lambda data, optimizer: {'preds': data[0][:, 0], 'target': data[1]}
    assert list(validation_batch(plan)) == []


def test_a_step_without_what_the_metrics_need(config):
    plan = plan_of(config, text=CONFIG)
    plan.model.val_step = lambda data, optimizer: {'preds': 1}
    (finding,) = validation_batch(plan)
    assert finding.level == 'error'
    assert 'returned no target' in finding.what
    plan.model.val_step = lambda data, optimizer: 3
    (finding,) = validation_batch(plan)
    assert 'must return a dict(loss=…, log_vars=…, num_samples=…), but it returned 3' in finding.what


class Dicts(Lists):
    def __getitem__(self, index):
        return {'x': super().__getitem__(index)[0]}


class Predicts(Own):
    def forward(self, x, return_loss=True):
        return super().forward(x)


def test_a_data_set_that_scores_gets_the_step_only(config):
    own = {'model': {'_delete_': True, 'type': Predicts}, 'data.val.type': Dicts}
    plan = plan_of(config, {**own, **WRONG}, CONFIG)
    (finding,) = validation_batch(plan)
    assert 'Predicts fails with the first validation batch' in finding.what
    assert list(validation_batch(plan_of(config, own, CONFIG))) == []
    assert list(validation_batch(plan_of(config, {'data.val.type': Lists}, CONFIG))) == []  # no dicts, no step
