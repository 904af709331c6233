"""Requests to stop on several ranks: all of them stop after the same iteration."""

import time
from types import SimpleNamespace

import pytest
from support import Recorder, loader, tiny_runner

from runnerkit.distributed import agreement
from runnerkit.distributed.signals import StopSignals
from runnerkit.hooks import Hook
from runnerkit.utils.exceptions import PeerFailed


def asking(point, at, rank=None):
    """A hook that calls ``runner.stop`` at ``point`` when ``at`` iterations are done; on ``rank`` alone, if given."""

    def ask(self, runner):
        if runner.completed_iters >= at and rank in (None, runner.rank):
            runner.stop(f'asked by {rank}')

    return type('Asking', (Hook,), {point: ask})()


class Uneven(Hook):
    """Lets the ranks be some iterations apart: nothing in these runs makes one wait for another."""

    def after_train_iter(self, runner):
        time.sleep(0.002 if runner.rank == runner.iter // 7 % 2 else 0)


ASKED_BY_ALL = [
    *(('epoch', point, 0) for point in ('before_run', 'before_train_epoch', 'before_train_iter')),
    *(('epoch', point, 7) for point in ('before_train_iter', 'after_train_iter', 'after_train_epoch')),
    *(('epoch', point, 7) for point in ('before_val_epoch', 'after_val_iter', 'after_val_epoch')),
    *(('iter', point, 0) for point in ('before_run', 'before_epoch', 'before_train_iter', 'after_train_iter')),
    *(('iter', point, 7) for point in ('before_train_iter', 'after_train_iter', 'after_val_iter')),
]
ASKED_BY_ONE = [
    ('epoch', 'before_run', 0, 1),
    ('epoch', 'before_train_iter', 12, 1),
    ('epoch', 'after_train_epoch', 12, 0),
    ('epoch', 'after_val_iter', 12, 1),
    ('iter', 'after_train_iter', 12, 1),
    ('iter', 'before_train_iter', 12, 0),
]


def asked(kind, point, at, rank=None, epochs=4):
    recorder, runner = Recorder(), tiny_runner(kind, max_epochs=epochs)
    for hook in (Uneven(), asking(point, at, rank), recorder):
        runner.register_hook(hook)
    runner.run([loader(dist=False), loader(dist=False)], [('train', 1), ('val', 1)])
    return str(runner.outcome), recorder.heard


def ask(rank):
    return [asked(*case) for case in ASKED_BY_ALL], [asked(*case, epochs=200) for case in ASKED_BY_ONE]


def test_asked_by_a_hook_all_ranks_stop_after_the_same_iteration(on_ranks):
    (by_all, by_one), others = on_ranks(__file__, 'ask')
    assert others == (by_all, by_one)
    for case, ended in zip(ASKED_BY_ALL, by_all, strict=True):
        assert ended == asked(*case), case  # a single process
    for case, (outcome, _) in zip(ASKED_BY_ONE, by_one, strict=True):
        assert outcome == f'stopped: asked by {case[-1]}'


def test_a_rank_that_does_not_answer(monkeypatch):
    """Then the run fails, and signals do what they would do without it."""
    kept = {}
    store = SimpleNamespace(
        check=lambda keys: all(key in kept for key in keys),
        get=kept.__getitem__,
        set=kept.__setitem__,
        compare_set=lambda key, _, value: kept.setdefault(key, value),
    )
    default = SimpleNamespace(clone=lambda: store)
    monkeypatch.setattr(agreement.distributed_c10d, '_get_default_store', lambda: default)
    monkeypatch.setattr(agreement, '_PATIENCE', 0.1)
    with StopSignals(0, 2) as signals:
        signals.request('enough')
        signals.boundaries += 1
        with pytest.raises(PeerFailed, match='cannot agree on when to stop, as one of them has gone: no answer'):
            signals.due()
