"""All experiment trackers: what each client is called with, and what the real clients keep without a server."""

import sys
from types import ModuleType
from typing import NamedTuple
from unittest.mock import ANY, MagicMock, call

import numpy as np
import pytest
import torch
from support import Tiny, loader, tiny_runner

from runnerkit import report_image
from runnerkit.hooks import CheckpointHook, Hook, IterTimerHook, OptimizerHook
from runnerkit.hooks import logger as loggers
from runnerkit.hooks.logger import (
    DvcliveLoggerHook,
    MlflowLoggerHook,
    PaviLoggerHook,
    SegmindLoggerHook,
    WandbLoggerHook,
)
from runnerkit.hooks.logger.trackers import TrackerHook

RATES = {'learning_rate': 0.1, 'momentum': 0.9}
TRAIN, VAL = {'train/loss': 1.5, **RATES}, {'val/acc': 0.25, **RATES}


class Known(Tiny):
    def train_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'loss': 1.5}, 'num_samples': len(data[0])}

    def val_step(self, data, optimizer=None, **kwargs):
        return {'loss': torch.zeros(()), 'log_vars': {'acc': 0.25}, 'num_samples': len(data[0])}


@pytest.fixture
def train(tmp_path):
    """Runs epochs of three batches and a validation each."""

    def train(hook, hooks=(), resume=None, rank=0, epochs=1):
        runner = tiny_runner(model=Known(), work_dir=tmp_path / 'exp', max_epochs=epochs)
        runner._rank = rank
        for each in [CheckpointHook(interval=1), IterTimerHook(), *hooks, hook]:
            runner.register_hook(each)
        if resume:
            runner.resume(str(tmp_path / 'exp' / resume))
        data = loader(12)
        runner.run([data, data], [('train', 1), ('val', 1)])
        return runner

    return train


@pytest.fixture
def fake(monkeypatch):
    """Puts a client that takes every call in the place of a module and those below it.

    The user has opened no run; one that is opened has the id 'made'.
    """

    def fake(name):
        client = MagicMock(name=name)
        monkeypatch.setitem(sys.modules, name, client)
        for path in BELOW.get(name, ()):
            part = client
            for attribute in path.split('.'):
                part = getattr(part, attribute)
            monkeypatch.setitem(sys.modules, f'{name}.{path}', part)
        client.init.return_value.id = client.Task.init.return_value.id = 'made'
        client.Task.current_task.return_value = None
        client.active_run.return_value = None
        client.start_run.side_effect = lambda **_: setattr(client.active_run, 'return_value', client.started)
        client.started.info.run_id = 'made'
        client.exceptions.MlflowException = ArithmeticError
        return client

    return fake


BELOW = {
    'mlflow': ['pytorch'],
    'segmind': ['tracking', 'tracking.fluent', 'utils', 'utils.logging_utils'],
}


class Fail(Hook):
    def after_train_epoch(self, runner):
        raise ArithmeticError('diverged')


class Expected(NamedTuple):
    """The module of a client, arguments of the hook, and what the client is called with."""

    client: str
    options: dict
    opening: list
    train: list
    val: list
    end: list
    failed: list


NEPTUNE, LIVE, PAVI, TASK = call.init_run(), call.Live(), call.SummaryWriter(), call.Task.init()
REPORT = TASK.get_logger().report_scalar
SEND_SEGMIND = call.utils.logging_utils.try_mlflow_log
ARTIFACT = [
    call.Artifact(name='artifacts', type='model'),
    call.Artifact().add_file(ANY, name='a.py'),
    call.Artifact().add_file(ANY, name='sub/a.py'),
    call.log_artifact(ANY),
]
ACTIVE = call.active_run()


def series(tags, step):
    """Neptune's calls for one line."""
    pairs = [
        (NEPTUNE.__getitem__(name), NEPTUNE.__getitem__().append(value, step=step)) for name, value in tags.items()
    ]
    return [one for pair in pairs for one in pair]


TRACKERS = {
    'WandbLoggerHook': Expected(
        'wandb',
        {'define_metric_cfg': {'acc': 'max'}, 'out_suffix': '.py'},
        [call.init(), call.define_metric('acc', summary='max')],
        [call.log(TRAIN, step=2, commit=True)],
        [call.log(VAL, step=4, commit=True)],
        [*ARTIFACT, call.finish()],
        [*ARTIFACT, call.finish(exit_code=1)],
    ),
    'MlflowLoggerHook': Expected(
        'mlflow',
        {'exp_name': 'e', 'tags': {'a': 1}, 'params': {'p': 2}},
        [
            *[call.set_experiment('e'), ACTIVE, call.start_run(), ACTIVE],
            *[call.set_tags({'a': 1}), call.log_params({'p': 2})],
        ],
        [call.log_metrics(TRAIN, step=2)],
        [call.log_metrics(VAL, step=4)],
        [
            call.pytorch.log_model(ANY, 'models', pip_requirements=[f'torch=={torch.__version__}']),
            call.end_run('FINISHED'),
        ],
        [call.end_run('FAILED')],
    ),
    'ClearMLLoggerHook': Expected(
        'clearml',
        {'init_kwargs': {'project_name': 'p'}},
        [call.Task.current_task(), call.Task.init(project_name='p'), TASK.get_logger()],
        [REPORT(name, name, value, 2) for name, value in TRAIN.items()],
        [REPORT(name, name, value, 4) for name, value in VAL.items()],
        [TASK.close()],
        [TASK.mark_failed(status_reason="failed: ArithmeticError('diverged')"), TASK.close()],
    ),
    'DvcliveLoggerHook': Expected(
        'dvclive',
        {'by_epoch': False, 'path': 'p'},
        [call.Live(path='p')],
        [*[LIVE.log_metric(*item) for item in TRAIN.items()], LIVE.sync()],
        [LIVE.log_metric('val/acc', 0.25), LIVE.sync()],  # the line of the next iteration will have the rates
        [LIVE.end()],
        [LIVE.end()],
    ),
    'NeptuneLoggerHook': Expected(
        'neptune',
        {'init_kwargs': {'project': 'p'}},
        [call.init_run(project='p')],
        series(TRAIN, 2),
        series(VAL, 4),
        [NEPTUNE.stop()],
        [NEPTUNE.__setitem__('sys/failed', True), NEPTUNE.stop()],
    ),
    'SegmindLoggerHook': Expected(
        'segmind',
        {},
        [],
        [SEND_SEGMIND(ANY, TRAIN, step=0, epoch=0)],
        [SEND_SEGMIND(ANY, VAL, step=1, epoch=1)],
        [],
        [],
    ),
    'PaviLoggerHook': Expected(
        'pavi',
        {},
        [call.SummaryWriter(name='exp', model='Known')],
        [PAVI.add_scalars('train', {'loss': 1.5, **RATES}, 2)],
        [PAVI.add_scalars('val', {'acc': 0.25, **RATES}, 1)],
        [PAVI.close()],
        [PAVI.close()],
    ),
}


@pytest.mark.parametrize('fails', [False, True])
@pytest.mark.parametrize('name', TRACKERS)
def test_a_run_is_opened_written_to_and_closed(name, fails, fake, train, tmp_path):
    expected = TRACKERS[name]
    client = fake(expected.client)
    (tmp_path / 'exp' / 'sub').mkdir(parents=True)
    for file in ('a.py', 'sub/a.py', 'other.txt'):
        (tmp_path / 'exp' / file).touch()
    hook = getattr(loggers, name)(interval=2, **expected.options)
    if fails:
        with pytest.raises(ArithmeticError):
            train(hook, [Fail()])
        end = expected.failed
    else:
        train(hook)
        end = [*expected.val, *expected.end]
    calls = [each for each in client.mock_calls if not each[0].endswith('__eq__')]  # of `inspect`
    assert calls == [*expected.opening, *expected.train, *end]


@pytest.mark.parametrize('name', TRACKERS)
def test_a_missing_client_is_named(name, train, monkeypatch):
    module = TRACKERS[name].client
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=f"{name} needs {module}.*: pip install '{module}"):
        train(getattr(loggers, name)())


def test_an_old_segmind_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, 'segmind', ModuleType('segmind'))
    with pytest.raises(ImportError, match=r"pip install 'segmind<0\.2'"):
        SegmindLoggerHook()


#: The call that continues a run, by its arguments.
RESUMED = {
    'WandbLoggerHook': call.init(resume='allow', id='made'),
    'MlflowLoggerHook': call.start_run(run_id='made'),
    'ClearMLLoggerHook': call.Task.init(continue_last_task='made'),
}


@pytest.mark.parametrize('name', RESUMED)
def test_a_resumed_run_continues_under_its_id(name, fake, train):
    module = TRACKERS[name].client
    fake(module)
    train(getattr(loggers, name)())
    client = fake(module)
    train(getattr(loggers, name)(), resume='epoch_1.pth')
    assert RESUMED[name] in client.mock_calls
    assert (TASK.set_initial_iteration(0) in client.mock_calls) == (name == 'ClearMLLoggerHook')


@pytest.mark.parametrize(
    'options, arguments',
    [({'id': 'own'}, {'id': 'own'}), ({'resume': 'must'}, {'resume': 'must', 'id': 'made'})],
)
def test_the_users_own_arguments_of_wandb_come_first(options, arguments, fake, train):
    wandb = fake('wandb')
    train(WandbLoggerHook())
    train(WandbLoggerHook(options), resume='epoch_1.pth')
    assert wandb.init.call_args == call(**arguments)


@pytest.mark.parametrize('name', ['MlflowLoggerHook', 'ClearMLLoggerHook', 'DvcliveLoggerHook'])
def test_a_run_that_the_user_opened_stays_open(name, fake, train):
    client = fake(TRACKERS[name].client)
    client.active_run.return_value, client.Task.current_task.return_value = client.started, client.task
    options = {'dvclive': client.mine} if name[0] == 'D' else {}
    train(getattr(loggers, name)(**options))
    made = {'start_run', 'end_run', 'Live', 'mine.end', 'Task.init().close', 'set_experiment'}
    assert made & {name for name, _, _ in client.mock_calls} == set()


def test_a_summary_that_wandb_does_not_have_is_warned_about(fake, train):
    wandb = fake('wandb')
    wandb.define_metric.side_effect = ValueError('no such summary')
    with pytest.warns(RuntimeWarning, match='no such summary'):
        train(WandbLoggerHook(define_metric_cfg={'acc': 'middle'}))
    assert wandb.log.call_count == 1


@pytest.mark.parametrize(
    'hook, path, expected',
    [
        (lambda: WandbLoggerHook(with_step=False), 'wandb.log', call({**VAL, 'global_step': 4}, commit=True)),
        (
            lambda: loggers.NeptuneLoggerHook(with_step=False),
            'neptune.init_run.return_value.__getitem__.return_value.append',
            call(0.9),
        ),
    ],
)
def test_a_tracker_may_count_by_itself(hook, path, expected, fake, train):
    module, _, method = path.partition('.')
    part = fake(module)
    train(hook())
    for name in method.split('.'):
        part = getattr(part, name)
    assert part.call_args == expected


# --- pictures and other values ---------------------------------------------------------------------------------------


class Draws(Hook):
    """Reports a grey picture after the first iteration."""

    def after_train_iter(self, runner):
        if runner.iter == 0:
            report_image('a/b', np.zeros((2, 3), np.uint8))


class Picture:
    """Equals the pixels of a picture."""

    def __eq__(self, other):
        return getattr(other, 'shape', None) == (2, 3, 3)


#: The client's call for that picture.
PICTURES = {
    'WandbLoggerHook': call.log({'a/b': ANY}, commit=False, step=1),
    'MlflowLoggerHook': call.log_image(Picture(), 'a%2Fb_1.png'),
    'ClearMLLoggerHook': TASK.get_logger().report_image('a/b', 'a/b', iteration=1, image=Picture()),
    'NeptuneLoggerHook': NEPTUNE.__getitem__().append(ANY, step=1),
    'DvcliveLoggerHook': LIVE.log_image('a%2Fb/1.png', Picture()),
}


@pytest.mark.parametrize('name', PICTURES)
def test_reported_pictures_are_sent(name, fake, train):
    client = fake(TRACKERS[name].client)
    train(getattr(loggers, name)(), [Draws()])
    assert client.mock_calls.count(PICTURES[name]) == 1
    for kind in (client.Image, client.types.File.as_image):  # what wandb and Neptune wrap pixels in
        assert all(one == call(Picture()) for one in kind.call_args_list)


def test_what_is_no_number_reaches_wandb_as_it_is(fake, train):
    wandb, image = fake('wandb'), object()

    class Shows(Hook):
        def after_train_iter(self, runner):
            runner.log_buffer.output['image'] = image

    train(WandbLoggerHook(interval=2), [Shows()])
    assert wandb.log.mock_calls[0].args[0]['train/image'] is image


# --- the base --------------------------------------------------------------------------------------------------------


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


def test_a_tracker_learns_that_a_later_hook_has_failed_at_the_end(train):
    class FailsLast(Hook):
        runs_last = True

        def after_run(self, runner):
            raise OSError('no space')

    hook = Diary()
    with pytest.raises(OSError, match='no space'):
        train(hook, [FailsLast()])
    assert hook.lines[-1] == ('close', "failed: OSError('no space')")


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
    train(hook, [Draws()], rank=1)
    assert hook.lines == []
    assert hook.reset_flag


def test_each_of_several_has_its_own_id(train):
    first, second = Diary(), Diary()
    first.run_id, second.run_id = 'a', 'b'
    train(first, [second])
    first, second = Diary(), Diary()
    train(first, [second], resume='epoch_1.pth')
    assert (first.lines[0], second.lines[0]) == (('open', 'a'), ('open', 'b'))


def test_clients_get_plain_numbers(train):
    class Scores(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.output.update(one=torch.tensor([0.5]), two=np.float32(0.25), note='text')
            runner.log_buffer.ready = True

    hook = Diary()
    train(hook, [Scores()])
    tags = hook.lines[2][1]
    assert tags['val/one'] == 0.5
    assert [type(tags[f'val/{name}']) for name in ('one', 'two')] == [float, float]
    assert 'val/note' not in tags


def test_a_tracker_that_fails_later_warns_once_and_training_continues(train):
    class Flaky(Diary):
        def _send(self, tags, runner):
            raise RuntimeError('rate limit')

        _close = _send_image = lambda self, *args: self._send({}, None)

    with pytest.warns(RuntimeWarning, match='the log of Flaky cannot be written .rate limit.*continues') as caught:
        runner = train(Flaky(), [Draws()])
    assert len(caught) == 1
    assert runner.outcome.kind == 'completed'


# --- DVCLive and Pavi ------------------------------------------------------------------------------------------------


def test_dvclive_by_epoch_logs_no_iteration_and_does_not_make_other_loggers_log_more_often(fake, train):
    class Averages(Hook):
        ready = ()

        def before_train_iter(self, runner):
            self.ready = (*self.ready, runner.log_buffer.ready)

        def after_train_iter(self, runner):
            if runner.inner_iter == 0:
                runner.log_buffer.average(1)

    live, hook = fake('dvclive').Live(), Averages()
    train(DvcliveLoggerHook(), [hook])
    assert hook.ready == (False, False, False)  # as the last logger, it clears what the others have logged
    assert (live.step, live.log_metric.mock_calls) == (1, [call(*item) for item in VAL.items()])


def test_dvclive_saves_the_states_of_all_ranks_after_each_epoch(on_ranks, tmp_path):
    on_ranks(__file__, 'save_on_rank', str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ['m.pth']
    saved = torch.load(tmp_path / 'm.pth')
    assert saved['meta']['epoch'] == 2
    assert len(saved['runnerkit']['ranks']) == 2


def save_on_rank(rank, folder):
    runner = tiny_runner(max_epochs=2)
    runner.register_hook(OptimizerHook())
    runner.register_hook(DvcliveLoggerHook(f'{folder}/m.pth', dvclive=MagicMock()))
    runner.run([loader(8)], [('train', 1)])


def test_pavi_shows_the_config(fake, train):
    pavi, runner = fake('pavi'), tiny_runner(max_epochs=1)
    runner.meta['config'] = 'lr = 0.1\n'
    runner.register_hook(PaviLoggerHook({'name': 'n'}))
    runner.run([loader(4)], [('train', 1)])
    assert pavi.SummaryWriter.call_args == call(name='n', model='Tiny', session_text='lr = 0.1\n')


@pytest.mark.parametrize(
    'options, epochs',
    [({'add_last_ckpt': True}, [3]), ({'add_ckpt_kwargs': {'active': True, 'start': 1, 'interval': 2}}, [1, 3])],
)
def test_pavi_gets_checkpoints(options, epochs, fake, train, tmp_path):
    fake('pavi')
    hook = PaviLoggerHook(**options)
    train(hook, epochs=3)
    path = tmp_path / 'exp'
    assert hook.writer.add_snapshot_file.mock_calls == [
        call(tag='exp', snapshot_file_path=str(path / f'epoch_{n}.pth'), iteration=n) for n in epochs
    ]


@pytest.mark.parametrize('options', [{'add_graph': True}, {'add_graph_kwargs': {'active': True}}])
def test_a_graph_that_pavi_does_not_get(options):
    with pytest.warns(UserWarning, match='uploads no graph'):
        PaviLoggerHook(**options)


# --- the real clients ------------------------------------------------------------------------------------------------


@pytest.mark.thorough  # TRACKERS has the calls of each client
def test_the_real_mlflow_also_after_a_resume(train, tmp_path, monkeypatch):
    mlflow = pytest.importorskip('mlflow')
    pytest.importorskip('mlflow.pytorch')  # needs pandas
    monkeypatch.setenv('MLFLOW_ALLOW_FILE_STORE', 'true')
    mlflow.set_tracking_uri(str(tmp_path / 'runs'))
    first = MlflowLoggerHook('e', {'a': 1}, {'p': 2}, interval=2)
    train(first)
    assert mlflow.active_run() is None
    client = mlflow.MlflowClient()
    kept = client.get_run(first.run_id)
    assert (kept.info.status, kept.data.tags['a'], kept.data.params) == ('FINISHED', '1', {'p': '2'})
    model = mlflow.pytorch.load_model(client.search_logged_models([kept.info.experiment_id])[0].model_uri)
    assert type(model).__name__ == 'Known'

    second = MlflowLoggerHook('e', interval=2, log_model=False)
    train(second, resume='epoch_1.pth', epochs=2)
    assert second.run_id == first.run_id
    losses = client.get_metric_history(first.run_id, 'train/loss')
    assert [(each.step, each.value) for each in losses] == [(2, 1.5), (5, 1.5)]

    mlflow.set_tracking_uri(str(tmp_path / 'elsewhere'))
    third = MlflowLoggerHook('e', log_model=False)
    train(third, resume='epoch_1.pth', epochs=2)
    assert third.run_id not in (None, first.run_id)


@pytest.mark.thorough  # TRACKERS has the calls of each client
def test_the_real_wandb_also_after_a_resume(train, tmp_path, monkeypatch):
    wandb = pytest.importorskip('wandb')
    monkeypatch.setenv('WANDB_SILENT', 'true')
    for name in ('CONFIG', 'CACHE', 'DATA'):
        monkeypatch.setenv(f'WANDB_{name}_DIR', str(tmp_path))
    options = {'mode': 'offline', 'project': 'p', 'dir': str(tmp_path)}
    (tmp_path / 'exp').mkdir()
    (tmp_path / 'exp' / 'note.log').write_text('text')
    try:
        first = WandbLoggerHook(options, interval=2, define_metric_cfg={'val/acc': 'max'})
        train(first)
        assert wandb.run is None
        second = WandbLoggerHook(options, interval=2, define_metric_cfg={'val/acc': 'middle'})
        with pytest.warns(RuntimeWarning, match='middle'):
            train(second, resume='epoch_1.pth', epochs=2)
    finally:
        wandb.teardown()
    assert isinstance(first.run_id, str)
    assert second.run_id == first.run_id
    assert len(list(tmp_path.glob(f'wandb/offline-run-*-{first.run_id}/run-*.wandb'))) == 2
