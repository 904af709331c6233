"""The startup that counts."""

import logging
from types import SimpleNamespace

import pytest
import torch
from support import ROOT
from torch.utils.data import Subset, TensorDataset
from torchmetrics.functional.classification import binary_auroc

from runnerkit.config import Config
from runnerkit.flow import Context, EngineMode
from runnerkit.utils.imports import import_object

FOLDER = ROOT / 'configs/recommendation'
Startup, Model, Reader = (
    import_object(f'{FOLDER}/{name}')
    for name in ('deepfm_startup.py:Startup', 'model.py:Model', 'reader.py:Reader')
)  # fmt: skip
#: Users 0 and 1, films 2 and 3, one more feature.
FEATURES = torch.tensor([[0, 2, 4], [0, 3, 4], [1, 2, 4], [0, 2, 4]])
LIKED = torch.tensor([1.0, 0.0, 1.0, 1.0])


def small(engine=EngineMode.SINGLE, **fields):
    torch.manual_seed(0)
    model = Model(fields=3, features=6, size=2, widths=[4], dropout=0.0)
    loader = SimpleNamespace(dataset=TensorDataset(FEATURES, LIKED))
    context = Context(Config({}), model=model, loaders=[loader], **fields)
    context['engine'] = engine
    return context


def test_weights_are_the_log_odds_of_users_and_films():
    context = small()
    Startup(context)(context)
    net = context.model.model
    share = 3 / 4
    expected = [(2, 3), (1, 1), (3, 3), (0, 1)]  # likings and ratings of two users and two films
    odds = torch.logit(torch.tensor([(likings + 5 * share) / (number + 5) for likings, number in expected]))
    assert torch.allclose(net.bias, torch.logit(torch.tensor(share)))
    assert torch.allclose(net.weights.weight[:4, 0], odds - net.bias)
    assert torch.allclose(net.weights.weight[4:], torch.zeros(2, 1), atol=1e-6)


def test_few_samples_that_are_all_likings():
    context = small()
    context.loaders[0].dataset = Subset(TensorDataset(FEATURES, LIKED), [2, 3])  # as --overfit gives
    Startup(context)(context)
    assert all(parameter.isfinite().all() for parameter in context.model.parameters())


def test_weights_that_are_loaded_or_resumed_are_not_counted(tmp_path):
    torch.save({name: torch.ones_like(value) for name, value in small().model.state_dict().items()}, tmp_path / 'w.pth')
    context = small()
    context.cfg.load_from = str(tmp_path / 'w.pth')
    Startup(context)(context)
    assert all((parameter == 1).all() for parameter in context.model.parameters())
    context = small(resume_from='latest.pth')
    Startup(context).startup(context)
    assert not context.model.model.weights.weight.any()


@pytest.mark.thorough  # the other tests of this file
def test_counting_alone_ranks_the_test_ratings_well():
    table = f'{ROOT}/configs/online/ratings.py:table'
    model = Model(fields=7, features=2998, size=2, widths=[4], dropout=0.0).eval()
    context = Context(Config({}), model=model, loaders=[SimpleNamespace(dataset=Reader(table, 'train'))])
    context['engine'] = EngineMode.SINGLE
    test = Reader(table, 'test')
    before = binary_auroc(model(test.features).detach(), test.liked.int())
    Startup(context)(context)
    after = binary_auroc(model(test.features).detach(), test.liked.int())
    assert before < 0.6
    assert after > 0.75


def started(rank):
    context = small(EngineMode.CLUSTER, rank=rank, world_size=2)
    if rank == 1:
        context.loaders = []  # it need not count
    lines = []
    logger = logging.getLogger(f'rank {rank}')
    logger.setLevel('INFO')
    logger.addHandler(SimpleNamespace(level=0, handle=lambda record: lines.append(record.getMessage())))
    context.logger = logger
    Startup(context)(context)
    return [*context.model.parameters()], lines


def test_on_several_ranks_one_counts_for_all(on_ranks):
    (first, told), (second, silent) = on_ranks(__file__, 'started')
    alone = small()
    Startup(alone)(alone)
    for one, other, expected in zip(first, second, alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, expected)
    assert told == ['initialised the weights of 4 users and films from 4 ratings']
    assert silent == []
