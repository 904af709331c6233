"""Each event of a stream is trained on once: in batches of any size, after kills at any moment, on several ranks."""

import errno
import json
import logging.handlers
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from forks import Fork
from torch import nn

from runnerkit.checkpoint import NotSavedError, Store, find_latest_checkpoint
from runnerkit.data import SOURCES, Event, Malformed, Source, Stream, StreamLoader, build_dataloader
from runnerkit.data import stream as stream_file
from runnerkit.hooks import ControlHook, Hook
from runnerkit.runner import EpochBasedRunner, IterBasedRunner
from runnerkit.utils.control import ask
from runnerkit.utils.waiting import WaitEnded, waiting_scope

NUMBER = 150


class Listed(Source):
    """Events from a list; it gives everything again, whatever was asked for.

    Args:
        records: payloads, and malformed records; the offsets are their places.
        log: a file for what is acknowledged.
        waits_at: before this place it gives nothing until ``goes_on`` is set.
        pause: how many seconds each record takes.
    """

    def __init__(self, records, log=None, waits_at=None, pause=0.0):
        self.records, self.log, self.waits_at, self.pause = records, log, waits_at, pause
        self.asked, self.acknowledged = [], []
        self.goes_on, self.closed = threading.Event(), threading.Event()

    def read(self, after):
        self.closed.clear()
        self.asked.append(after)
        for place, each in enumerate(self.records):
            while place == self.waits_at and not self.goes_on.is_set():
                yield None
                time.sleep(0.005)
            if self.pause:
                time.sleep(self.pause)
            yield each._replace(offset=place) if isinstance(each, Malformed) else Event(place, each)

    def acknowledge(self, offset):
        self.acknowledged.append(offset)
        if self.log is not None:
            with open(self.log, 'a') as file:
                file.write(f'{offset}\n')


class Once(nn.Module):
    """Counts in its weights how often each event was trained on, and in which order."""

    def __init__(self, delay=0.0):
        super().__init__()
        self.times = nn.Parameter(torch.zeros(NUMBER))
        self.order = nn.Parameter(torch.ones(3))
        self.delay, self.fails_at = delay, None

    def train_step(self, data, optimizer, **kwargs):
        time.sleep(self.delay)
        if self.fails_at is not None and self.fails_at in data:
            self.fails_at = None
            raise ZeroDivisionError('a bug')
        order = ((self.order * data[0] / NUMBER - 0.5) ** 2).sum() * 0.1
        loss = -self.times[data].sum() + order
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data)}

    @property
    def counts(self):
        return self.times.tolist()


def runner_of(work_dir, model=None, interval=4, **options):
    model = model or Once()
    # Without momentum the gradient of an event is added once, and nothing else moves its weight.
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    runner = IterBasedRunner(model, optimizer=optimizer, work_dir=str(work_dir), max_iters=10**6)
    runner.register_training_hooks(None, {}, {'interval': interval, **options})
    return runner


def loader_of(source, batch=4, **options):
    return build_dataloader(Stream(source, **options), batch, 0, seed=3)


def trained(runner):
    """Of how many events the weights tell that they were trained on once, from the first one; none was twice."""
    counts = runner.model.counts
    done = int(sum(counts))
    assert counts == [1.0] * done + [0.0] * (NUMBER - done)
    return done


# --- the loader ------------------------------------------------------------------------------------------------------


def test_batches_are_full_but_the_last_one_and_in_order():
    assert [batch.tolist() for batch in loader_of(Listed(range(10)))] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    stream = build_dataloader(Stream(Listed(range(10))), 4, 0, drop_last=True, collate_fn=list)
    assert list(stream) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert stream.state_dict()['offset'] == 7


def test_the_place_is_behind_the_last_batch_or_the_one_before():
    loader = loader_of(Listed(range(12)))
    batches = iter(loader)
    assert loader.state_dict() == {'offset': None, 'events': 0, 'malformed': 0, 'duplicates': 0}
    next(batches)
    next(batches)
    assert loader.state_dict()['offset'] == loader.state_dict(2)['offset'] == 7
    assert loader.state_dict(1)['offset'] == 3
    with pytest.raises(ValueError, match='knows where it was after 1 and 2 batches, not after 0'):
        loader.state_dict(0)
    for state, rest in ((loader.state_dict(1), [4, 5, 6, 7]), (loader.state_dict(2), [8, 9, 10, 11])):
        other = loader_of(Listed(range(12)))
        other.load_state_dict(state)
        assert next(iter(other)).tolist() == rest
        assert other.dataset.source.asked == [state['offset']]
        assert other.state_dict()['duplicates'] == state['offset'] + 1  # this source gives everything again
        other.close()
    loader.close()  # what is read ahead comes again
    assert next(batches).tolist() == [8, 9, 10, 11]


def test_events_that_were_read_and_not_trained_on_come_again():
    source = Listed(range(8), waits_at=6)
    loader = loader_of(source)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1, 2, 3]
    with waiting_scope(lambda: True), pytest.raises(WaitEnded):  # two events of the next batch are there
        next(batches)
    loader.close()
    source.goes_on.set()
    assert next(batches).tolist() == [4, 5, 6, 7]


def test_a_full_buffer_holds_the_source_back():
    class Endless(Source):
        given = 0

        def read(self, after):
            while True:
                self.given += 1
                yield Event(self.given, self.given)

    source = Endless()
    loader = loader_of(source, buffer=10)
    next(iter(loader))
    until(lambda: loader.counts()['waiting'] == 10)
    time.sleep(0.3)
    assert source.given <= 4 + 10 + 1
    assert loader.counts()['waiting'] == 10
    loader.close()


def noisy(payload):
    """What draws from all generators, and takes no text."""
    return payload * 1.0 + random.random() + np.random.rand() + torch.rand(()).item()


def test_random_numbers_of_decode_depend_on_the_event_alone():
    def run(batch, start=None):
        loader = loader_of(Listed([0, 1, 'x', *range(3, 12)]), batch, decode=noisy)
        if start is not None:
            loader.load_state_dict(start)
        found = []
        for part in loader:
            found += part.tolist()
            torch.rand(1)  # the run's own stream
        return found, loader.state_dict()

    before = torch.get_rng_state()
    found, state = run(4)
    assert run(3)[0] == found
    assert len(set(np.subtract(found, [0, 1, *range(3, 12)]))) == 11
    assert (state['events'], state['malformed'], state['offset']) == (11, 1, 11)
    loader = loader_of(Listed([0, 1, 'x', *range(3, 12)]), 4, decode=noisy)
    next(iter(loader))
    middle = loader.state_dict()
    assert run(5, middle)[0] == found[4:]
    torch.set_rng_state(before)
    next(iter(loader_of(Listed(range(3)), decode=noisy)))
    assert torch.equal(torch.get_rng_state(), before)


def test_malformed_records_are_counted_kept_and_never_fatal(tmp_path, caplog):
    records = [0, Malformed('{', 'no JSON'), 'text', 3, Malformed('?', 'no JSON'), 5, [], 7]
    aside = tmp_path / 'aside.jsonl'
    loader = loader_of(Listed(records), 2, decode=lambda payload: payload + 0, aside=str(aside))
    assert [batch.tolist() for batch in loader] == [[0, 3], [5, 7]]
    assert loader.state_dict()['malformed'] == 4
    kept = [json.loads(line) for line in aside.read_text().splitlines()]
    assert [(each['offset'], each['text']) for each in kept] == [(1, '{'), (2, 'text'), (4, '?'), (6, '[]')]
    assert kept[1]['problem'].startswith('TypeError')
    assert 'malformed records of the stream: 1 so far, kept in' in caplog.text
    aside.unlink()
    aside.mkdir()  # not even that is fatal
    assert len(list(loader_of(Listed(records), 2, decode=lambda payload: payload + 0, aside=str(aside)))) == 2
    assert 'cannot be kept' in caplog.text


class Given(Source):
    """Gives these records, and nothing again."""

    def __init__(self, *records):
        self.records = records

    def read(self, after):
        yield from self.records


@pytest.mark.parametrize('wrong', ['two', None, True, float('nan'), float('inf'), [], {}, [{}], [1], b'9', 10**300])
def test_offsets_that_cannot_be_compared_are_malformed(wrong):
    """Such an offset would hide that events come twice, or that they are new, or could not be in a checkpoint."""
    source = Given(Event(1, 1), Event(wrong, 2), Event(1, 1), Malformed('?', 'bad', wrong), Event(3, 3))
    loader = loader_of(source, 2)
    assert [batch.tolist() for batch in loader] == [[1, 3]]
    assert loader.state_dict() == {'offset': 3, 'events': 2, 'malformed': 2, 'duplicates': 1}


def test_what_comes_twice_behind_new_events_is_told(caplog):
    loader = loader_of(Given(Event(1, 1), Event(2, 2), Event('30', 3)), 1)
    loader.load_state_dict({'offset': 1, 'events': 1, 'malformed': 0, 'duplicates': 0})
    assert len(list(loader)) == 1
    assert 'are dropped' not in caplog.text  # a source may give again what is done
    assert len(list(loader_of(Given(Event('9', 1), Event('10', 2)), 1))) == 1
    assert "dropped: 1 so far. The last one has the offset '10', and those up to '9' are read already" in caplog.text


@pytest.mark.parametrize('ranks', [1, 2])
@pytest.mark.parametrize('first', [[{'a': 0}], [{'b': 0}, {'a': 0}], [3, {'a': 0}]])
def test_samples_that_do_not_fit_the_others_are_malformed(tmp_path, first, ranks):
    records = [*first, *({'a': n} for n in range(1, 6)), {'a': [6]}, {'a': 6}, {'c': 7}, {'a': 8}]
    stream = Stream(Listed(records), aside=str(tmp_path / 'aside'))
    loader = stream.make_loader(4 // ranks, world_size=ranks)
    before = torch.get_rng_state()
    values = [batch['a'].tolist() for batch in loader]
    assert values == ([[0, 1, 2, 3], [4, 5, 6, 8]] if ranks == 1 else [[0, 2], [4, 6]])
    kept = [json.loads(json.loads(line)['text']) for line in (tmp_path / 'aside').read_text().splitlines()]
    assert kept == [*first[:-1], {'a': [6]}, {'c': 7}]
    assert loader.state_dict()['malformed'] == len(kept)
    assert torch.equal(torch.get_rng_state(), before)


def test_where_no_more_than_half_of_a_batch_fits_the_error_is_raised():
    with pytest.raises(KeyError, match='a'):
        next(iter(loader_of(Listed([{'a': 1}, {'b': 1}, {'a': 1}, {'b': 1}]), 4)))
    with pytest.raises(ZeroDivisionError):  # samples fit, and collate_fn is wrong
        next(
            iter(build_dataloader(Stream(Listed([1, 2, 3])), 3, 0, collate_fn=lambda samples: 1 // (3 - len(samples))))
        )
    assert [batch.tolist() for batch in loader_of(Listed([None, 1]), 1)] == [[1]]  # batches of one


def test_what_comes_cannot_forge_lines_of_the_log(caplog):
    list(loader_of(Listed(['\n\x1b[31mRun completed']), decode=lambda payload: {}[payload]))
    assert r'\x1b[31mRun completed' in caplog.records[0].getMessage()
    assert '\n' not in caplog.records[0].getMessage()
    assert '\x1b' not in caplog.records[0].getMessage()


def test_a_run_is_not_deaf_in_a_flood_of_what_it_cannot_use(tmp_path):
    class Flood(Source):
        def read(self, after):
            yield from (Malformed('?', 'bad') for _ in range(50_000))

    loader = loader_of(Flood(), buffer=50_000, aside=str(tmp_path / 'aside'))
    with waiting_scope(lambda: True), pytest.raises(WaitEnded):
        next(iter(loader))
    assert 0 < loader._read['malformed'] < 50_000
    loader.close()


def test_any_payload_can_be_kept_aside_up_to_a_limit(tmp_path, monkeypatch, caplog):
    within = []
    within.append(within)
    deep = {b'key': []}
    for _ in range(5000):
        deep[b'key'] = [deep[b'key']]
    aside = tmp_path / 'aside'
    monkeypatch.setattr(stream_file, '_MOST_ASIDE', 700)
    records = [{b'key': b'\xff'}, within, deep, {1, 2}, object(), 'x' * 700, 'y', 1.0]
    loader = loader_of(Listed(records), 1, decode=lambda payload: payload + 1, aside=str(aside))
    assert [batch.tolist() for batch in loader] == [[2.0]]
    kept = [json.loads(line)['text'] for line in aside.read_text().splitlines()]
    assert kept[:2] == ["{b'key': b'\\xff'}", '[[...]]']
    assert [text[0] for text in kept[2:]] == ['{', '"', '"', 'x']  # and no more
    assert loader.state_dict()['malformed'] == 7
    assert [record.args[0] for record in caplog.records] == [1, 7]  # the first one, and the first that is not kept
    assert f'7 so far, no more are kept: {aside} is full' in caplog.text


def test_what_the_source_raises_ends_the_run(tmp_path):
    class Fails(Source):
        def read(self, after):
            yield Event(1, 1)
            raise PermissionError('not for you')

    with pytest.raises(PermissionError, match='not for you'):
        runner_of(tmp_path).run([loader_of(Fails(), 1)], [('train', 1)])


def test_it_is_built_from_a_config():
    SOURCES.register_module(module=Listed)
    try:
        stream = Stream({'type': 'Listed', 'records': [1, 2]}, decode={'type': 'Compose', 'transforms': [float]})
    finally:
        SOURCES.module_dict.pop('Listed')
    assert isinstance(stream.make_loader(2), StreamLoader)
    assert next(iter(stream.make_loader(2))).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ('make', 'told'),
    [
        (lambda: Stream([1, 2]), r'source must be a runnerkit\.data\.Source'),
        (lambda: Stream(Listed([]), decode=3), 'decode must be a function'),
        (lambda: Stream(Listed([]), buffer=0), 'buffer must be a whole number'),
        (lambda: iter(Stream(Listed([]))), 'is read by the loader'),
        (lambda: build_dataloader(Stream(Listed([])), 4, 2), ' workers=2: leave it out'),
        (lambda: build_dataloader(Stream(Listed([])), 4, 0, timeout=3), 'takes no timeout=3'),
        (lambda: build_dataloader(Stream(Listed([])), 4, 0, max_batches=3), 'takes no max_batches=3'),
        (lambda: build_dataloader(Stream(Listed([])), 4, 0, prefetch_to='cpu'), "takes no prefetch_to='cpu'"),
    ],
)
def test_what_a_stream_cannot_do(make, told):
    with pytest.raises((TypeError, ValueError), match=told):
        make()


# --- a run -----------------------------------------------------------------------------------------------------------


def test_the_end_of_the_stream_ends_the_run_and_is_saved_and_acknowledged(tmp_path):
    source = Listed([*range(10), Malformed('?', 'no JSON')])
    runner = runner_of(tmp_path)
    runner.run([loader_of(source, 1)], [('train', 1)])
    assert str(runner.outcome) == 'stopped: the stream has ended'
    assert trained(runner) == 10
    assert source.acknowledged == [3, 7, 9]
    assert (tmp_path / 'malformed.jsonl').exists()
    assert not [thread for thread in threading.enumerate() if thread.name == 'runnerkit-stream']


def test_a_run_without_a_length_goes_on_to_the_end_of_its_stream(tmp_path):
    model = Once()
    runner = IterBasedRunner(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), work_dir=tmp_path)
    runner.register_training_hooks(None, {})
    runner.run([loader_of(Listed(range(10)))], [('train', 1)])
    assert (trained(runner), runner.completed_iters, str(runner.outcome)) == (10, 3, 'stopped: the stream has ended')


@pytest.mark.parametrize('async_save', [False, True])
def test_events_are_acknowledged_when_their_checkpoint_is_on_disk_and_not_before(tmp_path, async_save, monkeypatch):
    source, written = Listed(range(40)), []
    acknowledge = Listed.acknowledge

    def seen(self, offset):
        found = find_latest_checkpoint(tmp_path)
        state = torch.load(found, weights_only=True)['runnerkit']['ranks'][0]['readers'][0]['loader']
        written.append((offset, state['offset']))
        acknowledge(self, offset)

    monkeypatch.setattr(Listed, 'acknowledge', seen)
    runner = runner_of(tmp_path, async_save=async_save)
    runner.run([loader_of(source)], [('train', 1)])
    assert source.acknowledged == [15, 31, 39]
    assert all(acknowledged <= on_disk for acknowledged, on_disk in written)


@pytest.mark.parametrize('async_save', [False, True])
def test_a_checkpoint_that_could_not_be_written_acknowledges_nothing(tmp_path, async_save, monkeypatch):
    source, write = Listed(range(20)), Store.write

    def full(self, name, *args):
        if name == 'iter_2.pth':
            raise NotSavedError(errno.ENOSPC, 'No space left on device')
        write(self, name, *args)

    monkeypatch.setattr(Store, 'write', full)
    runner_of(tmp_path, interval=2, async_save=async_save).run([loader_of(source)], [('train', 1)])
    assert source.acknowledged == [15, 19]


def test_an_acknowledgement_that_fails_is_told_and_comes_again(tmp_path, monkeypatch, caplog):
    def fails(self, offset):
        if offset == 7:
            raise ConnectionError('the server is gone')
        self.acknowledged.append(offset)

    monkeypatch.setattr(Listed, 'acknowledge', fails)
    source, loader = Listed(range(12)), None
    runner, loader = runner_of(tmp_path, interval=2), loader_of(source)
    runner.run([loader], [('train', 1)])
    assert source.acknowledged == [11]
    assert 'the events up to 7 cannot be acknowledged to the source: ConnectionError: the server is gone' in caplog.text
    monkeypatch.setattr(Listed, 'acknowledge', lambda self, offset: 1 / 0)
    loader.acknowledge({'offset': 13})
    assert loader.counts()['acknowledged'] == 11


def test_a_loader_of_other_ranks_is_refused(tmp_path):
    loader = Stream(Listed(range(4))).make_loader(2, rank=1, world_size=2)
    with pytest.raises(ValueError, match='this is rank 0 of 1, but the loader of the stream was made for rank 1 of 2'):
        runner_of(tmp_path).run([loader], [('train', 1)])


def test_a_checkpoint_that_no_resume_looks_for_acknowledges_nothing(tmp_path):
    source = Listed(range(20))
    runner = runner_of(tmp_path / 'run', interval=-1, save_last=False)

    class Saves(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 1:
                runner.save(str(tmp_path / 'elsewhere'))
                runner.save(filename_tmpl='best_x_iter_{}.pth', create_symlink=False)
            elif runner.iter == 2:
                runner.save()

    runner.register_hook(Saves(), 'VERY_LOW')
    runner.run([loader_of(source)], [('train', 1)])
    assert source.acknowledged == [11]


def test_a_save_with_a_batch_at_hand_holds_it_trained(tmp_path):
    """A hook asks for a save when the third batch is at hand: it moves to the end of that iteration."""

    class Saves(Hook):
        def before_train_iter(self, runner):
            if runner.iter == 2:
                runner.save()

    source = Listed(range(20))
    runner = runner_of(tmp_path, interval=-1, save_last=False)
    runner.register_hook(Saves())
    runner.run([loader_of(source)], [('train', 1)])
    assert source.acknowledged == [11]
    again = runner_of(tmp_path)
    again.resume(str(tmp_path / 'latest.pth'))
    again.run([loader_of(Listed(range(20)))], [('train', 1)])
    assert trained(again) == 20


def test_a_batch_on_which_the_step_failed_comes_again(tmp_path):
    runner, loader = runner_of(tmp_path), loader_of(Listed(range(20)))
    runner.model.fails_at = 9
    with pytest.raises(ZeroDivisionError):
        runner.run([loader], [('train', 1)])
    runner.save()
    state = torch.load(tmp_path / 'latest.pth', weights_only=True)['runnerkit']['ranks'][0]['readers'][0]
    assert (state['batches'], state['loader']['offset']) == (2, 7)
    runner.run([loader], [('train', 1)])
    assert trained(runner) == 20


@pytest.mark.parametrize('async_save', [False, True])
def test_after_a_roll_back_the_events_since_the_checkpoint_come_again(tmp_path, async_save):
    class GoesBack(Hook):
        times = 0

        def after_train_iter(self, runner):
            if runner.iter == 5 and not self.times:
                self.times = 1
                runner.roll_back(runner.last_checkpoint())

    source = Listed(range(40))
    runner = runner_of(tmp_path, async_save=async_save)
    runner.register_hook(GoesBack())
    runner.run([loader_of(source, 2)], [('train', 1)])
    assert trained(runner) == 40
    assert source.asked == [None, 7]
    assert source.acknowledged == [7, 15, 23, 31, 39]


@pytest.mark.parametrize('batch', [4, 3])
def test_another_batch_size_goes_on_with_the_next_event(tmp_path, batch, caplog):
    first = runner_of(tmp_path)
    first._max_iters = 4
    first.run([loader_of(Listed(range(30)))], [('train', 1)])
    assert trained(first) == 16
    second = runner_of(tmp_path)
    second.resume(str(tmp_path / 'latest.pth'))
    second.run([loader_of(Listed(range(30)), batch)], [('train', 1)])
    assert trained(second) == 30
    assert 'the open epoch' not in caplog.text


def test_a_run_that_was_resumed_and_trained_nothing_keeps_its_place(tmp_path):
    for _ in range(2):
        runner = runner_of(tmp_path)
        runner._max_iters = 4
        if (tmp_path / 'latest.pth').exists():
            runner.resume(str(tmp_path / 'latest.pth'))
        runner.run([loader_of(Listed(range(30)))], [('train', 1)])
        runner.save()
    runner = runner_of(tmp_path)
    runner.resume(str(tmp_path / 'latest.pth'))
    runner.run([loader_of(Listed(range(30)))], [('train', 1)])
    assert trained(runner) == 30


def test_streams_need_iterations_and_train(tmp_path):
    model = Once()
    by_epoch = EpochBasedRunner(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), max_epochs=1)
    with pytest.raises(ValueError, match="reads a stream, which has no epochs.*'IterBasedRunner'"):
        by_epoch.run([loader_of(Listed([]))], [('train', 1)])
    with pytest.raises(ValueError, match='validate on a separate data set'):
        runner_of(tmp_path).run([loader_of(Listed([])), loader_of(Listed([]))], [('train', 1), ('val', 1)])


# --- while it waits --------------------------------------------------------------------------------------------------


def waiting_run(work_dir):
    """A run that waits for its 11th event, for ever, and can be paused."""
    torch.manual_seed(0)
    runner = runner_of(work_dir)
    runner.register_hook(ControlHook())
    runner.run([loader_of(Listed(range(20), waits_at=10))], [('train', 1)])
    print(runner.outcome, trained(runner), flush=True)


def until(condition, seconds=200):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ('number', 'commands'), [(signal.SIGTERM, []), (signal.SIGINT, []), (signal.SIGTERM, ['pause', 'save'])]
)
def test_a_signal_ends_a_run_that_waits_for_data_or_is_paused(tmp_path, number, commands):
    fork = Fork(waiting_run, tmp_path, folder=tmp_path)
    until(lambda: 'Start running' in fork.said() or 'Start running' in fork.said('stdout'))
    time.sleep(0.3)
    for command in commands:
        ask(tmp_path, command, timeout=200)
    fork.send(number)
    assert fork.code() == (0 if number == signal.SIGTERM else 130)
    assert (tmp_path / 'iter_2.pth').exists()
    if number == signal.SIGTERM:
        assert fork.said('stdout').endswith('stopped: SIGTERM 8\n')


def test_commands_are_obeyed_while_the_run_waits(tmp_path):
    source = Listed(range(20), waits_at=10)
    runner, loader = runner_of(tmp_path, async_save=True, interval=2), loader_of(source)
    runner.register_hook(ControlHook())
    answers = []

    def script():
        try:
            until(lambda: runner.iter == 2 and loader._samples)
            until(lambda: source.acknowledged == [7])  # the checkpoint in the background is reported
            answers.append(ask(tmp_path, 'save', timeout=200))
            answers.append(ask(tmp_path, 'pause', timeout=200))
            source.goes_on.set()
            time.sleep(0.3)
            answers.append(ask(tmp_path, 'status', timeout=200))
            answers.append(ask(tmp_path, 'resume', timeout=200))
        finally:
            source.goes_on.set()

    thread = threading.Thread(target=script)
    thread.start()
    runner.run([loader], [('train', 1)])
    thread.join()
    saved, _, status, _ = answers
    assert Path(saved['checkpoint']).name == 'iter_2.pth'
    assert (status['paused'], status['iter']) == (True, 2)
    assert status['stream'].items() >= {'events': 8, 'offset': 7, 'malformed': 0, 'acknowledged': 7}.items()
    assert trained(runner) == 20


# --- kill -9 ---------------------------------------------------------------------------------------------------------


def killed_run(work_dir, log, kills=True):
    torch.manual_seed(0)
    runner = runner_of(work_dir, Once(delay=0.004 if kills else 0), interval=3, async_save=True, max_keep_ckpts=2)
    found = find_latest_checkpoint(work_dir)
    if found is not None:
        runner.resume(str(found))
    source = Listed([n if n % 10 != 3 else n for n in range(NUMBER)], log=log, pause=0.001 if kills else 0)
    runner.run([loader_of(source, 2, buffer=7)], [('train', 1)])


def test_after_kills_at_any_moment_the_weights_are_those_of_an_undisturbed_run(tmp_path):
    work_dir, log, draw = tmp_path / 'killed', tmp_path / 'acknowledged', random.Random(7)
    killed_run(tmp_path / 'whole', None, kills=False)
    work_dir.mkdir()
    log.write_text('')
    kills = 0
    for _ in range(4):
        fork = Fork(killed_run, work_dir, log, folder=tmp_path)
        time.sleep(0.1 + 0.25 * draw.random())
        fork.send(signal.SIGKILL)
        kills += fork.code() == -signal.SIGKILL
        acknowledged = [int(line) for line in log.read_text().splitlines()]
        found = find_latest_checkpoint(work_dir)
        assert acknowledged == sorted(acknowledged)
        if acknowledged:  # every acknowledged event is in the checkpoint
            state = torch.load(found, weights_only=True)
            assert sum(state['state_dict']['times'][: acknowledged[-1] + 1]) == acknowledged[-1] + 1
    killed_run(work_dir, log)
    whole, last = (
        torch.load(folder / 'latest.pth', weights_only=True)['state_dict'] for folder in (tmp_path / 'whole', work_dir)
    )
    assert kills >= 2
    assert last['times'].tolist() == [1.0] * NUMBER
    assert all(torch.equal(whole[name], last[name]) for name in whole)


# --- several ranks ---------------------------------------------------------------------------------------------------


def ranked(rank, number, work_dir, waits_at=None):
    source = Listed(range(number), waits_at=waits_at)
    loader = loader_of(source, 2)
    batches, said = [], logging.handlers.BufferingHandler(10**6)
    logging.getLogger('runnerkit').addHandler(said)

    class Kept(Once):
        def train_step(self, data, optimizer, **kwargs):
            batches.append(data.tolist())
            return super().train_step(data, optimizer)

    runner = runner_of(work_dir, Kept())
    if waits_at is not None:
        runner.register_hook(ControlHook())
        if rank == 1:  # not the rank that reads
            threading.Timer(1.0, runner.stop, ['rank 1 has had enough']).start()
    runner.run([loader], [('train', 1)])
    told = [record.getMessage() for record in said.buffer if 'the last 1 events' in record.getMessage()]
    return batches, source.asked, told, loader.state_dict()['offset'], str(runner.outcome), runner.iter


@pytest.mark.parametrize(('number', 'last'), [(11, [[8, 10], [9]]), (9, [])])
def test_ranks_share_the_events_and_end_together(on_ranks, tmp_path, number, last):
    first, second = on_ranks(__file__, 'ranked', number, str(tmp_path))
    expected = [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    for share, rest in zip(expected, last, strict=False):
        share.append(rest)
    assert [first[0], second[0]] == expected
    assert (first[1], second[1]) == ([None], [])  # rank 0 reads
    assert (len(first[2]), len(second[2])) == (0 if last else 1, 0)
    assert first[3:] == second[3:]
    assert first[3:5] == (10 if last else 7, 'stopped: the stream has ended')


def test_all_ranks_leave_a_wait_together(on_ranks, tmp_path):
    first, second = on_ranks(__file__, 'ranked', 20, str(tmp_path), 10)
    assert first[3:] == second[3:] == (7, 'stopped: rank 1 has had enough', 2)
    assert os.path.exists(tmp_path / 'iter_2.pth')
