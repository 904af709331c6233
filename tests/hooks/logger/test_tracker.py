"""What all trackers do, whatever their client is called."""

import sys

import numpy as np
import pytest
import torch

from runnerkit import report_image
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


class Draws(Hook):
    """Reports a grey picture after the first iteration."""

    def after_train_iter(self, runner):
        if runner.iter == 0:
            report_image('a/b', np.zeros((2, 3), np.uint8))


#: What the client of each tracker is called with; ``…`` for the picture.
PICTURES = {
    'WandbLoggerHook': ('wandb', 'log', ({'a/b': ...},), {'commit': False, 'step': 1}),
    'MlflowLoggerHook': ('mlflow', 'log_image', (..., 'a%2Fb_1.png'), {}),
    'ClearMLLoggerHook': (
        'clearml',
        'Task.init.return_value.get_logger.return_value.report_image',
        ('a/b', 'a/b'),
        {'iteration': 1, 'image': ...},
    ),
    'NeptuneLoggerHook': ('neptune', 'init_run.return_value.__getitem__.return_value.append', (...,), {'step': 1}),
    'DvcliveLoggerHook': ('dvclive', 'Live.return_value.log_image', ('a%2Fb/1.png', ...), {}),
}


@pytest.mark.parametrize('name', PICTURES)
def test_reported_pictures_are_handed_on(name, fake, train):
    module, method, args, kwargs = PICTURES[name]
    client = fake(module, 'pytorch')
    client.Task.current_task.return_value = None
    hook = getattr(loggers, name)()
    train(hook, [Draws()], epochs=1)
    picture = [client.Image.return_value, client.types.File.as_image.return_value]
    for part in method.split('.'):
        client = getattr(client, part)

    def masked(value):
        if isinstance(value, dict):
            return {key: masked(each) for key, each in value.items()}
        is_picture = any(value is each for each in picture) or getattr(value, 'shape', None) == (2, 3, 3)
        return ... if is_picture else value

    calls = [(tuple(map(masked, call.args)), masked(call.kwargs)) for call in client.call_args_list]
    assert calls.count((args, kwargs)) == 1


def test_a_tracker_without_pictures_takes_none(train):
    hook = Diary()
    train(hook, [Draws()], epochs=1)
    assert len(hook.lines) == 4
