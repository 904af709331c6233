"""Configs in PaddleRec's shape."""

import copy
from pathlib import Path

import pytest

from runnerkit.compat.paddlerec.config import PaddleRecReader
from runnerkit.config import Config
from runnerkit.config.origin import written_at

READER = PaddleRecReader()

CONFIG = {
    'workspace': 'here',
    'mode': 'train_runner',
    'seed': 3,
    'hyper_parameters': {'optimizer': {'class': 'Adam', 'learning_rate': 0.001, 'strategy': 'async'}, 'width': 9},
    'dataset': [
        {'name': 'train', 'type': 'DataLoader', 'batch_size': 2, 'data_path': '{workspace}/train',
         'data_converter': '{workspace}/reader.py'},
        {'name': 'test', 'type': 'QueueDataset', 'batch_size': 5, 'data_path': '{workspace}/test',
         'data_converter': '{workspace}/reader.py', 'reader_class_name': 'TestReader'},
        {'name': 'own', 'type': '{workspace}/data.py:Own', 'num_workers': 1},
    ],
    'runner': [
        {'name': 'train_runner', 'class': 'train', 'epochs': 2, 'device': 'cpu', 'print_interval': 7,
         'save_checkpoint_interval': 1, 'save_checkpoint_path': 'increment', 'init_model_path': 'first.pth',
         'startup_class_path': '{workspace}/tdm_startup.py', 'phases': ['phase1']},
        {'name': 'infer_runner', 'class': 'single_infer', 'init_model_path': 'increment', 'phases': 'phase2'},
    ],
    'phase': [
        {'name': 'phase1', 'model': '{workspace}/model.py', 'dataset_name': 'train', 'thread_num': 1},
        {'name': 'phase2', 'model': '{workspace}/model.py', 'dataset_name': 'test', 'thread_num': 4},
        {'name': 'phase3', 'model': '{workspace}/model.py', 'dataset_name': 'own', 'mode': 'dis'},
    ],
}  # fmt: skip


def changed(*changes):
    """The config with values set at paths; None removes the key."""
    cfg = copy.deepcopy(CONFIG)
    for *path, value in changes:
        part = cfg
        for key in path[:-1]:
            part = part[key]
        if value is None:
            part.pop(path[-1], None)
        else:
            part[path[-1]] = value
    return Config(cfg)


def test_a_runner_that_trains():
    (run,) = READER.read_runs(changed())
    assert (run.name, run.device) == ('train_runner', 'cpu')
    assert run.cfg._cfg_dict == {
        'seed': 3,
        'model': {'type': 'here/model.py:Model', 'width': 9},
        'optimizer': {'type': 'Adam', 'lr': 0.001},
        'optimizer_config': {'fused': None},
        'data': {
            'train': {'type': 'here/reader.py:Reader', 'data_path': 'here/train'},
            'train_dataloader': {'batch_size': 2, 'num_workers': 0},
        },
        'workflow': [['train', 1]],
        'flow': {'startup': 'here/tdm_startup.py'},
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 2},
        'load_from': 'first.pth',
        'checkpoint_config': {'interval': 1},
        'log_config': {'interval': 7},
        'work_dir': 'increment',
    }


def test_runners_one_after_another():
    first, second = READER.read_runs(changed(('mode', ['train_runner', 'infer_runner'])))
    assert first.cfg.work_dir == 'increment'
    assert (second.name, second.device) == ('infer_runner', None)
    assert second.cfg.flow == {
        'network': 'InferNetwork',
        'startup': None,
        'runner': {'type': 'Infer', 'checkpoints': 'increment'},
    }
    assert second.cfg.data == {
        'test': {'type': 'here/reader.py:TestReader', 'data_path': 'here/test'},
        'test_dataloader': {'batch_size': 5, 'num_workers': 4},
    }
    assert second.cfg.work_dir == 'work_dirs/run/infer_runner'
    assert 'runner' not in second.cfg
    (alone,) = READER.read_runs(changed(('mode', 'infer_runner')))
    assert alone.cfg._cfg_dict == second.cfg._cfg_dict


def test_phases_are_entries_of_the_workflow():
    (run,) = READER.read_runs(changed(('runner', 0, 'phases', ['phase1', 'phase3'])))
    assert run.cfg.workflow == [['train_phase1', 1], ['dis', 1]]
    assert run.cfg.data['train_phase1'].data_path == 'here/train'
    assert run.cfg.data['dis'] == {'type': 'here/data.py:Own'}
    assert run.cfg.data['dis_dataloader'] == {'num_workers': 1}
    (run,) = READER.read_runs(changed(('runner', 0, 'phases', None)))
    assert len(run.cfg.workflow) == 3


@pytest.mark.parametrize(
    'phases, changes, passes',
    [
        (['phase1'], (), 1),
        (['phase1', 'phase3'], (), 2),
        (['phase1', 'phase2', 'phase3'], (), 3),
        (['phase1', 'phase2'], (('phase', 1, 'mode', 'val'),), 1),
        (['phase1', 'phase3'], (('workflow', [['train_phase1', 3]]),), 1),  # of the user's own, so in its epochs
    ],
)
def test_an_epoch_has_a_pass_for_each_phase(phases, changes, passes):
    """``for epoch: for phase``, and a checkpoint after so many of these epochs."""
    changes = (('runner', 0, 'phases', phases), ('runner', 0, 'epochs', 4), *changes)
    (run,) = READER.read_runs(changed(*changes, ('runner', 0, 'save_checkpoint_interval', 2)))
    assert run.cfg.runner.max_epochs == 4 * passes
    assert run.cfg.checkpoint_config.interval == 2 * passes
    (wrong,) = READER.read_runs(changed(('runner', 0, 'epochs', '4'), ('runner', 0, 'phases', phases)))
    assert wrong.cfg.runner.max_epochs == '4'


def test_sections_of_runnerkit_beside_it():
    model = {'type': 'Supervised'}
    changes = (('phase', 0, 'model', None), ('model', model), ('evaluation', {'interval': 1}))
    (run,) = READER.read_runs(changed(*changes, ('work_dir', 'w')))
    assert (run.cfg.model, run.cfg.evaluation, run.cfg.work_dir) == (model, {'interval': 1}, 'w')
    (run,) = READER.read_runs(changed(('runner', 0, 'save_step_interval', 5), ('custom_hooks', [{'type': 'EMAHook'}])))
    assert [hook.type for hook in run.cfg.custom_hooks] == ['EMAHook', 'CheckpointHook']


@pytest.mark.parametrize(
    'device, gpus, expected',
    [('gpu', None, 'cuda'), ('GPU', '1', 'cuda:1'), ('cpu', '1', 'cpu'), (None, '0', 'cuda:0'), (None, None, None)],
)
def test_devices(device, gpus, expected):
    (run,) = READER.read_runs(changed(('runner', 0, 'device', device), ('runner', 0, 'selected_gpus', gpus)))
    assert run.device == expected


def test_without_a_mode_or_a_workspace(tmp_path):
    (tmp_path / 'cfg.yaml').write_text(
        'runner:\n- {name: a, epochs: 1, phases: []}\ncustom_hooks:\n- {type: "{workspace}/h.py:H"}\n'
    )
    (run,) = READER.read_runs(Config.fromfile(tmp_path / 'cfg.yaml'))
    assert run.cfg.custom_hooks[0].type == f'{tmp_path}/h.py:H'
    assert run.cfg.work_dir == 'work_dirs/cfg'


@pytest.mark.parametrize(
    'change, error, text',
    [
        (('mode', 'train_runer'), KeyError, "mode names no runner 'train_runer'; did you mean 'train_runner'"),
        (('mode', None), KeyError, 'has the runners train_runner, infer_runner: say which in `mode`'),
        (('runner', 0, 'epoch', 3), KeyError, "no key 'epoch'; did you mean 'epochs'?"),
        (('runner', 0, 'epochs', None), KeyError, "the runner 'train_runner' needs epochs"),
        (('runner', 0, 'class', 'cluster_train'), ValueError, 'start several processes with torchrun'),
        (('runner', 0, 'class', 'trian'), ValueError, "did you mean 'train'"),
        (('runner', 0, 'fleet_mode', 'ps'), ValueError, 'there are no parameter servers here'),
        (('runner', 0, 'save_inference_path', 'x'), ValueError, 'runnerkit export'),
        (('runner', 0, 'phases', ['phase9']), KeyError, "names no phase 'phase9'"),
        (('runner', 0, 'device', 'tpu'), ValueError, "has the device 'tpu': give cpu or gpu"),
        (('runner', 1, 'name', 'train_runner'), ValueError, 'two parts of runner have the name'),
        (('runner', ['x']), TypeError, "runner 0 must be a dict with a name, but got 'x'"),
        (('phase', 'x'), TypeError, 'phase must be a list of dicts'),
        (('phase', 0, 'dataset', 'x'), KeyError, "the phase 'phase1' has no key 'dataset'; did you mean"),
        (
            ('phase', 0, 'dataset_name', 'tain'),
            KeyError,
            "the phase 'phase1' names no dataset 'tain'; did you mean 'train'?",
        ),
        (('phase', 0, 'dataset_name', ['train']), TypeError, "must be one name, but got ['train']"),
        (('mode', []), KeyError, 'has the runners train_runner, infer_runner: say which in `mode`'),
        (('mode', 3), TypeError, 'mode must be the name of a runner, or a list of names, but got 3'),
        (('mode', {'train_runner': 1}), TypeError, 'mode must be the name of a runner'),
        (('runner', 0, 'phases', [['phase1']]), TypeError, "phases of the runner 'train_runner' must be the name of a"),
        (('runner', []), KeyError, "mode names no runner 'train_runner'; the config has none (its key is 'runner')"),
        (('dataset', []), KeyError, "names no dataset 'train'; the config has none (its key is 'dataset')"),
        (('hyper_parameters', 'optimizer', 'learning_rat', 1), KeyError, "did you mean 'learning_rate'?"),
        (('hyper_parameters', 'optimizer', 'adam'), TypeError, "must be a dict with a class, but got 'adam'"),
        (('dataset', 0, 'data_converter', None), KeyError, 'needs data_converter: the file with its class Reader'),
    ],
)
def test_what_is_refused(change, error, text):
    with pytest.raises(error) as caught:
        READER.read_runs(changed(change))
    assert text in str(caught.value.args[0])


def test_more_that_is_refused():
    for changes, text in (
        ([('mode', 'infer_runner'), ('runner', 1, 'init_model_path', None)], 'needs init_model_path'),
        ([('runner', 0, 'phases', None), ('phase', 1, 'model', 'b.py')], 'the phases have different models'),
        ([('runner', 0, 'device', 'gpu'), ('runner', 0, 'selected_gpus', '0,1')], 'one process for each GPU'),
    ):
        with pytest.raises((KeyError, ValueError), match=text):
            READER.read_runs(changed(*changes))


YAML = """
mode: [a, b]
hyper_parameters:
  width: 9
  optimizer:
    class: adam
    learning_rate: 0.1
dataset:
- name: d
  data_converter: "{workspace}/reader.py"
  data_path: x
  batch_size: 2
phase:
- name: p
  model: "{workspace}/model.py"
  dataset_name: d
runner:
- name: a
  epochs: 2
  print_interval: 3
  save_checkpoint_interval: 4
  save_step_interval: 5
  init_model_path: first.pth
  save_checkpoint_path: w
  startup_class_path: "{workspace}/s.py"
- name: b
  class: infer
  init_model_path: w
extra:
  one: 1
"""


def test_every_part_of_a_run_knows_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('c.yaml').write_text(YAML.lstrip())
    lines = YAML.lstrip().splitlines()
    cfg = Config.fromfile('c.yaml')
    cfg.merge_from_dict({'runner.0.epochs': 7})
    train, infer = (run.cfg for run in READER.read_runs(cfg))
    for path, text in (
        ('model', 'hyper_parameters'),
        ('model.width', '  width: 9'),
        ('optimizer.type', '    class: adam'),
        ('optimizer.lr', '    learning_rate: 0.1'),
        ('data.train', 'dataset:'),
        ('data.train.data_path', '  data_path: x'),
        ('data.train_dataloader.batch_size', '  batch_size: 2'),
        ('log_config.interval', '  print_interval: 3'),
        ('checkpoint_config.interval', '  save_checkpoint_interval: 4'),
        ('custom_hooks.0.interval', '  save_step_interval: 5'),
        ('load_from', '  init_model_path: first.pth'),
        ('work_dir', '  save_checkpoint_path: w'),
        ('flow.startup', '  startup_class_path'),
        ('extra.one', '  one: 1'),
    ):
        steps = [int(step) if step.isdigit() else step for step in path.split('.')]
        file, _, line = written_at(train, steps).partition(':')
        assert file == 'c.yaml'
        assert lines[int(line) - 1].startswith(text), path
    assert written_at(train, ['runner', 'max_epochs']) == '--cfg-options'
    assert written_at(infer, ['data', 'test', 'data_path']) == written_at(train, ['data', 'train', 'data_path'])
    assert lines[int(written_at(infer, ['flow', 'runner']).split(':')[1]) - 1] == '- name: b'


def test_what_is_refused_has_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong, text in (
        (('mode: [a, b]', 'mode: [a, c]'), "no runner 'c'; the config has a, b (c.yaml:1)"),
        (('  epochs: 2', '  epoch: 2'), "'a' has no key 'epoch' (c.yaml:18)"),
        (('dataset_name: d', 'dataset_name: e'), "the phase 'p' names no dataset 'e'; the config has d (c.yaml:15)"),
        (
            ('class: infer', 'class: cluster_infer'),
            "'cluster_infer', which is not there (c.yaml:26): give single_",
        ),
        (('dataset:', 'datasets:'), "the config has none (its key is 'dataset', not 'datasets') (c.yaml:15)"),
        (('- name: b', '- nam: b'), "runner 1 must be a dict with a name, but got {'nam': 'b'"),
        (('    learning_rate', '    learning_rat'), "no key 'learning_rat' (c.yaml:6); did you mean 'learning_rate'?"),
        (('  epochs: 2\n', ''), "the runner 'a' needs epochs (c.yaml:17)"),
    ):
        assert wrong[0] in YAML
        Path('c.yaml').write_text(YAML.lstrip().replace(*wrong))
        with pytest.raises((KeyError, TypeError, ValueError)) as caught:
            READER.read_runs(Config.fromfile('c.yaml'))
        assert text in str(caught.value.args[0])


def test_the_shape_is_known_by_its_list():
    assert READER.recognizes(changed())
    assert not READER.recognizes(Config({'runner': {'type': 'EpochBasedRunner'}}))
    assert not READER.recognizes(Config({}))
