"""What the hook for nested runs is told, where it puts things, and what it leaves. tests/runner/test_nesting.py has the
runs inside runs."""

import json

import pytest
from support import Measured, loader, tiny_runner

from runnerkit.hooks import Hook, NestedRunHook, OptimizerHook, TextLoggerHook
from runnerkit.runner import EpochBasedRunner


class Test(NestedRunHook):
    """Evaluates, with a log of its own."""

    __test__ = False

    def make(self, runner):
        child = EpochBasedRunner(runner.model, work_dir=self.work_dir_of(runner), max_epochs=1)
        child.register_hook(TextLoggerHook(interval=1))
        child.register_hook(Asks())
        return child, [loader(8, 4, shuffle=False)], [('val', 1)]


class Asks(Hook):
    heard = []

    def after_run(self, runner):
        self.heard.append((type(runner.parent).__name__, runner.parent.completed_iters))


def outer(work_dir, hook, kind='epoch'):
    runner = tiny_runner(kind, model=Measured(), work_dir=work_dir, max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(hook)
    runner.run([loader(24, 4)], [('train', 1)])
    return runner


def test_its_own_folder_log_and_scores(tmp_path):
    Asks.heard.clear()
    runner = outer(tmp_path, Test('test', interval=5))
    assert Asks.heard == [('EpochBasedRunner', 5), ('EpochBasedRunner', 10)]
    folders = sorted(path.name for path in (tmp_path / 'test').iterdir())
    assert folders == ['iter_10', 'iter_5']
    log = next((tmp_path / 'test' / 'iter_10').glob('*.log.json'))
    (line,) = [each for each in map(json.loads, log.read_text().splitlines()) if 'mode' in each]
    assert line['mode'] == 'val'
    assert runner.scores['test/error'].value == pytest.approx(line['error'], abs=1e-4)
    assert runner.scores['test/error'].iter == 10
    assert runner.log_buffer.val_history['test/error']


def test_by_epochs(tmp_path):
    Asks.heard.clear()
    outer(tmp_path, Test('test', by_epoch=True))
    assert Asks.heard == [('EpochBasedRunner', 6), ('EpochBasedRunner', 12)]


def test_it_runs_after_ordinary_hooks_and_before_those_that_save(tmp_path):
    heard = []

    class Says(Hook):
        def __init__(self, name, last=False):
            self.name, self.runs_last = name, last

        def after_train_iter(self, runner):
            heard.append(self.name)

    class Nests(NestedRunHook):
        def make(self, runner):
            heard.append('nests')
            return EpochBasedRunner(runner.model, max_epochs=1), [loader(4, 4)], [('val', 1)]

    runner = tiny_runner('epoch', max_epochs=1)
    runner.register_hook(OptimizerHook())
    runner.register_hook(Says('saves', last=True), 'HIGHEST')
    runner.register_hook(Nests(interval=1), 'HIGHEST')
    runner.register_hook(Says('ordinary'), 'LOWEST')
    runner.run([loader(4, 4)], [('train', 1)])
    assert heard == ['ordinary', 'nests', 'saves']


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'interval': 0}, 'interval must be a whole number of at least 1'),
        ({'interval': 2.5}, 'interval must be a whole number'),
        ({'name': ''}, "name must be a name such as 'probe'"),
        ({'name': 'a/b'}, "name must be a name such as 'probe'"),
    ],
)
def test_wrong_arguments(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        NestedRunHook(**options)


def test_without_make():
    with pytest.raises(NotImplementedError, match=r'NestedRunHook must override make\(runner\)'):
        outer(None, NestedRunHook('empty'))


def test_what_make_returns_must_be_three_things():
    class Wrong(NestedRunHook):
        def make(self, runner):
            return EpochBasedRunner(runner.model, max_epochs=1)

    with pytest.raises(TypeError, match=r'Wrong.make must return the nested runner, its data loaders and its workflow'):
        outer(None, Wrong('wrong'))
