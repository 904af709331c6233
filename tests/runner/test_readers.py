import torch
from support import Noisy, loader, tiny_runner
from torch.utils.data import DataLoader

from runnerkit.data.reader import IterLoader
from runnerkit.hooks import EvalHook, Hook


def opened(*loaders, evaluated=()):
    readers = tiny_runner(max_epochs=1).readers
    readers.open(loaders)
    readers.prepare(evaluated)
    return readers


def shuffled(seed):
    return DataLoader(Noisy(8), 4, shuffle=True, generator=torch.Generator().manual_seed(seed))


def test_entries_keep_their_readers_as_long_as_all_loaders_are_the_same():
    one, other = loader(), loader(8)
    readers = opened(one, other)
    kept = list(readers.entries)
    readers.open([one, other])
    assert all(reader is former for reader, former in zip(readers.entries, kept, strict=True))
    readers.open([one, loader(8)])
    assert not any(reader is former for reader, former in zip(readers.entries, kept, strict=True))


def test_a_loader_in_two_entries_has_a_reader_in_each():
    shared, unknown = loader(), loader()
    readers = opened(shared, shared)
    assert [readers.find(shared, entry) is readers.entries[entry] for entry in (0, 1)] == [True, True]
    assert readers.find(shared, 2) is readers.entries[0]
    assert readers.find(unknown) is None
    found = readers.of(unknown)
    assert readers.entries[2] is found
    assert readers.of(unknown) is found


def test_evaluations_have_readers_of_their_own_in_a_fixed_order():
    train, val, hooked = loader(), loader(8), loader(6)
    readers = opened(train, val, evaluated=[val, hooked, val])
    assert [reader.dataloader for reader in readers.evaluations] == [val, hooked]
    assert readers.evaluation(hooked) is readers.evaluations[1]
    assert readers.evaluation(val) is not readers.entries[1]


def test_a_run_knows_the_loaders_that_it_evaluates_on():
    runner, val, hooked, several = tiny_runner(max_epochs=1), loader(8), loader(6), {'a': loader(4), 'b': loader(4)}
    runner.register_hook(EvalHook(hooked, interval=5))
    hook = Hook()
    hook.dataloaders = several
    runner.register_hook(hook)
    runner.run([loader(), val], [('train', 1), ('val', 1)])
    assert [reader.dataloader for reader in runner.readers.evaluations] == [val, hooked, *several.values()]


def test_what_loaders_hold_is_given_back():
    def held(of):
        return [reader.dataloader.generator.get_state() for reader in (*of.entries, *of.evaluations)]

    readers, others = (opened(shuffled(seed), evaluated=[shuffled(seed + 1)]) for seed in (1, 3))
    others.restore_held(readers.state_dict())
    assert all(map(torch.equal, held(others), held(readers)))


def test_loaders_with_names_are_known_by_these():
    one, other = loader(), loader(8)
    readers = tiny_runner(max_epochs=1).readers
    readers.open([one, other], ['clean', 'noisy'])
    next(readers.entries[1])
    state = readers.state_dict()
    assert state['loaders'] == ['clean', 'noisy']
    readers.open([other, one], ['noisy', 'clean'])
    assert [(reader.name, at.batches) for reader, at in readers.saved_in(state)] == [('noisy', 1), ('clean', 0)]
    assert 'loaders' not in opened(one).state_dict()


def test_readers_without_a_state_are_passed_over():
    readers = opened(loader(), loader(8))
    second = readers.entries[1].state_dict()
    assert [reader for reader, _ in readers.saved_in({'readers': [None, second]})] == [readers.entries[1]]
    assert list(readers.saved_in({})) == []


def test_loaders_of_a_run_of_ones_own_are_found():
    readers = tiny_runner('iter', max_iters=1).readers
    begun, waiting = IterLoader(loader()), IterLoader(loader())
    next(begun)
    readers.adopt_new_iter_loaders()
    assert waiting in readers.entries
    assert begun not in readers.entries


def test_loaders_that_are_built_for_each_evaluation_are_not_kept_for_ever():
    known = loader(6)
    readers = opened(evaluated=[known])
    late = [loader(4) for _ in range(12)]
    for each in late:
        assert readers.evaluation(each).dataloader is each
    assert [reader.dataloader for reader in readers.evaluations] == [known, *late[-8:]]


def test_only_the_loaders_of_this_run_are_found():
    former = IterLoader(loader())
    readers = tiny_runner('iter', max_iters=1).readers
    own = IterLoader(loader())
    readers.adopt_new_iter_loaders()
    assert own in readers.entries
    assert former not in readers.entries


def test_an_open_epoch_is_none_in_an_iteration_runner(tmp_path):
    runner = tiny_runner(max_iters=3)
    runner.run([loader()], [('train', 1)])
    path = runner.save(str(tmp_path))
    assert (runner.progress.epoch_is_open, runner.progress.batches) == (True, 3)
    resumed = tiny_runner('iter', max_iters=5)
    resumed.resume(path)
    resumed.run([loader()], [('train', 1)])
    saved = torch.load(resumed.save(str(tmp_path)), weights_only=True)['runnerkit']['progress']
    assert (saved['iters'], saved['epoch_is_open'], saved['batches'], saved['samples']) == (5, False, 0, 0)
