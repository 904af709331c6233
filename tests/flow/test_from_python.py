"""A training from Python."""

import copy
import json
import os
import signal

import pandas
import pytest
import torch
from plans import BY_ITER, CONFIG
from support import Noisy, Tiny, weights

import runnerkit
from runnerkit.cli.train import main
from runnerkit.config import Config, PreflightError
from runnerkit.flow.from_python import config_from, train
from runnerkit.hooks import Hook

#: What tests change of `CONFIG`; seconds and learning curves are not looked at.
QUICK = {'seed': 3, 'device': 'cpu'}


class Interrupts(Hook):
    """Sends a signal in an iteration, counted from 0."""

    def __init__(self, name, at):
        self.number, self.at = getattr(signal, name), at

    def after_train_iter(self, runner):
        if runner.iter == self.at:
            os.kill(os.getpid(), self.number)


class Given(Tiny):
    """A model with weights of its own, which an initialisation would change; it keeps those that it starts with."""

    def __init__(self):
        super().__init__()
        torch.nn.init.constant_(self.head.weight, 0.5)
        self.started_from = None

    def init_weights(self):
        torch.nn.init.zeros_(self.head.weight)

    def train_step(self, data, optimizer=None, **kwargs):
        self.started_from = self.head.weight.mean().item() if self.started_from is None else self.started_from
        return super().train_step(data, optimizer, **kwargs)


def hook(kind, **options):
    return {'type': kind, **options}


def without_times(records):
    return [{key: value for key, value in each.items() if 'time' not in key} for each in records]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """The training of `CONFIG`."""
    return runnerkit.train(CONFIG, tmp_path_factory.mktemp('whole'), **QUICK)


def test_the_result_has_what_came_of_the_run(whole):
    assert isinstance(whole, runnerkit.TrainResult)
    assert whole.outcome.kind == 'completed'
    assert set(whole.scores) == {'loss', 'error'}
    assert not whole.model.training
    saved = torch.load(whole.work_dir / 'epoch_3.pth', weights_only=True)['state_dict']
    assert all(torch.equal(value, saved[name]) for name, value in whole.model.state_dict().items())
    table = pandas.DataFrame(whole.history)
    assert list(table[table['mode'] == 'val'].step) == [5, 10, 15]
    assert whole.scores['error'] == list(table.error)[-1]
    best = table.error.dropna().min()
    assert torch.load(whole.best_checkpoint, weights_only=True)['meta']['hook_msgs']['best_score'] == best


def test_it_does_what_the_command_line_does(whole, tmp_path):
    """Bit for bit, and the history has a record for each line of the log."""
    path = tmp_path / 'config.json'
    path.write_text(json.dumps(CONFIG))
    assert main([str(path), '--work-dir', str(tmp_path / 'run'), '--seed', '3', '--device', 'cpu']) == 0
    theirs = torch.load(tmp_path / 'run' / 'epoch_3.pth', weights_only=True)['state_dict']
    assert all(torch.equal(value, theirs[name]) for name, value in whole.model.state_dict().items())
    (log,) = (tmp_path / 'run').glob('*.log.json')
    lines = without_times(json.loads(line) for line in log.read_text().splitlines()[1:])
    (own,) = whole.work_dir.glob('*.log.json')
    assert lines == without_times(json.loads(line) for line in own.read_text().splitlines()[1:])
    kept = [{key: value if key in line else None for key, value in record.items() if key != 'mode'}
            for line, record in zip(lines, without_times(whole.history), strict=True)]  # fmt: skip
    assert kept == [{key: line[key] for key in record} for line, record in zip(lines, kept, strict=True)]
    assert [line['mode'] for line in lines] == [record['mode'] for record in whole.history]


@pytest.mark.parametrize('kind', ['dict', 'Config', 'path'])
def test_a_config_may_be_given_in_several_ways_and_is_not_changed(kind, tmp_path):
    path = tmp_path / 'config.json'
    path.write_text(json.dumps(CONFIG))
    config = {'dict': copy.deepcopy(CONFIG), 'Config': Config.fromfile(str(path)), 'path': path}[kind]
    before = copy.deepcopy(config)
    made = config_from(config, {'optimizer.lr': 0.3, 'data.train.length': 8})
    assert made.optimizer.lr == 0.3
    assert made.data.train == {'type': 'support.Noisy', 'length': 8}
    assert config == before if kind != 'Config' else config._cfg_dict == before._cfg_dict


def test_other_configs_are_refused():
    with pytest.raises(TypeError, match='path of a config file, a Config or a dict'):
        train(3)
    with pytest.raises(FileNotFoundError, match='does not exist'):
        train('no_such_config.py')


@pytest.mark.parametrize(
    'arguments, error, words',
    [
        ({'work_dir': 3}, TypeError, 'work_dir must be the path or URL of a folder.*but got 3'),
        ({'resume': None}, TypeError, 'resume must be True, False, or the path of a checkpoint or work dir.*None'),
        ({'validate': 'no'}, TypeError, "validate must be True or False, but got 'no'"),
        ({'cfg_options': ['optimizer.lr=1']}, TypeError, 'cfg_options must be a dict by dotted key'),
        ({'cfg_options': {'optimizer.lr': 1.0}, 'optimizer__lr': 2.0}, ValueError, 'optimizer.lr is given twice'),
        ({'epochs': 1}, TypeError, "unknown keyword 'epochs': .*; set runner__max_epochs"),
        ({'devise': 'cpu'}, TypeError, "; did you mean 'device'"),
        ({'no_such_thing': 1}, TypeError, 'is neither an argument nor a key of the config$'),
        ({'optimizer__': 1}, TypeError, "unknown keyword 'optimizer__'"),
        ({'__optimizer': 1}, TypeError, "unknown keyword '__optimizer'"),
    ],
)
def test_wrong_arguments(arguments, error, words, tmp_path):
    with pytest.raises(error, match=words):
        train(CONFIG, **{'work_dir': tmp_path / 'run', **arguments})
    assert not (tmp_path / 'run').exists()


def test_a_key_of_the_config_that_no_run_reads_may_be_changed():
    assert config_from({**CONFIG, 'classes': 3}, {}, {'classes': 4}).classes == 4


def test_changes_of_the_config(tmp_path):
    options = {'optimizer.lr': 0.2, 'runner': {'max_epochs': 1}}
    result = train(CONFIG, tmp_path, validate=False, cfg_options=options, data__train__length=8, **QUICK)
    assert [record['step'] for record in result.history] == [2]
    assert {record['lr'] for record in result.history} == {0.2}
    assert result.best_checkpoint is None
    assert result.scores == {}
    assert Config.fromfile(str(tmp_path / 'config.py')).data.train.length == 8


def test_the_model_may_be_an_object(tmp_path):
    """It is trained as it is: the same module, with the weights that it has; and loaded again by being passed."""
    model = Given()
    result = train({**CONFIG, 'model': model}, tmp_path, evaluation__save_best='loss', **QUICK)
    assert result.model is model
    assert model.started_from == 0.5
    again = runnerkit.load_model(tmp_path, {'model': Given()}, 'latest')
    assert torch.equal(weights(again), weights(model))


@pytest.fixture(scope='module')
def of_objects(tmp_path_factory):
    """A config that holds objects, and the work dir of its training."""
    config = {**CONFIG, 'model': {**CONFIG['model'], 'model': torch.nn.Linear(4, 1)}}
    config['data'] = {**CONFIG['data'], 'test': Noisy(6)}
    work_dir = tmp_path_factory.mktemp('objects')
    train(config, work_dir, **QUICK)
    return config, work_dir


def test_a_work_dir_of_objects_says_what_it_lacks(of_objects):
    config, work_dir = of_objects
    (log,) = (line for file in work_dir.glob('*.log') for line in file.read_text().splitlines() if 'not enough' in line)
    assert 'cannot hold the Python objects model.model, data.test.' in log
    for use in (lambda: runnerkit.load_model(work_dir), lambda: runnerkit.load_model(work_dir / 'latest.pth')):
        with pytest.raises(
            ValueError, match=r'cannot hold: model\.model \(Linear\(in_features=4.*config=dict\(model=net'
        ):
            use()
    with pytest.raises(ValueError, match=r'cannot hold: data\.test \('):
        runnerkit.predict(work_dir, 'test')
    with pytest.raises(PreflightError, match=r'(?s)model\.model .*data\.test '):
        train(work_dir / 'config.py', **QUICK)
    assert torch.equal(weights(runnerkit.load_model(work_dir, config, 'latest')), weights(config['model']['model']))
    assert len(runnerkit.predict(work_dir, 'test', config=config)) == 6


@pytest.fixture
def narrow():
    """A config of classes and a data set, as a notebook has it."""
    layers = [
        dict(type=torch.nn.Linear, in_features=4, out_features=3),
        dict(type='ReLU'),
        dict(type='LazyLinear', out_features=1),
    ]
    data = {**CONFIG['data'], 'test': Noisy(6)}
    return {**CONFIG, 'model': {**CONFIG['model'], 'model': layers}, 'data': data}


def test_what_a_training_has_changed_in_the_model_is_not_lost(narrow, tmp_path, caplog):
    changes = {'model.model.0.out_features': 5, 'model.model.1.type': 'Tanh', 'optimizer.lr': 0.01}
    result = train(narrow, tmp_path, cfg_options=changes, **QUICK)
    caplog.clear()
    assert len(runnerkit.predict(tmp_path, 'test', config=narrow)) == 6
    model = runnerkit.load_model(tmp_path, narrow, 'latest')
    assert [type(layer).__name__ for layer in model.model[:2]] == ['Linear', 'Tanh']
    assert torch.equal(weights(model), weights(result.model))
    for told in ('model.model[0].out_features 5 (not 3)', "model.model[1].type 'Tanh' (not 'ReLU')", str(tmp_path)):
        assert told in caplog.text
    assert 'optimizer' not in caplog.text
    assert narrow['model']['model'][0]['out_features'] == 3
    with pytest.raises(ValueError, match='does not fit'):
        runnerkit.load_model(tmp_path / 'latest.pth', narrow)


def test_what_a_training_has_not_changed_is_not_told(narrow, tmp_path, caplog):
    train(narrow, tmp_path, **QUICK)
    caplog.clear()
    for config in (narrow, Config(narrow)):
        assert len(runnerkit.predict(tmp_path, 'test', config=config)) == 6
    assert 'as the run' not in caplog.text


@pytest.mark.parametrize(
    'model, error, words',
    [
        (torch.nn.Linear(4, 1), TypeError, ['Linear has no train_step', "dict(type='Supervised', model=…, loss="]),
        (torch.nn.Linear, PreflightError, ["must be a dict with a type, or a torch.nn.Module, but got <class 'torch"]),
        ('resnet', PreflightError, ["but got 'resnet'", 'Give a dict with a type, or a torch.nn.Module.']),
        ([torch.nn.Linear(4, 1)], PreflightError, ['but got [Linear(in_features=4']),
    ],
)
def test_other_models_are_refused_with_what_to_write(model, error, words, tmp_path):
    with pytest.raises(error) as raised:
        train({**CONFIG, 'model': model}, tmp_path, **QUICK)
    assert all(word in str(raised.value) for word in words)
    assert 'leave model out' not in str(raised.value)


def test_what_is_wrong_is_raised_and_not_printed(tmp_path, capsys):
    with pytest.raises(PreflightError, match='lr_confg') as error:
        train(CONFIG, tmp_path / 'run', lr_confg={}, optimizer__lr='high', **QUICK)
    assert 'optimizer.lr (--cfg-options)' in str(error.value)
    with pytest.raises(PreflightError, match=r'optimizer\.lr \(from Python\)'):
        train({**CONFIG, 'optimizer': {'type': 'SGD', 'lr': 'high'}}, tmp_path / 'run', optimizer__momentum=0.5)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ''
    assert not (tmp_path / 'run').exists()


class Scored(Noisy):
    def evaluate(self, results, logger=None):
        return {'error': 0.0}


class Code:
    """Unpickling this calls a function."""

    def __reduce__(self):
        return os.getcwd, ()


def test_flags_of_the_command_line_are_keywords(tmp_path, caplog):
    run = tmp_path / 'run'
    first = train(CONFIG, run, runner__max_epochs=1, data__train={'type': Scored}, overfit=8, verbose=True, **QUICK)
    assert {record['step'] for record in first.history} == {2}
    assert 'Scored.evaluate is not called' in caplog.text
    assert 'Hooks, in the order' in caplog.text
    with pytest.raises(FileExistsError, match='--if-used refuse'):
        train(CONFIG, run, if_used='refuse', **QUICK)
    second = train(CONFIG, run, if_used='resume', data__train={'type': Scored}, overfit=8, **QUICK)
    assert {record['step'] for record in second.history} == {4, 6}
    torch.save({'state_dict': first.model.state_dict(), 'meta': {'code': Code()}}, tmp_path / 'old.pth')
    options = {**QUICK, 'load_from': str(tmp_path / 'old.pth'), 'optimizer__lr': 0.0}
    with pytest.raises(ValueError, match='could run code'):
        train(CONFIG, tmp_path / 'trusting', **options)
    trusting = train(CONFIG, tmp_path / 'trusting', trust_pickles=True, diff_seed=True, **options)
    assert torch.equal(weights(trusting.model), weights(first.model))


@pytest.mark.parametrize(
    'options, words',
    [
        ({'overfit': 0}, 'overfit must be a whole number of at least 1'),
        ({'if_used': 'asid'}, "if_used must be one of resume, aside, refuse, but got 'asid'"),
        ({'resume': True, 'if_used': 'aside'}, "resume=True and if_used='aside' contradict each other"),
    ],
)
def test_keywords_that_cannot_be_meant(options, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        train(CONFIG, tmp_path, **options, **QUICK)


def test_the_model_has_the_averages(tmp_path):
    result = train(CONFIG, tmp_path, custom_hooks=[hook('EMAHook', momentum=0.1)], **QUICK)
    saved = torch.load(tmp_path / 'epoch_3.pth', weights_only=True)['state_dict']
    state = result.model.state_dict()
    names = [name for name in state if f'ema_{name.replace(".", "_")}' in state]
    assert len(names) == 4
    assert all(torch.equal(state[name], saved[name]) for name in state)
    assert not any(torch.equal(state[name], state[f'ema_{name.replace(".", "_")}']) for name in names)


@pytest.mark.parametrize('by_path', [False, True])
def test_a_stopped_run_is_resumed(whole, tmp_path, by_path):
    custom = [Interrupts('SIGTERM', 6)]
    stopped = train(CONFIG, tmp_path, custom_hooks=custom, checkpoint_config__save_last=True, **QUICK)
    assert (stopped.outcome.kind, stopped.outcome.reason) == ('stopped', 'SIGTERM')
    resumed = train(CONFIG, tmp_path, resume=tmp_path if by_path else True, **QUICK)
    assert torch.equal(weights(resumed.model), weights(whole.model))
    records = without_times(stopped.history) + without_times(resumed.history)
    assert records == without_times(whole.history)
    assert not tmp_path.with_name(f'{tmp_path.name}.1').exists()


def test_the_history_of_a_resumed_run_begins_in_the_epoch_of_its_last_iteration(tmp_path):
    """Here with a validation in the middle of the second epoch."""
    config = {**CONFIG, **BY_ITER, 'evaluation': None, 'workflow': [('train', 2), ('val', 1)]}
    config['checkpoint_config'] = {'interval': 1, 'by_epoch': False, 'max_keep_ckpts': -1}
    whole = train(config, tmp_path / 'whole', **QUICK)
    rest = train(config, tmp_path / 'rest', resume=tmp_path / 'whole' / 'iter_6.pth', **QUICK)
    assert (rest.history[0]['mode'], rest.history[0]['epoch'], rest.history[0]['step']) == ('val', 2, 6)
    assert without_times(rest.history) == without_times(whole.history)[-len(rest.history) :]


@pytest.fixture
def keyboard():
    """SIGINT as in a terminal: a job in the background of a shell, as this suite may be, ignores it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def of_the_process():
    """What the run must restore; torch's first import of its compiler sets a variable."""
    variables = {**os.environ, 'TORCHINDUCTOR_CACHE_DIR': None}
    return signal.getsignal(signal.SIGINT), torch.get_num_threads(), variables


def test_ctrl_c_ends_the_run_and_restores_the_process(tmp_path, keyboard):
    before = of_the_process()
    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, tmp_path, custom_hooks=[Interrupts('SIGINT', 6)], num_threads=2, deterministic=True, **QUICK)
    assert of_the_process() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.load(tmp_path / 'latest.pth', weights_only=True)['meta']['iter'] == 7


def test_with_two_ranks_both_have_the_result(on_ranks, tmp_path):
    first, second = on_ranks(__file__, 'train_on_rank', str(tmp_path))
    assert first == second
    records = first['history']
    assert [record['mode'] for record in records].count('val') == 3
    assert any(record['mode'] == 'train' for record in records)
    assert first['best'].startswith(str(tmp_path))
    assert first['sum'] == 2  # both processes are still in the group that they had joined


def train_on_rank(rank, folder):
    result = train(CONFIG, folder, custom_hooks=[hook('EMAHook', momentum=0.1)], **QUICK)
    total = torch.ones(())
    torch.distributed.all_reduce(total)
    return {
        'scores': result.scores,
        'history': without_times(result.history),
        'best': result.best_checkpoint,
        'weights': weights(result.model).tolist(),
        'sum': total.item(),
    }
