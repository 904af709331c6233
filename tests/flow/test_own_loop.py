"""A loop of the user's own: what it gives, that it survives a kill, and what it refuses."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import runnerkit
from runnerkit.checkpoint.loader import load_small
from runnerkit.hooks import Hook

#: A plain training with dropout, a shuffled loader, a scheduler and an evaluation; ``PLAIN`` is the same without us.
SCRIPT = """
import os, sys
import torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def at(what, value):
    return os.environ.get(what) == str(value)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))
x = torch.randn(100, 8); y = x[:, :3].argmax(1)
train = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

@torch.no_grad()
def evaluate(net):
    net.eval(); right = (net(x).argmax(1) == y).float().mean().item(); net.train()
    return right
"""
LOOP = """
import runnerkit
run = runnerkit.loop(sys.argv[1], model=net, optimizer=optimizer, scheduler=scheduler, seed=0, save_best='accuracy')
for epoch in run.epochs(4):
    for a, b in run.batches(train):
        loss = F.cross_entropy(net(a), b)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        run.log(loss=loss)
        if at('KILL_AT', run.iter):
            os.kill(os.getpid(), int(os.environ['WITH']))
        if at('RAISE_AT', run.iter):
            raise ValueError('of the user')
    scheduler.step()
    run.score(accuracy=evaluate(net))
    if at('BREAK_AT', epoch):
        break
"""
PLAIN = """
import random, numpy
random.seed(0); numpy.random.seed(0); torch.manual_seed(0)
for epoch in range(4):
    for a, b in train:
        loss = F.cross_entropy(net(a), b)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    scheduler.step()
    evaluate(net)
"""
LAST = '\ntorch.save(net.state_dict(), sys.argv[2])\n'


@pytest.fixture(scope='module')
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp('scripts')
    (folder / 'mine.py').write_text(SCRIPT + LOOP + LAST)
    (folder / 'plain.py').write_text(SCRIPT + PLAIN + LAST)
    return folder


def started(script, work_dir, **environ):
    """The exit code, the weights if it has come to its end, and what it wrote to stderr."""
    weights = Path(f'{work_dir}.weights')
    weights.unlink(missing_ok=True)
    environ = {**os.environ, **{name: str(value) for name, value in environ.items()}}
    command = [sys.executable, str(script), str(work_dir), str(weights)]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    return done.returncode, torch.load(weights) if weights.exists() else None, done.stderr


@pytest.fixture
def plain(scripts):
    return started(scripts / 'plain.py', scripts / 'plain')[1]


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


def starts(work_dir):
    return json.loads((work_dir / 'run.json').read_text())['starts']


# --- survives ---------------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.usefixtures('warm')
THOROUGH = pytest.mark.thorough


@pytest.mark.parametrize('ending', [pytest.param('before a checkpoint', marks=THOROUGH), 'inside an epoch'])
def test_a_killed_loop_ends_with_the_bits_of_the_plain_one(scripts, plain, tmp_path, ending):
    place = {'before a checkpoint': 3, 'inside an epoch': 17}[ending]
    code, weights, _ = started(scripts / 'mine.py', tmp_path / 'run', KILL_AT=place, WITH=9)
    assert code == -signal.SIGKILL
    assert weights is None
    code, weights, error = started(scripts / 'mine.py', tmp_path / 'run')
    assert code == 0, error
    assert equal(weights, plain)
    assert [start.get('outcome') for start in starts(tmp_path / 'run')][-1] == 'completed'


@pytest.mark.thorough
def test_killed_at_fifty_places(scripts, plain, tmp_path):
    for number, place in enumerate(random.Random(0).choices(range(28), k=50)):
        code, _, _ = started(scripts / 'mine.py', tmp_path / f'{number}', KILL_AT=place, WITH=9)
        assert code == -signal.SIGKILL
        assert equal(started(scripts / 'mine.py', tmp_path / f'{number}')[1], plain)


@pytest.mark.parametrize(
    ('number', 'code'), [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, -signal.SIGINT, marks=THOROUGH)]
)
def test_a_signal_saves_the_iteration(scripts, plain, tmp_path, number, code):
    found, _, error = started(scripts / 'mine.py', tmp_path / 'run', KILL_AT=10, WITH=int(number))
    assert found == code, error
    assert load_small(tmp_path / 'run/latest.pth')['meta']['iter'] == 11
    assert starts(tmp_path / 'run')[-1]['outcome'] == 'stopped'
    assert equal(started(scripts / 'mine.py', tmp_path / 'run')[1], plain)


def test_an_error_is_a_failure_and_is_not_saved(scripts, tmp_path):
    code, _, error = started(scripts / 'mine.py', tmp_path / 'run', RAISE_AT=10)
    assert code == 1
    assert error.rstrip().endswith('ValueError: of the user')
    last = starts(tmp_path / 'run')[-1]
    assert (last['outcome'], last['reason']) == ('failed', 'ValueError: of the user')
    assert load_small(tmp_path / 'run/latest.pth')['meta']['iter'] == 7


def test_a_break_is_a_stop_and_the_run_can_be_replayed(scripts, plain, tmp_path, monkeypatch, real_pictures):
    assert started(scripts / 'mine.py', tmp_path / 'run', BREAK_AT=1)[0] == 0
    last = starts(tmp_path / 'run')[-1]
    assert (last['outcome'], last['reason']) == ('stopped', 'the loop was left before its end')
    assert (tmp_path / 'run/report.html').exists()
    assert (tmp_path / 'run/curve.png').exists()
    assert equal(started(scripts / 'mine.py', tmp_path / 'run')[1], plain)
    monkeypatch.setattr('sys.argv', ['pytest'])
    with runnerkit.replay(tmp_path / 'run', to=17) as moment:
        outputs = moment.run.model.state_dict()
        assert moment.batch[0].shape == (16, 8)
        assert not moment.differences
        assert not moment.doubts
        assert outputs.keys() == plain.keys()
    assert sys.argv == ['pytest']
    (tmp_path / 'run/code/mine.py').write_text('raise SystemExit(3)')  # of somebody else
    with pytest.raises(ValueError, match='--trust'), runnerkit.replay(tmp_path / 'run', to=17):
        pass


#: Two networks and their optimizers; loops over them follow, each with its own way to be cut off badly.
TWO = """
import os, sys
import numpy as np, torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
import runnerkit

torch.manual_seed(0)
train = DataLoader(torch.randn(40, 4), batch_size=4, shuffle=True)
one, two = nn.Linear(4, 4), nn.Linear(4, 1)
first, second = (torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9) for net in (one, two))
schedule, draws = torch.optim.lr_scheduler.StepLR(first, 1, 0.5), torch.Generator().manual_seed(3)

def die():
    if run.iter == int(os.environ.get('KILL_AT', -1)):
        os.kill(os.getpid(), int(os.environ['WITH']))

def step(loss, optimizer):
    optimizer.zero_grad(); loss.backward(); optimizer.step()

run = runnerkit.loop(
    sys.argv[1], model=dict(one=one, two=two), optimizer=dict(one=first, two=second), scheduler=schedule, seed=0,
    draws=draws, checkpoint_config=dict(interval=EVERY, by_epoch=False), save_best='loss',
)
for epoch in run.epochs(3):
"""
END = """
torch.save({**one.state_dict(), 'bias2': two.bias, 'rate': torch.tensor(first.param_groups[0]['lr']),
            'best': torch.tensor(run.runner.meta['hook_msgs'].get('best_score', 0.0))}, sys.argv[2])
"""
#: The loop's body, how often it saves, and where it is killed.
CUT_OFF = {
    'what follows the inner loop needs it': (
        """
    total = 0
    for n, x in enumerate(run.batches(train), 1):
        die(); loss = one(x).pow(2).mean(); step(loss, first); total += loss.item()
    schedule.step(); run.score(loss=total / n)
""",
        10,
        12,
    ),
    'a break': (
        """
    for i, x in enumerate(run.batches(train), run.batches_done):
        die(); step(one(x).pow(2).mean(), first)
        if i == 6:
            break
    schedule.step()
""",
        7,
        9,
    ),
    'a step at the beginning of an iteration': (
        """
    for i, x in enumerate(run.batches(train), run.batches_done):
        die()
        if i % 4 == 0:
            first.step(); second.step(); first.zero_grad(); second.zero_grad()
        two(one(x)).pow(2).mean().backward()
""",
        3,
        13,
    ),
    'gradients that another loss leaves': (
        """
    for x in run.batches(train):
        die(); made = one(x)
        (F.softplus(two(made.detach())).mean() + F.softplus(-two(x)).mean()).backward(); second.step()
        second.zero_grad(); F.softplus(-two(made)).mean().backward(); first.step(); first.zero_grad()
""",
        3,
        13,
    ),
    'draws before the batches': (
        """
    share, noise = np.random.rand(), torch.randn(4) + torch.randn(4, generator=draws)
    for x in run.batches(train):
        die(); step(one(x + noise * share + torch.randn(4, 4) * torch.rand(1, generator=draws)).pow(2).mean(), first)
""",
        3,
        16,
    ),
    'a score inside an epoch': (
        """
    for i, x in enumerate(run.batches(train), run.batches_done):
        die(); step(one(x).pow(2).mean(), first)
        if i == 4:
            run.score(loss=float(epoch))
""",
        3,
        8,
    ),
}


@pytest.mark.parametrize('case', CUT_OFF)
def test_a_loop_that_is_cut_off_badly_ends_as_if_it_had_not_been(case, tmp_path):
    body, every, place = CUT_OFF[case]
    script = tmp_path / 'mine.py'
    script.write_text(TWO.replace('EVERY', str(every)) + body + END)
    code, whole, error = started(script, tmp_path / 'whole')
    assert code == 0, error
    assert started(script, tmp_path / 'cut', KILL_AT=place, WITH=9)[0] == -signal.SIGKILL
    code, resumed, error = started(script, tmp_path / 'cut')
    assert code == 0, error
    assert 'resumed from' in error
    assert equal(resumed, whole)
    if 'inner loop' in case:  # a complete run does nothing
        assert started(script, tmp_path / 'cut')[0] == 0
        assert starts(tmp_path / 'cut')[-1].get('outcome') in ('completed', None)


# --- in this process --------------------------------------------------------------------------------------------------


class Net:
    """A small problem with its optimizer."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.net = nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)
        data = TensorDataset(torch.randn(12, 4), torch.randint(2, (12,)))
        self.loader = DataLoader(data, batch_size=4, shuffle=True)

    def step(self, batch):
        loss = functional.cross_entropy(self.net(batch[0]), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def trained(self, work_dir, epochs, scores=(), **options):
        run = runnerkit.loop(work_dir, model=self.net, optimizer=self.optimizer, seed=0, **options)
        for epoch in run.epochs(epochs):
            for batch in run.batches(self.loader):
                run.log(loss=self.step(batch))
            if scores:
                run.score(**scores[epoch])
        return run


def test_counters_hooks_scores_and_lines(tmp_path):
    called = []

    class Watch(Hook):
        def after_train_iter(self, runner):
            called.append(('iter', runner.iter, runner.inner_iter))

        def after_train_epoch(self, runner):
            called.append(('epoch', runner.epoch))

        def after_evaluate(self, runner, scores):
            called.append(dict(scores))

    scores = [dict(loss_val=0.5), dict(loss_val=0.25), dict(loss_val=torch.tensor(0.75))]
    run = Net().trained(tmp_path, 3, scores, hooks=[Watch()], save_best='loss_val', log_config=dict(interval=2))
    assert (run.epoch, run.iter, run.outcome.kind) == (3, 9, 'completed')
    expected = [('iter', 0, 0), ('iter', 1, 1), ('iter', 2, 2), ('epoch', 0), {'loss_val': 0.5}, ('iter', 3, 0)]
    assert called[:6] == expected
    assert (tmp_path / 'best_loss_val_epoch_2.pth').exists()
    assert load_small(tmp_path / 'epoch_3.pth')['runnerkit']['scores']['loss_val'][0] == 0.75
    lines = [json.loads(line) for file in tmp_path.glob('*.log.json') for line in file.read_text().splitlines()]
    modes = [(line['mode'], line['step']) for line in lines if 'mode' in line]
    assert modes == [
        (m, s) for e in range(3) for m, s in (('train', 3 * e + 2), ('train', 3 * e + 3), ('val', 3 * e + 3))
    ]


def test_a_complete_run_gives_no_epochs_and_a_larger_number_continues_it(tmp_path, caplog):
    whole, parts = Net(), Net()
    whole.trained(tmp_path / 'whole', 4)
    parts.trained(tmp_path / 'parts', 2)
    again = Net(seed=1)
    run = again.trained(tmp_path / 'parts', 2)
    assert caplog.text.count(f'Report {tmp_path / "parts" / "report.html"}') == 2  # the run may have had no time for it
    assert run.iter == 6
    assert 'epochs(2) gives none: a larger number continues it' in caplog.text
    assert equal(again.net.state_dict(), parts.net.state_dict())
    again = Net()
    again.trained(tmp_path / 'parts', 4)
    assert equal(again.net.state_dict(), whole.net.state_dict())


def test_a_loop_without_steps_and_scores_says_what_is_missing(tmp_path, caplog):
    one = Net()
    run = runnerkit.loop(tmp_path, model=one.net, optimizer=one.optimizer, save_best='accuracy')
    for _ in run.epochs(2):
        for x, _ in run.batches(one.loader):
            one.net(x).sum().backward()
    assert caplog.text.count("save_best='accuracy', but the first epoch has no score: call run.score(accuracy=…)") == 1
    assert 'nothing steps the optimizer. Call loss.backward() and optimizer.step() for each batch' in caplog.text


def test_states_are_loaded_in_the_call(tmp_path):
    one, other = Net(), Net(seed=1)
    schedulers = [torch.optim.lr_scheduler.StepLR(each.optimizer, 1) for each in (one, other)]
    run = runnerkit.loop(
        tmp_path, model={'n': one.net}, optimizer={'o': one.optimizer}, scheduler=schedulers[0], ema=one.net
    )
    for _ in run.epochs(1):
        for batch in run.batches(one.loader):
            one.step(batch)
        schedulers[0].step()
    run = runnerkit.loop(
        tmp_path, model={'n': other.net}, optimizer={'o': other.optimizer}, scheduler=schedulers[1], ema=other.net
    )
    assert (run.epoch, run.iter) == (1, 3)
    assert equal(other.net.state_dict(), one.net.state_dict())
    assert schedulers[1].last_epoch == 1
    assert other.optimizer.param_groups[0]['lr'] == pytest.approx(0.01)
    run.close()


@pytest.mark.parametrize('stop_at', [1, 4])
def test_gradients_of_several_batches_are_kept(tmp_path, stop_at):
    def trained(work_dir, stop_at=None):
        problem = Net()
        run = runnerkit.loop(work_dir, model=problem.net, optimizer=problem.optimizer, seed=0)
        for _ in run.epochs(4):
            for x, y in run.batches(problem.loader):
                functional.cross_entropy(problem.net(x), y).backward()
                if run.iter % 5 == 4:
                    problem.optimizer.step()
                    problem.optimizer.zero_grad()
                if run.iter == stop_at:
                    run.stop('by the test')
        return problem.net.state_dict()

    whole = trained(tmp_path / 'whole')
    trained(tmp_path / 'parts', stop_at)
    assert load_small(tmp_path / 'parts/latest.pth')['meta']['iter'] == stop_at + 1
    assert equal(trained(tmp_path / 'parts'), whole)


def test_leaving_the_inner_loop_ends_the_epoch(tmp_path):
    problem = Net()
    run = runnerkit.loop(tmp_path, model=problem.net, optimizer=problem.optimizer)
    for _ in run.epochs(2):
        for batch in run.batches(problem.loader):
            problem.step(batch)
            break
    assert (run.epoch, run.iter, run.outcome.kind) == (2, 2, 'completed')


def test_stop_ends_behind_the_epoch_and_saves_it(tmp_path):
    problem = Net()
    run = runnerkit.loop(tmp_path, model=problem.net, optimizer=problem.optimizer)
    for _ in run.epochs(5):
        for batch in run.batches(problem.loader):
            problem.step(batch)
        run.stop('good enough')
    assert str(run.outcome) == 'stopped: good enough'
    assert run.iter == 3
    assert load_small(tmp_path / 'latest.pth')['meta']['epoch'] == 1


def test_as_a_context_manager_it_knows_the_error(tmp_path):
    problem = Net()
    with pytest.raises(KeyError), runnerkit.loop(tmp_path, model=problem.net) as run:
        for _ in run.epochs(2):
            for _ in run.batches(problem.loader):
                raise KeyError('mine')
    assert run.outcome.kind == 'failed'
    assert starts(tmp_path)[-1]['outcome'] == 'failed'


# --- refused, and warned about ----------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    made = runnerkit.loop(tmp_path / 'open', model=Net().net)
    yield made
    made.close()


@pytest.mark.parametrize(
    ('use', 'kind', 'text'),
    [
        (lambda run: run.epochs(0), ValueError, 'n must be a whole number of at least 1'),
        (lambda run: run.epochs(1.5), TypeError, 'n must be a whole number of at least 1'),
        (lambda run: run.batches([1]), RuntimeError, 'belongs into the loop over run.epochs'),
        (lambda run: run.score(accuracy=1), RuntimeError, 'belongs into the loop over run.epochs'),
        (lambda run: (run.epochs(2), run.epochs(2)), RuntimeError, 'open at once'),
        (lambda run: list(run.epochs(2)), RuntimeError, 'run.batches(loader) was not called in it'),
        (lambda run: [run.score(accuracy='high') for _ in run.epochs(1)], TypeError, "the score 'accuracy'"),
        (
            lambda run: [(run.batches([1]), list(run.batches([1])), run.batches([1])) for _ in run.epochs(1)],
            RuntimeError,
            'one loader',
        ),
    ],
)
def test_wrong_uses(run, use, kind, text):
    with pytest.raises(kind) as error:
        use(run)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ('given', 'text'),
    [
        (dict(model=3), 'model=3 has no state_dict'),
        (dict(model=None), 'model must be a network'),
        (dict(optimizer='sgd'), "optimizer='sgd' has no state_dict"),
        (dict(optimizer=nn.Linear(1, 1)), 'optimizer must be of the class Optimizer'),
        (dict(scaler=3), 'scaler=3 has no state_dict'),
        (dict(optimiser=torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1)), r'as optimizer=dict\(…\) by name'),
    ],
)
def test_wrong_objects(tmp_path, given, text):
    with pytest.raises(TypeError, match=text):
        runnerkit.loop(tmp_path, **{'model': Net().net, **given})


def test_states_that_do_not_fit(tmp_path):
    Net().trained(tmp_path, 1)
    other = nn.Linear(4, 3)
    with pytest.raises(ValueError, match='does not fit what was handed over') as error:
        runnerkit.loop(tmp_path, model=other)
    assert 'size mismatch' in str(error.value)
    assert 'another work_dir' in str(error.value)
    with pytest.raises(RuntimeError, match='another run is using'):
        Net().trained(tmp_path, 2, hooks=[Again(tmp_path)])


class Again(Hook):
    """Opens the work dir of the living run."""

    def __init__(self, work_dir):
        self.work_dir = work_dir

    def before_train_epoch(self, runner):
        runnerkit.loop(self.work_dir, model=nn.Linear(1, 1))


class Named:
    """Anything that is handed over by name."""

    value = 0

    def state_dict(self):
        return {'value': self.value}

    def load_state_dict(self, state):
        self.value = state['value']


def test_what_was_handed_over_by_name_is_loaded_once(tmp_path):
    """What the user changes between `loop` and the first batch stays."""
    first, again = Named(), Named()
    first.value = 5
    Net().trained(tmp_path, 1, average=first)
    problem = Net()
    run = runnerkit.loop(tmp_path, model=problem.net, optimizer=problem.optimizer, average=again)
    assert again.value == 5
    again.value = 7
    for _ in run.epochs(2):
        for _ in run.batches(problem.loader):
            break
    assert again.value == 7


def test_a_named_state_that_does_not_fit(tmp_path):
    Net().trained(tmp_path, 1, average=Named())
    with pytest.raises(ValueError, match=r"the state of the part 'average' was loaded"):
        Net().trained(tmp_path, 2, average=nn.Linear(1, 1))


def test_the_work_dir_of_a_config(tmp_path):
    (tmp_path / 'lenet.py').write_text('model = dict(type="A")\n')
    with pytest.raises(ValueError, match='holds a run of the config lenet.py'):
        runnerkit.loop(tmp_path, model=Net().net)


def test_what_can_be_seen_to_be_missing(tmp_path, caplog):
    problem, other = Net(), Net()
    torch.optim.lr_scheduler.StepLR(problem.optimizer, 1)
    problem.optimizer.add_param_group({'params': list(other.net.parameters())})
    runnerkit.loop(tmp_path, model=problem.net, optimizer=problem.optimizer).close()
    assert 'a scheduler changes the rates of the optimizer, and was not handed over' in caplog.text
    assert 'the optimizer changes parameters that model does not have' in caplog.text


def test_an_optimizer_that_steps_and_was_not_handed_over_is_told_once(tmp_path, caplog):
    problem, other = Net(), torch.optim.Adam([nn.Parameter(torch.ones(1))])
    other.param_groups[0]['params'][0].grad = torch.ones(1)
    run = runnerkit.loop(tmp_path, model=problem.net, optimizer=problem.optimizer)
    for _ in run.epochs(1):
        for batch in run.batches(problem.loader):
            problem.step(batch)
            other.step()
    assert caplog.text.count('An optimizer (Adam) steps that was not handed over') == 1
    assert '(SGD) steps' not in caplog.text


def test_a_hook_of_an_update_is_told_to_be_never_called(tmp_path, caplog):
    class Watch(Hook):
        def after_step(self, runner):
            raise AssertionError

    Net().trained(tmp_path, 1, hooks=[Watch()])
    assert 'Watch.after_step is never called' in caplog.text
