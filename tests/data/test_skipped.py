import random

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from runnerkit.data.loader_state import LoaderState
from runnerkit.data.reader_state import ReaderState
from runnerkit.data.skipped import DrawCheck, SkippedSampler
from runnerkit.utils.seed import rng_state


def test_a_sampler_without_its_first_items():
    drawn = []
    rest = SkippedSampler(range(5), 2, after_first=lambda: drawn.append(True))
    assert (list(rest), list(rest)) == ([2, 3, 4], [2, 3, 4])
    assert drawn == [True, True]
    assert list(SkippedSampler(range(5), 9)) == []


@pytest.mark.parametrize(
    'draw, moved',
    [
        (lambda: None, []),
        (random.random, ["the process's generator of python"]),
        (lambda: torch.rand(1), ["the process's generator of torch"]),
    ],
)
def test_what_moves_on_while_batches_are_left_out_is_seen(draw, moved):
    loader = DataLoader(range(6), 2, sampler=RandomSampler(range(6), generator=torch.Generator()))
    held = LoaderState(loader)
    state = ReaderState.at(loader, 0, 2)
    state.rng, state.held = rng_state(), held.states()
    watch = DrawCheck(held)
    assert watch.moved_elsewhere(state) == []  # nothing was drawn yet
    watch.start()
    draw()
    assert watch.moved_elsewhere(state) == moved


def test_what_moves_to_where_it_was_saved_is_right():
    loader = DataLoader(range(6), 2, sampler=RandomSampler(range(6), generator=torch.Generator()))
    held = LoaderState(loader)
    watch = DrawCheck(held)
    watch.start()
    torch.rand((), generator=loader.sampler.generator)
    elsewhere = ReaderState.at(loader, 0, 2)
    elsewhere.rng, elsewhere.held = rng_state(), {}
    assert watch.moved_elsewhere(elsewhere) == ['loader.sampler.generator']
    elsewhere.held = held.states()
    assert watch.moved_elsewhere(elsewhere) == []
