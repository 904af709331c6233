"""Configs in PaddleRec's shape."""

import copy

import pytest

from runnerkit.config import Config
from runnerkit.config.paddlerec import Run, is_paddlerec, runs_of

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
    (run,) = runs_of(changed())
    assert (run.name, run.device) == ('train_runner', 'cpu')
    assert run.cfg._cfg_dict == {
        'seed': 3,
        'model': {'type': 'here/model.py:Model', 'width': 9},
        'optimizer': {'type': 'Adam', 'lr': 0.001},
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
    first, second = runs_of(changed(('mode', ['train_runner', 'infer_runner'])))
    assert first.cfg.work_dir == 'increment'
    assert isinstance(second, Run)
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


def test_phases_are_entries_of_the_workflow():
    (run,) = runs_of(changed(('runner', 0, 'phases', ['phase1', 'phase3'])))
    assert run.cfg.workflow == [['train_phase1', 1], ['dis', 1]]
    assert run.cfg.data['train_phase1'].data_path == 'here/train'
    assert run.cfg.data['dis'] == {'type': 'here/data.py:Own'}
    assert run.cfg.data['dis_dataloader'] == {'num_workers': 1}
    (run,) = runs_of(changed(('runner', 0, 'phases', None)))
    assert len(run.cfg.workflow) == 3


def test_sections_of_runnerkit_beside_it():
    model = {'type': 'Supervised'}
    changes = (('phase', 0, 'model', None), ('model', model), ('evaluation', {'interval': 1}))
    (run,) = runs_of(changed(*changes, ('work_dir', 'w')))
    assert (run.cfg.model, run.cfg.evaluation, run.cfg.work_dir) == (model, {'interval': 1}, 'w')
    (run,) = runs_of(changed(('runner', 0, 'save_step_interval', 5), ('custom_hooks', [{'type': 'EMAHook'}])))
    assert [hook.type for hook in run.cfg.custom_hooks] == ['EMAHook', 'CheckpointHook']


@pytest.mark.parametrize(
    'device, gpus, expected',
    [('gpu', None, 'cuda'), ('GPU', '1', 'cuda:1'), ('cpu', '1', 'cpu'), (None, '0', 'cuda:0'), (None, None, None)],
)
def test_devices(device, gpus, expected):
    (run,) = runs_of(changed(('runner', 0, 'device', device), ('runner', 0, 'selected_gpus', gpus)))
    assert run.device == expected


def test_without_a_mode_or_a_workspace(tmp_path):
    (tmp_path / 'cfg.yaml').write_text(
        'runner:\n- {name: a, epochs: 1, phases: []}\ncustom_hooks:\n- {type: "{workspace}/h.py:H"}\n'
    )
    (run,) = runs_of(Config.fromfile(tmp_path / 'cfg.yaml'))
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
        (('phase', 0, 'dataset_name', 'tain'), KeyError, "names no data set 'tain'; did you mean 'train'?"),
        (('dataset', 0, 'data_converter', None), KeyError, 'needs data_converter: the file with its class Reader'),
        (('mode', 3), TypeError, 'mode must be a name or a list of names, but got 3'),
        (('mode', {'a': 1}), TypeError, "mode must be a name or a list of names, but got {'a': 1}"),
        (('mode', []), ValueError, 'there is nothing to run: name runners in mode'),
        (('runner', 0, 'phases', 3), TypeError, "phases of the runner 'train_runner' must be a name or a list"),
        (('phase', 0, 'thread_num', 'many'), TypeError, "thread_num of the phase 'phase1' must be a whole number"),
        (('hyper_parameters', 3), TypeError, 'hyper_parameters must be a dict, but got 3'),
        (('hyper_parameters', 'optimizer', 'SGD'), TypeError, 'hyper_parameters.optimizer must be a dict such as'),
        (('optimizer', {'lr': 1}), ValueError, 'optimizer and hyper_parameters.optimizer say the same'),
        (('model', {'type': 'x'}), ValueError, "model and a phase's model say the same"),
    ],
)
def test_what_is_refused(change, error, text):
    with pytest.raises(error) as caught:
        runs_of(changed(change))
    assert text in str(caught.value.args[0])


def test_more_that_is_refused():
    for changes, text in (
        ([('mode', 'infer_runner'), ('runner', 1, 'init_model_path', None)], 'needs init_model_path'),
        ([('runner', 0, 'phases', None), ('phase', 1, 'model', 'b.py')], 'the phases have different models'),
        ([('runner', 0, 'device', 'gpu'), ('runner', 0, 'selected_gpus', '0,1')], 'one process for each GPU'),
    ):
        with pytest.raises((KeyError, ValueError), match=text):
            runs_of(changed(*changes))


def test_the_shape_is_known_by_its_list():
    assert is_paddlerec(changed())
    assert not is_paddlerec(Config({'runner': {'type': 'EpochBasedRunner'}}))
    assert not is_paddlerec(Config({}))


def test_errors_name_the_line(tmp_path):
    runner = 'runner:\n- {name: a, epochs: 1}\n'
    for text, place, words in (
        ('mode: b\n', 'cfg.yaml:1', "names no runner 'b'"),
        ('hyper_paramters:\n  width: 3\n', 'cfg.yaml:1', "did you mean 'hyper_parameters'"),
        ('phase:\n- name: p\n  datset_name: x\n', 'cfg.yaml:3', "did you mean 'dataset_name'"),
        ('phase:\n- name: p\n  dataset_name: x\n', 'cfg.yaml:3', "names no data set 'x'"),
        ('phase:\n- {name: p}\nrunner:\n- {name: a, epochs: 1, phases: q}\n', 'cfg.yaml:4', "names no phase 'q'"),
    ):
        (tmp_path / 'cfg.yaml').write_text(text if 'runner:' in text else text + runner)
        with pytest.raises((KeyError, TypeError, ValueError)) as caught:
            runs_of(Config.fromfile(tmp_path / 'cfg.yaml'))
        assert words in str(caught.value.args[0])
        assert str(caught.value.args[0]).endswith(f'{place})')
