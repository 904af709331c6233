"""Seeding, and keeping and restoring the generators' states."""

import os
import random

import numpy as np
import pytest
import torch

from runnerkit.utils.seed import (
    draw_seed,
    preserved_rng,
    rng_state,
    same_rng_state,
    set_derived_rng_state,
    set_random_seed,
    set_rng_state,
    worker_init_fn,
)


@pytest.fixture(autouse=True)
def _undisturbed(monkeypatch):
    monkeypatch.setenv('PYTHONHASHSEED', '0')
    monkeypatch.setattr(torch.backends.cudnn, 'deterministic', False)
    monkeypatch.setattr(torch.backends.cudnn, 'benchmark', True)


def draws():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(3).tolist()


def test_one_seed_for_all():
    set_random_seed(7)
    first = draws()
    set_random_seed(8)
    assert all(a != b for a, b in zip(first, draws()))
    set_random_seed(7)
    assert draws() == first
    assert os.environ['PYTHONHASHSEED'] == '7'
    assert not torch.backends.cudnn.deterministic


def test_deterministic_backends():
    set_random_seed(7, deterministic=True)
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark


def test_ranks_may_have_seeds_of_their_own(monkeypatch):
    monkeypatch.setenv('RANK', '2')
    set_random_seed(5, use_rank_shift=True)
    shifted = draws()
    set_random_seed(7)
    assert draws() == shifted


@pytest.mark.parametrize(('seed', 'advice'), [(-1, 1), (2**32, 0), (2**32 + 5, 5)])
def test_seeds_out_of_range(seed, advice):
    before = random.getstate()
    with pytest.raises(ValueError, match=rf'in \[0, 2\*\*32\), but got {seed}: take {advice}, for example$'):
        set_random_seed(seed)
    assert random.getstate() == before


def test_drawing_a_seed_moves_no_generator():
    set_random_seed(7)
    first = draws()
    set_random_seed(7)
    seeds = {draw_seed() for _ in range(5)}
    assert draws() == first
    assert len(seeds) > 1
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_states_survive_a_file_that_may_hold_no_code(tmp_path):
    set_random_seed(3)
    draws()  # the second number of a gaussian pair is then waiting in the state
    torch.save(rng_state(), tmp_path / 'state.pth')
    expected = draws()
    set_random_seed(4)
    set_rng_state(torch.load(tmp_path / 'state.pth', weights_only=True))
    assert draws() == expected


def test_what_is_drawn_inside_nobody_notices():
    set_random_seed(3)
    expected = draws()
    set_random_seed(3)
    with preserved_rng():
        draws()
    assert draws() == expected
    set_random_seed(3)
    with pytest.raises(KeyError), preserved_rng():
        draws()
        raise KeyError
    assert draws() == expected


def test_states_of_devices_that_are_not_here_are_left_out():
    state = rng_state()
    state['cuda'] = state['cuda'] + [torch.get_rng_state()] * 64
    if not torch.cuda.is_available():
        set_rng_state(state)
    assert torch.equal(torch.get_rng_state(), state['torch'])


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_cuda_generators_are_part_of_it():
    set_random_seed(3)
    torch.rand(1, device='cuda')
    state = rng_state()
    expected = torch.rand(5, device='cuda')
    set_rng_state(state)
    assert torch.equal(torch.rand(5, device='cuda'), expected)


def test_workers_of_all_processes_get_seeds_of_their_own():
    drawn = {}
    for rank in range(2):
        for worker in range(3):
            worker_init_fn(worker, num_workers=3, rank=rank, seed=7)
            drawn[rank, worker] = (random.random(), np.random.rand(), torch.rand(()).item())
    assert len(set(drawn.values())) == 6
    worker_init_fn(0, num_workers=1, rank=0, seed=7 + 3 + 2)
    assert (random.random(), np.random.rand(), torch.rand(()).item()) == drawn[1, 2]


def test_derived_states_follow_from_a_state_and_a_number_alone():
    set_random_seed(3)
    state, drawn = rng_state(), []
    for number in (4, 5, 4):
        torch.rand(number)  # wherever the generators are
        set_derived_rng_state(state, number)
        drawn.append((random.random(), np.random.rand(), torch.rand(()).item()))
    assert drawn[0] == drawn[2] != drawn[1]
    set_random_seed(4)
    set_derived_rng_state(rng_state(), 4)
    assert random.random() != drawn[0][0]


def test_states_are_told_apart():
    set_random_seed(3)
    states = [rng_state()]
    for draw in (random.random, np.random.rand, lambda: torch.rand(1)):
        draw()
        states.append(rng_state())
    assert [[same_rng_state(one, other) for one in states] for other in states] == torch.eye(4).bool().tolist()
