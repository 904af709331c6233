"""What comes next in a run, and until when."""

import pytest
from support import Recorder, loader, tiny_runner

from runnerkit.runner.plan import Plan


def planned(workflow, kind='epoch', lengths=(8, 8), **limits):
    runner = tiny_runner(kind, **limits)
    runner.plan.prepare([loader(length) for length in lengths[: len(workflow)]], workflow)
    runner.plan.begin(workflow)
    return runner


def walked(runner, most=20):
    """The units of a run: each counts as the runner's own would count it."""
    progress, found = runner.progress, []
    for entry, _ in runner.plan:
        found.append((entry, progress.running))
        if runner.plan.workflow[entry][0] == 'train':
            progress.iter += 1 if not runner.by_epoch else 2
            progress.epoch += runner.by_epoch
        if len(found) == most:
            break
    return found


def test_the_workflow_is_repeated_until_the_run_has_its_length():
    runner = planned([('train', 2), ('val', 1)], max_epochs=3)
    assert walked(runner) == [(0, 0), (0, 1), (1, 0), (0, 0), (1, 0)]
    assert runner.plan.is_done


def test_iterations_are_counted_in_the_iteration_runner():
    assert walked(planned([('train', 2), ('val', 1)], 'iter', max_iters=3)) == [(0, 0), (0, 1), (1, 0), (0, 0), (1, 0)]


def test_a_workflow_without_training_runs_once():
    assert walked(planned([('val', 2)], max_epochs=3)) == [(0, 0), (0, 1)]
    runner, recorder = tiny_runner('iter', max_iters=5), Recorder()
    runner.register_hook(recorder)
    runner.run([loader(8)], [('val', 2)])
    assert recorder.names().count('after_val_iter') == 2


def test_it_goes_on_where_the_run_is():
    runner = planned([('train', 2), ('val', 1)], max_epochs=3)
    runner.progress.load_state_dict({'epochs': 1, 'iters': 2, 'entry': 0, 'units': 1})
    assert walked(runner) == [(0, 1), (1, 0), (0, 0), (1, 0)]


def test_a_unit_that_was_left_runs_again():
    runner, found = planned([('train', 3)], max_epochs=3), []
    for entry, _ in runner.plan:
        found.append((entry, runner.progress.running))
        if len(found) == 2:
            runner.progress.leave_unit()
        else:
            runner.progress.epoch += 1
    assert found == [(0, 0), (0, 1), (0, 1), (0, 2)]


@pytest.mark.parametrize(
    'kind, limits, counted',
    [
        ('epoch', {'max_epochs': 3}, ()),
        ('epoch', {'max_epochs': 3}, ('iter',)),
        ('epoch', {'max_iters': 3}, ('epoch',)),
        ('iter', {'max_iters': 3}, ()),
        ('iter', {'max_iters': 3}, ('epoch',)),
    ],
)
def test_a_training_that_counts_nothing_is_refused(kind, limits, counted):
    """It would never end, or end as completed after one round. As long as the run's own counter moves, it goes on."""
    runner, units = planned([('train', 2), ('val', 1)], kind, **limits), []
    with pytest.raises(RuntimeError, match=r"Runner\.train counts nothing.*add self\.mode = 'train'.*_epoch"):
        for unit in runner.plan:
            units.append(unit)
            assert len(units) < 20
            for name in counted:
                setattr(runner.progress, name, getattr(runner.progress, name) + 1)
    assert len(units) == 3


def test_nothing_comes_after_a_stop():
    runner, found = planned([('train', 1)], max_epochs=3), []
    for unit in runner.plan:
        found.append(unit)
        runner.stop('enough')
    assert len(found) == 1


def test_another_workflow_begins_with_its_first_entry():
    runner = planned([('train', 1), ('val', 1)], max_epochs=3)
    runner.progress.begin_unit(1, 1)
    runner.plan.begin([('train', 1), ('val', 1)])
    assert runner.progress.entry == 1
    runner.plan.begin([('train', 2)])
    assert (runner.progress.entry, runner.progress.unit) == (0, 0)


@pytest.mark.parametrize(
    ('kind', 'limits', 'expected'),
    [
        ('epoch', {'max_epochs': 3}, (3, 6)),
        ('epoch', {'max_iters': 5}, (3, 5)),
        ('iter', {'max_iters': 5}, (None, 5)),
        ('iter', {'max_epochs': 3}, (3, 6)),
    ],
)
def test_both_lengths_are_known_before_the_first_hook_asks(kind, limits, expected):
    plan = planned([('train', 1)], kind, **limits).plan
    assert (plan.max_epochs, plan.max_iters) == expected


def test_the_length_follows_the_loader_that_is_trained_on():
    runner = planned([('train', 1)], max_epochs=3)
    runner.progress.load_state_dict({'epochs': 1, 'iters': 10})  # of an epoch with ten batches
    runner.data_loader = loader(8)
    runner.plan.follow(runner.data_loader)
    assert runner.max_iters == 10 + 2 * 2


@pytest.mark.parametrize(('kind', 'name'), [('epoch', 'max_epochs'), ('iter', 'max_iters')])
def test_a_run_needs_a_length_which_may_be_an_argument_of_run(kind, name):
    with pytest.raises(ValueError, match=f'{name} must be specified before run'):
        planned([('train', 1)], kind)
    runner = tiny_runner(kind)
    with pytest.warns(DeprecationWarning, match=f'{name} in run'):
        runner.run([loader(8)], [('train', 1)], **{name: 2})
    assert (runner.epoch if kind == 'epoch' else runner.iter) == 2


def test_it_says_how_long_it_is():
    plan = Plan(None, None, 7)
    assert plan.length == '7 iterations'
    assert Plan(None, 3, None).length == '3 epochs'
