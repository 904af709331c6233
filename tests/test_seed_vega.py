"""The examples of the seed document on Vega, transcribed: only the imports differ, and what the document leaves out.

docs/dev/seeds_vega.md says where everything else of it is tested.
"""

import logging
import subprocess
import sys

import pytest
import torch
from support import ROOT
from torch import nn
from torch.optim.lr_scheduler import _LRScheduler

from runnerkit.compat.vega import (
    Callback,
    ClassFactory,
    ClassType,
    MetricBase,
    NetTypes,
    Network,
    NetworkDesc,
    NetworkFactory,
    accuracy,
    calc_model_flops_params,
)
from runnerkit.compat.vega.class_factory import REGISTRIES
from runnerkit.compat.vega.config import config_of_step, quota_of
from runnerkit.compat.vega.networks import FAMILIES
from runnerkit.config import Config
from runnerkit.flow import train
from runnerkit.search import Quota, vega


@pytest.fixture(autouse=True)
def _registries_as_before():
    tables = [registry.module_dict for registry in (*REGISTRIES.values(), *FAMILIES.values())]
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


def step_of(tmp_path, text, name='nas'):
    file = tmp_path / 'nas.yml'
    file.write_text(text, encoding='utf-8')
    return Config.fromfile(file)[name]


def trained(tmp_path, trainer, name='run'):
    return train(config_of_step(step_of(tmp_path, AROUND + trainer)), tmp_path / name, device='cpu')


# --- 5 Trainer -------------------------------------------------------------------------------------------------------

#: What the document's step has around its trainer: a data set, and a network.
AROUND = f"""
nas:
    pipe_step:
        type: SearchPipeStep
    dataset:
        type: {ROOT}/configs/mnist/digits.py:Digits
        common:
            batch_size: 128
        train:
            part: train
        val:
            part: val
            batch_size: 250
    search_space:
        type: SearchSpace
        modules: ['backbone']
        backbone:
            name: {ROOT}/configs/mnist/networks.py:LeNet
            channels: [4, 8]
            hidden: 32
"""

#: Of several of its examples.
OPTIMIZER = """\
        optim:
            type: SGD
            params:
                lr: 0.1
                momentum: 0.9
                weight_decay: !!float 1e-4
        lr_scheduler:
            type: StepLR
            params:
                step_size: 20
                gamma: 0.5
"""

TRAINER = f"""
    trainer:
        type: Trainer
{OPTIMIZER}        loss:
            type: CrossEntropyLoss
        metric:
            type: accuracy
        report_freq: 50
        epochs: 50
"""


@pytest.mark.thorough  # the test of what its section means, and the one in a process
def test_the_trainer_of_the_document_trains(tmp_path):
    result = trained(tmp_path, TRAINER.replace('epochs: 50', 'epochs: 2').replace('step_size: 20', 'step_size: 1'))
    assert result.outcome.kind == 'completed'
    assert 0.85 < result.scores['accuracy'] <= 1
    rates = [line['lr'] for line in result.history if line['mode'] == 'train']
    assert (rates[0], rates[-1]) == (0.1, 0.05)
    assert result.scores['params'] == pytest.approx(5.382)
    assert result.best_checkpoint.startswith(str(tmp_path / 'run' / 'best_accuracy_epoch_'))


@pytest.mark.thorough  # the other tests of this file train in this process
def test_it_trains_in_a_process_that_has_imported_nothing_of_vega(tmp_path):
    (tmp_path / 'nas.yml').write_text(AROUND + SHORT + '        disable_callbacks: ModelStatistics\n')
    code = f"""
import runnerkit
from runnerkit.config import Config
from runnerkit.compat.vega.config import config_of_step
work_dir = {str(tmp_path / 'run')!r}
config = config_of_step(Config.fromfile({str(tmp_path / 'nas.yml')!r}).nas)
scores = runnerkit.train(config, work_dir, device='cpu').scores
assert runnerkit.test(work_dir, 'val', device='cpu') == scores and set(scores) == {{'loss', 'accuracy'}}, scores
"""
    subprocess.run([sys.executable, '-c', code], check=True, cwd=tmp_path)


def test_what_the_trainers_section_means(tmp_path):
    cfg = config_of_step(step_of(tmp_path, AROUND + TRAINER))
    assert cfg.optimizer == {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9, 'weight_decay': 1e-4}
    assert cfg.lr_config == {'policy': 'StepLR', 'step_size': 20, 'gamma': 0.5}
    assert cfg.model.loss == {'type': 'CrossEntropyLoss'}
    assert cfg.model.metrics == {'accuracy': {'type': 'accuracy'}}
    assert cfg.runner == {'type': 'EpochBasedRunner', 'max_epochs': 50}
    assert cfg.log_config == {'interval': 50}
    assert cfg.evaluation == {'interval': 1, 'save_best': 'auto'}


#: Section 6: ``name`` for the network, flat and nested arguments, limits, a callback, weights to begin with.
PRUNE_EA = f"""
nas:
    pipe_step:
        type: SearchPipeStep

    dataset:
        type: Cifar10
        common:
            data_path: /cache/datasets/cifar10/
            train_portion: 0.9
        test:
            batch_size: 1024

    search_algorithm:
        type: PruneEA
        codec: PruneCodec
        policy:
            length: 464
            num_generation: 31
            num_individual: 32
            random_samples: 64

    search_space:
        type: SearchSpace
        modules: ['backbone']
        backbone:
            name: 'PruneResNet'
            base_chn: [16,16,16,32,32,32,64,64,64]
            base_chn_node: [16,16,32,64]
            num_classes: 10

    trainer:
        type: Trainer
        callbacks: PruneTrainerCallback
        epochs: 1
        init_model_file: "/cache/models/resnet20.pth"
{OPTIMIZER}        seed: 10
        limits:
            flop_range: [!!float 0, !!float 1e10]
"""


def test_the_prune_ea_step_of_the_document(tmp_path):
    step = step_of(tmp_path, PRUNE_EA)
    cfg = config_of_step(step)
    assert cfg.load_from == '/cache/models/resnet20.pth'
    assert cfg.seed == 10
    assert cfg.custom_hooks[0].callbacks == ['ModelStatistics', 'PruneTrainerCallback']
    assert cfg.model.model.modules == ['backbone']
    assert cfg.model.model.backbone == {
        'type': 'PruneResNet',
        'base_chn': [16, 16, 16, 32, 32, 32, 64, 64, 64],
        'base_chn_node': [16, 16, 32, 64],
        'num_classes': 10,
    }
    assert (cfg.model.loss.type, [*cfg.model.metrics]) == ('CrossEntropyLoss', ['accuracy'])
    data = {'type': 'Cifar10', 'data_path': '/cache/datasets/cifar10/', 'train_portion': 0.9}
    assert {split: cfg.data[split].dataset for split in ('train', 'val', 'test')} == dict.fromkeys(
        ('train', 'val', 'test'), data
    )
    assert cfg.data.test_dataloader == {'batch_size': 1024}
    assert list(map(str, Quota(quota_of(step)).limits)) == ['flops >= 0', 'flops <= 10000000000']


def test_the_prune_ea_step_of_the_document_runs(tmp_path):
    """With fewer trials, and with what the document leaves to its reader: a network, a data set and a callback."""
    seen = []

    @NetworkFactory.register(NetTypes.BACKBONE)
    class PruneResNet(Network):
        def __init__(self, desc):
            super().__init__()
            nodes, inner = (desc.get(key) or map(range, desc[f'base_{key}']) for key in ('chn_node', 'chn'))
            kept = [len(channels) for channels in (*nodes, *inner)]
            self.layers = nn.ModuleList(map(nn.Linear, [3, *kept], [*kept, desc.num_classes]))

        def forward(self, image):
            for layer in self.layers:
                image = layer(image)
            return image

    @ClassFactory.register(ClassType.DATASET)
    class Cifar10(torch.utils.data.TensorDataset):
        def __init__(self, mode, data_path, train_portion):
            seen.append((mode, data_path, train_portion))
            super().__init__(torch.randn(8, 3), torch.arange(8))

    @ClassFactory.register(ClassType.CALLBACK)
    class PruneTrainerCallback(Callback):
        def after_train(self, logs=None):
            seen.append([layer.out_features for layer in self.trainer.model.layers])

    whole = NetworkDesc(config_of_step(step_of(tmp_path, PRUNE_EA)).model.model).to_model()
    torch.save(whole.state_dict(), tmp_path / 'resnet20.pth')
    text = PRUNE_EA
    for written, fewer in (
        ('/cache/models', str(tmp_path)),
        ('num_generation: 31', 'num_generation: 1'),
        ('num_individual: 32', 'num_individual: 1'),
        ('random_samples: 64', 'random_samples: 2'),
    ):
        assert written in text
        text = text.replace(written, fewer)
    step_of(tmp_path, 'pipeline: [nas]' + text)
    report = vega.run(tmp_path / 'nas.yml', tmp_path / 'work')
    assert [each.status for each in report.all_records] == ['completed'] * 3
    assert len([each for each in seen if isinstance(each, list)]) == 3
    assert {('train', '/cache/datasets/cifar10/', 0.9), ('val', '/cache/datasets/cifar10/', 0.9)} <= {
        each for each in seen if isinstance(each, tuple)
    }
    assert all(each.performance['params'] < 20 for each in report.all_records)


# --- 5.1 to 5.3: a loss and a schedule of one's own ------------------------------------------------------------------


@pytest.mark.parametrize('between', ['', 'params:\n                '])
def test_a_loss_and_a_schedule_of_ones_own(tmp_path, between):
    @ClassFactory.register(ClassType.LOSS)
    class CustomCrossEntropyLoss(Network):
        """Cross Entropy Loss."""

        def __init__(self, desc):
            super().__init__()
            descs.append(desc)

        def forward(self, output, target):
            return nn.functional.cross_entropy(output, target)

    @ClassFactory.register(ClassType.LR_SCHEDULER)
    class WarmupScheduler(_LRScheduler):
        def __init__(self, optimizer, factor):
            self.factor = factor
            super().__init__(optimizer)

        def step(self, epoch=None):
            steps.append(epoch)
            for group in self.optimizer.param_groups:
                group['lr'] = self.factor * (1 if epoch is None else epoch + 2)

    descs, steps = [], []
    trainer = f"""
    trainer:
        type: Trainer
        optim:
            type: SGD
            lr: 0.1
        lr_scheduler:
            type: WarmupScheduler
            {between}factor: 0.05
        loss:
            type: CustomCrossEntropyLoss
            desc: ~
        epochs: 3
        max_train_steps: 2
"""
    result = trained(tmp_path, trainer)
    assert (descs, steps) == ([None], [None, 0, 1, 2])
    rates = [line['lr'] for line in result.history if line['mode'] == 'train']
    assert rates == pytest.approx([0.05, 0.1, 0.15])


# --- 5.4 Metrics -----------------------------------------------------------------------------------------------------


def register_accuracy():
    @ClassFactory.register(ClassType.METRIC, alias='accuracy')
    class Accuracy(MetricBase):
        __metric_name__ = 'accuracy'

        def __init__(self, topk=(1,)):
            self.topk = topk
            self.sum = [0.0] * len(topk)
            self.data_num = 0
            self.pfm = [0.0] * len(topk)

        def __call__(self, output, target, *args, **kwargs):
            if isinstance(output, tuple):
                output = output[0]
            res = accuracy(output, target, self.topk)
            n = output.size(0)
            self.data_num += n
            self.sum = [self.sum[index] + item.item() * n for index, item in enumerate(res)]
            self.pfm = [item / self.data_num for item in self.sum]
            return res

        def reset(self):
            self.sum = [0.0] * len(self.topk)
            self.data_num = 0
            self.pfm = [0.0] * len(self.topk)

        def summary(self):
            if len(self.pfm) == 1:
                return self.pfm[0]
            return {f'top{self.topk[idx]}_{self.name}': value for idx, value in enumerate(self.pfm)}

    return Accuracy


#: One epoch of four batches, with what a test says about metrics and callbacks.
SHORT = """
    trainer:
        type: Trainer
        optim: {type: SGD, params: {lr: 0.1}}
        epochs: 1
        max_train_steps: 4
"""


def test_the_accuracy_of_the_document(tmp_path):
    own = register_accuracy()
    assert ClassFactory.get_cls(ClassType.METRIC, 'accuracy') is own
    result = trained(tmp_path, SHORT)
    assert type(result.model.metrics['accuracy']) is own
    assert 0 < result.scores['accuracy'] < 1


def test_several_values_of_one_metric_and_several_metrics(tmp_path):
    register_accuracy()

    @ClassFactory.register(ClassType.METRIC)
    def margin(output, target, scale=1):
        return scale * (output.max(1).values - output.min(1).values).mean()

    metrics = """
        metric:
            - type: accuracy
              params: {topk: [1, 5]}
            - name: margin
              scale: 2
"""
    result = trained(tmp_path, SHORT + metrics)
    scores = result.scores
    assert 0 < scores['top1_accuracy'] < scores['top5_accuracy'] <= 1
    assert scores['margin'] > 0
    assert 'best_top1_accuracy_epoch_1' in result.best_checkpoint  # the first one decides


def test_the_metrics_aggregate_of_the_document():
    register_accuracy()
    metrics = vega.Metrics([{'type': 'accuracy', 'params': {'topk': (1, 2)}}])
    output = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])
    (first,) = metrics(output, torch.tensor([1, 1]))
    assert [value.item() for value in first] == [0.5, 1.0]
    assert metrics.results == {'top1_accuracy': 0.5, 'top2_accuracy': 1.0}
    assert metrics.objectives == {'accuracy': 'MAX'}
    assert metrics.accuracy.data_num == 2
    metrics.reset()
    assert metrics.results == {'top1_accuracy': 0.0, 'top2_accuracy': 0.0}


# --- 5.5 a trainer of one's own: callbacks ---------------------------------------------------------------------------


def register_model_statistics():  # noqa: C901  # it is the document's
    @ClassFactory.register(ClassType.CALLBACK)
    class ModelStatistics(Callback):
        def __init__(self):
            super(Callback, self).__init__()
            self.priority = 220

        def before_train(self, logs=None):
            self.input = None
            self.flops = None
            self.params = None
            self.calc_params_each_epoch = self.trainer.config.calc_params_each_epoch
            if vega.is_tf_backend():
                data_iter = self.trainer.valid_input_fn().make_one_shot_iterator()
                input_data, _ = data_iter.get_next()
                self.input = input_data[:1]

        def after_train_step(self, batch_index, logs=None):
            try:
                if self.input is None:
                    input, target = logs['train_batch']
                    self.input = torch.unsqueeze(input[0], 0)
            except Exception as ex:
                logging.warning('model statics failed, ex=%s', ex)

        def after_epoch(self, epoch, logs=None):
            if self.calc_params_each_epoch:
                self.update_flops_params(epoch=epoch, logs=logs)

        def after_train(self, logs=None):
            if not self.calc_params_each_epoch:
                self.update_flops_params(logs=logs)

        def update_flops_params(self, epoch=None, logs=None):
            self.model = self.trainer.model
            try:
                if self.flops is None:
                    flops_count, params_count = calc_model_flops_params(self.model, self.input)
                    self.flops, self.params = flops_count * 1e-9, params_count * 1e-3
                summary_perfs = logs.get('summary_perfs', {})
                if epoch:
                    summary_perfs.update({'flops': self.flops, 'params': self.params, 'epoch': epoch})
                else:
                    summary_perfs.update({'flops': self.flops, 'params': self.params})
                logs.update({'summary_perfs': summary_perfs})
            except Exception as ex:
                logging.warning('model statics failed, ex=%s', ex)

    return ModelStatistics


@pytest.mark.parametrize('each_epoch', [False, True])
def test_the_callback_of_the_document(tmp_path, each_epoch, caplog):
    """Its values are those of the callback that is built in."""
    trainer = (
        SHORT.replace('epochs: 1', 'epochs: 2')
        + f"""
        callbacks: ModelStatistics
        calc_params_each_epoch: {each_epoch}
"""
    )
    built_in = trained(tmp_path, trainer, 'built_in').scores
    register_model_statistics()
    own = trained(tmp_path, trainer, 'own').scores
    assert 'model statics failed' not in caplog.text
    assert own == built_in
    assert own['flops'] == pytest.approx(2.26432e-4)
    assert own['params'] == pytest.approx(5.382)
    assert 'epoch' not in own


def test_a_callback_by_name_and_what_it_finds(tmp_path):
    found = {}

    @ClassFactory.register(ClassType.CALLBACK)
    class PruneTrainerCallback(Callback):
        def before_train(self, logs=None):
            self.config = self.trainer.config
            found.update(epochs=self.config.epochs, lr=self.config.optimizer.params.lr, params=self.params)
            found['model'] = type(self.trainer.model).__name__

    trained(tmp_path, SHORT + '        callbacks: PruneTrainerCallback\n')
    params = {'epochs': 1, 'do_validation': True, 'use_cuda': False, 'is_chief': True}
    assert found == {'epochs': 1, 'lr': 0.1, 'params': params, 'model': 'LeNet'}


# --- 6 Configuration -------------------------------------------------------------------------------------------------


def test_classes_by_kind_and_name():
    _cls = ClassFactory.get_cls(ClassType.LOSS, 'CrossEntropyLoss')
    install = _cls(label_smoothing=0.1)
    assert install.label_smoothing == 0.1
    with pytest.raises(TypeError, match='needs the name'):  # the document's, which asks the current step's config
        ClassFactory.get_cls(ClassType.DATASET)
