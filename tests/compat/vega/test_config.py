import pytest

from runnerkit.compat.vega.config import config_of_step, quota_of
from runnerkit.config import Config

STEP = {
    'dataset': {'type': 'Digits', 'common': {'batch_size': 8}},
    'model': {'model_desc': {'modules': ['backbone'], 'backbone': {'type': 'Net', 'width': 4}}},
    'trainer': {'optimizer': {'type': 'SGD', 'params': {'lr': 0.1}}},
}


OF_MODE = 'runnerkit.compat.vega.datasets.dataset_of_mode'
BUILD = {'type': 'runnerkit.compat.vega.networks.build_network'}


def step(trainer=(), **sections):
    return {**STEP, 'trainer': {**STEP['trainer'], **dict(trainer)}, **sections}


def translated(*args, **sections):
    return config_of_step(step(*args, **sections))


def test_a_small_step():
    assert translated({'disable_callbacks': 'ModelStatistics'}) == {
        'model': {
            'type': 'Supervised',
            'model': {**BUILD, 'modules': ['backbone'], 'backbone': {'type': 'Net', 'width': 4}},
            'loss': {'type': 'CrossEntropyLoss'},
            'metrics': {'accuracy': {'type': 'accuracy'}},
        },
        'data': {
            'train': {'type': OF_MODE, 'dataset': {'type': 'Digits'}, 'mode': 'train'},
            'train_dataloader': {'batch_size': 8},
            'val': {'type': OF_MODE, 'dataset': {'type': 'Digits'}, 'mode': 'val', 'needs_mode': True},
            'val_dataloader': {'batch_size': 8},
        },
        'optimizer': {'type': 'SGD', 'lr': 0.1},
        'optimizer_config': {'fused': None},
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
        'log_config': {'interval': 10},
        'seed': 0,
        'custom_imports': {'imports': ['runnerkit.compat.vega.names']},
        'evaluation': {'interval': 1, 'save_best': 'auto'},
    }


def test_the_step_is_not_changed():
    given = step({'optimizer': {'name': 'SGD', 'params': {'lr': 0.1}}})
    before = repr(given)
    config_of_step(given)['model']['model']['backbone']['width'] = 5
    assert repr(given) == before


@pytest.mark.parametrize(
    'written',
    [
        {'type': 'SGD', 'params': {'lr': 0.1, 'momentum': 0.9}},
        {'name': 'SGD', 'params': {'lr': 0.1, 'momentum': 0.9}},
        {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9},
        {'type': 'SGD', 'lr': 0.1, 'params': {'momentum': 0.9}},
    ],
)
@pytest.mark.parametrize('key', ['optim', 'optimizer'])
def test_one_optimizer_in_all_its_spellings(written, key):
    found = config_of_step({**STEP, 'trainer': {key: written}})
    assert found['optimizer'] == {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9}


def test_a_name_beside_a_type_is_an_argument():
    found = translated({'metric': {'type': 'SklearnMetrics', 'name': 'f1_score'}})
    assert found['model']['metrics'] == {'SklearnMetrics': {'type': 'SklearnMetrics', 'name': 'f1_score'}}


@pytest.mark.parametrize(
    'trainer, key, value',
    [
        ({'lr_scheduler': {'type': 'StepLR', 'step_size': 2}}, 'lr_config', {'policy': 'StepLR', 'step_size': 2}),
        (
            {'lr_scheduler': {'type': 'OneCycleLR', 'params': {'max_lr': 1, 'by_epoch': False}}},
            'lr_config',
            {'policy': 'OneCycleLR', 'max_lr': 1, 'by_epoch': False},
        ),
        ({'seed': 7}, 'seed', 7),
        ({'report_freq': 25}, 'log_config', {'interval': 25}),
        ({'epochs': 5}, 'runner', {'type': 'EpochBasedRunner', 'max_epochs': 5}),
        ({'grad_clip': 2.5}, 'optimizer_config', {'fused': None, 'grad_clip': {'max_norm': 2.5}}),
        (
            {'grad_clip': {'max_norm': 1, 'norm_type': 1}},
            'optimizer_config',
            {'fused': None, 'grad_clip': {'max_norm': 1, 'norm_type': 1}},
        ),
        ({'use_amp': True}, 'amp', 'fp16'),
        ({'init_model_file': 'x.pth'}, 'load_from', 'x.pth'),
        ({'epochs': 10, 'valid_interval': 3}, 'evaluation', {'interval': 3, 'save_best': 'auto', 'start': 1}),
        ({'epochs': 9, 'valid_interval': 3}, 'evaluation', {'interval': 3, 'save_best': 'auto'}),
        (
            {'perfs_cmp_key': 'loss', 'perfs_cmp_mode': 'min'},
            'evaluation',
            {'interval': 1, 'save_best': 'loss', 'rule': 'less'},
        ),
        ({'valid_interval': 0}, 'evaluation', None),
        ({'with_valid': False}, 'evaluation', None),
    ],
)
def test_what_a_key_of_the_trainer_becomes(trainer, key, value):
    assert translated(trainer).get(key) == value


def test_metrics_keep_their_order_because_the_first_one_decides():
    found = translated({'metric': [{'type': 'auc'}, {'name': 'accuracy', 'params': {'topk': [1, 5]}}, 'mse']})
    assert list(found['model']['metrics'].items()) == [
        ('auc', {'type': 'auc'}),
        ('accuracy', {'type': 'accuracy', 'topk': [1, 5]}),
        ('mse', {'type': 'mse'}),
    ]
    assert translated({'metric': None})['model']['metrics'] == {}


def test_the_splits_of_a_data_set():
    dataset = {
        'type': 'Digits',
        'common': {'path': '/a', 'batch_size': 8, 'num_workers': 2},
        'train': {'augment': True, 'shuffle': True, 'drop_last': True},
        'test': {'batch_size': 1024, 'path': '/b'},
    }
    data = translated({'max_train_steps': 5}, dataset=dataset)['data']
    assert data['train']['dataset'] == {'type': 'Digits', 'path': '/a', 'augment': True}
    assert data['train_dataloader'] == {
        'batch_size': 8,
        'num_workers': 2,
        'shuffle': True,
        'drop_last': True,
        'max_batches': 5,
    }
    assert (data['val']['mode'], data['val']['needs_mode']) == ('val', True)
    assert data['test'] == {'type': OF_MODE, 'dataset': {'type': 'Digits', 'path': '/b'}, 'mode': 'test'}
    assert data['test_dataloader'] == {'batch_size': 1024, 'num_workers': 2}
    assert 'val' not in translated({'with_valid': False}, dataset={**dataset, 'val': {}})['data']


@pytest.mark.parametrize(
    'sections, network',
    [
        ({'model': {'type': 'Net', 'width': 2}}, {'type': 'Net', 'width': 2}),
        ({'model': {'model_desc': {'type': 'Net'}}}, {'type': 'Net'}),
        (
            {'model': {'model_desc': {'modules': ['a', 'b'], 'b': {'name': 'B'}, 'a': {'type': 'A', 'n': 1}}}},
            {**BUILD, 'modules': ['a', 'b'], 'a': {'type': 'A', 'n': 1}, 'b': {'type': 'B'}},
        ),
        (
            {'model': None, 'search_space': {'type': 'SearchSpace', 'modules': ['a'], 'a': {'name': 'A'}}},
            {**BUILD, 'modules': ['a'], 'a': {'type': 'A'}},
        ),
    ],
)
def test_descriptions_of_networks(sections, network):
    assert translated(**sections)['model']['model'] == network


def test_weights_of_the_model_section():
    assert translated(model={**STEP['model'], 'pretrained_model_file': 'w.pth'})['load_from'] == 'w.pth'


@pytest.mark.parametrize(
    'trainer, callbacks',
    [
        ({}, ['ModelStatistics']),
        ({'callbacks': 'Mine'}, ['ModelStatistics', 'Mine']),
        ({'callbacks': ['Mine', 'ModelStatistics']}, ['Mine', 'ModelStatistics']),
        (
            {'callbacks': [{'type': 'Mine', 'n': 1}], 'disable_callbacks': ['ModelStatistics']},
            [{'type': 'Mine', 'n': 1}],
        ),
    ],
)
def test_callbacks(trainer, callbacks):
    found = translated(trainer)
    (hook,) = found['custom_hooks']
    config = {**STEP['trainer'], **trainer}
    assert hook == {'type': 'VegaCallbacks', 'callbacks': callbacks, 'config': config, 'priority': 'LOW'}


def test_sections_of_runnerkit_beside_vegas():
    own = {
        'work_dir': 'w',
        'evaluation': {'interval': 2},
        'custom_hooks': [{'type': 'EMAHook'}],
        'custom_imports': {'imports': 'mine', 'allow_failed_imports': True},
    }
    found = translated(**own)
    assert (found['work_dir'], found['evaluation']) == ('w', {'interval': 2})
    assert [hook['type'] for hook in found['custom_hooks']] == ['EMAHook', 'VegaCallbacks']
    imports = ['mine', 'runnerkit.compat.vega.names']
    assert found['custom_imports'] == {'imports': imports, 'allow_failed_imports': True}
    without = translated({'disable_callbacks': 'ModelStatistics'}, **own)
    assert without['custom_hooks'] == own['custom_hooks']


def test_the_quota():
    assert quota_of(step()) is None
    assert quota_of(step({'limits': {}})) is None
    assert quota_of(step({'limits': {'flop_range': [0.0, 1e10]}})) == 'flops >= 0 and flops <= 10000000000'
    assert quota_of(step({'limits': {'flop_range': [0, 12345678]}})) == 'flops >= 0 and flops <= 12345678'


# --- provenance and errors -------------------------------------------------------------------------------------------

FILE = """nas:
  dataset:
    type: Digits
    common:
      path: /a
    val:
      path: /b
  model:
    modules: [backbone]
    backbone:
      name: Net
      width: 4
  trainer:
    optim:
      type: SGD
      params:
        lr: 0.1
    lr_scheduler:
      name: StepLR
      step_size: 3
"""


def test_keys_know_where_they_were_written(tmp_path):
    (tmp_path / 'nas.yml').write_text(FILE)
    found = config_of_step(Config.fromfile(tmp_path / 'nas.yml').nas)
    for part, key, line in (
        (found.optimizer, 'type', 15),
        (found.optimizer, 'lr', 17),
        (found.lr_config, 'policy', 19),
        (found.lr_config, 'step_size', 20),
        (found.model.model.backbone, 'type', 11),
        (found.model.model.backbone, 'width', 12),
        (found.data.train.dataset, 'type', 3),
        (found.data.train.dataset, 'path', 5),
        (found.data.val.dataset, 'path', 7),
    ):
        assert part._origin_.of(key).endswith(f'nas.yml:{line}'), key


def test_errors_name_the_line(tmp_path):
    (tmp_path / 'nas.yml').write_text(FILE.replace('lr_scheduler', 'lr_schedular'))
    with pytest.raises(KeyError, match=r"lr_schedular.*did you mean 'lr_scheduler'.*nas.yml:18"):
        config_of_step(Config.fromfile(tmp_path / 'nas.yml').nas)


@pytest.mark.parametrize(
    'given, error, text',
    [
        (step(trainr={}), KeyError, "the step has no key 'trainr'; did you mean 'trainer'"),
        (step({'epoch': 3}), KeyError, "trainer has no key 'epoch'; did you mean 'epochs'"),
        (step({'is_detection_trainer': True}), ValueError, 'has no counterpart: a callback may write it into logs'),
        (step({'hps_file': 'x'}), ValueError, 'trainer.hps_file has no counterpart: change single values'),
        (step({'optim': {'type': 'Adam'}}), ValueError, 'trainer.optim and trainer.optimizer mean the same'),
        (step({'type': 'OwnTrainer'}), ValueError, "trainer.type must be Trainer, but got 'OwnTrainer'.*a callback"),
        (step({'optimizer': None}), KeyError, 'trainer needs optimizer, such as'),
        (step({'optimizer': {'lr': 0.1}}), KeyError, 'trainer.optimizer needs type.*it has lr'),
        (step({'optimizer': 3}), TypeError, 'trainer.optimizer must be a name, or a dict with a type, but got 3'),
        (step({'optimizer': {'type': 'SGD', 'params': 3}}), TypeError, 'trainer.optimizer.params must be a dict'),
        (
            step({'optimizer': {'type': 'SGD', 'lr': 1, 'params': {'lr': 2}}}),
            ValueError,
            'trainer.optimizer has lr in params and next to it',
        ),
        (step({'metric': ['auc', 'auc']}), ValueError, r"trainer.metric\[1\]: there are two metrics 'auc'"),
        (step({'perfs_cmp_mode': 'maximum'}), ValueError, "must be max or min, but got 'maximum'"),
        (step({'disable_callbacks': 'ModelCheckpoint'}), ValueError, 'no callback here: checkpoint_config: ~'),
        (step({'optimizer': [{'type': 'SGD'}]}), ValueError, 'trainer.optimizer is a list, which has no counterpart'),
        (step({'loss': None}), KeyError, 'trainer needs loss, such as {type: CrossEntropyLoss}'),
        (step({'disable_callbacks': 'ModelStatistic'}), ValueError, "did you mean 'ModelStatistics'"),
        ({**STEP, 'trainer': []}, TypeError, r'trainer must be a dict, but got \[\]'),
        (step(dataset={'type': 'D', 'tain': {}}), KeyError, "dataset has no key 'tain'; did you mean 'train'"),
        (step(dataset={'train': {}}), KeyError, 'dataset needs type'),
        (step(dataset={'type': 'D', 'train': ['x']}), TypeError, r"dataset.train must be a dict, but got \['x'\]"),
        (step(dataset=None), KeyError, 'the step needs dataset'),
        (step(model=None), KeyError, 'the step needs model'),
        (step(model=None, search_space={'hyperparameters': []}), KeyError, 'the step needs model'),
        (step(model={'model_desc_file': 'x'}), ValueError, 'model.model_desc_file has no counterpart'),
        (
            step(model={'model_desc': {'type': 'Net'}, 'pretrained_model_fil': 'w.pth'}),
            KeyError,
            "model has no key 'pretrained_model_fil'; did you mean 'pretrained_model_file'?",
        ),
        (step(model={'modules': 'backbone'}), TypeError, "model.modules must be a list of names, but got 'backbone'"),
        (
            step(model={'modules': ['backbone'], 'backbon': {'type': 'Net'}}),
            KeyError,
            "model has no 'backbone', which is one of its modules; did you mean 'backbon'",
        ),
    ],
)
def test_wrong_steps(given, error, text):
    with pytest.raises(error, match=text):
        config_of_step(given)


@pytest.mark.parametrize(
    'limits, error, text',
    [
        ({'flops_range': [0, 1]}, KeyError, "trainer.limits has no key 'flops_range'; did you mean 'flop_range'"),
        ({'flop_range': 3}, TypeError, 'must be two finite numbers, such as .*, but got 3'),
        ({'flop_range': [0, 'x']}, TypeError, 'must be two finite numbers'),
        ({'flop_range': [0, float('inf')]}, TypeError, 'must be two finite numbers'),
    ],
)
def test_wrong_limits(limits, error, text):
    with pytest.raises(error, match=text):
        quota_of(step({'limits': limits}))
