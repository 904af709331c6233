"""The epoch runner: its loop, its counters, its workflows."""

import logging

import pytest
import torch
from support import Noisy, Recorder, Tiny, loader, tiny_runner, weights
from torch.utils.data import DataLoader, TensorDataset

from runnerkit.data import build_dataloader
from runnerkit.hooks import CheckpointHook, Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner


def run(runner, workflow=(('train', 1),), loaders=None, **kwargs):
    recorder = Recorder()
    runner.register_hook(recorder)
    runner.run(loaders or [loader(8) for _ in workflow], list(workflow), **kwargs)
    return recorder


def test_the_whole_life_of_a_run_in_order():
    iteration = ['before_train_iter', 'after_forward', 'after_train_iter']
    validation = ['before_val_iter', 'after_forward', 'after_val_iter']
    recorder = run(tiny_runner(max_epochs=1), [('train', 1), ('val', 1)])
    assert recorder.names() == (
        ['before_run', 'before_train_epoch', *iteration * 2, 'after_train_epoch']
        + ['before_val_epoch', *validation * 2, 'after_val_epoch', 'after_evaluate', 'after_run']
    )


def test_counters_are_indices_of_what_is_running():
    recorder = run(tiny_runner(max_epochs=2))
    assert [counts for name, *counts in recorder.heard if name == 'after_train_iter'] == [
        [0, 0, 0],
        [0, 1, 1],
        [1, 2, 0],
        [1, 3, 1],
    ]
    assert [counts for name, *counts in recorder.heard if name == 'after_train_epoch'] == [[0, 2, 1], [1, 4, 1]]


def test_completed_counts_include_what_has_just_been_done():
    seen = []

    class Look(Hook):
        def before_train_iter(self, runner):
            seen.append(('before', runner.completed_epochs, runner.completed_iters))

        def after_train_iter(self, runner):
            seen.append(('after', runner.completed_epochs, runner.completed_iters))

        def after_train_epoch(self, runner):
            seen.append(('epoch', runner.completed_epochs, runner.completed_iters))

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Look())
    run(runner)
    assert seen == [('before', 0, 0), ('after', 0, 1), ('before', 0, 1), ('after', 0, 2), ('epoch', 1, 2)]
    assert (runner.epoch, runner.iter, runner.completed_epochs, runner.completed_iters) == (1, 2, 1, 2)


@pytest.mark.parametrize(
    'workflow, epochs, units',
    [
        ([('train', 1)], 3, 'ttt'),
        ([('train', 2), ('val', 1)], 4, 'ttvttv'),
        ([('train', 2), ('val', 1)], 3, 'ttvtv'),
        ([('val', 1), ('train', 1)], 2, 'vtvt'),
        ([('val', 2)], 3, 'vv'),
        ([['train', 1]], 1, 't'),
    ],
)
def test_workflows(workflow, epochs, units):
    recorder = run(tiny_runner(max_epochs=epochs), workflow)
    heard = [name for name in recorder.names() if name in ('before_train_epoch', 'before_val_epoch')]
    assert ''.join(name[7] for name in heard) == units


def test_max_iters_stops_inside_an_epoch():
    runner = tiny_runner(max_iters=5)
    recorder = run(runner, loaders=[loader(12)])
    assert runner.max_epochs == 2
    assert recorder.names().count('after_train_iter') == 5
    assert recorder.names().count('after_train_epoch') == 2
    assert (runner.epoch, runner.iter) == (1, 5)
    assert runner.outcome.kind == 'completed'


def test_stop_ends_the_run_at_the_next_boundary_and_leaves_the_epoch_open():
    class Stop(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 1:
                runner.stop('enough')

    runner = tiny_runner(max_epochs=3)
    runner.register_hook(Stop())
    recorder = run(runner, loaders=[loader(12)])
    assert recorder.names().count('after_train_iter') == 2
    assert 'after_train_epoch' not in recorder.names()
    assert recorder.names()[-1] == 'after_run'
    assert str(runner.outcome) == 'stopped: enough'
    assert (runner.epoch, runner.iter) == (0, 2)


def test_modes_of_the_model_train_with_its_own_steps():
    class Gan(Tiny):
        calls = ''

        def dis_step(self, data, optimizer):
            self.calls += 'd'
            return self.train_step(data, optimizer)

        def gen_step(self, data, optimizer):
            self.calls += 'g'
            return self.train_step(data, optimizer)

    runner = tiny_runner(model=Gan(), max_epochs=3)
    runner.register_hook(OptimizerHook())
    modes = set()

    class Look(Hook):
        def after_train_iter(self, runner):
            modes.add(runner.mode)

    runner.register_hook(Look())
    run(runner, [('dis', 2), ('gen', 1)])
    assert runner.model.calls == 'ddddgg'
    assert runner.iter == 6
    assert modes == {'dis', 'gen'}


def test_modes_of_the_runner_are_its_methods():

    class Mine(EpochBasedRunner):
        def look(self, data_loader, **kwargs):
            self.looked = data_loader

    given = loader(8)
    runner = Mine(Tiny(), max_epochs=1)
    runner.run([given], [('look', 1)])
    assert runner.looked is given


def test_evaluation_restores_every_modules_own_flag():
    runner = tiny_runner(max_epochs=2)
    frozen = runner.model.body[1]
    seen = []

    class Freeze(Hook):
        def before_train_epoch(self, runner):
            frozen.eval()

        def before_val_epoch(self, runner):
            seen.append((runner.model.training, frozen.training))

        def after_run(self, runner):
            seen.append((runner.model.training, frozen.training))

    runner.register_hook(Freeze())
    run(runner, [('train', 1), ('val', 1)])
    assert seen == [(False, False), (False, False), (True, False)]


def test_validation_has_a_log_of_its_own():
    runner = tiny_runner(max_epochs=1)
    kept = {}

    class Look(Hook):
        def after_train_epoch(self, runner):
            kept['train'] = (runner.log_buffer, len(runner.log_buffer.val_history['loss']))

        def after_val_epoch(self, runner):
            kept['val'] = runner.log_buffer
            assert runner.log_buffer.output['loss'] > 0

    runner.register_hook(Look())
    run(runner, [('train', 1), ('val', 1)], [loader(20), loader(8)])
    assert kept['train'][1] == 5
    assert kept['val'] is not kept['train'][0]
    assert runner.log_buffer is kept['train'][0]


def test_step_arguments_are_handed_on():
    class Asks(Tiny):
        def train_step(self, data, optimizer, extra=None, **kwargs):
            self.extra = extra
            return super().train_step(data, optimizer)

        def val_step(self, data, optimizer):  # takes none, and gets none
            return super().val_step(data, optimizer)

    runner = tiny_runner(model=Asks(), max_epochs=1)
    run(runner, [('train', 1), ('val', 1)], [loader(4), loader(4)], extra='here')
    assert runner.model.extra == 'here'


def test_batch_processor_is_the_step_where_it_is_given():
    calls = []

    def process(model, data, train_mode):
        calls.append(train_mode)
        loss = model(data[0]).sum()
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}

    runner = EpochBasedRunner(torch.nn.Linear(4, 1), batch_processor=process, max_epochs=1)
    runner.run([loader(8), loader(4)], [('train', 1), ('val', 1)])
    assert calls == [True, True, False]


def test_a_loader_without_length_trains_until_it_is_exhausted():
    class Stream:
        def __init__(self, batches):
            self.batches = batches

        def __iter__(self):
            return iter(self.batches)

    runner = tiny_runner(max_epochs=2)
    recorder = run(runner, loaders=[Stream(list(loader(8)))])
    assert recorder.names().count('after_train_epoch') == 2
    assert runner.max_iters is None
    assert runner.iter == 4


def test_the_data_of_an_epoch_follow_from_the_seed_alone():
    seen = []

    class Keep(Tiny):
        def train_step(self, data, optimizer):
            seen.append(data[0].clone())
            return super().train_step(data, optimizer)

    for workers in (0, 2):
        runner = tiny_runner(model=Keep(), max_epochs=2)
        runner.run([build_dataloader(Noisy(10), 4, workers, seed=3)], [('train', 1)])
    half = len(seen) // 2
    assert half == 6
    assert all(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:]))
    assert not torch.equal(seen[0], seen[3])


def test_epoch_and_iteration_runner_agree_on_the_same_batches():
    both = []
    for kind, limit in (('epoch', {'max_epochs': 3}), ('iter', {'max_iters': 15})):
        runner = tiny_runner(kind, **limit)
        runner.register_hook(OptimizerHook())
        runner.run([loader(20)], [('train', 1)])
        both.append((runner.model.losses, weights(runner.model)))
    assert both[0][0] == both[1][0]
    assert torch.equal(both[0][1], both[1][1])


class Microscope(torch.utils.data.Dataset):
    """Images large enough that a sum over one depends on the number of threads."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        image = torch.rand(700, 1100)
        image = (image - image.mean()) / image.std()
        return image[:2, :2].flatten(), image[:1, 0]


@pytest.mark.parametrize('data', [Noisy, Microscope])
def test_weights_are_the_same_with_any_number_of_workers(data):
    trained = []
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for workers in (0, 1, 2):
            runner = tiny_runner(max_epochs=2)
            runner.register_hook(OptimizerHook())
            runner.run([build_dataloader(data(), 3, workers, seed=1)], [('train', 1)])
            trained.append(weights(runner.model))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(trained[0], trained[1])
    assert torch.equal(trained[0], trained[2])


class Saves(Hook):
    """Saves at each time that it hears ``point``, under the number of the iteration."""

    def __init__(self, point, folder):
        setattr(self, point, lambda runner: runner.save_checkpoint(str(folder), f'{runner.iter}.pth'))


@pytest.mark.parametrize(
    'limit, saved', [({'max_epochs': 2}, (2, 5)), ({'max_iters': 6}, (5,)), ({'max_iters': 5}, (4,))]
)
def test_a_run_resumed_at_the_very_end_of_an_epoch_hears_the_rest_of_what_the_undisturbed_one_hears(
    limit, saved, tmp_path
):
    """Also where ``max_iters`` ends the epoch, with its last batch or before it; after the end, no point is left."""

    def go(seed, resume=None):
        recorder, runner = Recorder(), tiny_runner(**limit, work_dir=tmp_path, seed=seed)
        runner.register_hook(OptimizerHook())
        runner.register_hook(recorder)
        runner.register_hook(Saves('after_train_iter', tmp_path), 'LOWEST')
        runner.register_checkpoint_hook(dict(interval=1))
        if resume is not None:
            runner.resume(str(tmp_path / resume))
        runner.run([loader(12)], [('train', 1)])
        return recorder.heard, weights(runner.model)

    whole, expected = go(0)
    for last in saved:
        heard, found = go(9, f'{last}.pth')
        rest = whole[whole.index(('after_train_iter', last // 3, last, last % 3)) + 1 :]
        assert heard == [('before_run', last // 3, last + 1, 0), ('before_train_epoch', last // 3, last + 1, 0), *rest]
        assert torch.equal(found, expected)
    assert [name for name, *_ in go(9, 'latest.pth')[0]] == ['before_run', 'after_run']


def test_a_batch_that_was_fetched_and_not_trained_on_is_fetched_again(tmp_path, caplog):
    points = TensorDataset(torch.rand(12, 4), torch.zeros(12, 1))
    logger = logging.Logger('own')
    logger.addHandler(caplog.handler)

    def go(*hooks, resume=None):
        class Batches(Hook):
            def before_train_iter(self, runner):
                seen.append(runner.data_batch[0].tolist())

        seen, runner = [], tiny_runner(max_epochs=2)
        runner.logger = logger
        for hook in (Batches(), *hooks):
            runner.register_hook(hook)
        if resume is not None:
            runner.resume(str(tmp_path / resume))
        runner.run([build_dataloader(points, 4, 0, seed=5)], [('train', 1)])
        return seen

    whole = go(Saves('before_train_iter', tmp_path))
    assert len(whole) == 6
    for done in (0, 1, 4):
        assert go(resume=f'{done}.pth') == whole[done:]
    assert 'resumed from' in caplog.text
    assert 'is another one now' not in caplog.text  # it is not taken for the last one that was trained on


@pytest.mark.parametrize('limits', [{'max_iters': 10}, {'max_epochs': 2}])
def test_an_epoch_is_done_that_the_limit_or_a_stop_ends_with_its_last_batch(limits):
    class Stop(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 4:
                runner.stop('here')

    recorder, runner = Recorder(), tiny_runner(**limits)
    runner.register_hook(recorder)
    runner.register_hook(Stop())
    given = [loader(20)]
    for epochs in (1, 2):
        runner.run(given, [('train', 1)])
        assert recorder.names().count('after_train_epoch') == epochs
        assert (runner.epoch, runner.completed_epochs, runner.progress.epoch_is_open) == (epochs, epochs, False)
    assert (runner.iter, runner.outcome.kind) == (10, 'completed')


class OwnRun(EpochBasedRunner):
    """MMCV's shape: a ``run`` of its own, with our ``train``."""

    def run(self, data_loaders, workflow, **kwargs):
        self._max_iters = self._max_epochs * len(data_loaders[0])
        self.call_hook('before_run')
        while self.epoch < self._max_epochs:
            for data_loader, (mode, _) in zip(data_loaders, workflow, strict=True):
                getattr(self, mode)(data_loader, **kwargs)
        self.call_hook('after_run')


def test_a_run_of_ones_own_goes_on_inside_the_open_epoch(tmp_path, caplog):
    class Save(Hook):
        def after_train_iter(self, runner):
            if runner.iter + 1 == 3:
                runner.save_checkpoint(str(tmp_path), 'three.pth')

    def train(resume_from=None):
        model, kept = Tiny(), [Save()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = OwnRun(model, optimizer=optimizer, max_epochs=2)
        for hook in (OptimizerHook(), *kept):
            runner.register_hook(hook)
        if resume_from is not None:
            runner.resume(resume_from)
        generator = torch.Generator().manual_seed(3)
        runner.run([DataLoader(Noisy(20), 4, shuffle=True, generator=generator)], [('train', 1)])
        return runner

    torch.manual_seed(0)
    whole = train()
    caplog.clear()
    resumed = train(str(tmp_path / 'three.pth'))
    assert (resumed.iter, resumed.epoch) == (whole.iter, whole.epoch) == (10, 2)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert not [record for record in caplog.records if getattr(record, 'exactness', False)]


def test_an_epoch_without_a_batch_is_an_error_not_an_endless_loop():
    once = (batch for batch in list(loader(8)))
    with pytest.raises(ValueError, match='generator gives no batches in epoch 2'):
        tiny_runner(max_iters=5).run([once], [('train', 1)])


def test_a_failed_evaluation_leaves_nothing_behind_for_the_next_one():
    class Fail(Hook):
        def after_val_iter(self, runner):
            raise RuntimeError('out of memory')

    seen = []

    class Count(Hook):
        def after_val_iter(self, runner):
            seen.append(runner.inner_iter)

    runner, data = tiny_runner(max_epochs=1), loader(12)
    with pytest.raises(RuntimeError, match='out of memory'):
        runner.evaluate(data, hooks=[Fail()])
    runner.evaluate(data, hooks=[Count()])
    assert seen == list(range(len(data)))


class StopsInside(Hook):
    """Stops after the second of an epoch's iterations."""

    def after_train_iter(self, runner):
        if runner.inner_iter == 1:
            runner.stop('enough')


def test_an_epoch_that_is_resumed_goes_on_at_the_index_of_its_next_batch(tmp_path):
    runner = tiny_runner(work_dir=tmp_path, max_epochs=2)
    runner.register_hook(CheckpointHook())
    runner.register_hook(StopsInside())
    run(runner, loaders=[loader(16)])
    resumed = tiny_runner(max_epochs=2)
    resumed.resume(str(tmp_path))
    recorder = run(resumed, loaders=[loader(16)])
    counts = [counts for name, *counts in recorder.heard if name == 'after_train_iter']
    assert counts == [[0, 2, 2], [0, 3, 3], [1, 4, 0], [1, 5, 1], [1, 6, 2], [1, 7, 3]]
