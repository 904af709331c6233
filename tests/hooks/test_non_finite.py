"""Bad numbers: what is noticed when, what is never saved, what is skipped, and how a run goes back."""

import logging
import math
from pathlib import Path

import pytest
import torch
from support import Tiny, loader, thinned, tiny_runner, weights
from torch.utils._python_dispatch import TorchDispatchMode

from runnerkit.distributed import barrier, broadcast_object
from runnerkit.hooks import (
    CheckpointHook,
    EMAHook,
    EvalHook,
    Hook,
    NonFiniteError,
    NonFiniteHook,
    OptimizerHook,
    TextLoggerHook,
)
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel import MMDistributedDataParallel


class Sick(Tiny):
    """Spoils the loss of the ``bad`` steps, counted from 1 over everything that is ever trained."""

    def __init__(self, bad=(), value=math.nan, what='loss'):
        super().__init__()
        self.bad, self.value, self.what, self.steps = set(bad), value, what, 0

    def train_step(self, data, optimizer, **kwargs):
        self.steps += 1
        sick = self.steps in self.bad
        if sick and self.what == 'input':
            data = data[0] * self.value, data[1]
        outputs = super().train_step(data, optimizer)
        if sick and self.what == 'loss':
            outputs['loss'] = outputs['loss'] * self.value
        if sick and self.what == 'gradient':
            outputs['loss'] = outputs['loss'] + Spoil.apply(self.head.weight.sum())
        return outputs


class Spoil(torch.autograd.Function):
    """Zero, with a gradient that is none."""

    @staticmethod
    def forward(ctx, x):
        return x * 0

    @staticmethod
    def backward(ctx, grad):
        return grad * math.nan


LIMITS = {'epoch': {'max_epochs': 4}, 'iter': {'max_iters': 20}}


def sick_runner(kind, tmp_path, hook, model=None, update=None, hooks=(), save=True, **options):
    runner = tiny_runner(kind, Sick() if model is None else model, tmp_path, **options, **LIMITS[kind])
    # The same weights whatever the model draws when it is made.
    torch.manual_seed(1)
    for parameter in runner.model.parameters():
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    runner.register_hook(OptimizerHook(**(update or {})), 'ABOVE_NORMAL')
    if save:
        runner.register_hook(CheckpointHook(interval=1 if kind == 'epoch' else 5, by_epoch=kind == 'epoch'))
    if hook is not None:
        runner.register_hook(hook)
    for each in hooks:
        runner.register_hook(each, 'LOW')
    return runner


def finite(path):
    return all(torch.isfinite(each).all() for each in torch.load(path)['state_dict'].values())


def saved(folder):
    assert all(finite(path) for path in Path(folder).glob('*.pth'))
    return sorted(path.name for path in Path(folder).glob('*.pth'))


# --- stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind, names', [('epoch', ['epoch_1.pth']), ('iter', ['iter_5.pth'])])
@pytest.mark.parametrize('what, told', [('loss', 'loss is'), ('gradient', 'gradients are'), ('input', 'loss is')])
def test_a_run_stops_and_saves_nothing_bad(kind, names, what, told, tmp_path):
    runner = sick_runner(kind, tmp_path, NonFiniteHook(), Sick([8], what=what))
    message = f'the {told} not finite since iteration 8. No checkpoint holds it.'
    with pytest.raises(NonFiniteError, match=message):
        runner.run([loader()], [('train', 1)])
    assert saved(tmp_path) == [*names, 'latest.pth']
    assert isinstance(runner.outcome.error, NonFiniteError)


def test_looks_happen_where_the_run_logs_or_as_told(tmp_path):
    def stops_at(hook, bad, hooks=()):
        runner = sick_runner('iter', tmp_path, hook, Sick([bad]), hooks=hooks, save=False)
        with pytest.raises(NonFiniteError, match=f'since iteration {bad}\\.'):
            runner.run([loader()], [('train', 1)])
        return runner.completed_iters

    assert stops_at(NonFiniteHook(interval=3), 7) == 9
    assert stops_at(NonFiniteHook(interval=1), 7) == 7
    assert stops_at(NonFiniteHook(), 7, [TextLoggerHook(interval=8, by_epoch=False)]) == 8
    assert stops_at(NonFiniteHook(), 9, [TextLoggerHook(interval=8, by_epoch=False)]) == 16
    assert stops_at(NonFiniteHook(), 20) == 20  # the end of the run


def test_one_run_with_and_without_the_hook_is_the_same(tmp_path):
    runs = []
    for i, hook in enumerate((NonFiniteHook(), NonFiniteHook('skip'), NonFiniteHook('rollback'), None)):
        runner = sick_runner('epoch', tmp_path / str(i), hook)
        runner.run([loader()], [('train', 1)])
        runs.append(weights(runner.model))
    assert all(torch.equal(each, runs[-1]) for each in runs)


class Reads(TorchDispatchMode):
    """Counts what waits for a device: one number, or a tensor, going to the host."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.n += function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize('action, fused', [('stop', False), ('rollback', False), ('skip', True)])
def test_an_iteration_between_two_looks_waits_for_nothing(action, fused, tmp_path):
    def reads(hook):
        runner = sick_runner(
            'iter',
            tmp_path,
            hook,
            optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1, fused=fused),
            save=False,
        )
        with Reads() as count:
            runner.run([loader()], [('train', 1)])
        return count.n

    often, seldom, never = (reads(hook) for hook in (NonFiniteHook(action, 1), NonFiniteHook(action, 20), None))
    assert often - never >= 20
    assert seldom - never <= (often - never) / 19


class Poison(Hook):
    """Spoils a tensor of the model after an iteration whose loss and gradients are fine."""

    def __init__(self, at, choose):
        self.at, self.choose = at, choose

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.at:
            self.choose(runner).data.flatten()[0] = math.nan


PLACES = {
    'weight': lambda runner: runner.model.head.weight,
    'buffer': lambda runner: runner.model.body[1].running_var,
    'optimizer': lambda runner: runner.optimizer.state[runner.model.head.weight]['momentum_buffer'],
}


@thinned(place=PLACES, action=['stop', 'skip', 'rollback'])
def test_nothing_bad_is_saved_by_anybody(action, place, tmp_path):
    class SavesItself(Hook):
        def after_train_iter(self, runner):
            if runner.iter + 1 == 2:
                runner.save_checkpoint(str(tmp_path), filename_tmpl='own.pth')

    hooks = [Poison(2, PLACES[place]), SavesItself()]
    runner = sick_runner('iter', tmp_path, NonFiniteHook(action), hooks=hooks)
    with pytest.raises(NonFiniteError, match='weights or optimizer states are not finite at iteration 2. Nothing was'):
        runner.run([loader()], [('train', 1)])
    assert saved(tmp_path) == []


def test_infinite_masks_are_no_bad_numbers(tmp_path):
    model = Sick()
    model.register_buffer('mask', torch.full((2,), -math.inf))
    model.constant = torch.nn.Parameter(torch.full((2,), math.inf), requires_grad=False)
    runner = tiny_runner('epoch', model, tmp_path, max_epochs=1)
    for hook in (OptimizerHook(), NonFiniteHook(), CheckpointHook()):
        runner.register_hook(hook)
    runner.run([loader()], [('train', 1)])
    assert (tmp_path / 'epoch_1.pth').is_file()


def test_a_run_that_is_stopped_saves_nothing_bad_at_its_end(tmp_path):
    class Stops(Hook):
        def after_train_iter(self, runner):
            if runner.iter + 1 == 7:
                runner.stop('enough')

    runner = sick_runner('iter', tmp_path, NonFiniteHook(interval=50), Sick([6]), hooks=[Stops()])
    with pytest.raises(NonFiniteError, match='since iteration 6\\.'):
        runner.run([loader()], [('train', 1)])
    assert saved(tmp_path) == ['iter_5.pth', 'latest.pth']


@pytest.mark.parametrize('action', ['stop', 'skip'])
@pytest.mark.parametrize('fused', [False, True])
def test_the_own_steps_of_a_loss_scaler_are_no_errors(action, fused, tmp_path):
    scale = {'init_scale': 2.0**120, 'growth_interval': 1000, 'backoff_factor': 2.0**-20}
    runner = sick_runner(
        'epoch',
        tmp_path,
        NonFiniteHook(action),
        update={'amp': 'fp16', 'loss_scale': scale, 'grad_clip': {'max_norm': 1.0}},
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=fused),
    )
    runner.run([loader()], [('train', 1)])
    assert runner.updater.updates[None].scaler.get_scale() < 2.0**120


def test_losses_without_that_name_and_plain_numbers_count(tmp_path):
    class Own(Tiny):
        def train_step(self, data, optimizer, **kwargs):
            outputs = super().train_step(data, optimizer)
            optimizer.zero_grad()
            outputs.pop('loss').backward()
            optimizer.step()
            sick = len(self.losses) == 3
            outputs['log_vars'] = {'acc': math.nan, 'loss_g': math.nan if sick else 1.0}
            return outputs

    runner = tiny_runner('epoch', Own(), tmp_path, max_epochs=1)
    runner.register_hook(NonFiniteHook())
    with pytest.raises(NonFiniteError, match='the loss is not finite since iteration 3\\.'):
        runner.run([loader()], [('train', 1)])


@pytest.mark.parametrize(
    'arguments, text',
    [
        ({'action': 'skipp'}, "action must be one of stop, skip, rollback, but got 'skipp'; did you mean 'skip'"),
        ({'interval': 0}, 'interval must be a whole number of at least 1, or None, but got 0'),
        ({'max_tries': 'x'}, "max_tries must be .* but got 'x'"),
        ({'leave_out': True}, "leave_out belongs to action='rollback', but got action='stop'"),
    ],
)
def test_wrong_arguments(arguments, text):
    with pytest.raises((TypeError, ValueError), match=text):
        NonFiniteHook(**arguments)


# --- skipping ---------------------------------------------------------------------------------------------------------


class WithoutUpdates(OptimizerHook):
    """Updates as usual, but not at some iterations."""

    def __init__(self, at, **options):
        super().__init__(**options)
        self.at = at

    def after_train_iter(self, runner):
        if runner.iter + 1 not in self.at:
            super().after_train_iter(runner)


OPTIMIZERS = {
    'sgd': lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    'fused adamw': lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True),
    'two': lambda model: {
        'body': torch.optim.Adam(model.body.parameters(), lr=0.01, fused=True),
        'head': torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9),
    },
}


@thinned(kind=LIMITS, optimizer=OPTIMIZERS, what=['loss', 'gradient', 'input'])
def test_a_skipped_update_has_never_been(kind, optimizer, what, tmp_path, caplog):
    if (optimizer, what) == ('two', 'gradient'):
        pytest.skip('only one of the two has a bad gradient, and skips')
    options = {'optimizer': OPTIMIZERS[optimizer]}
    runner = sick_runner(kind, tmp_path / 'a', NonFiniteHook('skip'), Sick([8, 11], what=what), **options)
    runner.run([loader()], [('train', 1)])
    expected = sick_runner(kind, tmp_path / 'b', None, **options)
    expected._hooks = [WithoutUpdates([8, 11])]
    expected.run([loader()], [('train', 1)])
    assert all(finite(path) for path in (tmp_path / 'a').glob('*.pth'))
    for (name, own), other in zip(runner.model.named_parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(own, other), name
    if what != 'input':  # a bad batch leaves no trace in the running averages, and a good one does
        assert torch.equal(weights(runner.model), weights(expected.model))
    assert sum('were skipped: their gradients' in record.message for record in caplog.records) >= 1


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_skipped_gradients_can_be_read_and_are_counted_in_a_row(optimizer, tmp_path):
    class Reads(Hook):
        def after_train_iter(self, runner):
            optimizers = named_optimizers(runner.optimizer).values()
            assert all(getattr(each, 'found_inf', None) is None for each in optimizers)
            seen.append(bool(runner.model.head.weight.grad.isfinite().all()))

    seen, hook = [], NonFiniteHook('skip', interval=100)
    runner = sick_runner(
        'iter', tmp_path, hook, Sick([8, 19, 20]), hooks=[Reads()], save=False, optimizer=OPTIMIZERS[optimizer]
    )
    hook._report_skipped = lambda runner, skipped: counts.extend(skipped.tolist())
    counts = []
    runner.run([loader()], [('train', 1)])
    assert [i for i, good in enumerate(seen, 1) if not good] == [8, 19, 20]
    assert counts[-1] == (4 if optimizer == 'two' else 2)


def test_a_cycle_with_a_bad_batch_is_skipped_as_a_whole(tmp_path):
    def run(model, hook, optimizer_hook):
        runner = sick_runner('iter', tmp_path, hook, model, save=False)
        runner._hooks = [optimizer_hook, *(each for each in runner.hooks if not isinstance(each, OptimizerHook))]
        runner.run([loader()], [('train', 1)])
        return weights(runner.model)

    class LosesCycle(OptimizerHook):
        def _configure(self, runner):
            super()._configure(runner)
            step = self._update.step
            self._update.step = lambda *args: (
                setattr(self._update, 'accumulated', 0) if runner.iter == 7 else step(*args)
            )

    skipped = run(Sick([6]), NonFiniteHook('skip'), OptimizerHook(cumulative_iters=4))
    assert torch.equal(skipped, run(Sick(), None, LosesCycle(cumulative_iters=4)))


def test_too_many_skipped_updates_end_the_run(tmp_path):
    runner = sick_runner('iter', tmp_path, NonFiniteHook('skip', max_tries=4, interval=1), Sick(range(6, 99)))
    with pytest.raises(NonFiniteError, match='the last 4 updates up to iteration 9 were skipped'):
        runner.run([loader()], [('train', 1)])
    assert saved(tmp_path) == ['iter_5.pth', 'latest.pth']


# --- going back -------------------------------------------------------------------------------------------------------

CELLS = {
    'plain': {},
    'two': {'optimizer': OPTIMIZERS['two']},
    'accumulation': {'update': {'cumulative_iters': 3}},
    'fp16': {'update': {'amp': 'fp16'}},
    'hooks': {'hooks': lambda: [EMAHook(0.1), EvalHook(loader(8), save_best='loss')]},
}


@thinned(bad=[8, 10], kind=LIMITS, cell=CELLS)
def test_a_run_that_went_back_ends_as_if_nothing_had_happened(kind, cell, bad, tmp_path):
    options = dict(CELLS[cell])
    hooks = options.pop('hooks', list)
    ends = []
    for name, steps in (('whole', []), ('back', [bad])):
        runner = sick_runner(kind, tmp_path / name, NonFiniteHook('rollback'), Sick(steps), hooks=hooks(), **options)
        runner.register_lr_hook({'policy': 'CosineAnnealing', 'min_lr': 0.0, 'by_epoch': False})
        runner.run([loader()], [('train', 1)])
        assert runner.model.steps == (20 if name == 'whole' else 25)
        ends.append(runner)
    assert torch.equal(weights(ends[0].model), weights(ends[1].model))
    assert saved(tmp_path / 'whole') == saved(tmp_path / 'back')


def test_what_happens_again_and_again_ends_the_run(tmp_path):
    class Always(Sick):
        def train_step(self, data, optimizer, **kwargs):
            outputs = Tiny.train_step(self, data, optimizer)
            if self.runner.iter == 7:
                outputs['loss'] = outputs['loss'] * math.nan
            return outputs

    runner = sick_runner('iter', tmp_path, NonFiniteHook('rollback', max_tries=2), model := Always())
    object.__setattr__(model, 'runner', runner)
    with pytest.raises(NonFiniteError, match='since iteration 8. The run has gone back 2 times already'):
        runner.run([loader()], [('train', 1)])
    assert len(model.losses) == 20
    assert saved(tmp_path) == ['iter_5.pth', 'latest.pth']

    runner = sick_runner('iter', tmp_path / 'left out', NonFiniteHook('rollback', leave_out=True), model := Always())
    object.__setattr__(model, 'runner', runner)
    runner.run([loader()], [('train', 1)])
    expected = sick_runner('iter', tmp_path / 'expected', None)
    expected._hooks = [WithoutUpdates([8])]
    expected.run([loader()], [('train', 1)])
    assert torch.equal(weights(runner.model), weights(expected.model))


def test_without_a_checkpoint_there_is_no_going_back(tmp_path):
    sick_runner('iter', tmp_path, None).run([loader()], [('train', 1)])  # somebody else's run
    runner = sick_runner('iter', tmp_path, NonFiniteHook('rollback'), Sick([3]))
    with pytest.raises(NonFiniteError, match='There is no checkpoint of this run to go back to'):
        runner.run([loader()], [('train', 1)])


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    class Damages(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 10:
                (tmp_path / 'iter_10.pth').write_bytes(b'half')

    runner = sick_runner('iter', tmp_path, NonFiniteHook('rollback'), Sick([13]), hooks=[Damages()])
    runner.run([loader()], [('train', 1)])
    assert runner.model.steps == 30


def test_the_count_of_tries_survives_a_resume():
    hook = NonFiniteHook('rollback')
    hook.load_state_dict({'tries': 2, 'left_out': [8]})
    hook.load_state_dict({'tries': 0, 'left_out': [], 'updated_at': 5})
    assert hook.state_dict() == {'tries': 2, 'left_out': [8], 'updated_at': 5}


# --- several processes ------------------------------------------------------------------------------------------------


def together(rank, folder):
    logging.getLogger('runnerkit').setLevel(logging.CRITICAL)
    ends = {}
    for action in ('stop', 'skip', 'rollback'):
        model = MMDistributedDataParallel(Sick([8] if rank == 1 else []))
        runner = sick_runner('iter', f'{folder}/{action}', NonFiniteHook(action), model)
        error = None
        try:
            runner.run([loader(40)], [('train', 1)])
        except NonFiniteError as caught:
            error = str(caught)
        parameters = torch.cat([each.detach().flatten() for each in model.parameters()])
        ends[action] = error, runner.completed_iters, model.module.steps, parameters
    return ends


def test_all_ranks_agree(on_ranks, tmp_path):
    ends, others = on_ranks(__file__, 'together', str(tmp_path))
    for action in ends:
        *end, parameters = ends[action]
        *other, same = others[action]
        assert end == other
        assert torch.equal(parameters, same) or action == 'stop'
        assert torch.isfinite(parameters).all() or action == 'stop'
        assert saved(tmp_path / action)[-1] == 'latest.pth'
    assert ends['stop'][0].startswith('the loss is not finite since iteration 8, on rank 1 of 2.')
    assert ends['stop'][1] == 10
    assert ends['skip'][:3] == (None, 20, 20)
    assert ends['rollback'][:3] == (None, 20, 25)


class Ends(Hook):
    def after_train_iter(self, runner):
        if runner.iter == 8:
            runner.stop('enough')


def stop_on_bad_numbers(rank, folder):
    logging.getLogger('runnerkit').setLevel(logging.CRITICAL)
    runner = sick_runner('iter', folder, NonFiniteHook(), Sick([7]), hooks=[Ends()])
    try:
        runner.run([loader(40)], [('train', 1)])
    except Exception as caught:
        error = type(caught).__name__
    barrier()  # a rank that still waited for the first one in after_run would meet it here, and get nonsense
    return error, broadcast_object('still in step')


def test_no_rank_waits_for_one_that_does_not_save(on_ranks, tmp_path):
    assert on_ranks(__file__, 'stop_on_bad_numbers', str(tmp_path)) == [('NonFiniteError', 'still in step')] * 2
    assert saved(tmp_path) == ['iter_5.pth', 'latest.pth']
