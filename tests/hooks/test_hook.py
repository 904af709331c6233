"""The contract of a hook."""

import ast
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from installed import install
from support import loader, tiny_runner

from runnerkit.hooks import Hook, Priority, RunnerView, get_priority
from runnerkit.hooks.hook import FALLBACKS, POINTS, STAGES, Outcome


def test_the_points_are_mmcvs():
    assert len(STAGES) == 10
    assert FALLBACKS['before_train_epoch'] == 'before_epoch'
    assert FALLBACKS['after_val_iter'] == 'after_iter'
    assert set(FALLBACKS) < set(POINTS)


def test_an_outcome_reads_as_the_log_says_it():
    error = ValueError('boom')
    outcomes = [
        Outcome('completed'),
        Outcome('stopped', 'SIGTERM'),
        Outcome('interrupted', error=KeyboardInterrupt()),
        Outcome('failed', error=error),
    ]
    assert [str(each) for each in outcomes] == [
        'completed',
        'stopped: SIGTERM',
        'interrupted',
        "failed: ValueError('boom')",
    ]
    assert [each.ended_well for each in outcomes] == [True, True, False, False]
    with pytest.raises(AttributeError):
        outcomes[0].kind = 'failed'


def test_a_runner_is_what_hooks_are_promised():
    assert isinstance(tiny_runner(max_epochs=1), RunnerView)


#: What is there for users' hooks; ours read ``outputs``, which costs nothing.
FOR_USERS = {'step_record', 'parent'}


#: Files of `runnerkit.hooks` that hold parts of the engine, which read other parts.
PARTS_OF_THE_ENGINE = ('hook_table', 'registration', 'weights')


def test_what_a_hook_may_read_is_what_our_hooks_read():
    """Neither is anything else read, nor is anything promised that nobody needs."""
    promised = {name for name in (*RunnerView.__annotations__, *vars(RunnerView)) if not name.startswith('_')}
    folder = Path(import_module('runnerkit.hooks').__file__).parent
    files = [file for file in folder.rglob('*.py') if file.stem not in PARTS_OF_THE_ENGINE]
    files.append(folder.parent / 'compat/vega/callbacks.py')
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding='utf-8')))]
    found = [node for node in nodes if isinstance(node, ast.Attribute) and getattr(node.value, 'id', '') == 'runner']
    read = {node.attr for node in found}
    assert read | FOR_USERS == promised


@pytest.mark.parametrize('n, hits', [(0, []), (-1, []), (1, [0, 1, 2, 3]), (2, [1, 3]), (3, [2])])
def test_every_n(n, hits):
    hook = Hook()
    for method, counter in (
        ('every_n_epochs', 'epoch'),
        ('every_n_iters', 'iter'),
        ('every_n_inner_iters', 'inner_iter'),
    ):
        assert [i for i in range(4) if getattr(hook, method)(SimpleNamespace(**{counter: i}), n)] == hits


def test_ends():
    runner = SimpleNamespace(epoch=1, max_epochs=2, iter=7, max_iters=8, inner_iter=3, data_loader=[0] * 4)
    hook = Hook()
    assert hook.is_last_epoch(runner)
    assert hook.is_last_iter(runner)
    assert hook.end_of_epoch(runner)
    runner.epoch, runner.iter, runner.inner_iter = 0, 6, 2
    assert not hook.is_last_epoch(runner)
    assert not hook.is_last_iter(runner)
    assert not hook.end_of_epoch(runner)


def test_base_methods_do_nothing_and_hand_on_to_the_generic_ones():
    calls = []

    class Generic(Hook):
        def before_epoch(self, runner):
            calls.append('before_epoch')

        def after_epoch(self, runner):
            calls.append('after_epoch')

        def before_iter(self, runner):
            calls.append('before_iter')

        def after_iter(self, runner):
            calls.append('after_iter')

    hook = Generic()
    for point in POINTS:
        arguments = [None, {}] if point == 'after_evaluate' else [None]
        assert getattr(hook, point)(*arguments) is None  # called directly, as downstream code does through super()
    assert calls == [
        FALLBACKS[point] if point in FALLBACKS else point
        for point in POINTS
        if point in FALLBACKS or point in FALLBACKS.values()
    ]
    assert (hook.state_dict(), hook.load_state_dict({}), hook.before_resume(None, {})) == ({}, None, None)
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(Hook())
    runner.run([loader(4)], [('train', 1)])


def test_what_a_hook_is_in_an_evaluation_without_a_training():
    class Looks(Hook):
        def after_val_iter(self, runner):
            pass

    class Trains(Looks):
        needs_training = True

    class Follows(Hook):
        def after_train_iter(self, runner):
            pass

    looks = Looks()
    assert [looks.for_evaluation(), Trains().for_evaluation(), Follows().for_evaluation()] == [looks, None, None]


CODE = """
from runnerkit.hooks import Hook


class {name}(Hook):
    def __init__(self, times=1):
        self.times = times
"""


def test_a_hook_of_an_installed_package_is_found_by_its_name(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, 'watch_pack', CODE.format(name='WeightNorms'), WeightNorms='watch_pack:WeightNorms')
    runner = tiny_runner(max_epochs=1)
    with pytest.raises(KeyError, match="did you mean 'WeightNorms'"):
        runner.register_custom_hooks([{'type': 'WeightNorm'}])
    assert 'watch_pack' not in sys.modules
    runner.register_custom_hooks([{'type': 'WeightNorms', 'times': 3, 'priority': 'LOW'}])
    (hook,) = runner.hooks
    assert (type(hook).__module__, hook.times, hook.priority) == ('watch_pack', 3, 70)
    with pytest.raises(TypeError, match='WeightNorms: .*tims.*times'):
        runner.register_custom_hooks([{'type': 'WeightNorms', 'tims': 3}])


def test_no_metadata_is_read_for_a_registered_hook_or_a_path(tmp_path, monkeypatch):
    """What is registered also has precedence."""
    install(tmp_path, monkeypatch, 'ema_pack', CODE.format(name='EMAHook'), EMAHook='ema_pack:EMAHook')
    (tmp_path / 'own_hooks.py').write_text(CODE.format(name='Own'))
    monkeypatch.setattr('importlib.metadata.entry_points', lambda **kwargs: pytest.fail('metadata was read'))
    runner = tiny_runner(max_epochs=1)
    runner.register_training_hooks({'policy': 'step', 'step': [1]}, {}, {}, {'hooks': [{'type': 'TextLoggerHook'}]})
    own = [{'type': 'own_hooks.Own'}, {'type': f'{tmp_path}/own_hooks.py:Own'}]
    runner.register_custom_hooks([{'type': 'EMAHook'}, *own])
    assert 'ema_pack' not in sys.modules
    sys.modules.pop('own_hooks', None)


def test_priorities_by_name_number_and_member():
    assert [get_priority(name) for name in ('HIGHEST', 'very_high', 'HIGH', 'ABOVE_NORMAL', 'Normal')] == [
        0,
        10,
        30,
        40,
        50,
    ]
    assert [get_priority(name) for name in ('BELOW_NORMAL', 'LOW', 'VERY_LOW', 'LOWEST')] == [60, 70, 90, 100]
    assert (get_priority(0), get_priority(100), get_priority(Priority.LOW)) == (0, 100, 70)


@pytest.mark.parametrize(
    'value, error, text',
    [
        (101, ValueError, 'between 0 .* and 100 .*, but got 101'),
        (-1, ValueError, 'but got -1'),
        ('URGENT', KeyError, "no priority named 'URGENT'; the names are HIGHEST"),
        (1.5, TypeError, 'must be an integer, a name or a Priority'),
        (True, TypeError, 'must be an integer'),
    ],
)
def test_wrong_priorities(value, error, text):
    with pytest.raises(error, match=text):
        get_priority(value)
