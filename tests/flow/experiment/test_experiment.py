"""An experiment: its loop, its counters, what it reads, saves and evaluates."""

import copy
import json
import os
import random
import re
import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from experiments import Line, config, started, trained
from forks import Fork
from support import Noisy, Tiny, loader, weights
from torch import nn
from torch.nn import functional

from runnerkit.data import build_dataloader
from runnerkit.flow import Experiment
from runnerkit.flow.experiment.experiment import as_outputs
from runnerkit.hooks import CheckpointHook, EarlyStoppingHook, EMAHook, Hook
from runnerkit.hooks.logger import LoggerHook
from runnerkit.nn import Supervised
from runnerkit.runner import EpochBasedRunner, IterBasedRunner
from runnerkit.utils.report import report


def log_of(folder):
    """The records of all logs in ``folder``, without times."""
    lines = [json.loads(line) for file in sorted(folder.rglob('*.log.json')) for line in file.read_text().splitlines()]
    return [{k: v for k, v in line.items() if 'time' not in k} for line in lines if 'mode' in line]


# --- the examples of the seed document ------------------------------------------------------------------------------


class TheSeed:
    """The seed document's training process as it stands there, around the methods of an experiment."""

    def __init__(self, config):
        self.config = SimpleNamespace(training=SimpleNamespace(**config['training']))
        self.did = []

    def train(self):
        self.new_epoch()
        self.iteration = 0
        while self.iteration < self.config.training.max_iteration:
            self.iteration += 1
            self.train_batch()

            if self.iteration % self.config.training.valid_interval == 0:
                self.valid()

            if self.iteration % self.config.training.save_interval == 0:
                self.save()

    def new_epoch(self):
        torch.manual_seed(0)
        self.model = Tiny()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.batches = [batch for _ in range(4) for batch in THREE]
        torch.manual_seed(1)

    def train_batch(self):
        self.did.append(('train_batch', self.iteration))
        x, y = self.batches.pop(0)
        self.optimizer.zero_grad()
        functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()

    def valid(self):
        self.did.append(('valid', self.iteration))

    def save(self):
        self.did.append(('save', self.iteration))


THREE = [(torch.randn(4, 4, generator=torch.Generator().manual_seed(i)), torch.zeros(4, 1)) for i in range(3)]


class Ours(Experiment):
    """The same experiment."""

    def setup_dataloader(self):
        self.train_loader = THREE

    def setup_model(self):
        self.model = Tiny()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.did = []

    def train_batch(self):
        if self.iteration == 1:
            torch.manual_seed(1)
        self.did.append(('train_batch', self.iteration))
        x, y = self.read_batch()
        self.optimizer.zero_grad()
        functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()

    def valid(self):
        self.did.append(('valid', self.iteration))

    def save(self, *args, **kwargs):
        self.did.append(('save', self.iteration))
        return super().save(*args, **kwargs)


@pytest.mark.parametrize('intervals', [(12, 3, 4), (9, 3, 3), (7, 10, 2), (5, 2, 10)])
def test_the_loop_of_the_seed_document(intervals, tmp_path):
    seed = TheSeed(config(*intervals))
    seed.train()
    ours = trained(Ours, tmp_path, **dict(zip(('max_iteration', 'valid_interval', 'save_interval'), intervals)))
    n, _, save = intervals
    at_the_end = [] if n % save == 0 else [('save', n)]  # a run's end is always saved
    assert ours.did == seed.did + at_the_end
    assert torch.equal(weights(ours.model), weights(seed.model))


def test_three_lines_are_an_experiment(tmp_path):
    """``exp = Experiment(config, args)``, ``exp.setup()``, ``exp.run()``, as they stand in the seed document."""
    args = SimpleNamespace(output=str(tmp_path), device='cpu')
    exp = Line(config(), args)
    exp.setup()
    assert (exp.iteration, exp.epoch) == (0, 0)
    exp.run()
    exp.valid()
    exp.save()
    assert exp.args is args
    assert exp._own_attributes() == {}  # it has set none
    assert exp.config.training.valid_interval == 3
    assert (exp.iteration, exp.epoch, exp.outcome.kind) == (12, 2, 'completed')
    assert all(getattr(exp, name) is not None for name in ('model', 'optimizer', 'train_loader', 'valid_loader'))


# --- counters -------------------------------------------------------------------------------------------------------


def test_iterations_are_counted_for_users_from_1(tmp_path):
    seen = []

    class Counts(Line):
        def train_batch(self):
            seen.append(('batch', self.iteration, self.iter, self.completed_iters))
            return super().train_batch()

        def valid(self):
            seen.append(('valid', self.iteration, self.iter, self.completed_iters))

    class Look(Hook):
        def before_run(self, runner):
            seen.append(('before', runner.iteration, runner.iter, runner.completed_iters))

    made = started(Counts, tmp_path, max_iteration=2, valid_interval=2)
    made.register_hook(Look())
    made.run()
    assert seen == [('before', 0, 0, 0), ('batch', 1, 0, 0), ('batch', 2, 1, 1), ('valid', 2, 1, 2)]
    assert made.iteration == 2
    with pytest.raises(
        AttributeError, match=r'Counts\.iteration cannot be set to 5: the run counts it.*remove the assignment'
    ):
        made.iteration = 5
    with pytest.raises(AttributeError, match=r'Counts\.epoch cannot be set'):
        made.epoch = 1


def test_new_epoch_leaves_the_rest_of_a_pass(tmp_path):
    epochs = []

    class Leaves(Line):
        def train_batch(self):
            super().train_batch()
            epochs.append(self.epoch)
            if self.iteration % 2 == 0:
                self.new_epoch()

    made = trained(Leaves, tmp_path, max_iteration=6)
    assert epochs == [0, 0, 1, 1, 2, 2]
    assert made.epoch == 3


# --- reading, and exactness -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'workers, reads',
    [
        (0, 0),
        (0, 1),
        (0, 3),
        (2, 1),
        *(pytest.param(2, n, marks=pytest.mark.thorough) for n in (0, 3)),
    ],  # (2, 1) guards
)
def test_a_run_that_was_killed_ends_like_an_undisturbed_one(reads, workers, tmp_path):
    """By SIGKILL in the middle of a batch, after a checkpoint that is older than that."""
    for name in ('whole', 'cut'):
        (tmp_path / name).mkdir()

    class Dies(Line):
        def batch(self):
            found = super().batch()
            if self.iteration == 10 and self.work_dir.endswith('cut'):
                os.kill(os.getpid(), signal.SIGKILL)
            return found

    whole = trained(Line, tmp_path / 'whole', reads=reads, workers=workers)
    killed = Fork(trained, Dies, tmp_path / 'cut', reads=reads, workers=workers, folder=tmp_path)
    assert killed.code() == -signal.SIGKILL
    resumed = started(Line, tmp_path / 'cut', reads=reads, workers=workers)
    assert resumed.iteration == 8
    resumed.run()
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert resumed.scores == whole.scores
    assert log_of(tmp_path / 'cut')[-6:] == log_of(tmp_path / 'whole')[-6:]
    assert resumed.epoch == whole.epoch == {0: 0, 1: 2, 3: 7}[reads]


class Two(Line):
    """Reads two loaders by name, one of them twice a batch."""

    NAMES = ('clean', 'noisy')

    def setup_dataloader(self):
        lengths = {'clean': 20, 'noisy': 12}
        self.train_loader = {name: build_dataloader(Noisy(lengths[name]), 4, 0, seed=3) for name in self.NAMES}

    def batch(self):
        parts = self.read_batch('clean'), self.read_batch('noisy'), self.read_batch('noisy')
        return [torch.cat(part) for part in zip(*parts)]

    valid = Experiment.valid


class Swapped(Two):
    NAMES = ('noisy', 'clean')


def test_several_loaders_are_known_by_name(tmp_path):
    whole = trained(Two, tmp_path / 'whole')
    trained(Two, tmp_path / 'cut', max_iteration=7)
    resumed = started(Swapped, tmp_path / 'cut')
    resumed.run()
    assert torch.equal(weights(resumed.model), weights(whole.model))
    with pytest.raises(KeyError, match="no train loader 'nosy'; did you mean 'noisy'.*there are clean, noisy"):
        whole.read_batch('nosy')


def test_what_a_failed_batch_has_read_comes_again(tmp_path):
    read = []

    class Fails(Line):
        fails = True

        def batch(self):
            x, y = super().batch()
            read.append(x)
            if self.iteration == 3 and self.fails:
                raise ArithmeticError
            return x, y

    made = started(Fails, tmp_path, max_iteration=4, reads=2)
    with pytest.raises(ArithmeticError):
        made.run()
    made.fails = False
    made.run()
    assert torch.equal(read[3], read[2])
    assert not torch.equal(read[4], read[3])
    assert made.iteration == 4


def test_a_run_that_reads_by_hand_is_warned_about(tmp_path, caplog):
    class FromSetup(Line):
        def setup_dataloader(self):
            super().setup_dataloader()
            self.batches = iter(self.train_loader)

        def batch(self):
            return next(self.batches)

    class HalfByHand(Two):
        def batch(self):
            return self.read_batch('clean'), next(iter(self.train_loader['noisy']))

        def train_batch(self):
            self.batch()

    trained(Line, tmp_path / 'right', max_iteration=2)
    trained(Two, tmp_path / 'two', max_iteration=2)
    assert 'train_loader' not in caplog.text
    trained(FromSetup, tmp_path / 'wrong', max_iteration=4)
    assert caplog.text.count('FromSetup has not called read_batch: if it') == 1
    trained(HalfByHand, tmp_path / 'half', max_iteration=4)
    assert caplog.text.count("HalfByHand has not called read_batch('noisy'): if it") == 1


def test_the_bases_methods_stay_callable(tmp_path):
    """``run(data_loaders, workflow)``, ``evaluate`` and modes of the model, as in every iteration runner."""
    modes = []

    class Modes(Tiny):
        def dis_step(self, data, optimizer):
            modes.append('dis')
            return self.train_step(data, optimizer)

    class Mine(Line):
        def train_batch(self):
            modes.append(('train', self.iteration))
            return super().train_batch()

    made = Mine(config(), model=Modes(), work_dir=tmp_path, max_iters=4)
    made.optimizer = torch.optim.SGD(made.model.parameters(), lr=0.1)
    made.register_optimizer_hook({})
    made.run([loader(8), loader(8), loader(8)], [('train', 1), ('dis', 1), ('val', 1)])
    assert modes == [('train', 1), 'dis', ('train', 3), 'dis']
    assert 'loss' in made.evaluate(loader(8))


# --- what is logged -------------------------------------------------------------------------------------------------


def test_what_is_returned_or_reported_is_logged(tmp_path):
    class Tells(Line):
        def train_batch(self):
            x, y = self.batch()
            report('size', len(x))
            loss = functional.mse_loss(self.model(x), y)
            self.update(loss)
            returned = {1: None, 2: {'loss': loss, 'name': 'x'}, 3: {'log_vars': {'only': 3.0}, 'loss': loss}}
            return returned[self.iteration]

        def valid(self):
            report('weighted', 1.0, num_samples=3)
            report('weighted', 5.0, num_samples=1)
            return {'returned': torch.tensor(0.25)}

    made = trained(Tells, tmp_path, max_iteration=3)
    train = [line for line in log_of(tmp_path) if line['mode'] == 'train']
    names = [set(line) - {'mode', 'epoch', 'iter', 'step', 'lr'} for line in train]
    assert names == [{'size'}, {'size', 'loss'}, {'size', 'loss', 'only'}]  # a log line has the last value of each
    assert train[1]['loss'] == train[2]['loss']
    assert {name: score.value for name, score in made.scores.items()} == {'weighted': 2.0, 'returned': 0.25}


def test_a_batch_moves_nothing_to_the_host_between_two_log_lines(tmp_path):
    made = started(Line, tmp_path, max_iteration=6, valid_interval=100, save_interval=100)
    for hook in made.hooks:
        if isinstance(hook, LoggerHook):
            hook.interval = 100
    kept = []

    class Look(Hook):
        def after_train_iter(self, runner):
            kept.append(list(map(type, runner.log_buffer.val_history['loss'])))

    made.register_hook(Look(), priority='LOWEST')
    made.run()
    assert kept[-1] == [torch.Tensor] * 6


# --- who updates ----------------------------------------------------------------------------------------------------

X = [(torch.randn(4, 4, generator=torch.Generator().manual_seed(i)), torch.ones(4, 1)) for i in range(5)]


class ByHand(Experiment):
    """The whole update is written out."""

    def train_batch(self):
        x, y = self.read_batch()
        loss = functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {'loss': loss}


class Returns(Experiment):
    """The OptimizerHook updates."""

    def train_batch(self):
        x, y = self.read_batch()
        return {'loss': functional.mse_loss(self.model(x), y), 'num_samples': len(x)}


class Updates(Experiment):
    """The runner's primitive updates."""

    def train_batch(self):
        x, y = self.read_batch()
        self.update(functional.mse_loss(self.model(x), y), optimizer=self.optimizer)


def the_same_hooks():
    return dict(
        lr_config={'policy': 'poly', 'power': 1, 'min_lr': 0.01, 'by_epoch': False},
        optimizer_config={},
        checkpoint_config={'interval': 4, 'by_epoch': False},
        log_config={'interval': 2, 'hooks': [{'type': 'TextLoggerHook', 'by_epoch': False}]},
        custom_hooks_config=[EMAHook(momentum=0.1)],
    )


DOORS = ['epoch', 'iter', 'supervised', ByHand, Returns, Updates]


def test_one_task_through_four_doors(tmp_path):
    """``train_step`` in both runners, `Supervised`, and an experiment which updates in any of three ways: the same
    hooks, the same bits, also of the averages."""
    found = []
    for number, door in enumerate(DOORS):
        torch.manual_seed(0)
        model = Tiny()
        if door == 'supervised':
            model = Supervised(nn.Sequential(model.body, model.head), loss={'type': 'MSELoss'})
        parts = {
            'optimizer': torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            'work_dir': str(tmp_path / str(number)),
            'max_iters': 10,
        }
        kinds = {'epoch': EpochBasedRunner, 'iter': IterBasedRunner, 'supervised': IterBasedRunner}
        runner = door(model=model, **parts) if door not in kinds else kinds[door](model, **parts)
        runner.register_training_hooks(**the_same_hooks())
        runner.run([X], [('train', 1)])
        saved = torch.load(tmp_path / str(number) / 'iter_10.pth' if door != 'epoch' else tmp_path / '0' / 'latest.pth')
        values = [value for name, value in saved['state_dict'].items() if 'num_batches' not in name]
        found.append((weights(runner.model), [value.flatten() for value in values]))
    own, averages = found[0]
    assert not torch.equal(own[:8], torch.cat(averages)[:8])
    for each, others in found[1:]:
        assert torch.equal(each, own)
        assert all(map(torch.equal, others, averages))


def test_amp_and_accumulation_are_the_hooks(tmp_path):
    """With `amp` in the config, an update by the experiment is scaled, and casts as the hook's does."""

    def go(kind, name, **options):
        class One(kind):
            def setup_dataloader(self):
                self.train_loader = X

            def setup_model(self):
                self.model = Tiny()
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        return weights(trained(One, tmp_path / name, **options).model)

    plain = go(Returns, 'plain', optimizer_config={})
    cast = go(Returns, 'cast', amp='bf16')
    assert not torch.equal(plain, cast)
    assert torch.equal(go(Updates, 'updates', amp='bf16'), cast)
    whole = go(Updates, 'whole', optimizer_config={'cumulative_iters': 3})
    go(Updates, 'cut', optimizer_config={'cumulative_iters': 3}, max_iteration=7, save_interval=4)
    os.remove(tmp_path / 'cut' / 'iter_7.pth')
    assert torch.equal(go(Updates, 'cut', optimizer_config={'cumulative_iters': 3}), whole)
    assert not torch.equal(whole, plain)


# --- validation -----------------------------------------------------------------------------------------------------


def test_valid_is_an_evaluation_wherever_it_is_called(tmp_path):
    seen = []

    class Looks(Line):
        def valid(self):
            seen.append((self.model.training, torch.is_grad_enabled(), self.mode, weights(self.model)))
            return super().valid()

    made = started(Looks, tmp_path, max_iteration=3)
    made.register_hook(EMAHook(momentum=0.1))
    made.run()
    after = made.valid()
    assert [each[:3] for each in seen] == [(False, False, 'val')] * 2
    assert not torch.equal(seen[0][3], weights(made.model)[: len(seen[0][3])])  # the averages
    assert made.model.training
    assert made.scores['error'] == (after['error'], 3)
    assert made.log_buffer is made.train_log


def test_scores_decide_what_is_best_and_when_to_stop(tmp_path):
    class Gets(Line):
        def valid(self):
            return {'accuracy': [0.5, 0.9, 0.8, 0.7, 0.6][self.iteration // 2 - 1]}

    made = started(Gets, tmp_path, valid_interval=2, evaluation={'save_best': 'accuracy'})
    made.register_hook(EarlyStoppingHook('accuracy', patience=2))
    made.run()
    assert (tmp_path / 'best_accuracy_iter_4.pth').exists()
    assert (made.outcome.kind, made.iteration) == ('stopped', 8)


def test_without_a_valid_there_is_no_validation(tmp_path):
    made = trained(Two, tmp_path, max_iteration=2, valid_interval=1)
    assert made.scores == {}
    with pytest.raises(NotImplementedError, match='Two must override valid'):
        made.valid()


# --- saving ---------------------------------------------------------------------------------------------------------


class Saves(Line):
    def save(self, *args, **kwargs):
        self.saves = [*getattr(self, 'saves', []), self.iteration]
        return super().save(*args, **kwargs)


def test_a_save_interval_and_a_checkpoint_hook_do_not_save_twice(tmp_path, caplog):
    caplog.set_level('INFO')
    assert trained(Saves, tmp_path / 'one').saves == [4, 8, 12]
    made = started(Saves, tmp_path / 'two')
    made.register_hook(CheckpointHook(interval=6, by_epoch=False))
    made.run()
    assert made.saves == [6, 12]
    assert 'training.save_interval has no effect' in caplog.text
    made = started(Saves, tmp_path / 'three', checkpoint_config=None)
    made.run()
    assert not hasattr(made, 'saves')


def test_a_save_in_the_middle_of_a_batch_moves_to_its_end(tmp_path, caplog):
    class TooEarly(Line):
        def train_batch(self):
            super().train_batch()
            self.save()

    caplog.set_level('INFO')
    trained(TooEarly, tmp_path / 'one')
    assert 'the save of iter_1.pth moves to the end of this iteration' in caplog.text
    caplog.clear()

    class InValid(Line):
        def valid(self):
            self.save()
            return super().valid()

    caplog.set_level('INFO')
    whole = trained(InValid, tmp_path / 'two', save_interval=100)
    assert 'the save of iter_6.pth moves to the end of this iteration' in caplog.text
    cut = Line(config(), {})
    cut.setup_dataloader()
    cut.setup_model()
    cut.resume(str(tmp_path / 'two' / 'iter_6.pth'))
    cut.run()
    assert torch.equal(weights(cut.model), weights(whole.model))


class Rich(Line):
    """Has a schedule, a second network with its optimizer, and a number of its own."""

    def setup_model(self):
        super().setup_model()
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 3, 0.5)
        self.critic = nn.Linear(4, 1)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), lr=0.1, momentum=0.9)
        self.part = self.model.head
        self.loss = nn.MSELoss()
        self.total = 0.0

    def train_batch(self):
        x, y = self.batch()
        self.total += x.sum().item()
        self.update(self.loss(self.critic(x), y), self.of_critic)
        self.update(self.loss(self.model(x), self.critic(x).detach() + 1e-3 * self.total))
        self.scheduler.step()

    def state_dict(self):
        return {'total': self.total}

    def load_state_dict(self, state):
        self.total = state['total']


def test_everything_with_a_state_is_saved(tmp_path):
    whole = trained(Rich, tmp_path / 'whole')
    trained(Rich, tmp_path / 'cut', max_iteration=5)
    resumed = trained(Rich, tmp_path / 'cut')
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert torch.equal(weights(resumed.critic), weights(whole.critic))
    assert resumed.current_lr() == whole.current_lr() == [pytest.approx(0.1 / 16)]
    saved = torch.load(tmp_path / 'cut' / 'latest.pth')['runnerkit']['ranks'][0]['experiment']
    assert set(saved['attributes']) == {'scheduler', 'critic', 'of_critic', 'loss'}


class Adversarial(Line):
    """A GAN as people write it: lists of schedules, generators, averages, numbers that move on."""

    def setup_model(self):
        self.model = nn.ModuleDict({'gen': nn.Linear(3, 4), 'dis': nn.Linear(4, 1)})
        parts = {name: module.parameters() for name, module in self.model.items()}
        self.optimizer = {name: torch.optim.Adam(each, lr=0.01) for name, each in parts.items()}
        self.schedules = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in self.optimizer.values()]
        self.noise = torch.Generator().manual_seed(5)
        self.shuffling = {'numpy': np.random.default_rng(1), 'python': random.Random(2)}
        self.average = copy.deepcopy(self.model['gen'])
        self.weight, self.clipped = 1.0, list(self.model.parameters())

    def train_batch(self):
        real = self.read_batch()[0]
        fake = self.model['gen'](torch.randn(4, 3, generator=self.noise)) + self.shuffling['numpy'].random()
        judged = self.model['dis'](torch.cat([real, fake.detach()])) * self.weight
        labels = torch.cat([torch.ones(4, 1), torch.zeros(4, 1)])
        self.update(functional.binary_cross_entropy_with_logits(judged, labels), optimizer='dis')
        self.update(-self.model['dis'](fake).mean(), optimizer='gen')
        for schedule in self.schedules:
            schedule.step()
        for average, value in zip(self.average.parameters(), self.model['gen'].parameters()):
            average.detach().lerp_(value.detach(), 0.1)
        self.weight = 0.9 * self.weight + 0.1 * self.shuffling['python'].random()
        if self.iteration == 10 and self.work_dir.endswith('cut'):
            os.kill(os.getpid(), signal.SIGKILL)

    def state_dict(self):
        return {'weight': self.weight}

    def load_state_dict(self, state):
        self.weight = state['weight']

    valid = Experiment.valid


def test_all_that_a_gan_holds_goes_on_after_a_kill(tmp_path):
    (tmp_path / 'cut').mkdir()
    whole = trained(Adversarial, tmp_path / 'whole')
    assert Fork(trained, Adversarial, tmp_path / 'cut', folder=tmp_path).code() == -signal.SIGKILL
    resumed = started(Adversarial, tmp_path / 'cut')
    os.rename(tmp_path / 'cut', tmp_path / 'end')
    resumed.work_dir = str(tmp_path / 'end')
    resumed.run()
    assert resumed.iteration == 12
    assert torch.equal(weights(resumed.model), weights(whole.model))
    assert torch.equal(weights(resumed.average), weights(whole.average))
    assert (resumed.weight, resumed.current_lr()) == (whole.weight, whole.current_lr())


class Counts(Line):
    """Remembers its best loss; the model's weights and what stays as it was are no changes."""

    worst = 0.0

    def setup_model(self):
        super().setup_model()
        self.best, self.counts, self.fixed = None, np.zeros(3), np.ones(3)
        self.clipped, self.head = list(self.model.parameters()), self.model.head.bias

    def train_batch(self):
        outputs = super().train_batch()
        self.counts += 1
        self.worst = max(self.worst, outputs['loss'].item())
        self.best = min(self.best or (9.0, 0), (outputs['loss'].item(), self.iteration))
        self.loss = outputs['loss']


def test_what_has_changed_and_is_not_saved_is_named_once(tmp_path, caplog):
    class Gives(Counts):
        def state_dict(self):
            return {'counts': torch.from_numpy(self.counts)}

    caplog.set_level('INFO')
    trained(Gives, tmp_path / 'gives')
    assert 'has changed since the run began' not in caplog.text
    trained(Counts, tmp_path / 'one')
    named = re.findall(r'self\.(\w+) has changed since the run began, and checkpoints do not hold it', caplog.text)
    assert sorted(named) == ['best', 'counts', 'worst']


def test_values_of_a_former_file_are_named(tmp_path, caplog):
    trained(Line, tmp_path, max_iteration=4)
    saved = torch.load(tmp_path / 'latest.pth')
    saved['runnerkit']['ranks'][0]['experiment']['values'] = {'worst': 3.0}
    torch.save(saved, tmp_path / 'iter_4.pth')
    trained(Line, tmp_path)
    assert 'the checkpoint holds a value of self.worst, which load_state_dict must take' in caplog.text


class BySteps(Line):
    """Reads from two loaders of other batch sizes, and updates without an OptimizerHook."""

    def setup_dataloader(self):
        parts = {'a': 4, 'b': 3}
        self.train_loader = {name: build_dataloader(Noisy(20), size, 0, seed=size) for name, size in parts.items()}

    def train_batch(self):
        x, y = self.read_batch('a')
        if self.iteration % 2:
            x, y = self.read_batch('b')
        self.update(functional.mse_loss(self.model(x), y))

    valid = Experiment.valid


def test_a_resume_that_is_exact_has_no_warnings(tmp_path, caplog):
    """The last batch was one of another loader than the first, whose pass was at its end."""
    whole = trained(BySteps, tmp_path / 'whole', save_interval=5)
    cut = BySteps(config(save_interval=5), {})
    cut.setup_dataloader()
    cut.setup_model()
    caplog.clear()
    cut.resume(str(tmp_path / 'whole' / 'iter_5.pth'))
    cut.run()
    assert [record.message for record in caplog.records if record.levelname == 'WARNING'] == []
    assert torch.equal(weights(cut.model), weights(whole.model))


def test_what_has_come_and_gone_is_told(tmp_path, caplog):
    class Poor(Line):
        def setup_model(self):
            super().setup_model()
            self.new = nn.Linear(1, 1)

    trained(Rich, tmp_path, max_iteration=4)
    caplog.set_level('INFO')
    trained(Poor, tmp_path)
    assert 'holds a state of critic, which is not there now' in caplog.text
    assert 'holds no state of new, which starts afresh' in caplog.text


# --- several processes ----------------------------------------------------------------------------------------------


def on_rank(rank, folder):
    """A whole run, one that is cut, and the rest of it; the scores of ranks that have seen other samples."""

    class Ranks(Line):
        def valid(self):
            report('rank', float(rank), num_samples=1 + 2 * rank)
            return {'twice': 2.0 * rank}

    class Documents(Ranks):
        """With the setup of Parakeet's document, which knows nothing of wrapping."""

        def setup(self):
            for name in ('set_device', 'init_parallel', 'setup_output_dir', 'setup_logger', 'setup_checkpointer'):
                getattr(self, name)()
            self.setup_dataloader()
            self.setup_model()

    found = []
    for name, whole_kind, cut_kind in (('line', Ranks, Documents), ('networks', Networks, Networks)):
        whole = trained(whole_kind, f'{folder}/{name}/whole')
        trained(cut_kind, f'{folder}/{name}/cut', max_iteration=7)
        resumed = trained(cut_kind, f'{folder}/{name}/cut')
        scores = {name: score.value for name, score in whole.scores.items()}
        network = whole.model['gen'] if name == 'networks' else whole.model
        found.append((weights(whole.model), weights(resumed.model), scores, type(network).__name__))
    return found


class Networks(Line):
    """Two networks, each called by its name; the ranks read other samples."""

    def setup_model(self):
        self.model = nn.ModuleDict({'gen': nn.Linear(4, 4), 'dis': nn.Linear(4, 1), 'fixed': nn.Linear(4, 4)})
        self.model['fixed'].requires_grad_(False)
        self.optimizer = {name: torch.optim.Adam(self.model[name].parameters(), lr=0.01) for name in ('gen', 'dis')}

    def train_batch(self):
        x, y = self.batch()
        fake = self.model['gen'](self.model['fixed'](x))
        self.update(functional.mse_loss(self.model['dis'](fake.detach()), y), 'dis')
        self.update(-self.model['dis'](fake).mean(), 'gen')

    valid = Experiment.valid


def test_two_ranks_train_one_model_or_several_networks_and_resume_exactly(on_ranks, tmp_path):
    for first, second in zip(*on_ranks(__file__, 'on_rank', tmp_path), strict=True):
        (whole, resumed, scores, name), (other, _, others, _) = first, second
        assert name == 'MMDistributedDataParallel'
        assert torch.equal(whole, resumed)
        trained_parts = 4 * 8 + 8 + 2 * 8  # behind them, each rank has statistics of its own
        assert torch.equal(whole[:trained_parts], other[:trained_parts])
        assert scores == others == ({'rank': 0.75, 'twice': 1.0} if scores else {})
    assert torch.equal(whole, other)
    alone = started(Networks, tmp_path / 'networks' / 'whole')  # the names in the file are the networks' own
    assert torch.equal(weights(alone.model), whole)
    alone.close()


# --- wrong use ------------------------------------------------------------------------------------------------------


def test_wrong_use_is_told():
    with pytest.raises(RuntimeError, match=r'Line has no model: call its setup\(\) first'):
        Line(config()).run()
    made = Line(config())
    made.model = 'a model'
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module, but setup_model has set <class 'str'>"):
        made.run()

    class Nothing(Experiment):
        def train_bacth(self):
            pass

    made = Nothing(config(), model=Tiny())
    with pytest.raises(NotImplementedError, match="Nothing must override train_batch; did you mean 'train_bacth'"):
        made.run([[1]])
    with pytest.raises(NotImplementedError, match=r'must override setup_dataloader: set self\.train_loader'):
        made.setup_dataloader()
    with pytest.raises(NotImplementedError, match='must override setup_model'):
        made.setup_model()

    class Reads(Experiment):
        def train_batch(self):
            return self.read_batch()

    with pytest.raises(RuntimeError, match=r'there is no batch to read: set self\.train_loader'):
        Reads(config(), model=Tiny()).run()
    made = Reads(config(), model=Tiny())
    made.train_loader = [[1]]
    with pytest.raises(TypeError, match=r'Reads\.train_batch must return None or a dict.*but got \[1\]'):
        made.run()

    class Number(Line):
        def valid(self):
            return 0.9

    with pytest.raises(TypeError, match=r'Number\.valid must return None or a dict of scores, but got 0\.9'):
        Number(config(), model=Tiny()).valid()


def test_an_error_names_what_was_not_set(tmp_path):
    class NoOptimizer(Line):
        def setup_model(self):
            self.model = Tiny()

        def train_batch(self):
            self.optimizer.zero_grad()

    class NoLoader(Line):
        def setup_dataloader(self):
            super().setup_dataloader()
            self.valid_loader = None

    for kind, name, method in (
        (NoOptimizer, 'optimizer', 'setup_model'),
        (NoLoader, 'valid_loader', 'setup_dataloader'),
    ):
        with pytest.raises((AttributeError, TypeError)) as caught:
            trained(kind, tmp_path / name)
        assert caught.value.__notes__ == [f'self.{name} is None: {kind.__name__}.{method} has not set it']

    class Forgets(Line):
        def train_batch(self):
            self.batch()

    with pytest.raises(KeyError, match=r"Forgets's step returned no 'loss' \(it returned \[\]\)"):
        trained(Forgets, tmp_path / 'loss', optimizer_config={})


class ByHand(Line):
    """The loop of the seed document, written out."""

    def run(self):
        training = self.config.training
        with self.manual_loop():
            while self.iteration < training.max_iteration:
                self.train()
                if self.iteration % training.valid_interval == 0:
                    self.valid()
                if self.iteration % training.save_interval == 0:
                    self.save()


def test_a_loop_of_ones_own_is_a_run_in_all(tmp_path):
    """Weights, log lines and scores are those of the usual loop, and so is a run that was stopped at any place."""
    usual = trained(Line, tmp_path / 'usual', max_iteration=7)
    own = trained(ByHand, tmp_path / 'own', max_iteration=7)
    assert torch.equal(weights(own.model), weights(usual.model))
    assert (own.outcome.kind, own.iteration, own.scores) == ('completed', 7, usual.scores)
    assert log_of(tmp_path / 'own') == log_of(tmp_path / 'usual')
    names = [sorted(path.name for path in (tmp_path / run).rglob('*.pth')) for run in ('own', 'usual')]
    assert names[0] == names[1]
    for place in (2, 3, 4):

        class Stops(ByHand):
            def train_batch(self):
                if self.iteration == place and not self.config.get('resumed'):
                    self.stop('enough')
                return super().train_batch()

        cut = trained(Stops, tmp_path / f'cut{place}', max_iteration=7)
        assert (str(cut.outcome), cut.iteration) == ('stopped: enough', place)
        resumed = trained(Stops, tmp_path / f'cut{place}', max_iteration=7, resumed=True)
        assert resumed.iteration == 7
        assert torch.equal(weights(resumed.model), weights(usual.model))


def test_a_signal_ends_a_loop_of_ones_own(tmp_path):
    class Killed(ByHand):
        def train_batch(self):
            if self.iteration == 5:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().train_batch()

    made = trained(Killed, tmp_path)
    assert (made.stop_signal, made.iteration) == (signal.SIGTERM, 5)
    assert (tmp_path / 'checkpoints' / 'iter_5.pth').exists() or list(tmp_path.rglob('iter_5.pth'))


def test_one_iteration_needs_a_run(tmp_path):
    made = started(Line, tmp_path)
    with pytest.raises(RuntimeError, match=r'one iteration of a run: call run\(\), or write your loop in manual_loop'):
        made.train()


def test_a_loop_of_ones_own_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match=r'Loop\.train takes no loader: .* the loop is run\(\)\. .* in manual_loop\(\)'):

        class Loop(Line):
            def train(self):
                while self.iteration < 3:
                    self.train_batch()


def test_a_save_that_hooks_cannot_call_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match=r'Short\.save must be save\(self, \*args, \*\*options\), and hand them on'):

        class Short(Line):
            def save(self):
                super().save()


def test_it_is_a_runner_and_other_runners_are_as_they_were():
    assert issubclass(Experiment, IterBasedRunner)
    with pytest.raises(TypeError, match='no train_step'):
        IterBasedRunner(nn.Linear(1, 1), max_iters=1)


# --- the user's methods ---------------------------------------------------------------------------------------------


def test_what_a_batch_returns_is_logged_if_it_is_a_number():
    loss = torch.ones(1)
    assert as_outputs(None, 'Mine') == {}
    given = {'loss': loss, 'many': torch.ones(2), 'text': 'a', 'rate': 0.5, 'num_samples': 3}
    assert as_outputs(given, 'Mine') == {**given, 'log_vars': {'loss': loss, 'rate': 0.5}}
    assert as_outputs({'loss': loss, 'log_vars': {}}, 'Mine') == {'loss': loss, 'log_vars': {}, 'num_samples': 1}


def test_a_valid_of_another_base_is_an_evaluation_too():
    seen = []

    class Mixin:
        def valid(self):
            seen.append((torch.is_grad_enabled(), self.mode))

    class Both(Mixin, Line):
        pass

    made = Both(config(), model=Tiny())
    made.valid()
    assert seen == [(False, 'val')]
    with pytest.raises(RuntimeError, match=r'Both has no model: call its setup\(\) first'):
        Both(config()).valid()
