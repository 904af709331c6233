"""Runs whose weights, optimizer states or losses become NaN or infinite: what is best, what is kept, how they end."""

import logging
import math
import os

import pytest
import torch
from support import Tiny, loader, tiny_runner
from torch import nn

from runnerkit.checkpoint import NotSavedError
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook, NonFiniteHook, OptimizerHook
from runnerkit.parallel import FSDP2
from runnerkit.parallel.dtensors import local_part
from runnerkit.runner import EpochBasedRunner

NAN, INF = math.nan, math.inf


class Breaks(Hook):
    """Does something to the run after epoch (iteration) ``at``."""

    def __init__(self, do, at=4):
        self.do, self.at = do, at

    def after_train_iter(self, runner):
        if (runner.epoch if runner.by_epoch else runner.iter) + 1 == self.at:
            self.do(runner)


class Flattering(EvalHook):
    """Scores a broken model better than any other, as one may be whose every answer is the same class."""

    def evaluate(self, runner, results):
        broken = bool(runner.non_finite(alone=True))
        self.seen = [*getattr(self, 'seen', []), broken]
        return self._record(runner, {'acc': 0.825 if broken else 0.5 + 0.01 * runner.epoch + 1e-4 * runner.iter})

    def _test(self, runner):
        return []


def weight(value, name='head.weight'):
    def breaks(runner):
        with torch.no_grad():
            runner.model.get_parameter(name).view(-1)[0] = value

    return breaks


def buffer(runner):
    runner.model.body[1].running_var.fill_(INF)


def momentum(runner):
    state = runner.optimizer.state[runner.model.head.weight]
    state['momentum_buffer'][0, 0] = NAN


def loss(runner):
    runner.log_buffer.update({'loss': torch.tensor(INF)})


BROKEN = {
    'NaN weight': weight(NAN),
    'infinite weight': weight(-INF, 'body.0.bias'),
    'infinite statistics': buffer,
    'momentum': momentum,
    'loss': loss,
}


def train(tmp_path, do, kind='epoch', hooks=(), epochs=8, keep=2, **options):
    limit = {'max_epochs': epochs} if kind == 'epoch' else {'max_iters': epochs}
    runner = tiny_runner(kind, work_dir=tmp_path, **limit)
    by_epoch = kind == 'epoch'
    runner.register_hook(OptimizerHook())
    for hook in hooks:
        runner.register_hook(hook)
    if do is not None:
        runner.register_hook(Breaks(do), 'LOW')
    best = Flattering(loader(4), save_best='acc', rule='greater', by_epoch=by_epoch)
    runner.register_hook(best, 'LOWEST')
    runner.register_hook(CheckpointHook(interval=1, by_epoch=by_epoch, max_keep_ckpts=keep, **options))
    runner.run([loader(4)], [('train', 1)])
    return runner


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix == '.pth')


def meta(folder, name):
    return torch.load(folder / name, weights_only=True)['meta']


@pytest.mark.parametrize('broken', BROKEN)
@pytest.mark.parametrize(('kind', 'unit'), [('epoch', 'epoch'), ('iter', 'iter')])
def test_what_is_not_finite_is_never_best_and_replaces_nothing_finite(tmp_path, broken, kind, unit):
    lasts = broken != 'loss'  # the losses after the infinite one are finite again
    runner = train(tmp_path, BROKEN[broken], kind)
    found = meta(tmp_path, f'{unit}_8.pth')['non_finite']
    assert bool(found) == lasts
    kept = ['best_acc_epoch_3.pth', 'epoch_2.pth', 'epoch_3.pth', 'epoch_8.pth', 'latest.pth']
    if not lasts:
        kept = ['best_acc_epoch_8.pth', 'epoch_7.pth', 'epoch_8.pth', 'latest.pth']
    assert names(tmp_path) == [name.replace('epoch', unit) for name in kept]
    assert os.readlink(tmp_path / 'latest.pth') == f'{unit}_{3 if lasts else 8}.pth'
    assert runner.outcome.kind == ('diverged' if lasts else 'completed')


@pytest.mark.parametrize('do', [weight(NAN), loss])
def test_the_checkpoint_of_that_moment_says_what_it_is(tmp_path, do):
    train(tmp_path, do, epochs=4, keep=-1)
    assert names(tmp_path) == ['best_acc_epoch_3.pth', *(f'epoch_{n}.pth' for n in range(1, 5)), 'latest.pth']
    assert [meta(tmp_path, f'epoch_{n}.pth')['non_finite'] for n in (1, 2, 3)] == [{}, {}, {}]
    found = meta(tmp_path, 'epoch_4.pth')['non_finite']
    assert found == (
        {'loss': 'a training loss since the last checkpoint'}
        if do is loss
        else {'weights': 'head.weight (1 of 8 values)'}
    )


@pytest.mark.parametrize('options', [{'async_save': True}, {'filename_tmpl': 'net_{}.pth'}, {'interval': 3}])
def test_the_newest_finite_one_is_kept_with_any_option(tmp_path, options):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=8)
    runner.register_hook(OptimizerHook())
    runner.register_hook(Breaks(weight(NAN)))
    runner.register_hook(CheckpointHook(**{'interval': 1, 'max_keep_ckpts': 1, **options}))
    runner.run([loader(4)], [('train', 1)])
    stem = 'net' if 'filename_tmpl' in options else 'epoch'
    assert names(tmp_path) == sorted([f'{stem}_3.pth', f'{stem}_8.pth', 'latest.pth'])
    assert runner.last_finite == str(tmp_path / f'{stem}_3.pth')


def test_a_stopped_runs_checkpoint_stays_until_there_is_a_newer_finite_one(tmp_path):
    class Stops(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 4:
                runner.stop('test')

    runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
    runner.register_hook(OptimizerHook())
    runner.register_hook(Stops())
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1))
    runner.run([loader(12)], [('train', 1)])
    assert names(tmp_path) == ['epoch_1.pth', 'iter_5.pth', 'latest.pth']
    runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
    runner.register_hook(OptimizerHook())
    runner.register_hook(Breaks(weight(NAN), at=2))
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1))
    runner.resume(str(tmp_path / 'iter_5.pth'))
    runner.run([loader(12)], [('train', 1)])
    assert 'iter_5.pth' in names(tmp_path)
    assert runner.last_finite == str(tmp_path / 'iter_5.pth')


def test_averages_that_are_finite_do_not_make_a_finite_checkpoint_of_broken_weights(tmp_path):
    ema = EMAHook(interval=100)
    runner = train(tmp_path, weight(NAN), hooks=[ema], epochs=5)
    assert 'best_acc_epoch_3.pth' in names(tmp_path)
    assert torch.isfinite(runner.model.ema_head_weight).all()
    assert runner.outcome.kind == 'diverged'


def test_broken_averages_of_finite_weights_are_found_too(tmp_path):
    def breaks(runner):
        runner.model.ema_head_weight.fill_(NAN)

    runner = train(tmp_path, breaks, hooks=[EMAHook()], epochs=5)
    assert 'best_acc_epoch_3.pth' in names(tmp_path)
    assert 'weights' in meta(tmp_path, 'epoch_5.pth')['non_finite']
    assert torch.isfinite(runner.model.head.weight).all()


class Masked(Tiny):
    """With a mask, an observer and a frozen table that hold infinities on purpose."""

    def __init__(self):
        super().__init__()
        self.register_buffer('mask', torch.tensor([0.0, -INF]))
        self.register_buffer('low', torch.tensor(INF))
        self.table = nn.Parameter(torch.tensor([0.0, INF]), requires_grad=False)


def test_infinities_of_masks_do_not_count(tmp_path):
    runner = tiny_runner(model=Masked(), work_dir=tmp_path, max_epochs=2)
    for hook in (OptimizerHook(), EMAHook(), CheckpointHook(interval=1)):
        runner.register_hook(hook)
    runner.run([loader(4)], [('train', 1)])
    assert runner.outcome.kind == 'completed'
    assert meta(tmp_path, 'epoch_2.pth')['non_finite'] == {}
    with torch.no_grad():
        runner.model.body[1].running_mean[0] = INF
    assert runner.non_finite() == {'weights': 'body.1.running_mean (1 of 8 values)'}


def test_weights_that_were_broken_at_the_start_do(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    weight(NAN)(runner)
    runner.run([loader(4)], [('train', 1)])
    assert runner.outcome.kind == 'diverged'


def test_a_broken_statistic_that_was_finite_at_the_start_counts_after_a_resume_too(tmp_path):
    train(tmp_path, buffer, epochs=5, keep=-1)
    runner = tiny_runner(work_dir=tmp_path, max_epochs=6)
    runner.resume(str(tmp_path / 'epoch_5.pth'))
    runner.run([loader(4)], [('train', 1)])
    assert runner.outcome.kind == 'diverged'


@pytest.mark.parametrize('how', ['scaler', 'hook'])
def test_losses_of_skipped_updates_do_not_count(tmp_path, how):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
    runner.register_hook(OptimizerHook(amp='fp16', loss_scale=8.0) if how == 'scaler' else OptimizerHook())
    if how == 'hook':
        runner.register_hook(NonFiniteHook('skip'))
    runner.register_hook(Breaks(loss))
    runner.register_hook(CheckpointHook(interval=1))
    runner.run([loader(4)], [('train', 1)])
    assert meta(tmp_path, 'epoch_4.pth')['non_finite'] == {}


@pytest.mark.parametrize('do', [None, lambda runner: runner.stop('enough')])
def test_the_end_says_what_to_do_also_where_the_run_was_stopped_or_nothing_was_saved_later(tmp_path, do, caplog):
    (tmp_path / 'cfg.py').write_text('')
    runner = tiny_runner(work_dir=tmp_path, max_epochs=4)
    runner.meta['exp_name'] = 'cfg.py'
    runner.register_hook(OptimizerHook())
    runner.register_hook(Breaks(lambda runner: (weight(NAN)(runner), do and do(runner))))
    runner.register_hook(CheckpointHook(interval=3, save_last=False))
    with caplog.at_level(logging.INFO):
        runner.run([loader(4)], [('train', 1)])
    assert runner.outcome.kind == 'diverged'
    assert runner.outcome.reason == (do and 'enough')
    assert not runner.outcome.ended_well
    *_, last = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    command = f'runnerkit train {tmp_path}/cfg.py --work-dir {tmp_path} --resume-from {tmp_path}/epoch_3.pth'
    assert f'{command} --cfg-options optimizer.lr=0.01' in last
    assert 'head.weight (1 of 8 values)' in last


def test_without_a_finite_checkpoint_there_is_a_way_out_as_well(tmp_path, caplog):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.register_hook(Breaks(weight(INF), at=1))
    runner.register_hook(CheckpointHook(interval=1))
    runner.run([loader(4)], [('train', 1)])
    assert 'There is no finite checkpoint: start over' in caplog.text
    assert 'runner.resume(' not in caplog.text
    assert os.readlink(tmp_path / 'latest.pth') == 'epoch_1.pth'  # there is no other


def test_a_broken_checkpoint_is_resumed_with_a_warning_that_names_a_better_one(tmp_path, caplog):
    train(tmp_path, weight(NAN), epochs=5)
    tiny_runner(work_dir=tmp_path, max_epochs=6).resume(str(tmp_path / 'epoch_5.pth'))
    warned = next(r.getMessage() for r in caplog.records if 'does not recover' in r.getMessage())
    assert 'NaN or infinite values in body.0.weight (32 of 32 values)' in warned
    assert f'Resume {tmp_path}/best_acc_epoch_3.pth' in warned or f'Resume {tmp_path}/epoch_3.pth' in warned


def test_save_checkpoint_alone_and_only_finite(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=1)
    runner.save_checkpoint(str(tmp_path), 'a_{}.pth')
    assert runner.last_finite == str(tmp_path / 'a_1.pth')
    weight(NAN)(runner)
    runner.save_checkpoint(str(tmp_path), 'b_{}.pth')
    assert os.readlink(tmp_path / 'latest.pth') == 'a_1.pth'
    assert 'weights' in meta(tmp_path, 'b_1.pth')['non_finite']
    with pytest.raises(NotSavedError, match='NaN or infinite values in head.weight'):
        runner.save(str(tmp_path), 'c_{}.pth', only_finite=True)
    told = []
    assert runner.save(str(tmp_path), 'c_{}.pth', only_finite=True, on_error=told.append) is None
    assert len(told) == 1
    assert not (tmp_path / 'c_1.pth').exists()


def test_several_optimizers_are_all_looked_at(tmp_path):
    def both(model):
        return {
            'body': torch.optim.Adam(model.body.parameters()),
            'head': torch.optim.SGD(model.head.parameters(), lr=0.1),
        }

    runner = tiny_runner(work_dir=tmp_path, max_epochs=1, optimizer=both)
    runner.register_hook(OptimizerHook())
    runner.run([loader(4)], [('train', 1)])
    assert runner.non_finite() == {}
    runner.optimizer['body'].state[runner.model.body[0].weight]['exp_avg_sq'][0] = INF
    assert runner.non_finite() == {'optimizer': 'exp_avg_sq of body.0.weight (4 of 32 values)'}


class Scale(Tiny):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return super().forward(x) * self.scale


def test_states_of_single_numbers_count_and_counters_do_not():
    runner = tiny_runner(model=Scale(), max_epochs=1, optimizer=lambda model: torch.optim.Adam(model.parameters()))
    runner.register_hook(OptimizerHook())
    runner.run([loader(4)], [('train', 1)])
    states = runner.optimizer.state
    states[runner.model.head.weight]['step'].fill_(INF)
    assert runner.non_finite() == {}
    states[runner.model.scale]['exp_avg'].fill_(NAN)
    assert runner.non_finite() == {'optimizer': 'exp_avg of scale (1 of 1 values)'}


def ranks_with_one_broken(rank, folder):
    runner = tiny_runner(work_dir=folder, max_epochs=4)
    runner.register_hook(Breaks(weight(NAN) if rank == 1 else loss, at=3))
    best = Flattering(loader(4), save_best='acc', rule='greater')
    runner.register_hook(best)
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1))
    runner.run([loader(4)], [('train', 1)])
    return runner.outcome.kind, runner.non_finite(), names(folder)


def test_all_ranks_give_the_same_answer(on_ranks, tmp_path):
    first, second = on_ranks(__file__, 'ranks_with_one_broken', tmp_path)
    assert first == second
    kind, found, files = first
    assert kind == 'diverged'
    assert found['weights'] == 'head.weight (1 of 8 values)'
    assert files == ['best_acc_epoch_2.pth', 'epoch_2.pth', 'epoch_4.pth', 'latest.pth']


def test_a_run_that_goes_on_from_a_broken_checkpoint_keeps_the_finite_one_of_the_run_before(tmp_path, caplog):
    train(tmp_path, weight(NAN, 'body.0.bias'), epochs=4, keep=1)
    (tmp_path / 'best_acc_epoch_3.pth').unlink()
    assert names(tmp_path) == ['epoch_3.pth', 'epoch_4.pth', 'latest.pth']
    (tmp_path / 'iter_99.pth').write_bytes(b'damaged')
    runner = tiny_runner(work_dir=tmp_path, max_epochs=7)
    runner.register_hook(OptimizerHook())
    runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1))
    runner.resume(str(tmp_path / 'epoch_4.pth'))
    runner.run([loader(4)], [('train', 1)])
    assert names(tmp_path) == ['epoch_3.pth', 'epoch_7.pth', 'iter_99.pth', 'latest.pth']
    assert os.readlink(tmp_path / 'latest.pth') == 'epoch_3.pth'
    assert runner.last_finite == str(tmp_path / 'epoch_3.pth')
    assert f'Continue from the newest finite checkpoint, {tmp_path}/epoch_3.pth' in caplog.text
    assert f"runner.resume('{tmp_path}/epoch_3.pth')" in caplog.text  # there is no config for a command


class Fails(Hook):
    def after_train_epoch(self, runner):
        if runner.epoch == 3:
            raise RuntimeError('of a hook')


def test_what_a_failed_run_has_saved_pushes_out_nothing_finite_either(tmp_path):
    """Neither then, nor when a run goes on and finds it among the last ones."""
    runner = tiny_runner(work_dir=tmp_path, max_epochs=6)
    for hook in (OptimizerHook(), Breaks(weight(NAN)), Fails(), CheckpointHook(interval=1, max_keep_ckpts=1)):
        runner.register_hook(hook)
    with pytest.raises(RuntimeError, match='of a hook'):
        runner.run([loader(4)], [('train', 1)])
    assert names(tmp_path) == ['epoch_3.pth', 'epoch_4.pth', 'latest.pth']
    assert os.readlink(tmp_path / 'latest.pth') == 'epoch_3.pth'
    runner = tiny_runner(work_dir=tmp_path, max_epochs=5)
    for hook in (OptimizerHook(), CheckpointHook(interval=1, max_keep_ckpts=1)):
        runner.register_hook(hook)
    runner.resume(str(tmp_path / 'epoch_4.pth'))
    runner.run([loader(4)], [('train', 1)])
    assert names(tmp_path) == ['epoch_3.pth', 'epoch_5.pth', 'latest.pth']


class Still(torch.optim.Optimizer):
    """Has a rate or not, and does nothing."""

    def __init__(self, parameters, **settings):
        super().__init__(parameters, {'pace': 1, **settings})

    def step(self, closure=None):
        pass


@pytest.mark.parametrize(
    ('optimizer', 'scale', 'options'),
    [
        (lambda model: Still(model.parameters()), None, ''),
        (lambda model: Still(model.parameters(), lr=None), None, ''),
        (lambda model: Still(model.parameters(), lr=0.8), (16, 2), ' --cfg-options optimizer.lr=0.01'),
        (
            lambda model: Still([{'params': [each], 'lr': 3.0} for each in model.parameters()], lr=0.5),
            None,
            ' --cfg-options optimizer.lr=0.05',
        ),
        (
            lambda model: {'a': Still(model.body.parameters(), lr=0.2), 'b': Still(model.head.parameters(), lr=0.4)},
            None,
            ' --cfg-options optimizer.a.lr=0.02 optimizer.b.lr=0.04',
        ),
    ],
)
def test_the_command_lowers_every_rate_as_the_config_has_it(tmp_path, caplog, optimizer, scale, options):
    (tmp_path / 'cfg.py').write_text('')
    runner = tiny_runner(work_dir=tmp_path, max_epochs=2, optimizer=optimizer)
    runner.meta['exp_name'], runner.lr_scaled_for = 'cfg.py', scale
    runner.register_hook(OptimizerHook())
    runner.register_hook(Breaks(weight(NAN), at=2))
    runner.register_hook(CheckpointHook(interval=1))
    runner.run([loader(4)], [('train', 1)])
    assert f'--resume-from {tmp_path}/epoch_1.pth{options} (or clip' in caplog.text


def sharded_ranks(rank, folder, async_save):
    """The weights of the second rank's part break in epoch 3; a second run goes on from what is broken."""
    found = []
    for epochs in (4, 6):
        model = FSDP2(Masked())
        optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01, momentum=0.9)
        runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=folder, max_epochs=epochs, meta={'seed': 1})
        runner.register_hook(OptimizerHook())
        part = local_part(model.module.body[0].weight).detach()
        runner.register_hook(Breaks(lambda runner, part=part: rank and part.fill_(NAN), at=3))
        runner.register_hook(Flattering(loader(4), save_best='acc', rule='greater'))
        runner.register_hook(CheckpointHook(interval=1, max_keep_ckpts=1, async_save=async_save))
        if epochs == 6:
            runner.resume(f'{folder}/epoch_4.pth')
        runner.run([loader(4)], [('train', 1)])
        latest = os.readlink(folder / 'latest.pth')
        found.append((runner.outcome.kind, runner.non_finite(), names(folder), latest))
    return found


@pytest.mark.parametrize('async_save', [False, True])
def test_a_sharded_run_whose_second_part_breaks(on_ranks, tmp_path, async_save):
    first, second = on_ranks(__file__, 'sharded_ranks', tmp_path, async_save)
    assert first == second
    for (kind, found, files, latest), last in zip(first, (4, 6), strict=True):
        assert kind == 'diverged'
        assert 'body.0.weight' in found['weights']
        assert 'mask' not in found['weights']
        assert files == ['best_acc_epoch_2.pth', 'epoch_2.pth', f'epoch_{last}.pth', 'latest.pth']
        assert latest == 'epoch_2.pth'


class Tied(Tiny):
    def __init__(self):
        super().__init__()
        self.twin = self.head


def test_the_state_of_a_shared_parameter_has_its_first_name():
    runner = tiny_runner(model=Tied(), max_epochs=1)
    runner.register_hook(OptimizerHook())
    runner.run([loader(4)], [('train', 1)])
    momentum(runner)
    assert runner.non_finite()['optimizer'].startswith('momentum_buffer of head.weight (1 of ')
