"""The code and the configs of the seed document on Vega, as they stand there: `tests/data/seed_vega.txt`.

Each runs literally, or with the changes that docs/vega.md names, or differs, as that page says.
docs/dev/seeds_vega.md says where everything else of the document is tested.
"""

import ast
import inspect
import logging
import re
import subprocess
import sys
import textwrap
import time
from copy import deepcopy
from functools import partial
from inspect import isfunction
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from support import ROOT
from torch import nn
from torch.optim.lr_scheduler import _LRScheduler

from runnerkit.compat import vega
from runnerkit.compat.vega import names
from runnerkit.compat.vega.class_factory import REGISTRIES
from runnerkit.compat.vega.config import config_of_step, quota_of
from runnerkit.compat.vega.networks import FAMILIES
from runnerkit.compat.vega.prune import PruneCodec
from runnerkit.config.config_dict import as_config
from runnerkit.flow import train
from runnerkit.search import Quota
from runnerkit.search.pipeline import Pipeline

DOCUMENT = (Path(__file__).parent / 'data/seed_vega.txt').read_text(encoding='utf-8')
PAGE = (Path(ROOT) / 'docs/vega.md').read_text(encoding='utf-8')

#: The parts of the document by name.
SNIPPETS = dict(re.findall(r'^=== (.+)\n((?:(?!=== ).*\n)+)', DOCUMENT, flags=re.MULTILINE))

#: What is changed in a part: what stands there, and what is written instead.
CHANGES = [
    ('4.1 Generator', 'reportClinet.', 'ReportClient.'),
    (
        '5.2 CustomCrossEntropyLoss',
        'super(CustomCrossEntropyLoss, self).__init__()\n            pass',
        'super(CustomCrossEntropyLoss, self).__init__()',
    ),
    (
        '5.2 CustomCrossEntropyLoss',
        'def forward(self, **kwargs):\n        pass',
        'def forward(self, output, target):\n        return torch.nn.functional.cross_entropy(output, target)',
    ),
    ('6 nas.yml', 'nas:\n    pipe_step:', 'pipeline: [nas]\nnas:\n    pipe_step:'),
]

#: How Vega's own classes are written. Here are others with the same methods.
DIFFERS = (
    '2.3 SearchSpace',
    '2.3 NetworkDesc',
    '3 SearchAlgorithm',
    '3 Codec',
    '5 train_process',
    '5.4 Metrics',
    '7.1 ReportServer',
)

#: What a file of Vega's users imports, under the same names.
NAMES = {name: getattr(names, name) for name in names.__all__}


def text_of(name):
    """A part of the document, with the changes that the page names, and nothing else."""
    text = SNIPPETS[name]
    for _, old, new in (each for each in CHANGES if each[0] == name):
        assert old in text
        text = text.replace(old, new)
    return text


def run(name, **names):
    """Execute a part of the document, as a file whose imports have put ``names`` there as well."""
    found = {'__name__': 'my_code', **NAMES, 'vega': vega, 'torch': torch, 'logging': logging, 'time': time, **names}
    exec(textwrap.dedent(text_of(name)), found)
    return found


def config_in(name):
    return as_config(yaml.safe_load(text_of(name)))


@pytest.fixture(autouse=True)
def _registries_as_before():
    tables = [registry.module_dict for registry in (*REGISTRIES.values(), *FAMILIES.values())]
    before = [dict(table) for table in tables]
    yield
    for table, content in zip(tables, before, strict=True):
        table.clear()
        table.update(content)


# --- the page --------------------------------------------------------------------------------------------------------


def rows_of(heading):
    """The cells of the table below a heading of the page, without its head."""
    section = PAGE.split(f'\n### {heading}\n')[1].split('\n#')[0]
    lines = [line for line in section.splitlines() if line.startswith('| ')]
    return [[cell.strip() for cell in line.strip('| ').split(' | ')] for line in lines[1:]]


def test_the_page_names_each_change_and_what_differs():
    def code(text):
        return f'`{" ".join(text.split())}`'

    changes = [(where, old, new) for where, old, new, _why in rows_of('Changes that code of the guide needs')]
    assert changes == [(name, code(old), code(new)) for name, old, new in CHANGES]
    differs = [where for where, *_ in rows_of('What differs') if where in SNIPPETS]
    assert differs == [*DIFFERS]


def test_every_part_of_the_document_runs_in_a_test_of_this_file():
    text = Path(__file__).read_text(encoding='utf-8')
    parts = [name for name in SNIPPETS if not re.search(rf"(run|config_in|text_of|same_methods)\('{name}'", text)]
    assert parts == []
    assert len(SNIPPETS) == 27


# --- 2 Search space --------------------------------------------------------------------------------------------------


def test_a_network_of_a_family():
    run('2.1 ResNet')
    network = vega.NetworkDesc({'modules': ['backbone'], 'backbone': {'type': 'ResNet'}}).to_model()
    assert (type(network).__name__, isinstance(network, vega.Network)) == ('ResNet', True)


def test_the_search_space_is_the_section_and_a_code_has_its_length():
    section = config_in('2.2 search_space.yml').search_space
    space = vega.SearchSpace(section)
    assert space.search_space == section
    assert PruneCodec(space).length == config_in('3 search_algorithm.yml').search_algorithm.policy.length == 464


def same_methods(name, text=None):
    """Each class of a listing is here by its name, and each of its methods takes the same arguments; how many there
    are."""
    methods = 0
    for listed in [node for node in ast.parse(text or text_of(name)).body if isinstance(node, ast.ClassDef)]:
        ours = NAMES[listed.name]
        for method in [node for node in listed.body if isinstance(node, ast.FunctionDef)]:
            if method.name.startswith('_') and method.name not in ('__init__', '__call__'):
                continue
            methods += 1
            kinds = {decorator.id for decorator in method.decorator_list}
            found = inspect.getattr_static(ours, method.name)
            assert isinstance(found, property) == ('property' in kinds), method.name
            assert isinstance(found, classmethod) or 'classmethod' not in kinds, method.name
            if 'property' not in kinds:
                wanted = [each.arg for each in method.args.args][1:]
                parameters = [*inspect.signature(getattr(ours, method.name)).parameters]
                assert [each for each in parameters if each != 'self'][: len(wanted)] == wanted, method.name
    return methods


def test_vegas_own_classes_have_the_methods_of_their_listings():
    assert same_methods('2.3 SearchSpace') == 1
    assert same_methods('2.3 NetworkDesc') == 2
    assert same_methods('3 SearchAlgorithm') == 4
    assert same_methods('3 Codec') == 2
    assert same_methods('4.1 Generator') == 4
    assert same_methods('5.4 Metrics') == 5
    assert same_methods('7.2 PipeStep') == 1
    bodies = re.sub(r'(def .*:)$', r'\1 ...', text_of('7.1 ReportServer'), flags=re.MULTILINE)  # the listing has none
    assert same_methods('7.1 ReportServer', bodies) == 5


# --- 6 Configuration: the example of a search ------------------------------------------------------------------------


def register_what_the_reader_writes(seen):
    """A network, a data set and a callback by the names of the document's example."""

    @vega.NetworkFactory.register(vega.NetTypes.BACKBONE)
    class PruneResNet(vega.Network):
        def __init__(self, desc):
            super().__init__()
            self.encoding, self.chn_mask, self.chn_node_mask = map(desc.get, ('encoding', 'chn_mask', 'chn_node_mask'))
            nodes, inner = (desc.get(key) or desc[f'base_{key}'] for key in ('chn_node', 'chn'))
            self.layers = nn.ModuleList(map(nn.Linear, [3, *nodes, *inner], [*nodes, *inner, desc.num_classes]))

        def forward(self, image):
            for layer in self.layers:
                image = layer(image)
            return image

    @vega.ClassFactory.register(vega.ClassType.DATASET)
    class Cifar10(torch.utils.data.TensorDataset):
        def __init__(self, mode, data_path):
            self.mode, self.data_path = mode, data_path
            super().__init__(torch.randn(10, 3), torch.arange(10))

    @vega.ClassFactory.register(vega.ClassType.CALLBACK)
    class PruneTrainerCallback(vega.Callback):
        def before_train(self, logs=None):
            network, parts = self.trainer.model, (self.trainer.train_loader.dataset, self.trainer.valid_loader.dataset)
            masks = [*network.chn_node_mask, *network.chn_mask]
            assert [layer.out_features for layer in network.layers] == [*map(sum, masks), 10]
            assert network.encoding == sum([*network.chn_mask, *network.chn_node_mask], [])
            seen.append([[*part.indices] for part in parts])
            assert {(part.dataset.mode, part.dataset.data_path) for part in parts} == {
                ('train', '/cache/datasets/cifar10/')
            }

    return PruneResNet


#: What makes a test of an example of 1,056 trials: other numbers, and a file that is there.
FEWER = {'num_generation: 31': 'num_generation: 1', 'num_individual: 32': 'num_individual: 1'}
FEWER['random_samples: 64'] = 'random_samples: 2'


def fewer(text, weights='/cache/models/resnet20.pth'):
    for old, new in {**FEWER, '/cache/models/resnet20.pth': str(weights)}.items():
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_sections_of_the_search_mean_what_they_say():
    step = config_in('6 nas.yml').nas
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
    data = {'type': 'Cifar10', 'data_path': '/cache/datasets/cifar10/'}
    assert {split: cfg.data[split].dataset for split in ('train', 'val', 'test')} == dict.fromkeys(
        ('train', 'val', 'test'), data
    )
    assert cfg.data.train.train_portion == cfg.data.val.train_portion == 0.9
    assert cfg.data.test_dataloader == {'batch_size': 1024}
    assert Quota(quota_of(step)).limits == [('flops', '>=', 0.0), ('flops', '<=', 1e10)]


def test_the_search_is_accepted_as_it_stands(tmp_path):
    register_what_the_reader_writes([])
    (tmp_path / 'config.yml').write_text(text_of('6 nas.yml'), encoding='utf-8')
    step = Pipeline(tmp_path / 'config.yml', tmp_path / 'work').steps['nas']
    assert step.get('search_algorithm')['policy'] == config_in('3 search_algorithm.yml').search_algorithm.policy


def test_the_search_runs_and_the_next_step_trains_what_it_found(tmp_path, monkeypatch):
    """Section 7: ``fullytrain`` behind ``nas``, by the call of the document."""
    seen = []
    network = register_what_the_reader_writes(seen)
    cfg = yaml.safe_load(text_of('7 pipeline.yml'))
    weights = tmp_path / 'resnet20.pth'
    cfg['nas'] |= yaml.safe_load(fewer(text_of('6 nas.yml'), weights))['nas']
    torch.save(network(as_config(cfg['nas']['search_space']['backbone'])).state_dict(), weights)
    (tmp_path / 'config.yml').write_text(yaml.safe_dump(cfg))
    monkeypatch.chdir(tmp_path)
    found = {'vega': vega}
    exec("report = vega.run('config.yml')", found)
    report = found['report']
    assert [(each.step, each.status) for each in report.all_records] == [
        *[('nas', 'completed')] * 3,
        ('fullytrain', 'completed'),
    ]
    assert report.of('fullytrain')[0].desc == report.best('nas').desc
    assert seen == [[[*range(9)], [9]]] * 4  # 0.9 of the training data, and the rest
    assert all(each.performance['params'] < 20 for each in report.all_records)


# --- 4 The flow of a search, and what code in a step finds -----------------------------------------------------------


def in_a_step(tmp_path, do, text=None):
    """Run ``do(step)`` as a step in the place of the document's, with its section."""

    @vega.ClassFactory.register(vega.ClassType.PIPE_STEP)
    class Mine(vega.PipeStep):
        def do(self):
            do(self)

    cfg = yaml.safe_load(text or fewer(text_of('6 nas.yml')))
    cfg['nas']['pipe_step'] = {'type': 'Mine'}
    return Pipeline(cfg, tmp_path / 'work').run()


def ended(step, number, desc):
    score = -float(sum(desc['backbone']['encoding']))
    return vega.ReportRecord(
        step.name, number, desc=desc, objectives={'score': 'max'}, performance={'score': score}, status='completed'
    )


def test_the_generator_and_the_loop_of_a_search(tmp_path):
    """The generator of the document drives PruneEA in its loop; the one here does the same."""
    kept = {}

    def search_with(generator_of):
        def do(step):
            step.generator, waiting, called = generator_of(), [], []

            def dispatch(res):
                vega.ReportClient.update(ended(step, *res))
                waiting.append(res[0])

            def after_train(wait_until_finish):
                while waiting:
                    step.generator.update(step.name, waiting.pop())

            step._dispatch_trainer, step._after_train = dispatch, after_train
            step.master = SimpleNamespace(join=lambda: called.append('join'), close=lambda: called.append('close'))
            run('4 do')['do'](step)
            kept[generator_of] = [each.desc for each in vega.ReportServer().all_records]
            assert called == ['join', 'close']
            assert (step.work_dir / 'output.csv').exists()

        return do

    theirs = run('4.1 Generator')['Generator']
    for name, generator in (('theirs', theirs), ('ours', vega.Generator)):
        report = in_a_step(tmp_path / name, search_with(generator))
        assert len(report.all_records) == 3
        REGISTRIES['pipe_step'].module_dict.pop('Mine')
    assert kept[theirs] == kept[vega.Generator]


def test_what_code_in_a_step_gets_without_a_name(tmp_path):
    register_what_the_reader_writes([])
    found = {}

    def do(step):
        space = vega.SearchSpace().search_space
        found.update(run('6 get_cls of a step', mode='val', search_space=space))
        found['metrics'] = vega.Metrics()
        factory, kinds = vega.ClassFactory, vega.ClassType
        found['optimizer'] = factory.get_cls(kinds.OPTIMIZER)([torch.zeros(1, requires_grad=True)])
        found['scheduler'] = factory.get_cls(kinds.LR_SCHEDULER)(found['optimizer'])
        found['codec'] = factory.get_cls(kinds.CODEC)(space)
        found['step'] = factory.get_cls(kinds.PIPE_STEP)

    in_a_step(tmp_path, do)
    assert [*found['dataset'].indices] == [9]
    number, desc = found['search_alg'].search()
    assert (number, desc['modules'], len(desc['backbone']['encoding'])) == (0, ['backbone'], 464)
    assert [*found['metrics'].mdict] == ['accuracy']
    assert found['optimizer'].defaults['weight_decay'] == 1e-4
    assert found['scheduler'].step_size == 20
    assert isinstance(found['codec'], PruneCodec)
    assert found['step'].__name__ == 'Mine'


def test_what_code_in_a_training_gets_without_a_name(tmp_path):
    """Wherever the training runs, also without a pipeline."""
    found = {}

    @vega.ClassFactory.register(vega.ClassType.CALLBACK)
    class Looks(vega.Callback):
        def before_train(self, logs=None):
            found['dataset'] = vega.ClassFactory.get_cls(vega.ClassType.DATASET)(mode='val')
            found['metrics'] = vega.Metrics()
            found['loss'] = vega.ClassFactory.get_cls(vega.ClassType.LOSS)()

    trained(tmp_path, {**SHORT, 'callbacks': 'Looks', 'metric': [{'type': 'accuracy', 'params': {'topk': [1, 2]}}]})
    assert len(found['dataset']) == 500
    assert found['metrics'].accuracy.topk == (1, 2)
    assert isinstance(found['loss'], nn.CrossEntropyLoss)


def test_a_class_by_kind_and_name():
    found = run('6 get_cls', class_type=vega.ClassType.LOSS, class_name='CrossEntropyLoss', params=torch.ones(3))
    assert found['_cls'] is nn.CrossEntropyLoss
    assert found['install'].weight.tolist() == [1, 1, 1]


# --- 5 Trainer -------------------------------------------------------------------------------------------------------

#: What the document's step has around its trainer: a data set, and a network.
AROUND = {
    'dataset': {
        'type': f'{ROOT}/configs/mnist/digits.py:Digits',
        'common': {'batch_size': 128},
        'train': {'part': 'train'},
        'val': {'part': 'val', 'batch_size': 250},
    },
    'search_space': {
        'type': 'SearchSpace',
        'modules': ['backbone'],
        'backbone': {'name': f'{ROOT}/configs/mnist/networks.py:LeNet', 'channels': [4, 8], 'hidden': 32},
    },
}

#: One epoch of four batches.
SHORT = {'type': 'Trainer', 'optim': {'type': 'SGD', 'params': {'lr': 0.1}}, 'epochs': 1, 'max_train_steps': 4}


def trained(tmp_path, trainer, name='run'):
    return train(config_of_step({**AROUND, 'trainer': trainer}), tmp_path / name, device='cpu')


@pytest.mark.thorough  # the test of what its section means, and the one in a process
def test_the_trainer_of_the_document_trains(tmp_path):
    trainer = config_in('5 trainer.yml').trainer
    trainer.epochs, trainer.lr_scheduler.params.step_size = 2, 1  # of 50, and 20
    result = trained(tmp_path, trainer)
    assert result.outcome.kind == 'completed'
    assert 0.85 < result.scores['accuracy'] <= 1
    rates = [line['lr'] for line in result.history if line['mode'] == 'train']
    assert (rates[0], rates[-1]) == (0.1, 0.05)
    assert result.scores['params'] == pytest.approx(5.382)
    assert result.best_checkpoint.startswith(str(tmp_path / 'run' / 'best_accuracy_epoch_'))


@pytest.mark.thorough  # the other tests of this file train in this process
def test_it_trains_in_a_process_that_has_imported_nothing_of_vega(tmp_path):
    step = {**AROUND, 'trainer': {**SHORT, 'disable_callbacks': 'ModelStatistics'}}
    (tmp_path / 'nas.yml').write_text(yaml.safe_dump({'nas': step}))
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


def test_what_the_trainers_section_means():
    cfg = config_of_step({**AROUND, **config_in('5 trainer.yml')})
    assert cfg.optimizer == {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9, 'weight_decay': 1e-4}
    assert cfg.lr_config == {'policy': 'StepLR', 'step_size': 20, 'gamma': 0.5}
    assert cfg.model.loss == {'type': 'CrossEntropyLoss'}
    assert cfg.model.metrics == {'accuracy': {'type': 'accuracy'}}
    assert cfg.runner == {'type': 'EpochBasedRunner', 'max_epochs': 50}
    assert cfg.log_config == {'interval': 50}
    assert cfg.evaluation == {'interval': 1, 'save_best': 'auto'}


def test_its_parts_mean_the_same_where_they_stand_alone():
    trainer = {**config_in('5.1 optim.yml'), **config_in('5.2 loss.yml'), **config_in('5.4 metric.yml')}
    trainer |= config_in('5.3 lr_scheduler.yml')  # without params
    whole = config_of_step({**AROUND, **config_in('5 trainer.yml')})
    alone = config_of_step({**AROUND, 'trainer': trainer})
    assert (alone.optimizer, alone.lr_config, alone.model) == (whole.optimizer, whole.lr_config, whole.model)


class Points(vega.Callback):
    """Notes each point, with the number that it is called with."""

    def __init__(self, noted):
        self.noted = noted

    def __getattribute__(self, point):
        if point.startswith(('before_', 'after_')):
            return lambda *index, logs=None: self.noted.append((point, *(each for each in index if type(each) is int)))
        return super().__getattribute__(point)


def test_callbacks_are_called_as_by_the_loop_of_the_document(tmp_path):
    theirs, ours = [], []

    class Callbacks:
        def __init__(self, callbacks, disables):
            self.callbacks = callbacks

        def set_trainer(self, trainer):
            pass

        def __getattr__(self, point):
            return getattr(self.callbacks, point)

    text = 'class Loop:\n' + text_of('5 train_process')
    found = {'vega': vega, 'torch': torch, 'CallbackList': Callbacks, 'disables': []}
    exec(text, found)
    loop = found['Loop']()
    loop.config = as_config({'is_detection_trainer': False})
    loop.config['callbacks'], loop.callbacks, loop.epochs, loop.do_validation = Points(theirs), None, 2, True
    loop.model, loop.train_loader, loop.valid_loader = nn.Identity(), [1, 2, 3, 4], [1, 2]
    loop.make_batch = lambda batch: batch
    loop.train_step = loop.valid_step = lambda batch: {'loss': 0}
    loop._should_run_validation = lambda epoch: True
    loop.train_process()

    cfg = config_of_step({**AROUND, 'trainer': {**SHORT, 'epochs': 2, 'disable_callbacks': 'ModelStatistics'}})
    cfg.custom_hooks = [{'type': 'VegaCallbacks', 'callbacks': [Points(ours)], 'priority': 'LOW'}]
    train(cfg, tmp_path / 'run', device='cpu')
    assert ours == theirs
    assert len({point for point, *_ in ours}) == 10


# --- 5.2, 5.3: a loss and a schedule of one's own --------------------------------------------------------------------


def test_a_loss_and_a_schedule_of_ones_own(tmp_path):
    run('5.2 CustomCrossEntropyLoss', Network=vega.Network)
    run('5.3 WarmupScheduler', _LRScheduler=_LRScheduler)
    trainer = {**SHORT, **config_in('5.2 custom_loss.yml'), 'lr_scheduler': {'type': 'WarmupScheduler'}, 'epochs': 2}
    result = trained(tmp_path, trainer)
    assert type(result.model.loss).__name__ == 'CustomCrossEntropyLoss'
    rates = [line['lr'] for line in result.history if line['mode'] == 'train']
    assert rates == [0.1, 0.1]  # its step changes nothing
    assert 0 < result.scores['accuracy'] < 1


@pytest.mark.parametrize('in_params', [False, True])
def test_they_get_what_the_config_says(tmp_path, in_params):
    @vega.ClassFactory.register(vega.ClassType.LOSS)
    class Own(vega.Network):
        def __init__(self, desc):
            super().__init__()
            descs.append(desc)

        def forward(self, output, target):
            return nn.functional.cross_entropy(output, target)

    @vega.ClassFactory.register(vega.ClassType.LR_SCHEDULER)
    class Warmup(_LRScheduler):
        def __init__(self, optimizer, factor):
            self.factor = factor
            super().__init__(optimizer)

        def step(self, epoch=None):
            steps.append(epoch)
            for group in self.optimizer.param_groups:
                group['lr'] = self.factor * (1 if epoch is None else epoch + 2)

    descs, steps = [], []
    schedule = {'type': 'Warmup', **({'params': {'factor': 0.05}} if in_params else {'factor': 0.05})}
    trainer = {**SHORT, 'lr_scheduler': schedule, 'loss': {'type': 'Own', 'desc': None}, 'epochs': 3}
    result = trained(tmp_path, {**trainer, 'max_train_steps': 2})
    assert (descs, steps) == ([None], [None, 0, 1])  # the next epoch would begin with the last step
    rates = [line['lr'] for line in result.history if line['mode'] == 'train']
    assert rates == pytest.approx([0.05, 0.1, 0.15])


# --- 5.4 Metrics -----------------------------------------------------------------------------------------------------


def test_the_accuracy_of_the_document(tmp_path):
    own = run('5.4 Accuracy')['Accuracy']
    assert vega.ClassFactory.get_cls(vega.ClassType.METRIC, 'accuracy') is own
    result = trained(tmp_path, SHORT)
    assert type(result.model.metrics['accuracy']) is own
    assert 0 < result.scores['accuracy'] < 1


def test_several_values_of_one_metric_and_several_metrics(tmp_path):
    run('5.4 Accuracy')

    @vega.ClassFactory.register(vega.ClassType.METRIC)
    def margin(output, target, scale=1):
        return scale * (output.max(1).values - output.min(1).values).mean()

    metrics = [{'type': 'accuracy', 'params': {'topk': [1, 5]}}, {'name': 'margin', 'scale': 2}]
    result = trained(tmp_path, {**SHORT, 'metric': metrics})
    scores = result.scores
    assert 0 < scores['top1_accuracy'] < scores['top5_accuracy'] <= 1
    assert scores['margin'] > 0
    assert 'best_top1_accuracy_epoch_1' in result.best_checkpoint  # the first one decides


def test_metrics_together_as_in_the_document():
    """Its class, with what it leaves to Vega, gives what the one here gives."""
    run('5.4 Accuracy')
    theirs = run(
        '5.4 Metrics',
        MetricsConfig=lambda: as_config({'type': 'accuracy', 'params': {'topk': (1, 2)}}),
        obj2config=dict,
        Config=dict,
        deepcopy=deepcopy,
        isfunction=isfunction,
        partial=partial,
    )['Metrics']
    configs = [{'type': 'accuracy', 'params': {'topk': (1, 2)}}]
    output, target = torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]]), torch.tensor([1, 1])
    for metrics in (theirs(), theirs(configs), vega.Metrics(configs)):
        (first,) = metrics(output, target)
        assert [value.item() for value in first] == [0.5, 1.0]
        assert metrics.results == {'top1_accuracy': 0.5, 'top2_accuracy': 1.0}
        assert metrics.objectives == {'accuracy': 'MAX'}
        assert metrics.accuracy.data_num == 2
        metrics.reset()
        assert metrics.results == {'top1_accuracy': 0.0, 'top2_accuracy': 0.0}


# --- 5.5 a trainer of one's own: callbacks ---------------------------------------------------------------------------


@pytest.mark.parametrize('each_epoch', [False, True])
def test_the_callback_of_the_document(tmp_path, each_epoch, caplog):
    """Its values are those of the callback that is built in."""
    trainer = {**SHORT, 'epochs': 2, 'callbacks': 'ModelStatistics', 'calc_params_each_epoch': each_epoch}
    built_in = trained(tmp_path, trainer, 'built_in').scores
    run('5.5 ModelStatistics')
    own = trained(tmp_path, trainer, 'own').scores
    assert 'model statics failed' not in caplog.text
    assert own == built_in
    assert own['flops'] == pytest.approx(2.26432e-4)
    assert own['params'] == pytest.approx(5.382)
    assert 'epoch' not in own


def test_a_callback_by_name_and_what_it_finds(tmp_path):
    found = {}

    @vega.ClassFactory.register(vega.ClassType.CALLBACK)
    class PruneTrainerCallback(vega.Callback):
        def before_train(self, logs=None):
            self.config = self.trainer.config
            found.update(epochs=self.config.epochs, lr=self.config.optimizer.params.lr, params=self.params)
            found['model'] = type(self.trainer.model).__name__

    trained(tmp_path, {**SHORT, 'callbacks': 'PruneTrainerCallback'})
    params = {'epochs': 1, 'do_validation': True, 'use_cuda': False, 'is_chief': True}
    assert found == {'epochs': 1, 'lr': 0.1, 'params': params, 'model': 'LeNet'}


# --- 7.2 a step of one's own -----------------------------------------------------------------------------------------


def test_a_step_of_ones_own(tmp_path):
    """The base class of the document does nothing in a pipeline; a step derives from the one here."""
    listed = run('7.2 PipeStep')['PipeStep']
    report = in_a_step(tmp_path, lambda step: listed().do())
    assert report.all_records == []
