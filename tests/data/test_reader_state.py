"""The state of a reader: its fields, in files and at a place."""

from runnerkit.data import build_dataloader
from runnerkit.data.kinds import order_of
from runnerkit.data.loader import SeededLoader
from runnerkit.data.reader_state import ReaderState
from runnerkit.data.sampler import EpochSampler


def test_a_file_that_lacks_fields_gives_their_defaults():
    state = ReaderState.of({'epoch': 3, 'begun': True, 'batches': 2, 'of_a_later_version': 1})
    assert state == ReaderState(epoch=3, begun=True, batches=2)
    assert ReaderState.of(state.state_dict()) == state


def test_random_states_of_the_process_are_not_saved_with_each_reader():
    state = ReaderState.of({'epoch': 1, 'rng': {'torch': 1}})
    assert state.rng == {'torch': 1}
    assert 'rng' not in state.state_dict()


def test_a_place_is_known_in_samples_where_the_order_is_ours():
    ours = build_dataloader(list(range(10)), 2, 0, dist=False, seed=1)
    at = ReaderState.at(ours, 1, 3)
    assert (at.epoch, at.begun, at.batches, at.samples) == (1, True, 3, 6)
    assert ReaderState(batches=4).position_in(order_of(ours)) == 8
    assert ReaderState(batches=4, samples=5).position_in(order_of(ours)) == 5
    assert ReaderState(batches=4).last_in(order_of(ours)) == 6
    shared = SeededLoader(list(range(20)), 2, EpochSampler(range(20), world_size=3))
    assert ReaderState(batches=2).position_in(order_of(shared)) == 12
    assert ReaderState(batches=2).last_in(order_of(shared)) == 6
    assert ReaderState.at([1, 2], 1, 1).samples is None
    at.begin_anew()
    assert (at.epoch, at.begun, at.batches, at.samples) == (1, False, 0, 0)
