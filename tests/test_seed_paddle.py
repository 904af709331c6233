"""The listing of the seed document on Paddle's Runner and RunnerItem ("the onion"), and what it describes in words.

docs/dev/seeds_paddle.md says where everything else of it is tested.
"""

from contextlib import contextmanager

import pytest
import torch
from seed_documents import Changes
from support import Measured, Tiny, loader, tiny_runner, weights
from torch import nn

from runnerkit.checkpoint import _load_checkpoint_with_prefix
from runnerkit.hooks import CheckpointHook, EMAHook, EvalHook, Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner

# --- the trainer that the document begins with -----------------------------------------------------------------------


class GradientMachine(nn.Module):
    """The document's: a network that computes gradients, and writes down what is called."""

    def __init__(self, calls):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.calls = calls
        self.evaluate, self.getParams = 'evaluated', self.parameters

    def __getattr__(self, name):
        """``start``, ``finish``, ``start_pass``, ``finish_pass``, ``start_batch``, ``finish_batch``."""
        if name.partition('_')[0] in ('start', 'finish'):
            return lambda: self.calls.append(f'gradient_machine.{name}')
        return super().__getattr__(name)

    def forward(self, batch):
        self.calls.append('gradient_machine.forward')
        return nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def forward_backward(self, batch):
        self.calls.append('gradient_machine.forward_backward')
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        loss.backward()
        return loss

    def train_step(self, batch, optimizer):
        return {'loss': self.forward_backward(batch), 'num_samples': len(batch[0])}

    def val_step(self, batch, optimizer):
        loss = self(batch)
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(batch[0])}


class ParameterUpdater:
    """The document's: changes the weights, one parameter after the other."""

    def __init__(self, calls):
        self.calls = calls

    def __getattr__(self, name):
        return lambda: self.calls.append(f'parameter_updater.{name}')

    def init(self, parameters):
        self.calls.append('parameter_updater.init')
        self.parameters = list(parameters)

    @torch.no_grad()
    def update(self, parameter):
        self.calls.append('parameter_updater.update')
        parameter -= 0.1 * parameter.grad
        parameter.grad = None


#: The listing, as it stands there.
LISTING = """
def train_logic(network_graph, optimize_settings):
	gradient_machine = create_gradient_machine(network_graph)
	parameter_updater = create_parameter_updater(optimize_settings)
	parameter_updater.init(gradient_machine.getParams())
	gradient_machine.start()

	for pass_id in range(num_passes):
			gradient_machine.start_pass()
			parameter_updater.start_pass()
			train_data.reset()

			for each_batch in train_data():
				gradient_machine.start_batch()
				parameter_updater.start_batch()

				gradient_machine.forward_backward(each_batch)
				for each_param in gradient_machine.parameters():
					parameter_updater.update(each_param)

				parameter_updater.finish_batch()
				gradient_machine.finish_batch()


			test_data.reset()
			parameter_updater.catch_up()

			for each_batch in test_data():
				gradient_machine.forward(each_batch)
				print gradient_machine.evaluate

			parameter_updater.finish_pass()
			gradient_machine.finish_pass()
	gradient_machine.finish()
"""

#: The stages that it finds in the listing, in its order.
STAGES = """
initialize
finalize
on_pass_start
on_pass_end
on_batch_start
on_batch_end
"""

INIT = """
api.initPaddle("-use_gpu=false", "-trainer_count=4")
"""

CHANGES = Changes('nested_runs.md')


class Data:
    """The document's: what is called gives the batches, from the first one after ``reset``."""

    def __init__(self, batches):
        self.batches, self.left = batches, iter(())

    def reset(self):
        self.left = iter(self.batches)

    def __call__(self):
        return self.left


def train_logic(gradient_machine, parameter_updater, train_data, test_data, num_passes, without=None):
    """The document's listing, over these objects."""
    space = {
        'create_gradient_machine': lambda network_graph: gradient_machine,
        'create_parameter_updater': lambda optimize_settings: parameter_updater,
        'train_data': Data(train_data),
        'test_data': Data(test_data),
        'num_passes': num_passes,
    }
    exec(CHANGES.applied(LISTING, without), space)
    space['train_logic']('a graph', 'settings')


class MachineItem(Hook):
    """The ring of the gradient machine: the outermost one."""

    def before_run(self, runner):
        runner.model.start()

    def after_run(self, runner):
        runner.model.finish()

    @contextmanager
    def around_epoch(self, runner):
        if runner.mode != 'train':
            yield
            return
        runner.model.start_pass()
        yield
        runner.model.finish_pass()

    @contextmanager
    def around_iter(self, runner):
        if runner.mode != 'train':
            yield
            return
        runner.model.start_batch()
        yield
        runner.model.finish_batch()


class UpdaterItem(Hook):
    """The ring of the updater, inside that of the machine."""

    def __init__(self, updater):
        self.updater = updater

    @contextmanager
    def around_run(self, runner):
        self.updater.init(runner.model.parameters())
        yield

    @contextmanager
    def around_epoch(self, runner):
        if runner.mode != 'train':
            yield
            return
        self.updater.start_pass()
        yield
        self.updater.finish_pass()

    @contextmanager
    def around_iter(self, runner):
        if runner.mode != 'train':
            yield
            return
        self.updater.start_batch()
        yield
        self.updater.finish_batch()

    def after_train_iter(self, runner):
        for parameter in runner.model.parameters():
            self.updater.update(parameter)

    @contextmanager
    def around_val(self, runner):
        self.updater.catch_up()
        yield


def test_the_trainer_of_the_document_is_an_onion_of_three_rings(capsys):
    """The same calls in the same order, and the same weights, bit for bit."""
    calls = [[], []]
    machines = []
    for each in calls:
        torch.manual_seed(0)
        machines.append(GradientMachine(each))
    batches, tests = [list(loader(length)) for length in (12, 8)]
    train_logic(machines[0], ParameterUpdater(calls[0]), batches, tests, num_passes=2)
    runner = EpochBasedRunner(machines[1], max_epochs=2)
    runner.register_hook(MachineItem(), 'HIGH')
    runner.register_hook(UpdaterItem(ParameterUpdater(calls[1])), 'NORMAL')
    runner.register_hook(PassTester(tests), 'LOW')
    runner.run([batches], [('train', 1)])
    assert calls[1] == calls[0]
    assert len(calls[0]) > 40
    assert torch.equal(*map(weights, machines))
    assert capsys.readouterr().out == 'evaluated\n' * 4


def test_the_page_names_no_change_that_is_not_needed():
    assert [*CHANGES.needed_by(LISTING), *CHANGES.needed_by(STAGES)] == [*CHANGES.rows]
    assert all(code in INIT for code in CHANGES.differs)
    with pytest.raises(SyntaxError):
        train_logic(None, None, [], [], 1, without='print gradient_machine.evaluate')


class PassTester(Hook):
    """The tester of the document: the whole test onion, at the end of a pass."""

    def __init__(self, data):
        self.data = data

    def after_train_epoch(self, runner):
        runner.evaluate(self.data)


def test_the_stages_of_the_document_are_points():
    """A row of its table: the operations of one object, by stage."""
    heard = []

    def says(stage):
        return lambda self, runner: heard.append(stage)

    row = type('Row', (Hook,), {CHANGES.rows[stage][0]: says(stage) for stage in STAGES.split()})
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(row())
    runner.run([loader(8)], [('train', 1)])
    one_pass = ['on_pass_start', *['on_batch_start', 'on_batch_end'] * 2, 'on_pass_end']
    assert heard == ['initialize', *one_pass * 2, 'finalize']


# --- rings -----------------------------------------------------------------------------------------------------------


class Ring(Hook):
    """Says when it is entered and left."""

    def __init__(self, name, heard):
        self.name, self.heard = name, heard

    @contextmanager
    def around_iter(self, runner):
        self.heard.append(f'> {self.name}')
        try:
            yield  # the document's next()
        finally:
            self.heard.append(f'< {self.name}')


def test_rings_are_left_in_reverse_order_also_after_an_error():
    class Fails(Hook):
        def after_train_iter(self, runner):
            raise ValueError('inside')

    heard = []
    runner = tiny_runner(max_epochs=1)
    for name, priority in (('inner', 'LOW'), ('outer', 'HIGH')):
        runner.register_hook(Ring(name, heard), priority)
    runner.register_hook(Fails())
    with pytest.raises(ValueError, match='inside'):
        runner.run([loader(8)], [('train', 1)])
    assert heard == ['> outer', '> inner', '< inner', '< outer']


def test_a_ring_that_does_not_go_on_is_an_error():
    """In the document's code, everything inside it was left out in silence."""

    class Forgets(Hook):
        @contextmanager
        def around_iter(self, runner):
            if runner.iter == 1:
                return
            yield

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Forgets())
    with pytest.raises(RuntimeError, match="generator didn't yield"):
        runner.run([loader(8)], [('train', 1)])
    assert runner.iter == 1


# --- what the document asks for --------------------------------------------------------------------------------------


class Cost(Measured):
    """Logs an error rate beside its cost."""

    def train_step(self, data, optimizer, **kwargs):
        outputs = super().train_step(data, optimizer)
        with torch.no_grad():
            guess = self.head(self.body.eval()(data[0])) > 0.5
        self.body.train()
        wrong = guess != data[1].bool()
        return {**outputs, 'log_vars': {**outputs['log_vars'], 'error_rate': wrong.float().mean()}, 'wrong': wrong}


def test_training_on_one_machine_with_typed_values(tmp_path):
    """A model, an algorithm, data, a saved model every so often, test data; and in the handler, what Paddle's users
    asked for later: labels, and how many of each class are right."""
    found, right = [], torch.zeros(2)

    class Handler(Hook):
        def after_train_iter(self, runner):
            record = runner.step_record()
            cost: float = record.cost
            error_rate: float = record.numbers['error_rate']
            assert type(cost) is type(error_rate) is float
            pass_id, batch_id = record.epoch, runner.inner_iter
            found.append((pass_id, batch_id, cost, error_rate))
            labels = runner.data_batch[1].long().flatten()
            right.index_add_(0, labels, 1 - runner.outputs['wrong'].float().flatten())

    runner = tiny_runner(model=Cost(), work_dir=tmp_path, max_epochs=4)
    for hook in (OptimizerHook(), CheckpointHook(interval=2), EvalHook(loader(8)), Handler()):
        runner.register_hook(hook)
    runner.run([loader(12)], [('train', 1)])
    assert [each[:2] for each in found] == [(i, j) for i in range(4) for j in range(3)]
    assert [each[2] for each in found] == pytest.approx(runner.model.losses)
    assert all(0 <= each[3] <= 1 for each in found)
    assert right.sum() == pytest.approx(sum(4 * (1 - each[3]) for each in found))
    assert sorted(path.name for path in tmp_path.glob('epoch_*.pth')) == ['epoch_2.pth', 'epoch_4.pth']
    assert set(runner.scores) == {'loss', 'error'}


def trained(tester, passes, by_batches=False):
    """When a training with this tester tests, and its losses."""
    times = []

    class Note(Hook):
        def after_evaluate(self, runner, scores):
            times.append(runner.completed_iters if by_batches else runner.completed_epochs)

    runner = tiny_runner(max_epochs=passes)
    for hook in (OptimizerHook(), tester, Note()):
        runner.register_hook(hook)
    runner.run([loader(8)], [('train', 1)])
    return times, runner.model.losses


@pytest.mark.thorough  # test_the_test_onion_runs_inside_the_training_onion_every_200_batches
def test_another_tester_changes_nothing_but_the_tests():
    """Every pass, every ten, every hundred."""
    every, losses = trained(EvalHook(loader(4)), 100)
    assert every == list(range(1, 101))
    for interval in (10, 100):
        times, same = trained(EvalHook(loader(4), interval=interval), 100)
        assert times == list(range(interval, 101, interval))
        assert same == losses


class Every200Batches(Hook):
    """The document's own words: an item of the training that calls the whole test onion in ``on_batch_end``."""

    def __init__(self, data, rings):
        self.data, self.rings = data, rings

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, 200):
            runner.evaluate(self.data, hooks=self.rings)


def test_the_test_onion_runs_inside_the_training_onion_every_200_batches():
    class Counts(Hook):
        """A ring of the test onion."""

        def __init__(self):
            self.passes, self.batches = 0, 0

        def after_val_iter(self, runner):
            self.batches += 1

        def after_val_epoch(self, runner):
            self.passes += 1

    results = []
    for make in (Every200Batches, lambda data, rings: EvalHook(data, interval=200, by_epoch=False, hooks=rings)):
        rings = [Counts()]
        times, losses = trained(make(loader(12, shuffle=False), rings), 210, by_batches=True)
        assert (rings[0].passes, rings[0].batches) == (2, 6)
        results.append((times, losses))
    assert results[0] == results[1]
    assert results[0][0] == [200, 400]


def test_inference_is_the_training_onion_without_some_rings(tmp_path):
    """The same list of rings; without an optimizer, those that need one are taken out."""

    class Predictions(Hook):
        def __init__(self):
            self.found = []

        def after_val_iter(self, runner):
            self.found.append(runner.outputs['preds'])

    def rings():
        return [OptimizerHook(), EMAHook(momentum=0.5), CheckpointHook(interval=1), Predictions()]

    trainer = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=1)
    for ring in rings():
        trainer.register_hook(ring)
    trainer.run([loader(8)], [('train', 1)])
    during = trainer.evaluate(loader(8, shuffle=False), hooks=trainer.hooks[-1:])
    inference = tiny_runner(model=Measured(), seed=9, optimizer=lambda model: None, max_epochs=1)
    for ring in rings():
        if not isinstance(ring, (OptimizerHook, EMAHook, CheckpointHook)):
            inference.register_hook(ring)
    inference.load_checkpoint(str(tmp_path / 'latest.pth'))  # which holds the averages
    assert inference.evaluate(loader(8, shuffle=False), hooks=inference.hooks) == during
    assert torch.equal(torch.cat(inference.hooks[-1].found), torch.cat(trainer.hooks[-1].found))


def test_averages_are_applied_for_the_test_and_restored_after_it():
    """The document's ``catch_up``: the test sees the averaged parameters, the training its own."""
    seen = {}

    class Look(Hook):
        def after_val_iter(self, runner):
            seen['test'] = weights(runner.model.head)

    class Training(Hook):
        def after_train_iter(self, runner):
            seen['training'] = weights(runner.model.head)
            seen['average'] = (seen['average'] + seen['training']) / 2

    class AtTheEnd(Hook):
        def after_train_epoch(self, runner):
            seen['after'] = weights(runner.model.head)

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(OptimizerHook(), 40)
    runner.register_hook(EMAHook(momentum=0.5, warm_up=1))
    runner.register_hook(Training())
    runner.register_hook(EvalHook(loader(8), hooks=[Look()]), 'LOW')
    runner.register_hook(AtTheEnd(), 'LOWEST')
    seen['average'] = weights(runner.model.head)
    runner.run([loader(12)], [('train', 1)])
    assert torch.allclose(seen['test'], seen['average'])
    assert not torch.allclose(seen['test'], seen['training'])
    assert torch.equal(seen['after'], seen['training'])


# --- several objectives, several networks ----------------------------------------------------------------------------


class Halves(nn.Module):
    """A network with a left and a right half behind a shared layer."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.left, self.right = nn.Linear(4, 1), nn.Linear(4, 1)

    def train_step(self, data, optimizer):
        raise NotImplementedError('both halves have modes of their own')

    def left_step(self, data, optimizer):
        return self.step(data, self.left, optimizer['left'])

    def right_step(self, data, optimizer):
        return self.step(data, self.right, optimizer['right'])

    def step(self, data, half, optimizer):
        loss = nn.functional.mse_loss(half(self.shared(data[0])), data[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {'log_vars': {'loss': loss}, 'num_samples': len(data[0])}


def halves(left, right):
    """How far two epochs move each part, with these parts in the optimizers of both modes."""
    torch.manual_seed(0)
    model = Halves()
    before = {name: weights(part).clone() for name, part in model.named_children()}
    moved = []

    class Look(Hook):
        def after_train_epoch(self, runner):
            moved.append(
                {name for name, part in model.named_children() if not torch.equal(weights(part), before[name])}
            )
            before.update({name: weights(part).clone() for name, part in model.named_children()})

    of = {'shared': model.shared, 'left': model.left, 'right': model.right}
    optimizer = {
        mode: torch.optim.SGD([p for name in names for p in of[name].parameters()], lr=0.1)
        for mode, names in (('left', left), ('right', right))
    }
    runner = EpochBasedRunner(model, optimizer=optimizer, max_epochs=4)
    runner.register_hook(Look())
    runner.run([loader(8), loader(12)], [('left', 1), ('right', 1)])
    assert runner.iter == 2 * (2 + 3)
    return moved


def test_data_1_trains_the_left_half_and_data_2_the_right_half():
    assert halves(['left'], ['right']) == [{'left'}, {'right'}] * 2


def test_networks_that_share_parameters_are_trained_separately():
    assert halves(['shared', 'left'], ['shared', 'right']) == [{'shared', 'left'}, {'shared', 'right'}] * 2


def test_networks_in_series_one_ones_output_is_the_next_ones_input(tmp_path):
    first = tiny_runner(work_dir=tmp_path, max_epochs=1)
    for hook in (OptimizerHook(), CheckpointHook(interval=1)):
        first.register_hook(hook)
    first.run([loader(8)], [('train', 1)])

    class Second(Tiny):
        """Trains a network of its own on what the first one's body computes."""

        def __init__(self):
            super().__init__()
            self.first, self.body = self.body, nn.Identity()
            self.first.load_state_dict(_load_checkpoint_with_prefix('body', str(tmp_path / 'latest.pth')))
            self.first.requires_grad_(False)

        def forward(self, x):
            return self.head(self.first.eval()(x))

    def of_the_head(model):
        return torch.optim.SGD(model.head.parameters(), lr=0.1)

    second = tiny_runner(model=Second(), seed=5, optimizer=of_the_head, max_epochs=1)
    second.register_hook(OptimizerHook())
    before = weights(second.model.head)
    second.run([loader(8)], [('train', 1)])
    assert torch.equal(weights(second.model.first), weights(first.model.body))
    assert not torch.equal(weights(second.model.head), before)
