"""What all trackers do, whatever their client is called."""

import sys

import numpy as np
import pytest
import torch

from runnerkit.hooks import Hook
from runnerkit.hooks import logger as loggers
from runnerkit.hooks.logger.tracker import TrackerHook

#: Each with what it imports, and the package that its error names.
TRACKERS = {
    'ClearMLLoggerHook': ('clearml', 'clearml'),
    'DvcliveLoggerHook': ('dvclive', 'dvclive'),
    'MlflowLoggerHook': ('mlflow', 'mlflow'),
    'NeptuneLoggerHook': ('neptune', 'neptune'),
    'SegmindLoggerHook': ('segmind', 'segmind<0.2'),
    'WandbLoggerHook': ('wandb', 'wandb'),
}


class Diary(TrackerHook):
    """Writes down what happens."""

    def __init__(self, **options):
        super().__init__(interval=2, **options)
        self.lines = []

    def _open(self, runner):
        self.lines.append(('open', self.run_id))
        self._keep_id(self.run_id or 'first')

    def _send(self, tags, runner):
        self.lines.append((self.get_iter(runner), tags))

    def _close(self, runner):
        self.lines.append(('close', str(runner.outcome)))


def test_a_run_is_opened_written_to_and_closed(train, rates):
    hook = Diary()
    train(hook, epochs=1)
    assert hook.lines == [
        ('open', None),
        (2, {'train/loss': 1.5, **rates}),
        (4, {'val/acc': 0.25, **rates}),
        ('close', 'completed'),
    ]


def test_what_could_not_be_opened_is_not_closed(train):
    class Broken(Diary):
        def _open(self, runner):
            raise ConnectionError('no server')

    hook = Broken()
    with pytest.raises(ConnectionError):
        train(hook)
    assert hook.lines == []


def test_other_ranks_have_no_client(train):
    hook = Diary()
    train(hook, rank=1)
    assert hook.lines == []
    assert hook.reset_flag


def test_a_resumed_run_goes_on_under_its_id(train):
    train(Diary(), epochs=1)
    hook = Diary()
    train(hook, resume='epoch_1.pth')
    assert hook.lines[0] == ('open', 'first')
    assert hook.lines[1] == (4, hook.lines[1][1])  # the validation that was next


def test_each_of_several_has_its_own_id(train):
    first, second = Diary(), Diary()
    first.run_id, second.run_id = 'a', 'b'
    train(first, [second], epochs=1)
    first, second = Diary(), Diary()
    train(first, [second], resume='epoch_1.pth')
    assert (first.run_id, second.run_id) == ('a', 'b')


def test_clients_get_plain_numbers(train):
    class Scores(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.output.update(one=torch.tensor([0.5]), two=np.float32(0.25), note='text')
            runner.log_buffer.ready = True

    hook = Diary()
    train(hook, [Scores()], epochs=1)
    tags = hook.lines[2][1]
    assert tags['val/one'] == 0.5
    assert [type(tags[f'val/{name}']) for name in ('one', 'two')] == [float, float]
    assert 'val/note' not in tags


@pytest.mark.parametrize('name', TRACKERS)
def test_a_missing_client_is_named(name, monkeypatch):
    module, package = TRACKERS[name]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"{name} needs {module}: pip install '{package}'"):
        getattr(loggers, name)()


def test_each_must_say_how_to_send():
    with pytest.raises(NotImplementedError, match=r'TrackerHook must have a method _send'):
        TrackerHook()._send({}, None)


def test_a_tracker_that_fails_later_warns_once_and_training_goes_on(train):
    class Flaky(Diary):
        def _send(self, tags, runner):
            raise RuntimeError('rate limit')

        def _close(self, runner):
            raise RuntimeError('rate limit')

    with pytest.warns(RuntimeWarning, match='the log of Flaky cannot be written .rate limit.*continues') as caught:
        runner = train(Flaky())
    assert len(caught) == 1
    assert runner.outcome.kind == 'completed'
