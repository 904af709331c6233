"""Metrics that keep lists, on ranks with unequal numbers of batches."""

import pytest
import torch
import torchmetrics
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryAveragePrecision, MulticlassAUROC
from torchmetrics.retrieval import RetrievalMAP

from runnerkit.nn.metric_sync import unequal_lists


class Seen(torchmetrics.Metric):
    """Keeps a list without a reduction, a tensor that is summed, and one of each rank."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state('items', [], dist_reduce_fx=None)
        self.add_state('total', torch.tensor(0.0), dist_reduce_fx='sum')
        self.add_state('own', torch.zeros(2), dist_reduce_fx=None)

    def update(self, preds, target):
        self.items.append(preds[0])  # of no dimensions
        self.total += preds.sum()
        self.own += 1

    def compute(self):
        return sorted(float(each) for each in self.items), float(self.total), self.own.tolist()


class Reduced(torchmetrics.Metric):
    """Keeps a list with a reduction of its own, which torchmetrics sends item by item."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state('items', [], dist_reduce_fx=in_order)

    def update(self, preds, target):
        self.items.append(preds[0])

    def compute(self):
        return sorted(float(each) for each in self.items)


def in_order(items):
    return sorted(items)


class Kept(Seen):
    """What a rank has seen, as a class that sees to its ranks itself."""

    def __init__(self):
        super().__init__()
        self.dist_sync_fn = lambda tensor, group=None: [tensor]


def metrics():
    group = torchmetrics.MetricCollection([BinaryAUROC(), BinaryAveragePrecision()])
    return {
        'list': Seen(),
        'reduced': Reduced(),
        'auroc': BinaryAUROC(),
        'of classes': MulticlassAUROC(2),
        'accuracy': BinaryAccuracy(),
        'retrieval': RetrievalMAP(),
        'group': group,
    }


def batches(number):
    generator = torch.Generator().manual_seed(3)
    return [(torch.rand(4, generator=generator), torch.tensor([0, 1, 1, 0])) for _ in range(number)]


def update(name, metric, preds, target):
    if name == 'retrieval':
        metric.update(preds, target, indexes=torch.arange(4) % 2)
    elif name == 'of classes':
        metric.update(torch.stack([1 - preds, preds], 1), target)
    else:
        metric.update(preds, target)


def computed(found, mine):
    for name, metric in found.items():
        for batch in mine:
            update(name, metric, *batch)
    with unequal_lists(found.values()):
        scores = {name: metric.compute() for name, metric in found.items()}
    return {**scores.pop('group', {}), **scores}


def on_rank(rank):
    world_size = torch.distributed.get_world_size()
    found, calls = {}, []
    gather = torch.distributed.all_gather_object
    torch.distributed.all_gather_object = lambda *args, **kwargs: (calls.append(1), gather(*args, **kwargs))
    for number in range(1, 6):
        found[number] = computed(metrics(), batches(number)[rank::world_size])
    calls.clear()
    computed({'accuracy': BinaryAccuracy()}, batches(1)[rank::world_size])
    found['calls without lists'] = len(calls)
    computed({'auroc': BinaryAUROC()}, batches(5)[rank::world_size])  # which torchmetrics can
    found['calls with equal kinds'] = len(calls)
    found['own'] = computed({'own': Kept()}, batches(world_size)[rank::world_size])['own'][0]
    metric = Seen()
    computed({'list': metric}, batches(1)[rank::world_size])
    found['left behind'] = metric.dist_sync_fn
    return found


@pytest.fixture(scope='module')
def ranks(on_ranks):
    return on_ranks(__file__, 'on_rank', world_size=3)


@pytest.mark.parametrize('number', range(1, 6))  # of batches for three ranks: up to two of them have none
def test_every_rank_computes_what_one_process_does(ranks, number):
    expected = computed(metrics(), batches(number))
    items, total, own = expected.pop('list')
    for rank in ranks:
        found = dict(rank[number])
        listed, summed, each = found.pop('list')
        assert listed == items
        assert summed == pytest.approx(total)
        # One process has one such tensor.
        assert each == [[float(len(range(i, number, 3)))] * 2 for i in range(3)]
        for name, value in expected.items():
            assert found[name] == pytest.approx(value), name


def test_it_costs_one_collective_where_there_are_lists(ranks):
    assert [rank['calls without lists'] for rank in ranks] == [0, 0, 0]
    assert [rank['calls with equal kinds'] for rank in ranks] == [1, 1, 1]


def test_a_metric_may_see_to_it_itself_and_is_left_as_it_was(ranks):
    assert [len(rank['own']) for rank in ranks] == [1, 1, 1]
    assert [rank['left behind'] for rank in ranks] == [None, None, None]


def test_alone_nothing_is_done():
    metric = BinaryAUROC()
    with unequal_lists([metric, object()]):
        assert metric.dist_sync_fn is None
