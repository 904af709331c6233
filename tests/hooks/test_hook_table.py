"""Who is called when: order, compilation, misspelt points."""

from contextlib import contextmanager

import pytest
from support import loader, tiny_runner

from runnerkit.hooks import ClosureHook, Hook
from runnerkit.hooks.hook_table import HookTable


class Named(Hook):
    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def after_train_iter(self, runner):
        self.calls.append(self.name)


def table_of(*hooks_and_priorities):
    table = HookTable()
    for hook, priority in hooks_and_priorities:
        table.register(hook, priority)
    return table


def fire(table, point='after_train_iter'):
    for call in table.calls[point]:
        call(None)


def test_lower_number_first_ties_in_order_of_registration():
    calls = []
    table = table_of(*[(Named(name, calls), p) for name, p in [('c', 50), ('a', 10), ('d', 50), ('b', 30), ('e', 100)]])
    fire(table)
    assert calls == ['a', 'b', 'c', 'd', 'e']
    assert [hook.name for hook in table] == ['a', 'b', 'c', 'd', 'e']


def test_a_hook_that_overrides_nothing_is_never_called():
    table = table_of((Hook(), 50), (Named('a', []), 50))
    assert [len(table.calls[point]) for point in ('after_step', 'before_train_iter', 'after_train_iter')] == [0, 0, 1]


def test_train_and_val_points_fall_back_to_the_generic_one():
    class Both(Hook):
        seen = 0

        def before_epoch(self, runner):
            self.seen += 1

    hook = Both()
    table = table_of((hook, 50))
    fire(table, 'before_train_epoch')
    fire(table, 'before_val_epoch')
    fire(table, 'before_epoch')
    assert hook.seen == 3
    assert hook.get_triggered_stages() == ['before_train_epoch', 'before_val_epoch']


def test_a_specific_point_replaces_the_generic_one():
    calls = []

    class Specific(Hook):
        def after_iter(self, runner):
            calls.append('generic')

        def after_train_iter(self, runner):
            calls.append('train')

    table = table_of((Specific(), 50))
    fire(table)
    fire(table, 'after_val_iter')
    assert calls == ['train', 'generic']


@pytest.mark.parametrize(
    'change',
    [
        lambda table, hook: table.append(hook),
        lambda table, hook: table.insert(0, hook),
        lambda table, hook: table.extend([hook]),
        lambda table, hook: table.__setitem__(slice(0, 0), [hook]),
        lambda table, hook: table.__iadd__([hook]),
    ],
)
def test_edits_of_the_list_take_effect_at_once(change):
    calls = []
    table = table_of((Named('first', calls), 50))
    fire(table)
    change(table, Named('second', calls))
    calls.clear()
    fire(table)
    assert sorted(calls) == ['first', 'second']
    table.pop()
    table.clear()
    calls.clear()
    fire(table)
    assert calls == []


def test_methods_given_to_an_instance_count():
    calls = []
    table = table_of((ClosureHook('after_train_iter', calls.append), 50))
    fire(table)
    assert calls == [None]


def test_hooks_that_save_come_last_whatever_their_priority():
    calls = []
    saver = Named('saver', calls)
    saver.runs_last = True
    fire(table_of((saver, 10), (Named('late', calls), 100)))
    assert calls == ['late', 'saver']


def test_free_names_call_whoever_has_them():
    class Extra(Hook):
        def on_user_event(self, runner):
            self.heard = True

    hook = Extra()
    fire(table_of((hook, 50), (Hook(), 50)), 'on_user_event')
    assert hook.heard


def test_info_lists_callers_by_point_with_their_bands():
    text = table_of((Named('a', []), 50), (Named('b', []), 33)).info()
    assert text == 'after_train_iter:\n  (33          ) Named\n  (NORMAL      ) Named'


@pytest.mark.parametrize(
    'name, meant', [('after_train_itr', 'after_train_iter'), ('befor_run', 'before_run'), ('around_vall', 'around_val')]
)
def test_misspelt_points_are_refused(name, meant):
    misspelt = type('Misspelt', (Hook,), {name: lambda self, runner: None})
    with pytest.raises(ValueError, match=f"Misspelt.{name} would never be called.*Did you mean '{meant}'"):
        table_of((misspelt(), 50))


@pytest.mark.parametrize('name', ['after_everything', '_after_train_itr', 'log', 'before_resume', 'get_iter'])
def test_other_names_are_free(name):
    free = type('Free', (Hook,), {name: lambda self, *args: None})
    table_of((free(), 50))


# --- parts of the engine ---------------------------------------------------------------------------------------------


class Part:
    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def after_train_iter(self, runner):
        self.calls.append(self.name)

    def helper(self, runner):
        raise AssertionError('it is no point')


def test_parts_are_called_before_and_behind_all_hooks_and_are_not_in_the_list():
    calls = []
    table = table_of((Named('hook', calls), 0))
    table.add_part(Part('last', calls), is_last=True)
    table.add_part(Part('first', calls))
    fire(table)
    assert calls == ['first', 'hook', 'last']
    assert [hook.name for hook in table] == ['hook']
    assert table.calls['helper'] == []


def test_a_call_can_come_and_go():
    calls = []
    table, part = table_of((Named('hook', calls), 0)), Part('part', calls)
    table.listen('after_train_iter', part.after_train_iter)
    fire(table)
    table.unlisten('after_train_iter', part.after_train_iter)
    table.unlisten('after_train_iter', part.after_train_iter)  # it is gone already
    fire(table)
    assert calls == ['part', 'hook', 'hook']


def test_a_call_at_the_end_of_the_running_point_is_made_once_and_last():
    calls, table = [], HookTable()

    def ask(runner):
        calls.append('ask')
        if len(calls) == 1:
            table.at_end('after_train_iter', lambda runner: calls.append('at the end'))

    table.listen('after_train_iter', ask)
    table.listen('after_train_iter', lambda runner: calls.append('last'), is_last=True)
    fire(table)
    fire(table)
    assert calls == ['ask', 'last', 'at the end', 'ask', 'last']
    table.at_end('after_train_iter', lambda runner: calls.append('the next time'))
    fire(table)
    assert calls[5:] == ['ask', 'last', 'the next time']


def test_a_part_may_leave_while_its_point_is_called():
    calls, table = [], HookTable()

    def once(runner):
        calls.append('once')
        table.unlisten('after_train_iter', once)

    table.listen('after_train_iter', once)
    table.listen('after_train_iter', lambda runner: calls.append('next'))
    fire(table)
    fire(table)
    assert calls == ['once', 'next', 'next']


def test_all_parts_and_hooks_leave_also_if_one_fails(caplog):
    calls = []

    class Fails(Hook):
        def after_run(self, runner):
            raise ValueError('its own')

    class Leaves(Hook):
        def after_run(self, runner):
            calls.append('hook')

    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Fails())
    runner.register_hook(Leaves())
    runner.hooks.listen('after_run', lambda runner: calls.append('part'), is_last=True)
    with pytest.raises(ValueError, match='its own'):
        runner.run([loader(4)], [('train', 1)])
    assert calls == ['hook', 'part']
    assert 'after_run of Fails failed' in caplog.text


def test_rings_may_be_entered_within_themselves():
    calls = []

    class Ring(Hook):
        @contextmanager
        def around_epoch(self, runner):
            calls.append('in')
            yield
            calls.append('out')

    table = table_of((Ring(), 50))
    with table.around['around_epoch'], table.around['around_epoch']:
        assert calls == ['in', 'in']
    assert calls == ['in', 'in', 'out', 'out']
    table.clear()
    with table.around['around_epoch']:
        pass
    assert len(calls) == 4


def test_a_ring_that_cannot_be_entered_unwinds_the_outer_ones():
    calls = []

    class Outer(Hook):
        @contextmanager
        def around_iter(self, runner):
            try:
                yield
            finally:
                calls.append('outer is left')

    class Inner(Hook):
        def around_iter(self, runner):
            raise KeyError('inner')

    table = table_of((Outer(), 10), (Inner(), 50))
    with pytest.raises(KeyError, match='inner'), table.around['around_iter']:
        pass
    assert calls == ['outer is left']
