"""Signals: real ones, to real processes, at random moments."""

import contextlib
import importlib
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from forks import Fork
from runner.signal_script import SENT, build, on_a_rank, train
from support import loader

from runnerkit.distributed.signals import STOPPING, StopSignals
from runnerkit.hooks import CheckpointHook, Hook
from runnerkit.utils.ending import Grace


class Forked(Fork):
    """A fork of this process that trains; its exit code is that of the runner's promise to scripts."""

    def __init__(self, work_dir, has_own_group=False, **options):
        work_dir.mkdir(exist_ok=True)
        for name in ('began_0', 'first_0'):
            (work_dir / name).unlink(missing_ok=True)
        super().__init__(exit_code_of, work_dir, folder=work_dir, has_own_group=has_own_group, **options)

    def wait_for(self, name='began_0'):
        wait_for(self.folder / name)
        return self


def exit_code_of(work_dir, **options):
    runner = train(work_dir, **options)
    return 0 if runner.outcome.kind == 'completed' else 128 + runner.stop_signal


def wait_for(path):
    until(lambda: path.exists() and path.read_text(), f'{path} does not appear')


def until(holds, told='', seconds=200):
    deadline = time.time() + seconds
    while not holds():
        assert time.time() < deadline, told
        time.sleep(0.002)


def saved(work_dir):
    return sorted(path.name for path in work_dir.glob('*_*.pth'))


def same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return left == right


def ends_alike(one, other):
    return same(*(torch.load(folder / 'end.pth', weights_only=False) for folder in (one, other)))


@pytest.fixture(scope='module', autouse=True)
def imported():
    """What is imported late, once instead of in every fork."""
    for name in ('torch._dynamo', 'torch.distributed.launcher.api'):
        importlib.import_module(name)


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """Work dirs of the runs that nobody disturbs, and how long they take once they have begun."""
    made = {}

    def of(kind):
        if kind not in made:
            work_dir = tmp_path_factory.mktemp(f'whole_{kind}')
            forked = Forked(work_dir, kind=kind).wait_for()
            began = time.time()
            assert forked.code() == 0
            made[kind] = work_dir, time.time() - began
        return made[kind]

    return of


@pytest.mark.parametrize(
    'number, kind, workers', [(signal.SIGTERM, 'epoch', 1), (signal.SIGINT, 'iter', 0), (signal.SIGUSR1, 'epoch', 0)]
)
def test_at_a_random_moment(number, kind, workers, whole, tmp_path):
    """The code says which signal; one checkpoint lies there, from which the run ends as the undisturbed one."""
    undisturbed, seconds = whole(kind)
    delay = random.uniform(0, 0.7) * seconds
    forked = Forked(tmp_path, kind=kind, workers=workers, holds_at=11).wait_for()
    time.sleep(delay)
    forked.send(number)
    (tmp_path / SENT).touch()
    assert forked.code() == 128 + number, (delay, forked.said())
    assert len(saved(tmp_path)) == 1, delay
    assert Forked(tmp_path, kind=kind, workers=workers).code() == 0
    assert ends_alike(tmp_path, undisturbed), (delay, saved(tmp_path))


def test_again_and_again(whole, tmp_path):
    """Interrupted where it has hardly begun, in the middle of a resumed run, perhaps in its validation."""
    undisturbed, seconds = whole('iter')
    delays = [0.0, *(random.uniform(0, 0.4) * seconds for _ in range(2))]
    for delay in delays:
        forked = Forked(tmp_path, kind='iter').wait_for()
        time.sleep(delay)
        forked.send(signal.SIGTERM)
        assert forked.code() in (0, 143)
    assert Forked(tmp_path, kind='iter').code() == 0
    assert ends_alike(tmp_path, undisturbed), (delays, saved(tmp_path))


def test_a_second_interrupt_leaves_at_once(tmp_path):
    forked = Forked(tmp_path, seconds=600.0).wait_for()
    time.sleep(0.1)
    forked.send(signal.SIGINT)
    until(lambda: 'once more to leave at once' in forked.said())
    forked.send(signal.SIGINT)
    assert forked.code() == 130
    assert saved(tmp_path) == [], 'it has waited for the end of the iteration'


def test_the_whole_process_group_gets_it(whole, tmp_path):
    """As Ctrl-C in a terminal, and SIGTERM by a scheduler: workers serve on, and say nothing."""
    undisturbed, _ = whole('epoch')
    for number in (signal.SIGINT, signal.SIGTERM):
        forked = Forked(tmp_path, has_own_group=True, workers=1).wait_for('first_0')
        os.killpg(forked.pid, number)
        assert forked.code() == 128 + number, forked.said()
        assert 'Traceback' not in forked.said()
    assert len(saved(tmp_path)) == 2
    assert Forked(tmp_path, workers=1).code() == 0
    assert ends_alike(tmp_path, undisturbed)


# --- in a script of the user's own -----------------------------------------------------------------------------------


class Signalling(Hook):
    """Sends its own process a signal after the iteration ``at``."""

    def __init__(self, number, at=6):
        self.number = number
        self.at = at

    def after_train_iter(self, runner):
        if runner.iter == self.at:
            os.kill(os.getpid(), self.number)


class Failing(Hook):
    def after_train_iter(self, runner):
        raise ZeroDivisionError


@pytest.fixture
def former():
    """Handlers of the user's own while the test runs."""
    heard = []

    def handler(number, frame):
        heard.append(number)

    before = {number: signal.signal(number, handler) for number in STOPPING}
    yield handler, heard
    for number, own in before.items():
        signal.signal(number, own)


def test_the_former_handlers_are_put_back(tmp_path, former, caplog):
    handler, heard = former
    runner = build(tmp_path, 'epoch', seconds=0)
    runner.register_hook(CheckpointHook())
    runner.register_hook(Signalling(signal.SIGUSR1))
    runner.run([loader()], [('train', 1)])
    assert (str(runner.outcome), runner.stop_signal, runner.iter) == ('stopped: SIGUSR1', signal.SIGUSR1, 7)
    assert all(signal.getsignal(number) is handler for number in STOPPING)
    assert heard == []
    assert saved(tmp_path) == ['iter_7.pth']
    runner.register_hook(Failing())
    with pytest.raises(ZeroDivisionError):
        runner.run([loader()], [('train', 1)])
    assert all(signal.getsignal(number) is handler for number in STOPPING)
    assert runner.stop_signal is None  # that of the last run
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGTERM]


def test_an_interrupt_is_raised_when_the_run_is_saved(tmp_path, former):
    runner = build(tmp_path, 'iter', seconds=0)
    runner.register_hook(CheckpointHook(by_epoch=False, interval=100))
    runner.register_hook(Signalling(signal.SIGINT, at=2))
    with pytest.raises(KeyboardInterrupt):
        runner.run([loader()], [('train', 1)])
    assert (str(runner.outcome), saved(tmp_path)) == ('stopped: SIGINT', ['iter_3.pth'])
    assert signal.getsignal(signal.SIGINT) is former[0]


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_run_inside_another_hands_the_signal_on(number, tmp_path, former):
    class Nesting(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 6:
                self.inner = build(tmp_path / 'inner', 'iter', seconds=0)
                self.inner.register_hook(CheckpointHook(by_epoch=False))
                self.inner.register_hook(Signalling(number, at=2))
                self.inner.run([loader()], [('train', 1)])

    nesting, outer = Nesting(), build(tmp_path / 'outer', 'epoch', seconds=0)
    outer.register_hook(CheckpointHook())
    outer.register_hook(nesting)
    raised = pytest.raises(KeyboardInterrupt) if number == signal.SIGINT else contextlib.nullcontext()
    with raised:
        outer.run([loader()], [('train', 1)])
    for runner, saves in ((nesting.inner, ['iter_3.pth']), (outer, ['iter_7.pth'])):
        assert (str(runner.outcome), runner.stop_signal) == (f'stopped: {number.name}', number)
        assert saved(Path(runner.work_dir)) == saves
    assert signal.getsignal(number) is former[0]


def test_a_failed_run_inside_another_hands_its_signal_on(tmp_path, former):
    class Nesting(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 6:
                inner = build(tmp_path / 'inner', 'iter', seconds=0)
                inner.register_hook(Signalling(signal.SIGTERM, at=0))
                inner.register_hook(Failing())
                with pytest.raises(ZeroDivisionError):
                    inner.run([loader()], [('train', 1)])

    outer = build(tmp_path / 'outer', 'epoch', seconds=0)
    outer.register_hook(Nesting())
    outer.run([loader()], [('train', 1)])
    assert (str(outer.outcome), outer.iter) == ('stopped: SIGTERM', 7)


def test_a_signal_in_after_run_comes_too_late(tmp_path, former):
    class Late(Hook):
        def after_run(self, runner):
            os.kill(os.getpid(), signal.SIGTERM)

    runner = build(tmp_path, 'epoch', epochs=1, seconds=0)
    runner.register_hook(Late())
    runner.run([loader()], [('train', 1)])
    assert (str(runner.outcome), runner.stop_signal) == ('completed', signal.SIGTERM)


class Lingering(Hook):
    """Sends its own process signals when the run is over, and stays for so many seconds."""

    def __init__(self, signals, seconds, fails=False):
        self.signals, self.seconds, self.fails = signals, seconds, fails

    def after_train_iter(self, runner):
        if self.fails:
            raise ZeroDivisionError

    def after_run(self, runner):
        for number in self.signals:
            os.kill(os.getpid(), number)
        threading.Event().wait(self.seconds)


def linger(work_dir, stopped, *args):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler of its own
    Grace.__init__.__defaults__ = (0.3,)
    runner = build(work_dir, 'epoch', epochs=1, seconds=0)
    if stopped:
        runner.register_hook(Signalling(signal.SIGTERM, at=0))
    runner.register_hook(Lingering(*args))
    with contextlib.suppress(ZeroDivisionError):
        runner.run([loader()], [('train', 1)])
    time.sleep(0.5)  # what a run has begun ends nothing that comes later
    return 7


def test_sigterm_ends_a_run_that_is_stuck_when_it_is_over(tmp_path):
    """All of them wait at the same time."""
    cases = [
        (True, ([signal.SIGTERM], 300), 143),
        (False, ([signal.SIGTERM] * 2, 300), 143),
        (False, ([signal.SIGTERM], 300, True), 143),
        (False, ([signal.SIGTERM], 0.6), 7),  # the first one lets a run that has succeeded save its end
        (False, ([signal.SIGUSR1] * 3, 0.6), 7),
        (True, ([signal.SIGTERM], 0), 7),
    ]
    folders = [tmp_path / str(number) for number, _ in enumerate(cases)]
    for folder in folders:
        folder.mkdir()
    forks = [
        Fork(linger, folder, stopped, *args, folder=folder)
        for folder, (stopped, args, _) in zip(folders, cases, strict=True)
    ]
    for fork, (*case, code) in zip(forks, cases, strict=True):
        assert fork.code() == code, case
        assert ('SIGTERM: the process has not left within 0.3 s' in fork.said()) == (code == 143), case
        assert ('in after_run' in fork.said()) == (code == 143), case


class Deadlocked(Hook):
    """Gets a signal so many times within an iteration that takes so many seconds."""

    def __init__(self, number, times, seconds):
        self.number, self.times, self.seconds = number, times, seconds

    def after_train_iter(self, runner):
        for _ in range(self.times):
            os.kill(os.getpid(), self.number)
        threading.Event().wait(self.seconds)


def deadlock(work_dir, *args):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # coverage has a handler of its own
    Grace.__init__.__defaults__ = (0.3,)
    runner = build(work_dir, 'epoch', epochs=1, seconds=0)
    runner.register_hook(Deadlocked(*args))
    runner.run([loader()], [('train', 1)])
    time.sleep(0.5)
    return 7


@pytest.mark.parametrize(
    'args, code',
    [
        ((signal.SIGTERM, 2, 300), 143),
        ((signal.SIGTERM, 1, 0.6), 7),  # an iteration may take as long as it likes
    ],
)
def test_a_second_sigterm_ends_an_iteration_that_is_stuck(tmp_path, args, code):
    fork = Fork(deadlock, tmp_path, *args, folder=tmp_path)
    assert fork.code() == code
    assert ('in after_train_iter' in fork.said()) == (code == 143)


def test_without_a_checkpoint_hook_it_says_that_nothing_is_saved(tmp_path, former, caplog):
    for hook, says in ((None, True), (CheckpointHook(save_last=False), True), (CheckpointHook(), False)):
        caplog.clear()
        runner = build(tmp_path, 'epoch', seconds=0)
        if hook is not None:
            runner.register_hook(hook)
        runner.register_hook(Signalling(signal.SIGTERM, at=0))
        runner.logger.addHandler(caplog.handler)
        try:
            runner.run([loader()], [('train', 1)])
        finally:
            runner.logger.removeHandler(caplog.handler)
        assert 'SIGTERM: the run stops after iteration 1' in caplog.text
        assert ('nothing is saved' in caplog.text) == says


def test_another_thread_installs_none(tmp_path, former):
    handler, heard = former
    seen = []

    class Looking(Hook):
        def after_train_iter(self, runner):
            seen.append([signal.getsignal(number) for number in STOPPING])

    runner = build(tmp_path, 'epoch', epochs=1, seconds=0)
    runner.register_hook(Looking())
    thread = threading.Thread(target=runner.run, args=([loader()], [('train', 1)]))
    thread.start()
    thread.join()
    assert runner.outcome.kind == 'completed'
    assert seen == [[handler] * len(STOPPING)] * 5


def test_ignored_signals_stay_ignored(former):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with StopSignals() as signals:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGINT)
        assert not signals.pending
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.pending
        assert signals.due() == ('SIGTERM', signal.SIGTERM)  # the first one counts


def test_a_forked_process_does_not_inherit_them():
    with StopSignals() as signals:
        for number, code in ((signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 7), (signal.SIGUSR1, 7)):
            pid = os.fork()
            if pid == 0:
                for _ in range(2):
                    os.kill(os.getpid(), number)
                os._exit(8 if signals.pending else 7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
        assert not signals.pending


def test_validation_of_the_iteration_runner_is_not_cut(tmp_path, former):
    """Its iterations are one evaluation, whose average could not be resumed."""

    class InVal(Hook):
        def after_val_iter(self, runner):
            if runner.inner_iter == 0:
                os.kill(os.getpid(), signal.SIGTERM)

    runner = build(tmp_path, 'iter', seconds=0)
    runner.register_hook(InVal())
    runner.run([loader(), loader()], [('train', 4), ('val', 3)])
    assert (str(runner.outcome), runner.iter, runner.inner_iter) == ('stopped: SIGTERM', 4, 3)


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.thorough  # test_asked_by_a_hook_all_ranks_stop_after_the_same_iteration
def test_all_ranks_stop_after_the_same_iteration(launch, tmp_path):
    """One worker of two gets SIGTERM: one checkpoint, from which the run ends as the undisturbed one."""
    folders = tmp_path / 'whole', tmp_path / 'part'
    for folder in folders:
        folder.mkdir()
    whole, part = (
        Fork(launch, on_a_rank, folder, seconds, holds_at, folder=folder)
        for folder, seconds, holds_at in zip(folders, (0, 0.01), (None, 150), strict=True)
    )
    wait_for(folders[1] / 'first_1')
    time.sleep(random.uniform(0, 0.5))
    os.kill(int((folders[1] / 'first_1').read_text()), signal.SIGTERM)
    (folders[1] / SENT).touch()
    for forked in (whole, part):
        assert forked.code() == 0, forked.said()[-3000:]
    ended = [(folders[1] / f'ended_{rank}').read_text() for rank in range(2)]
    assert ended[0].startswith('stopped: SIGTERM SIGTERM ')
    assert ended[0] == ended[1]
    assert len(saved(folders[1])) == 1
    forked = Fork(launch, on_a_rank, folders[1], 0, folder=folders[1])
    assert forked.code() == 0, forked.said()[-3000:]
    assert ends_alike(*folders)
