"""Bringing batches ahead: what is drawn when, what is handed out, and that a run does not notice."""

from functools import cache

import pytest
import torch
from support import loader, tiny_runner, weights

from runnerkit.data import prefetch
from runnerkit.data.prefetch import SideStream, one_ahead, prefetched
from runnerkit.hooks import CheckpointHook
from runnerkit.parallel import DataContainer


class Copies:
    """Copies that go nowhere, written down in the order in which they are begun and asked for."""

    def __init__(self):
        self.log = []
        self.number = 0

    def start(self, batch):
        self.number += 1
        self.log.append(f'start {self.number}')
        return batch, self.number

    def finish(self, started):
        batch, number = started
        self.log.append(f'finish {number}')
        return batch


@pytest.fixture
def copies(monkeypatch):
    """What loaders with ``prefetch_to='cuda'`` copy by."""
    made = Copies()
    monkeypatch.setattr(prefetch, 'side_stream', lambda device: made)
    return made


def test_a_copy_begins_before_the_batch_before_is_handed_out(copies):
    for batch in prefetched(iter('abc'), torch.device('cuda')):
        copies.log.append(f'step {batch}')
    assert copies.log == [
        'start 1',
        'start 2',
        'finish 1',
        'step a',
        'start 3',
        'finish 2',
        'step b',
        'finish 3',
        'step c',
    ]


@pytest.mark.parametrize('n', range(4))
def test_nothing_is_lost(n):
    assert list(one_ahead(iter(range(n)))) == list(range(n))


def test_no_more_than_one_is_drawn_ahead_and_none_before_it_is_asked():
    source = iter(range(9))
    batches = one_ahead(source)
    assert next(source) == 0
    assert next(batches) == 1
    assert next(source) == 3


@pytest.mark.parametrize('n', range(3))
def test_an_error_comes_in_the_place_of_its_batch(n):
    def failing():
        yield from range(n)
        raise OSError('a bad file')

    got = []
    with pytest.raises(OSError, match='a bad file'):
        got.extend(iter_into(got, one_ahead(failing())))
    assert got == list(range(n))


def iter_into(got, batches):
    for batch in batches:
        got.append(batch)
    return []


def test_a_batch_is_let_go_when_the_next_is_asked_for():
    import weakref

    class Batch:
        pass

    batches = one_ahead(Batch() for _ in range(3))
    for _ in range(3):
        batch = weakref.ref(next(batches))
        assert batch() is None


def test_a_device_without_streams_changes_nothing():
    batches = iter('abc')
    assert prefetched(batches, torch.device('cpu')) is batches


def test_off_costs_nothing(copies):
    assert type(iter(loader())) is type(iter(loader(prefetch_to='cpu')))
    assert next(iter(loader(prefetch_to='cuda')), None) is not None
    assert copies.log == ['start 1', 'start 2', 'finish 1']


@pytest.mark.parametrize('workers', [0, 2])
@pytest.mark.parametrize('start', [0, 3])
def test_a_loader_gives_the_same_batches(copies, workers, start):
    options = {'num_workers': workers, 'persistent_workers': workers > 0}
    from support import Noisy

    from runnerkit.data import SeededLoader

    plain, ahead = [
        SeededLoader(Noisy(18), 4, seed=5, prefetch_to=device, **options).enter(2, start) for device in (None, 'cuda')
    ]
    for (x, y), (found, target) in zip(plain, ahead, strict=True):
        assert torch.equal(x, found)
        assert torch.equal(y, target)
    assert copies.number == 5 - start


def train(kind, folder, device, resume=None, n=11):
    limits = {'max_epochs': 3} if kind == 'epoch' else {'max_iters': 11}
    runner = tiny_runner(kind, work_dir=folder, seed=9 if resume else 0, **limits)
    runner.register_training_hooks({'policy': 'fixed'}, {})
    runner.register_hook(CheckpointHook(interval=1, by_epoch=False))
    if resume:
        runner.resume(str(resume))
    runner.run([loader(18, prefetch_to=device), loader(6, prefetch_to=device)], [('train', 1), ('val', 1)])
    return weights(runner.model)


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_a_run_does_not_notice_also_where_it_was_resumed(kind, copies, tmp_path):
    """Dropout draws from the streams that the data set draws from; a position is what was trained on."""
    expected = train(kind, tmp_path / 'plain', None)
    assert torch.equal(train(kind, tmp_path / 'whole', 'cuda'), expected)
    for done in (3, 4, 5, 7):
        found = train(kind, tmp_path / 'resumed', 'cuda', resume=tmp_path / 'whole' / f'iter_{done}.pth')
        assert torch.equal(found, expected), done


def test_unseeded_loaders_are_refused():
    with pytest.raises(ValueError, match='prefetch_to draws batches early'):
        loader(seeded=False, prefetch_to='cuda')


def test_there_is_one_stream_for_a_device(monkeypatch):
    monkeypatch.setattr(prefetch, 'SideStream', lambda device: [device])
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    made = cache(prefetch.side_stream.__wrapped__)
    assert made(torch.device('cuda:0')) is made(torch.device('cuda:0'))
    assert prefetch.side_stream.cache_info().maxsize is None


class FakeCuda:
    """Streams and events that write down what is asked of them; copies go to the CPU."""

    def __init__(self, monkeypatch):
        self.log = []
        monkeypatch.setattr(torch.cuda, 'Stream', lambda device: FakeStream('side', self.log))
        monkeypatch.setattr(torch.cuda, 'current_stream', lambda device: FakeStream('current', self.log))
        monkeypatch.setattr(torch.cuda, 'stream', lambda stream: stream)
        monkeypatch.setattr(prefetch, 'to_device', lambda batch, device: self.log.append('copy') or batch)


class FakeStream:
    def __init__(self, name, log):
        self.name, self.log, self.events = name, log, 0

    def wait_stream(self, other):
        self.log.append(f'{self.name} waits for {other.name}')

    def record_event(self):
        self.events += 1
        return f'event {self.events}'

    def wait_event(self, event):
        self.log.append(f'{self.name} waits for {event}')

    def __enter__(self):
        self.log.append(f'on {self.name}')

    def __exit__(self, *_):
        self.log.append('back')


def test_copies_wait_for_what_was_there_before_and_steps_for_their_own_copy(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    monkeypatch.setattr(prefetch, 'side_stream', SideStream)
    batches = prefetched(iter('ab'), torch.device('cuda'))
    copy = ['side waits for current', 'on side', 'copy', 'back']
    assert next(batches) == 'a'
    assert cuda.log == [*copy, *copy, 'current waits for event 1']
    assert next(batches) == 'b'
    assert cuda.log[9:] == ['current waits for event 2']


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_on_a_gpu_every_batch_arrives_whole_and_nobody_waits():
    device = torch.device('cuda', torch.cuda.current_device())
    size = 1 << 20
    data = [DataContainer([torch.full((size,), float(i)).pin_memory()]) for i in range(20)]
    weight = torch.ones(1024, 1024, device=device)
    sums = []
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode('error')
    try:
        for batch in prefetched(iter(data), device):
            for _ in range(20):  # so that the host is far ahead of the device
                weight = weight @ weight / 1024
            tensor = batch.data[0]
            assert tensor.device == device
            sums.append(tensor.sum())
            del batch, tensor
    finally:
        torch.cuda.set_sync_debug_mode('default')
    assert [each.item() for each in sums] == [float(i * size) for i in range(20)]


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_where_there_is_no_gpu_it_says_so():
    with pytest.raises(ValueError, match="prefetch_to is 'cuda', but no such device was found"):
        iter(loader(prefetch_to='cuda'))
