"""Data sets by name, and the names of their scores."""

import pytest
from support import Noisy, loader

from runnerkit.data.named import name_of_scores, name_scores, named_datasets, with_name
from runnerkit.data.reader import IterLoader

ONE = {'type': 'Noisy'}


@pytest.mark.parametrize('one', [ONE, [ONE, ONE], (ONE,), Noisy(3), {}])
def test_one_data_set_has_no_name(one):
    assert named_datasets(one) == {'': one}


@pytest.mark.parametrize('part', [ONE, [ONE], Noisy(3)])
def test_several_are_told_by_their_having_no_type(part):
    assert named_datasets({'clean': part, 'noisy': ONE}) == {'clean': part, 'noisy': ONE}


@pytest.mark.parametrize('wrong', [{'typ': 'Noisy', 'length': 3}, {'clean': {'length': 3}}, {'a/b': ONE}, {'': ONE}])
def test_what_is_neither_is_refused(wrong):
    with pytest.raises(TypeError, match="without 'type' must hold|text without slashes"):
        named_datasets(wrong)


def test_a_loader_knows_the_name_of_its_scores():
    plain, named = loader(4), name_scores(loader(4), 'clean')
    assert (name_of_scores(plain), name_of_scores(named), name_of_scores([])) == ('', 'clean', '')
    assert name_of_scores(IterLoader(named)) == 'clean'
    assert with_name(plain, {'loss': 1}) == {'loss': 1}
    assert with_name(named, {'loss': 1}) == {'clean/loss': 1}
