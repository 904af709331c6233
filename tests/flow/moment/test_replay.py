"""A run again, up to any moment of it."""

import random

import pytest
import torch
from moments import KINDS, after, same, train_kind, weights_of

from runnerkit import replay


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Work dir and what was seen, by kind; trained at first use."""
    found = {}

    def of(kind):
        if kind not in found:
            found[kind] = train_kind(kind, tmp_path_factory.mktemp(kind))
        return found[kind]

    return of


def check_moment(work_dir, seen, number):
    """The moment before iteration ``number``, and its step, are those that were seen."""
    with replay(work_dir, number) as moment:
        then = seen[number]
        assert moment.iter == number
        assert same(moment.batch, then['batch'])
        assert same(weights_of(moment.model), then['weights'])
        assert [sample.index for sample in moment.samples] == then['batch']['i'].tolist()
        assert [sample.name for sample in moment.samples] == [f'{i}.png' for i in then['batch']['i'].tolist()]
        torch.rand(3)  # is not missing in the step
        moment.step()
        now = after(moment.run)
        assert same(now['loss'], then['loss'])
        assert same(now['gradients'], then['gradients'])
        assert moment.has_ended or same(weights_of(moment.model), seen[number + 1]['weights'])
        assert moment.differences == []


@pytest.mark.parametrize('kind', [*KINDS][:-2])
def test_a_moment_is_what_a_hook_has_seen_of_it(trained, kind):
    work_dir, seen = trained(kind)
    check_moment(work_dir, seen, random.Random(kind).randrange(len(seen)))


@pytest.mark.thorough  # test_a_moment_is_what_a_hook_has_seen_of_it: one moment of each kind
@pytest.mark.parametrize('kind', [*KINDS][:-2])
def test_every_moment_is_what_a_hook_has_seen_of_it(trained, kind):
    work_dir, seen = trained(kind)
    for number in seen:
        check_moment(work_dir, seen, number)


def of_ranks(rank, folder, kind, numbers):
    """Train on this rank with the others, and look at some moments again."""
    work_dir, seen = train_kind(kind, folder)
    for number in numbers:
        check_moment(work_dir, seen, number)
    return {number: seen[number]['batch']['i'].tolist() for number in numbers}


@pytest.mark.parametrize('kind', [*KINDS][-2:])
def test_two_ranks_are_where_each_of_them_was(on_ranks, tmp_path, kind):
    first, second = on_ranks(__file__, 'of_ranks', tmp_path, kind, [4, 8])
    assert all(not set(first[number]) & set(second[number]) for number in first)
    with pytest.raises(ValueError, match='had 2 ranks.*torchrun --nproc-per-node 2'):
        with replay(tmp_path / 'run', 4):
            pass
