import torch
from support import Noisy, loader
from torch.utils.data import DataLoader

from runnerkit.data.iter_loader import IterLoader
from runnerkit.data.reader import Reader
from runnerkit.hooks import EvalHook
from runnerkit.runner.readers import Readers


def opened(*loaders, kind=Reader):
    readers = Readers()
    readers.open(loaders, kind)
    return readers


def test_entries_keep_their_readers_as_long_as_all_loaders_are_the_same():
    one, other = loader(), loader(8)
    readers = opened(one, other, kind=IterLoader)
    kept = list(readers.entries)
    assert [type(reader) for reader in kept] == [IterLoader, IterLoader]
    readers.open([one, other], IterLoader)
    assert all(reader is former for reader, former in zip(readers.entries, kept, strict=True))
    readers.open([one, loader(8)], IterLoader)
    assert not any(reader is former for reader, former in zip(readers.entries, kept, strict=True))


def test_a_loader_in_two_entries_has_a_reader_in_each():
    shared, unknown = loader(), loader()
    readers = opened(shared, shared)
    assert [readers.find_or_add(shared, entry) is readers.entries[entry] for entry in (0, 1)] == [True, True]
    assert readers.find_or_add(shared, 2) is readers.entries[0]
    found = readers.find_or_add(unknown, 0)
    assert readers.entries[2] is found
    assert readers.find_or_add(unknown, 0) is found


def test_evaluations_have_readers_of_their_own_in_a_fixed_order():
    train, val, hooked = loader(), loader(8), loader(6)
    readers = opened(train, val)
    readers.add_evaluations([('train', 1), ('val', 1)], [EvalHook(hooked), object()])
    assert [reader.dataloader for reader in readers.evaluations] == [val, hooked]
    assert readers.find_or_add_evaluation(hooked) is readers.evaluations[1]
    assert readers.find_or_add_evaluation(val) is not readers.entries[1]


def test_what_loaders_hold_is_given_back():
    def shuffled(seed):
        return DataLoader(Noisy(8), 4, shuffle=True, generator=torch.Generator().manual_seed(seed))

    readers = opened(shuffled(1))
    readers.find_or_add_evaluation(shuffled(2))
    state = readers.state_dict(Reader.state)
    expected = [reader.dataloader.generator.get_state() for reader in (*readers.entries, *readers.evaluations)]
    others = opened(shuffled(3))
    others.find_or_add_evaluation(shuffled(4))
    others.restore_held(state)
    found = [reader.dataloader.generator.get_state() for reader in (*others.entries, *others.evaluations)]
    assert all(map(torch.equal, found, expected))


def test_readers_without_a_state_are_passed_over():
    readers = opened(loader(), loader(8))
    second = readers.entries[1].state_dict()
    assert [reader for reader, _ in readers.entries_in({'readers': [None, second]})] == [readers.entries[1]]
    assert list(readers.evaluations_in({'readers': []})) == []


def test_loaders_of_a_run_of_ones_own_are_found():
    readers = Readers()
    begun, waiting = IterLoader(loader()), IterLoader(loader())
    next(begun)
    readers.adopt_new_iter_loaders()
    assert waiting in readers.entries
    assert begun not in readers.entries


def test_loaders_that_are_built_for_each_evaluation_are_not_kept_for_ever():
    known = loader(6)
    readers = opened(loader())
    readers.add_evaluations([('train', 1)], [EvalHook(known)])
    late = [loader(4) for _ in range(12)]
    for each in late:
        assert readers.find_or_add_evaluation(each).dataloader is each
    assert len(readers.evaluations) == 9
    assert readers.evaluations[0].dataloader is known
    assert readers.evaluations[-1].dataloader is late[-1]


def test_only_the_loaders_of_this_run_are_found():
    former = IterLoader(loader())
    readers = Readers()
    own = IterLoader(loader())
    readers.adopt_new_iter_loaders()
    assert own in readers.entries
    assert former not in readers.entries
