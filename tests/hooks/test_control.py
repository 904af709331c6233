"""A run obeys another process: at the end of an iteration, on all ranks at the same one, and without being asked it
costs nothing."""

import json
import threading
import time

import pytest
import torch
from support import free_port, loader, tiny_runner

from runnerkit.hooks import CheckpointHook, ControlHook, Hook, OptimizerHook
from runnerkit.utils.control import COMMANDS, ControlError, ask, read_address


class Lrs(Hook):
    """The learning rate with which each iteration was trained, and a word when some are done."""

    def __init__(self):
        self.lrs = []
        self.some = threading.Event()

    def after_train_iter(self, runner):
        self.lrs.append(runner.optimizer.param_groups[0]['lr'])
        if len(self.lrs) > 5:
            self.some.set()


def make(work_dir, schedule=None, kind='iter', control=None, **limits):
    runner = tiny_runner(kind, work_dir=work_dir, **(limits or {'max_iters': 10**6}))
    runner.register_lr_hook(schedule)
    runner.register_optimizer_hook({})
    runner.register_checkpoint_hook({'interval': 10**6})
    control, lrs = control or ControlHook(), Lrs()
    runner.register_hook(control)
    runner.register_hook(lrs, 'VERY_LOW')
    return runner, control, lrs


def run_and(script, runner, lrs, begins=False):
    """Run, while ``script`` gives commands in another thread; it ends the run. Returns what it returns."""
    found = []

    def scripted():
        try:
            if not begins:
                lrs.some.wait(60)
            found.append(script())
        except BaseException:
            runner.stop('the script has failed')
            raise

    thread = threading.Thread(target=scripted)
    thread.start()
    runner.run([loader()], [('train', 1)])
    thread.join()
    return found[0]


def test_status_save_pause_resume_and_stop(tmp_path):
    runner, control, lrs = make(tmp_path)

    def script():
        first = ask(tmp_path, 'status')
        saved = ask(tmp_path, 'save')
        paused = ask(tmp_path, 'pause')
        done = len(lrs.lrs)
        time.sleep(0.3)
        while_paused = ask(tmp_path, 'status')
        again = ask(tmp_path, 'save')
        still = len(lrs.lrs)
        ask(tmp_path, 'resume')
        while len(lrs.lrs) == still:
            time.sleep(0.001)
        with pytest.raises(ControlError, match="unknown command 'stp' .*; did you mean 'stop'"):
            ask(tmp_path, 'stp')
        ask(tmp_path, 'stop')
        return first, saved, paused, done, while_paused, again, still

    first, saved, paused, done, while_paused, again, still = run_and(script, runner, lrs)
    json.dumps(first, allow_nan=False)
    assert first['iter'] > 4
    assert first['max_iters'] == 10**6
    assert first['progress'] == pytest.approx(first['iter'] / 10**6)
    assert first['work_dir'] == str(tmp_path)
    assert isinstance(first['loss'], float)
    assert first['eta'] > 0
    assert (first['paused'], first['lr'], first['scores']) == (False, [0.1], {})
    assert saved['checkpoint'] == str(tmp_path / f'iter_{saved["iter"]}.pth')
    assert torch.load(saved['checkpoint'], weights_only=True)['meta']['iter'] == saved['iter']
    assert (done, still) == (paused['iter'], paused['iter'])  # nothing moved meanwhile
    assert (while_paused['paused'], while_paused['iter']) == (True, paused['iter'])
    assert torch.load(again['checkpoint'], weights_only=True)['meta']['iter'] == paused['iter']
    assert str(runner.outcome) == 'stopped: runnerkit ctl stop'
    assert (tmp_path / f'iter_{runner.iter}.pth').exists()  # the end of a stopped run
    assert read_address(tmp_path) == {}


def test_the_hook_has_a_method_for_each_command():
    assert {name for name in dir(ControlHook) if name.startswith('_do_')} == {
        f'_do_{command}'
        for command in COMMANDS
        if command != 'status'  # which is answered at once
    }


def test_a_run_ends_a_pause_when_it_is_stopped(tmp_path):
    runner, control, lrs = make(tmp_path)

    def script():
        ask(tmp_path, 'pause')
        runner.stop('enough')

    run_and(script, runner, lrs)
    assert str(runner.outcome) == 'stopped: enough'


def test_who_asks_when_the_run_has_ended_is_told(tmp_path):
    runner, control, lrs = make(tmp_path, max_iters=3)

    class Asks(Hook):
        def after_train_iter(self, hooked):
            if hooked.iter == 2:  # nobody obeys any more
                self.thread = threading.Thread(target=self.ask)
                self.thread.start()
                while not control._requests:
                    time.sleep(0.001)
                control._requests, self.kept = type(control._requests)(), control._requests

        def after_run(self, hooked):
            control._requests.extend(self.kept)

        def ask(self):
            with pytest.raises(ControlError, match=r'the run has ended \(completed\)'):
                ask(tmp_path, 'save')
            self.told = True

    asks = Asks()
    runner.register_hook(asks, 'VERY_HIGH')
    runner.run([loader()], [('train', 1)])
    asks.thread.join()
    assert asks.told
    with pytest.raises(RuntimeError, match='the run has ended'):
        control._answer('save')


def obedient(runner, command, at):
    """Obey ``command`` after iteration ``at``, as if another process had asked then."""

    class Asks(Hook):
        def after_train_iter(self, hooked):
            if hooked.iter + 1 == at:
                control = next(hook for hook in hooked.hooks if isinstance(hook, ControlHook))
                getattr(control, f'_do_{command}')(hooked)

    runner.register_hook(Asks(), 'VERY_LOW')


def test_a_run_by_network_that_waits_for_its_start(tmp_path, caplog):
    """What is saved before the start is exact, and the key is nowhere but in its file."""
    key, port = tmp_path / 'key', free_port()
    key.touch(0o600)
    key.write_text('0123456789abcdef')
    address = f'127.0.0.1:{port}'
    control, place = ControlHook(address=f'0.0.0.0:{port}', key_file=str(key), paused=True), tmp_path / 'run'
    runner, _, lrs = make(place, max_iters=4, control=control)
    runner.logger.addHandler(caplog.handler)

    def script():
        while not control.paused or not control._is_waiting:
            time.sleep(0.001)
        status = ask(address, 'status', key_file=key)
        saved = ask(address, 'save', key_file=key)
        heartbeat, deadline = runner.heartbeat, time.monotonic() + 20
        while runner.heartbeat == heartbeat and time.monotonic() < deadline:
            time.sleep(0.001)
        moves, done = runner.heartbeat != heartbeat, len(lrs.lrs)
        ask(address, 'start', key_file=key)
        return status, saved, moves, done

    try:
        status, saved, moves, done = run_and(script, runner, lrs, begins=True)
    finally:
        runner.logger.removeHandler(caplog.handler)
    assert moves, 'a pause must not end the run as one that hangs'
    assert (status['paused'], status['iter'], done, runner.iter) == (True, 0, 0, 4)
    resumed, _, _ = make(tmp_path / 'resumed', max_iters=4)
    resumed.resume(saved['checkpoint'])
    resumed.run([loader()], [('train', 1)])
    for one, other in zip(runner.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert address.rpartition(':')[2] in caplog.text
    assert '0123456789abcdef' not in caplog.text


@pytest.mark.parametrize(
    ('options', 'text'),
    [
        ({'address': '0.0.0.0:7008'}, 'needs both address and key_file'),
        ({'key_file': 'key'}, 'needs both address and key_file'),
        ({'address': '7008', 'key_file': 'key'}, "must be 'host:port'"),
        ({'address': 'here:http', 'key_file': 'key'}, "must be 'host:port'"),
    ],
)
def test_an_address_needs_a_key(options, text):
    with pytest.raises(ValueError, match=text):
        ControlHook(**options)


def test_a_run_without_a_work_dir_cannot_be_controlled():
    runner = tiny_runner('iter', max_iters=1)
    runner.register_hook(ControlHook())
    with pytest.raises(ValueError, match='give the runner a work_dir'):
        runner.run([loader()], [('train', 1)])


def test_without_a_checkpoint_hook_the_runner_saves(tmp_path):
    runner = tiny_runner('iter', work_dir=tmp_path, max_iters=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(ControlHook())
    obedient(runner, 'save', at=1)
    runner.run([loader()], [('train', 1)])
    assert (tmp_path / 'iter_1.pth').exists()
    assert not (tmp_path / 'iter_2.pth').exists()


def test_save_does_not_write_twice_what_is_there(tmp_path):
    runner = tiny_runner('iter', work_dir=tmp_path, max_iters=4)
    runner.register_hook(OptimizerHook())
    hook = CheckpointHook(2, by_epoch=False, async_save=True)
    paths = []

    class Asks(Hook):
        runs_last = True

        def after_train_iter(self, hooked):
            paths.append(hook.save_now(hooked))
            paths.append((tmp_path / f'iter_{hooked.iter + 1}.pth').stat().st_ino)

    runner.register_hook(hook)
    runner.register_hook(Asks())
    obedient(runner, 'save', at=10**6)
    written = []
    runner.register_hook(type('Counts', (Hook,), {'after_save': lambda self, hooked: written.append(hooked.iter)})())
    runner.run([loader()], [('train', 1)])
    assert paths[::2] == [str(tmp_path / f'iter_{n}.pth') for n in (1, 2, 3, 4)]
    assert len(written) == 4


def test_nothing_is_done_in_an_iteration_until_somebody_asks(tmp_path, monkeypatch):
    runner, control, lrs = make(tmp_path, max_iters=20)
    for name in ('_meet', '_obey', '_status'):
        monkeypatch.setattr(control, name, lambda *args: pytest.fail('it did something'))
    runner.run([loader()], [('train', 1)])


# --- several ranks ---------------------------------------------------------------------------------------------------


def controlled_ranks(rank, work_dir):
    runner, control, lrs = make(work_dir)
    paused = []
    thread = None
    if rank == 0:

        def script():
            lrs.some.wait(60)
            paused.append(ask(work_dir, 'pause')['iter'])
            ask(work_dir, 'save')
            ask(work_dir, 'resume')
            try:
                with pytest.raises(ControlError, match="unknown command 'sing'"):
                    ask(work_dir, 'sing')
            finally:  # or the ranks train for ever
                ask(work_dir, 'stop')

        thread = threading.Thread(target=script)
        thread.start()
    runner.run([loader(dist=True)], [('train', 1)])
    if thread is not None:
        thread.join()
    return len(lrs.lrs), paused, str(runner.outcome), runner.iter


def test_all_ranks_obey_at_the_same_iteration(on_ranks, tmp_path):
    (done, asked, outcome, end), (there, _, outcome_there, end_there) = on_ranks(
        __file__, 'controlled_ranks', str(tmp_path)
    )
    assert (outcome, end) == (outcome_there, end_there) == ('stopped: runnerkit ctl stop', done)
    assert there == done > asked[0]
    assert (tmp_path / f'iter_{asked[0]}.pth').exists()


def test_ranks_meet_about_twice_a_second(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, 'monotonic', lambda: clock[0])
    control = ControlHook()
    control._met_at = 0.0, 0
    done, meetings = 0, []
    for _ in range(20):  # 10 ms an iteration
        iterations = control._until_next(done)
        meetings.append(iterations)
        clock[0] += 0.01 * iterations
        done += iterations
    assert meetings[:4] == [1, 2, 4, 8]
    assert meetings[-1] == 50
    control._next_meeting = done + 50
    control.after_roll_back(None)
    assert control._next_meeting == 0
    clock[0] += 100  # one very slow iteration
    assert control._until_next(done + 1) == 1
