"""The log in memory."""

import torch
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import Hook, IterTimerHook, TextLoggerHook
from runnerkit.hooks.logger import HistoryHook


class Ten(Tiny):
    """Its losses are 10 in training and 100 in validation; it also logs what is no number."""

    def train_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'loss': 10.0}, 'num_samples': len(data[0])}

    def val_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'loss': 100.0}, 'num_samples': len(data[0])}

    dis_step = train_step


def records(kind, workflow, optimizer=None, others=(), **limits):
    runner = tiny_runner(kind, Ten(), optimizer=optimizer, **limits)
    history = HistoryHook()
    by_epoch = kind == 'epoch'
    for hook in (*others, TextLoggerHook(interval=2, by_epoch=by_epoch), history):
        runner.register_hook(hook, 'VERY_LOW')
    runner.run([loader(12) for _ in workflow], workflow)
    return history.records


def test_an_epoch_run():
    assert records('epoch', [('train', 1), ('val', 1)], max_epochs=2) == [
        {'mode': 'train', 'epoch': 1, 'step': 2, 'lr': 0.1, 'loss': 10.0},
        {'mode': 'val', 'epoch': 1, 'step': 3, 'loss': 100.0},
        {'mode': 'train', 'epoch': 2, 'step': 5, 'lr': 0.1, 'loss': 10.0},
        {'mode': 'val', 'epoch': 2, 'step': 6, 'loss': 100.0},
    ]


def test_an_iteration_run():
    assert records('iter', [('train', 2), ('val', 1)], max_iters=4) == [
        {'mode': 'train', 'epoch': 1, 'step': 2, 'lr': 0.1, 'loss': 10.0},
        {'mode': 'val', 'epoch': 1, 'step': 2, 'loss': 100.0},
        {'mode': 'train', 'epoch': 2, 'step': 4, 'lr': 0.1, 'loss': 10.0},
        {'mode': 'val', 'epoch': 2, 'step': 4, 'loss': 100.0},
    ]


def test_several_optimizers_and_other_modes():
    def two(model):
        return {name: torch.optim.SGD(getattr(model, name).parameters(), lr=lr) for name, lr in
                (('body', 0.1), ('head', 0.2))}  # fmt: skip

    (record,) = records('epoch', [('dis', 1)], two, max_epochs=1)
    assert record == {'mode': 'dis', 'epoch': 1, 'step': 2, 'lr/body': 0.1, 'lr/head': 0.2, 'loss': 10.0}


def test_other_rates_of_groups_have_names_of_their_own():
    def groups(model):
        return torch.optim.SGD(
            [{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': 1.0}], 0.1
        )

    def both(model):
        return {'a': groups(model), 'b': torch.optim.SGD(model.head.parameters(), 0.2)}

    (record,) = records('epoch', [('train', 1)], groups, max_epochs=1)
    assert record == {'mode': 'train', 'epoch': 1, 'step': 2, 'lr': 0.1, 'lr/x10': 1.0, 'loss': 10.0}
    (record,) = records('epoch', [('train', 1)], both, max_epochs=1)
    assert {name: rate for name, rate in record.items() if 'lr' in name} == {'lr/a': 0.1, 'lr/b': 0.2, 'lr/a_x10': 1.0}


def test_it_logs_only_with_others():
    runner, history = tiny_runner('epoch', Ten(), max_epochs=1), HistoryHook()
    runner.register_hook(IterTimerHook())
    runner.register_hook(history)
    runner.run([loader(60)], [('train', 1)])
    assert history.records == []


def test_what_is_logged_again_after_a_roll_back_is_there_once(tmp_path):
    class Back(Hook):
        done = False

        def after_train_iter(self, runner):
            if runner.iter == 1:
                self.file = runner.save_checkpoint(str(tmp_path), 'iter_{}.pth')
            if runner.iter == 5 and not self.done:
                self.done = True
                runner.roll_back(self.file)

    found = records('iter', [('train', 1)], others=(Back(),), max_iters=8)
    assert [record['step'] for record in found] == [2, 4, 6, 8]
