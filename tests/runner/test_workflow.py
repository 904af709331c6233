"""What a workflow may be."""

import pytest
from support import loader, tiny_runner
from torch import nn

from runnerkit.runner import EpochBasedRunner
from runnerkit.runner.workflow import check_workflow, epochs_in, first_training_loader, iters_in, length_of, trains


@pytest.mark.parametrize(
    'loaders, workflow, error, text',
    [
        ('x', [('train', 1)], TypeError, 'data_loaders must be a list of loaders'),
        (1, 'train', TypeError, r'workflow must be a list of \(mode, n\)'),
        (1, ['train'], TypeError, 'workflow must be a list of'),
        (2, [('train', 1)], ValueError, 'workflow has 1 entries, but there are 2 data loaders'),
        (1, [('train', 1, 2)], ValueError, r'a workflow entry is \(mode, n\)'),
        (1, [(3, 1)], TypeError, 'mode in workflow must be a str'),
        (1, [('train', 0)], ValueError, 'must be a whole number of at least 1'),
        (1, [('train', True)], ValueError, 'must be a whole number of at least 1'),
        (1, [('fly', 1)], ValueError, 'runner has no method named "fly" to run an epoch, and Tiny has no fly_step'),
    ],
)
@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_wrong_workflows_are_refused(kind, loaders, workflow, error, text):
    limit = {'max_epochs': 1} if kind == 'epoch' else {'max_iters': 1}
    loaders = [loader(4)] * loaders if isinstance(loaders, int) else loaders
    with pytest.raises(error, match=text):
        tiny_runner(kind, **limit).run(loaders, workflow)


def test_empty_loaders_are_refused():
    with pytest.raises(ValueError, match=r"the workflow entry \('train', 1\) is empty"):
        tiny_runner(max_epochs=1).run([[]], [('train', 1)])


def test_lengths():
    assert (length_of([1, 2]), length_of(iter([]))) == (2, None)
    assert (iters_in(3, [1, 2]), iters_in(3, iter([])), iters_in(None, [1])) == (6, None, None)
    assert (epochs_in(5, [1, 2]), epochs_in(5, None), epochs_in(None, [1])) == (3, None, None)


def test_what_trains():
    runner = tiny_runner(max_epochs=1)
    assert [trains(mode, runner) for mode in ('train', 'val', 'dis')] == [True, False, True]
    assert first_training_loader([1, 2], [('val', 1), ('dis', 1)], runner) == 2
    assert first_training_loader([1], [('val', 1)], runner) is None


def test_a_train_entry_for_a_model_with_other_steps_only_is_refused():
    class Modes(nn.Module):
        def dis_step(self, data, optimizer): ...

        def gen_step(self, data, optimizer): ...

    runner = EpochBasedRunner(Modes(), max_epochs=1)
    words = r"Modes has only dis_step, gen_step: write workflow = \[\('dis', 1\), \('gen', 1\)\]"
    with pytest.raises(ValueError, match=words):
        check_workflow([[1]], [('train', 1)], runner)
    check_workflow([[1], [1]], [('dis', 1), ('gen', 1)], runner)
