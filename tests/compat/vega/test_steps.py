"""Pipelines in Vega's shape."""

import random
import shlex

import pytest
from support import ROOT

from runnerkit.checkpoint.loader import load_tensors
from runnerkit.cli.train import main as train_command
from runnerkit.compat.vega.steps import VegaStep, checked_general, general_work_dir, is_vega
from runnerkit.config import Config
from runnerkit.search.parameters import RandomSuggest
from runnerkit.search.pipeline import Pipeline
from runnerkit.search.space import draw_allowed

TEXT = """
general:
    backend: pytorch
    quota: params < 1 and model_valid
    task: {local_base_path: ./tasks, task_id: mine}
    logger: {level: info}

pipeline: [nas, fullytrain, benchmark]

nas:
    pipe_step: {type: SearchPipeStep}
    dataset:
        type: support.Noisy
        common: {batch_size: 4}
        val: {length: 6}
        test: {length: 6}
    search_space:
        hyperparameters:
            - {key: trainer.optimizer.params.lr, type: FLOAT_EXP, range: [0.001, 0.1]}
            - {key: dataset.batch_size, type: CATEGORY, range: [2, 4]}
            - {key: network.out_features, type: CATEGORY, range: [1]}
    search_algorithm:
        type: RandomSearch
        objective_keys: [MeanSquaredError, params]
        policy: {num_sample: 3, repeat_times: 1}
    model:
        model_desc: {type: Linear, in_features: 4, out_features: 1}
    trainer:
        type: Trainer
        optim: {type: SGD, params: {lr: 0.05, momentum: 0.9}}
        loss: {type: MSELoss}
        metric: {type: MeanSquaredError}
        limits: {flop_range: [!!float 0, !!float 1e6]}
        epochs: 1

fullytrain:
    pipe_step: {type: TrainPipeStep}
    trainer: {ref: nas.trainer, epochs: 2}

benchmark:
    pipe_step: {type: BenchmarkPipeStep}
    evaluator: {type: Evaluator}
"""

#: What callbacks see of the trainer's section.
SEEN = 'custom_hooks.0.config'


@pytest.fixture
def pipeline(tmp_path):
    def make(old='', new='', text=TEXT):
        assert old in text
        (tmp_path / 'nas.yml').write_text(text.replace(old, new, 1))
        return Pipeline(tmp_path / 'nas.yml', tmp_path / 'work')

    return make


def read(pipeline):
    """The step ``nas`` as it was read."""
    return pipeline._readers[0].steps['nas']


def test_a_pipeline_in_vegas_shape_runs(pipeline, tmp_path):
    report = pipeline().run()
    nas, trained, measured = (report.of(name) for name in ('nas', 'fullytrain', 'benchmark'))
    assert [each.status for each in report.all_records] == ['completed'] * len(report.all_records)
    assert len(nas) == 3
    # What was drawn stands once, by its own key, also where it is what the file has already.
    for each in nas:
        assert list(each.hps) == ['trainer.optimizer.params.lr', 'dataset.batch_size', 'network.out_features']
        assert 0.001 <= each.hps['trainer.optimizer.params.lr'] <= 0.1
        assert each.hps['network.out_features'] == 1
        assert f'optimizer.lr={each.hps["trainer.optimizer.params.lr"]!r} ' in each.command
        assert f'train {tmp_path / "work" / "nas" / "config.py"} ' in each.command
        assert each.objectives == {'MeanSquaredError': 'min', 'params': 'min'}
        assert each.performance['params'] == pytest.approx(0.005)
        assert each.epoch == 1
    # The step's config has what the command needs.
    words = shlex.split(nas[0].command)
    assert train_command(words[2:]) == 0
    again = load_tensors(f'{nas[0].work_dir}_again/latest.pth')['runnerkit']['scores']
    assert again['MeanSquaredError'][0] == nas[0].performance['MeanSquaredError']
    assert [each.source for each in trained] == [each.uid for each in report.pareto_front('nas')]
    assert [each.hps for each in trained] == [each.hps for each in report.pareto_front('nas')]
    assert {each.epoch for each in trained} == {2}
    assert [each.source for each in measured] == [each.uid for each in trained]
    assert all({'latency', 'flops', 'MeanSquaredError'} <= each.performance.keys() for each in measured)
    # In one unit: Vega's.
    assert {each.performance['params'] for each in report.all_records} == {0.005}
    assert len({each.performance['flops'] for each in report.all_records}) == 1


def test_what_a_step_leaves_out_is_that_of_the_step_before(pipeline):
    steps = pipeline().steps
    trained, searched = (steps[name].get('config') for name in ('fullytrain', 'nas'))
    assert trained.data == searched.data
    assert trained.optimizer == {'type': 'SGD', 'lr': 0.05, 'momentum': 0.9}
    assert (searched.runner.max_epochs, trained.runner.max_epochs) == (1, 2)


def test_quotas_of_both_kinds(pipeline):
    quotas = pipeline().steps['nas'].quotas()
    assert [quota.text for quota in quotas] == ['params < 1 and model_valid', 'flops >= 0 and flops <= 1000000']
    # Vega counts parameters in thousands.
    with pytest.raises(ValueError, match='params 5 is not < 1'):
        pipeline('params < 1 and', 'params < 0.001 and').run()


def test_values_by_vegas_keys_are_changes_of_the_config(pipeline):
    step = read(pipeline())
    assert step.changes({'trainer.optimizer.params.lr': 0.25}) == {
        'optimizer.lr': 0.25,
        f'{SEEN}.optimizer.params.lr': 0.25,
    }
    assert step.changes({'trainer.epochs': 7}) == {'runner.max_epochs': 7, f'{SEEN}.epochs': 7}
    assert step.changes({'dataset.batch_size': 2}) == {'data.train_dataloader.batch_size': 2}
    assert step.changes({'dataset.val.length': 8}) == {'data.val.dataset.length': 8}
    assert step.changes({'network.out_features': 3}) == {'model.model.out_features': 3}
    with pytest.raises(ValueError, match='take optimizer.momentum out of the config'):
        step.changes({'trainer.optim.params': {'lr': 0.1, '_delete_': True}})


def test_values_may_have_keys_of_the_config_too(pipeline):
    """As those of a TrainPipeStep's hps, and of records of an earlier version."""
    step = read(pipeline())
    values = {'optimizer.lr': 0.25, f'{SEEN}.optimizer.params.lr': 0.25, 'dataset.batch_size': 2}
    assert step.overrides_of_values(values) == {
        'data.train_dataloader.batch_size': 2,
        'optimizer.lr': 0.25,
        f'{SEEN}.optimizer.params.lr': 0.25,
    }


def test_what_is_trained_has_the_drawn_values_whatever_its_own_section_says(pipeline):
    """Its trainer has the learning rate that was drawn, and the search another one; or it has no section of its own."""
    values = {'trainer.optimizer.params.lr': 0.05}
    ref = 'trainer: {ref: nas.trainer, epochs: 2}'
    steps = pipeline(ref, f'{ref[:-1]}, optim: {{type: SGD, params: {{lr: 0.9}}}}}}').steps
    assert steps['nas'].changes(values) == {}
    assert steps['fullytrain'].changes(values)['optimizer.lr'] == 0.05
    steps = pipeline(f'    {ref}\n', '').steps
    assert steps['fullytrain'].translation is None
    assert steps['fullytrain'].changes({'trainer.optimizer.params.lr': 0.25})['optimizer.lr'] == 0.25


@pytest.mark.parametrize(
    'policy, algorithm, overrides, notes',
    [
        ('{type: GridSearch}', {'type': 'GridSearch'}, {}, []),
        (
            '{type: AshaHpo, policy: {num_samples: 9, max_epochs: 8, eta: 2, min_epochs: 1}}',
            {
                'type': 'AshaHpo',
                'trials': 9,
                'pruner': {'type': 'SuccessiveHalvingPruner', 'reduction_factor': 2, 'min_resource': 1},
            },
            {'runner.max_epochs': 8},
            [],
        ),
        (
            '{type: BohbHpo, policy: {num_samples: 4, total_epochs: 20, tuner: RF}}',
            {'type': 'BohbHpo', 'trials': 4},
            {},
            ['total_epochs has no counterpart', 'tuner has no counterpart'],
        ),
        (
            '{type: EvolutionAlgorithm, policy: {num_individual: 8, num_generation: 4}}',
            {'type': 'EvolutionAlgorithm', 'population_size': 8, 'trials': 32},
            {},
            [],
        ),
        (
            '{type: PruneEA, codec: PruneCodec, policy: {length: 464}}',
            {'type': 'PruneEA', 'codec': 'PruneCodec', 'policy': {'length': 464}},
            {},
            [],
        ),
    ],
)
def test_what_a_policy_means(pipeline, tmp_path, policy, algorithm, overrides, notes):
    (tmp_path / 'policy.yml').write_text(f'search_algorithm: {policy}\n')
    step = read(pipeline())
    before = len(step.notes)
    assert step.algorithm(Config.fromfile(tmp_path / 'policy.yml').search_algorithm) == (algorithm, overrides)
    told = step.notes[before:]
    assert len(told) == len(notes)
    assert all(part in note for part, note in zip(notes, told, strict=True))


def test_what_general_means(pipeline, monkeypatch):
    assert general_work_dir({'task': {'local_base_path': './tasks', 'task_id': 'mine'}}) == './tasks/mine'
    assert general_work_dir({}) is None
    assert checked_general({'logger': {}, 'quota': 'params < 1'}) == [
        'general.logger has no counterpart: the log has all that happens'
    ]
    alone = read(pipeline('logger: {level: info}', 'worker: {timeout: 2}'))
    assert 'general.worker.timeout has no effect without general.parallel_search: true' in alone.notes
    parallel = pipeline('logger: {level: info}', 'parallel_search: True\n    worker: {timeout: 2}').steps
    assert parallel['nas'].get('executor')['type'] == 'Local'
    assert parallel['nas'].get('executor')['limit'] == 7200
    assert parallel['fullytrain'].get('executor') == 'Serial'


def test_of_a_space_with_forbidden_values_all_keys_are_checked(pipeline):
    old = '        hyperparameters:\n'
    forbidden = '        forbidden: [{dataset.batch_size: 4}]\n' + old
    space = pipeline(old, forbidden).steps['nas'].get('search_space')
    assert draw_allowed(space, RandomSuggest(random.Random(0))).hps['dataset.batch_size'] == 2
    # A parameter that hardly ever exists.
    rare = '- {key: trainer.optimizr.lr, type: INT, range: [1, 2]}\n'
    condition = '{child: trainer.optimizr.lr, parent: trainer.seed, type: EQUAL, range: [77]}'
    seed = '- {key: trainer.seed, type: INT, range: [0, 1000000]}\n'
    rows = f'        condition: [{condition}]\n{old}            {rare}            {seed}'
    with pytest.raises(KeyError, match='optimizr'):
        pipeline(old, rows)


def test_of_a_metric_with_several_scores_the_first_one_counts(pipeline):
    old, new = 'metric: {type: MeanSquaredError}', 'metric: [{type: accuracy, params: {topk: [1, 5]}}]'
    given = 'objective_keys: [MeanSquaredError, params]'
    assert given in TEXT
    for keys in ('', 'objective_keys: accuracy'):
        text = TEXT.replace(given, keys)
        assert pipeline(old, new, text).steps['nas'].get('objectives') == {'top1_accuracy': 'max'}


@pytest.mark.parametrize(
    'old, new, error, told',
    [
        ('backend: pytorch', 'backend: tensorflow', ValueError, 'general.backend must be pytorch'),
        ('logger:', 'loger:', KeyError, "general has no key 'loger'; did you mean 'logger'"),
        ('num_sample:', 'num_smaple:', KeyError, "no key 'num_smaple'; did you mean 'num_sample'.*nas.yml:"),
        ('ref: nas.trainer', 'ref: nas.trainr', KeyError, "there is no section 'nas.trainr' .*nas.yml:"),
        ('ref: nas.trainer', 'ref: nas.trainer.epochs', TypeError, 'ref must name a section, but .* is 1'),
        ('trainer.optimizer.params.lr', 'trainr.lr', KeyError, 'trainr'),
        ('search_algorithm:', 'search_algoritm:', KeyError, 'search_algoritm'),
        ('type: RandomSearch', 'type: BossHpo', KeyError, 'BossHpo is not built'),
        ('epochs: 1\n', 'epoch: 1\n', KeyError, "'epoch'"),
    ],
)
def test_wrong_configs(pipeline, tmp_path, old, new, error, told):
    with pytest.raises(error, match=told):
        pipeline(old, new)
    assert not (tmp_path / 'work').exists()


def test_which_sections_are_in_vegas_shape():
    assert is_vega({'pipe_step': {}, 'trainer': {}})
    assert not is_vega({'pipe_step': {}, 'config': 'cfg.py', 'trainer': {}})
    assert not is_vega({'pipe_step': {}})
    with pytest.raises(KeyError, match='needs search_algorithm'):
        section = {'pipe_step': {'type': 'SearchPipeStep'}, 'dataset': {'type': 'support.Noisy'}}
        section |= {'model': {'type': 'Linear'}, 'trainer': {'optim': {'type': 'SGD', 'lr': 0.1}}}
        VegaStep('nas', Config(section)._cfg_dict, {}).settings()


PRUNE = """
pipeline: [nas, fullytrain]
nas:
    pipe_step: {type: SearchPipeStep}
    dataset:
        type: %(root)s/configs/mnist/digits.py:Digits
        common: {part: val, batch_size: 250}
    search_algorithm:
        type: PruneEA
        codec: PruneCodec
        objective_keys: [accuracy, params]
        policy: {length: 44, num_generation: 1, num_individual: 2, random_samples: 2}
    search_space:
        type: SearchSpace
        modules: ['backbone']
        backbone:
            name: %(root)s/configs/search/networks.py:PruneResNet
            base_chn: [8, 8]
            base_chn_node: [4, 8, 16]
            num_classes: 10
    trainer:
        type: Trainer
        optim: {type: SGD, params: {lr: 0.1}}
        loss: {type: CrossEntropyLoss}
        metric: {type: accuracy}
        epochs: 1
        limits: {flop_range: [!!float 0, !!float LIMIT]}
fullytrain:
    pipe_step: {type: TrainPipeStep}
    nums: 1
    trainer: {ref: nas.trainer, limits: ~}
"""


def test_the_prune_ea_pipeline(pipeline):
    text = PRUNE % {'root': ROOT}
    text = text.replace('common: {part: val, batch_size: 250}', 'common: {part: val, batch_size: 250}\n        val: {}')
    report = pipeline('LIMIT', '1e9', text).run()
    assert [each.status for each in report.all_records] == ['completed'] * 5
    nas, (trained,) = report.of('nas'), report.of('fullytrain')
    sizes = {(tuple(each.desc['backbone']['chn']), each.performance['params']) for each in nas}
    assert len(sizes) > 1
    assert trained.desc == report.pareto_front('nas', 1)[0].desc
    assert trained.performance['params'] == report.pareto_front('nas', 1)[0].performance['params']


def test_a_quota_holds_for_every_algorithm_and_ends(pipeline, monkeypatch):
    monkeypatch.setattr('runnerkit.search.study._ATTEMPTS', 10)
    text = (PRUNE % {'root': ROOT}).replace('random_samples: 2', 'random_samples: 200')
    text = text.replace('batch_size: 250}', 'batch_size: 250}\n        val: {}')
    with pytest.raises(
        ValueError, match='10 proposals in a row were refused, the last one because flops .* is not <= 10'
    ):
        pipeline('LIMIT', '10', text).run()
