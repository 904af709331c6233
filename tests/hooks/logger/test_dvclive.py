"""DVCLive: what its client is called with, and what the real one writes."""

import json
from unittest.mock import MagicMock, call

import pytest
import torch
from support import loader, tiny_runner

from runnerkit.hooks import Hook, OptimizerHook
from runnerkit.hooks.logger import DvcliveLoggerHook


class Score(Hook):
    def after_train_epoch(self, runner):
        runner.log_buffer.output['score'] = 0.5
        runner.log_buffer.ready = True


def test_calls_by_epoch(fake, train):
    dvclive = fake('dvclive')
    hook = DvcliveLoggerHook(interval=2, path='p')
    train(hook, [Score()], epochs=1)
    dvclive.Live.assert_called_once_with(path='p')
    assert hook.dvclive.step == 1
    assert hook.dvclive.mock_calls == [
        call.log_metric('val/score', 0.5),
        call.log_metric('learning_rate', 0.1),
        call.log_metric('momentum', 0.9),
        call.sync(),
        call.log_metric('val/acc', 0.25),
        call.sync(),
        call.end(),
    ]


def test_the_users_own_stays_open(fake, train):
    dvclive, live = fake('dvclive'), MagicMock()
    hook = DvcliveLoggerHook(dvclive=live)
    train(hook, epochs=1)
    assert hook.dvclive is live
    dvclive.Live.assert_not_called()
    live.end.assert_not_called()


def test_it_does_not_make_the_loggers_before_it_log_more_often(fake, train):
    """By epoch it does not log between, but as the last logger it clears what the others have logged."""
    fake('dvclive')

    class Seen(Hook):
        ready = []

        def after_train_iter(self, runner):
            if runner.inner_iter == 0:
                runner.log_buffer.average(1)

        def before_train_iter(self, runner):
            self.ready.append(runner.log_buffer.ready)

    train(DvcliveLoggerHook(), [Seen()], epochs=1)
    assert Seen.ready == [False, False, False]


def test_the_model_is_saved_after_each_epoch(fake, train, tmp_path):
    fake('dvclive')
    file = tmp_path / 'models' / 'm.pth'
    train(DvcliveLoggerHook(str(file)), epochs=2)
    assert torch.load(file)['meta']['epoch'] == 2
    assert [path.name for path in file.parent.iterdir()] == ['m.pth']


def test_the_real_client(train, tmp_path):
    pytest.importorskip('dvclive')
    folder = tmp_path / 'live'
    options = {'interval': 2, 'by_epoch': False, 'dir': str(folder), 'save_dvc_exp': False, 'dvcyaml': None}
    train(DvcliveLoggerHook(**options), epochs=1)
    rows = (folder / 'plots' / 'metrics' / 'train' / 'loss.tsv').read_text().split('\n')
    assert rows[:2] == ['step\tloss', '2\t1.5']
    kept = json.loads((folder / 'metrics.json').read_text())
    assert (kept['step'], kept['val']) == (4, {'acc': 0.25})
    train(DvcliveLoggerHook(**options, resume=True), resume='epoch_1.pth')
    rows = (folder / 'plots' / 'metrics' / 'train' / 'loss.tsv').read_text().split('\n')
    assert rows[1:3] == ['2\t1.5', '4\t1.5']


def test_with_two_ranks_the_file_holds_the_states_of_both(on_ranks, tmp_path):
    on_ranks(__file__, 'train_on_rank', str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ['m.pth']
    saved = torch.load(tmp_path / 'm.pth')
    assert saved['meta']['epoch'] == 2
    assert len(saved['runnerkit']['ranks']) == 2


def train_on_rank(rank, folder):
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(DvcliveLoggerHook(f'{folder}/m.pth', dvclive=MagicMock()))
    runner.run([loader(8)], [('train', 1)])
