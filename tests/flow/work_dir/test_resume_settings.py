"""Every run by config takes its own settings at a resume, however it was started."""

import copy

import numpy as np
import pytest
import torch
from experiments import Line, config
from support import Noisy, Tiny

import runnerkit
from runnerkit.hooks import Hook

CONFIG = {
    'model': {'type': Tiny},
    'data': {'samples_per_gpu': 4, 'train': {'type': Noisy, 'length': 8}},
    'optimizer': {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9},
    'lr_config': {'policy': 'step', 'step': [1]},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 3},
    'seed': 3,
}


class Rates(Hook):
    def __init__(self):
        self.found = []

    def before_train_iter(self, runner):
        self.found.append(runner.current_lr()[0])


def train(work_dir, **options):
    rates = Rates()
    runnerkit.train(copy.deepcopy(CONFIG), work_dir, device='cpu', hooks=[rates], **options)
    return rates.found


@pytest.fixture
def begun(tmp_path):
    """The work dir of a run that was stopped after the first of three epochs."""
    assert train(tmp_path, stop_after=1) == [0.1, 0.1]
    return tmp_path


@pytest.mark.parametrize('how', [
    {'resume': True}, {'resume': 'epoch_1.pth'}, {'auto_resume': True}, {'resume_from': 'epoch_1.pth'},
    {'if_used': 'resume'},
])  # fmt: skip
def test_a_changed_rate_takes_effect(how, begun, caplog):
    how = {key: str(begun / value) if value == 'epoch_1.pth' else value for key, value in how.items()}
    assert train(begun, optimizer__lr=0.001, **how) == pytest.approx([1e-4] * 4)
    assert 'optimizer: lr' in caplog.text
    assert 'lr=0.001' in (begun / 'config.py').read_text()  # the record says what happened


def test_the_same_config_is_silent_and_goes_on_exactly(begun, tmp_path_factory, caplog):
    train(begun, resume=True)
    assert 'Changed since' not in caplog.text
    other = tmp_path_factory.mktemp('straight')
    train(other)
    one, two = (torch.load(folder / 'epoch_3.pth')['state_dict'] for folder in (begun, other))
    assert all(torch.equal(one[name], two[name]) for name in one)


class Dropping(Tiny):
    def __init__(self, p=0.5):
        super().__init__()
        self.dropout = torch.nn.Dropout(p)


def test_changed_arguments_of_data_and_model_are_in_the_table(tmp_path, caplog):
    model = {'model': {'_delete_': True, 'type': Dropping, 'p': 0.5}}
    train(tmp_path, stop_after=1, **model)
    train(tmp_path, resume=True, model={**model['model'], 'p': 0.1})
    table = caplog.text.partition('Changed since the checkpoint was saved:\n')[2].splitlines()
    assert table[1].split() == ['model.p', '0.5', '0.1', 'it', 'takes', 'effect', 'now']


def test_another_optimizer_is_refused_with_the_command(begun):
    with pytest.raises(ValueError, match='it was SGD and is Adam.*--load-from .*epoch_1.pth'):
        train(begun, resume=True, optimizer={'_delete_': True, 'type': 'Adam', 'lr': 0.1})


@pytest.mark.parametrize('change, rate', [
    ({}, 0.04),
    ({'optimizer__lr': 0.2}, 0.08),
    ({'data__samples_per_gpu': 8}, 0.04),  # the whole batch is the same
])  # fmt: skip
def test_another_number_of_processes_keeps_the_factor_of_auto_scale_lr(change, rate, tmp_path, caplog):
    """The checkpoint is edited to be one of two processes, whose rate was twice as high."""
    scaled = {'auto_scale_lr': {'enable': True, 'base_batch_size': 2}}
    caplog.set_level('INFO')
    train(tmp_path, stop_after=1, **scaled)
    file = torch.load(tmp_path / 'epoch_1.pth')
    file['runnerkit']['world_size'] = 2
    for group in (*file['runnerkit']['settings']['groups'][''], *file['optimizer']['param_groups']):
        group |= {key: 2 * group[key] for key in ('lr', 'initial_lr') if key in group}
    torch.save(file, tmp_path / 'epoch_1.pth')
    resumed = train(tmp_path, resume=str(tmp_path / 'epoch_1.pth'), **scaled, **change)
    assert resumed == pytest.approx([rate] * len(resumed))
    assert 'instead of 2; a resumed run keeps the number of ranks of its start' in caplog.text
    assert ('the learning rates stay those of 2 ranks, not 1' in caplog.text) == ('data__samples_per_gpu' not in change)
    assert ('optimizer: lr' in caplog.text) == ('optimizer__lr' in change)


def begin_on_rank(_, folder):
    return train(folder, stop_after=1, auto_scale_lr={'enable': True, 'base_batch_size': 2})


@pytest.mark.thorough  # test_another_number_of_processes_keeps_the_factor_of_auto_scale_lr edits such a checkpoint
def test_a_run_of_two_processes_is_resumed_by_one(on_ranks, tmp_path, caplog):
    on_two = [0.4]  # 0.1, times two ranks of four samples, by a base of two
    assert on_ranks(__file__, 'begin_on_rank', str(tmp_path)) == [pytest.approx(on_two)] * 2
    caplog.set_level('INFO')
    scaled = {'auto_scale_lr': {'enable': True, 'base_batch_size': 2}}
    assert train(tmp_path, resume=True, stop_after=2, **scaled) == pytest.approx([0.04] * 2)
    assert 'the learning rates stay those of 2 ranks, not 1' in caplog.text
    assert train(tmp_path, resume=True, optimizer__lr=0.2, **scaled) == pytest.approx([0.08] * 2)


@pytest.mark.parametrize('ranks', [1, 2])
def test_auto_scale_lr_that_is_new_at_a_resume_is_for_the_ranks_of_now(ranks, begun):
    file = torch.load(begun / 'epoch_1.pth')
    file['runnerkit']['world_size'] = ranks
    torch.save(file, begun / 'epoch_1.pth')
    scaled = {'auto_scale_lr': {'enable': True, 'base_batch_size': 1}}
    assert train(begun, resume=str(begun / 'epoch_1.pth'), **scaled) == pytest.approx([0.04] * 4)


def test_a_start_does_not_speak_of_resuming(tmp_path, caplog):
    caplog.set_level('INFO')
    train(tmp_path, stop_after=1, auto_scale_lr={'enable': True, 'base_batch_size': 2})
    assert 'lr scaled from 0.1 to 0.2 for a batch of 4 instead of 2' in caplog.text
    assert 'keeps the number of ranks' not in caplog.text


def test_a_rate_that_the_schedule_replaces_has_no_effect_and_the_table_says_so(tmp_path, caplog):
    schedule = {'lr_config': {'_delete_': True, 'policy': 'OneCycle', 'max_lr': 0.2}}
    train(tmp_path, stop_after=1, **schedule)
    other = train(tmp_path, resume=True, optimizer__lr=0.01, **schedule)
    assert 'no effect: the schedule sets the rate' in caplog.text
    assert other[0] > 0.1


def test_numbers_of_numpy_are_compared(tmp_path, caplog):
    train(tmp_path, stop_after=1, optimizer__lr=np.float32(0.5))
    assert train(tmp_path, resume=True, optimizer__lr=np.float32(0.25)) == pytest.approx([0.025] * 4)
    assert 'optimizer: lr' in caplog.text


def test_an_experiment_takes_its_settings(tmp_path):
    class Own(Line):
        lr = 0.1

        def setup_model(self):
            super().setup_model()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)

    def run(lr, limit):
        made = Own(config(), {'output': tmp_path, 'max_iteration': limit})
        made.lr = lr
        made.config.training['max_iteration'] = made._max_iters = limit
        made.setup()
        made.resume_or_load()
        made.run()
        return made

    run(0.1, 4)
    assert run(0.02, 8).current_lr() == [0.02]
