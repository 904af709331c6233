"""A training without a config, and the same objects in a config."""

import logging

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection

import runnerkit
from runnerkit.config import PreflightError
from runnerkit.flow.fitting import fit
from runnerkit.hooks import Hook

X = torch.linspace(-1, 1, 60).reshape(20, 3)
Y = X.sum(1, keepdim=True) + 0.1
POINTS = TensorDataset(X, Y)


class Net(nn.Sequential):
    """Draws in training, and would lose its weights if it were initialised."""

    def __init__(self):
        super().__init__(nn.Linear(3, 8), nn.Dropout(0.2), nn.Linear(8, 1))

    def init_weights(self):
        raise AssertionError('the weights are given')


class Stream:
    """Batches without a length, from the beginning in each pass."""

    def __iter__(self):
        return (POINTS[start : start + 5] for start in range(0, 20, 5))


class StopsAt(Hook):
    """Stops the run after so many iterations."""

    def __init__(self, number):
        self.number = number

    def after_train_iter(self, runner):
        if runner.iter + 1 == self.number:
            runner.stop('as it is tested')


def shuffled(**options):
    return DataLoader(POINTS, batch_size=6, shuffle=True, **options)


def parts():
    """A network and its optimizer, the same ones at each call."""
    torch.manual_seed(1)
    net = Net()
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def fitted(work_dir, train=None, val=None, **options):
    net, optimizer = parts()
    given = {'loss': functional.mse_loss, 'optimizer': optimizer, 'epochs': 3, 'seed': 0, 'device': 'cpu', **options}
    return fit(net, shuffled() if train is None else train, val, work_dir=work_dir, **given)


def same_bits(one, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    """Three epochs of four iterations, with an evaluation and a schedule."""
    schedule = {'policy': 'step', 'step': [1, 2]}
    return fitted(tmp_path_factory.mktemp('whole'), val=shuffled(), metrics=MeanAbsoluteError(), lr_config=schedule)


def test_it_trains_evaluates_and_keeps_the_best(whole):
    assert whole.outcome.kind == 'completed'
    assert set(whole.scores) == {'loss', 'MeanAbsoluteError'}
    assert whole.best_checkpoint.rpartition('/')[2].startswith('best_MeanAbsoluteError_epoch_')
    assert [record['step'] for record in whole.history if record['mode'] == 'val'] == [4, 8, 12]
    assert [record['lr'] for record in whole.history if record['mode'] == 'train'] == pytest.approx([1e-2, 1e-3, 1e-4])
    assert not whole.model.training
    assert isinstance(whole.model.model, Net)


def test_the_bits_are_those_of_a_plain_loop(tmp_path):
    """The network keeps its weights, the optimizer is the one that was given, and the order is the loader's."""
    result = fitted(tmp_path, val=POINTS)
    net, optimizer = parts()
    loader = shuffled()
    torch.manual_seed(0)
    for _ in range(3):
        for x, y in loader:
            loss = functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert same_bits(net, result.model.model)


@pytest.mark.parametrize(('at', 'stop_after'), [(6, None), (0, 1)], ids=['inside an epoch', 'after one'])
def test_a_stopped_run_continues_with_the_same_bits(whole, tmp_path, at, stop_after, caplog):
    same = {'val': shuffled(), 'metrics': MeanAbsoluteError(), 'lr_config': {'policy': 'step', 'step': [1, 2]}}
    first = fitted(tmp_path / 'run', **same, hooks=[StopsAt(at)], stop_after=stop_after)
    assert first.outcome.kind == 'stopped'
    again = fitted(tmp_path / 'run', **same, hooks=[StopsAt(at)], resume=True)
    assert again.outcome.kind == 'completed'
    assert same_bits(whole.model, again.model)
    assert again.scores == whole.scores
    assert not [record for record in caplog.records if getattr(record, 'exactness', False)]


def test_the_same_objects_can_train_longer(whole, tmp_path):
    """As in a notebook: the optimizer has its first rate again when the schedule is over."""
    net, optimizer = parts()
    same = {'loss': nn.MSELoss(), 'optimizer': optimizer, 'lr_config': {'policy': 'step', 'step': [1, 2]}, 'seed': 0}
    same.update(metrics=MeanAbsoluteError(), work_dir=tmp_path / 'run', device='cpu')
    for epochs in (2, 3):
        result = fit(net, shuffled(), shuffled(), epochs=epochs, resume=True, **same)
        assert optimizer.param_groups[0]['lr'] == 0.01
        assert 'initial_lr' not in optimizer.param_groups[0]
    assert same_bits(whole.model, result.model)


@pytest.mark.parametrize(
    ('train', 'options'),
    [
        (POINTS, {'batch_size': 6, 'workers': 0}),
        ([POINTS[:10], POINTS[10:]], {}),
        (Stream(), {}),
        (DataLoader(POINTS, sampler=range(4), batch_size=2, generator=torch.Generator()), {}),
    ],
    ids=['data set', 'list of batches', 'iterable', 'loader'],
)
def test_what_may_be_trained_on(train, options, tmp_path):
    result = fitted(tmp_path, train, train, epochs=1, **options)
    steps = {'TensorDataset': 4, 'list': 2, 'Stream': 4, 'DataLoader': 2}[type(train).__name__]
    assert [record['step'] for record in result.history if record['mode'] == 'val'] == [steps]
    assert result.best_checkpoint.endswith('best_loss_epoch_1.pth')


@pytest.mark.parametrize('optimizer', ['SGD', {'type': 'SGD', 'lr': 0.001}])
@pytest.mark.parametrize('loss', ['MSELoss', {'type': 'MSELoss'}, nn.MSELoss()])
def test_names_dicts_and_objects_mean_the_same(optimizer, loss, tmp_path, whole, request):
    result = fitted(tmp_path, optimizer=optimizer, loss=loss, epochs=1, stop_after=1)
    others = request.config.stash.setdefault(pytest.StashKey[dict](), {})
    assert same_bits(others.setdefault('first', result.model), result.model)


def test_the_settings_of_a_named_optimizer(tmp_path):
    result = fitted(tmp_path, optimizer='Adam', optimizer__lr=0.5, epochs=1)
    assert result.history[-1]['lr'] == 0.5


@pytest.mark.parametrize(
    ('metrics', 'names', 'best'),
    [
        ('MeanSquaredError', ['MeanSquaredError'], 'MeanSquaredError'),
        ([MeanAbsoluteError(), 'MeanSquaredError'], ['MeanAbsoluteError', 'MeanSquaredError'], 'MeanAbsoluteError'),
        ({'error': {'type': 'MeanSquaredError'}}, ['error'], 'error'),
        (MetricCollection([MeanSquaredError()]), ['MeanSquaredError'], 'MeanSquaredError'),
        ({'spread': 'MeanMetricOfOutputs'}, ['spread'], 'loss'),
    ],
    ids=['name', 'list', 'dict', 'collection', 'unknown direction'],
)
def test_metrics_in_each_form(metrics, names, best, tmp_path):
    metrics = {'spread': Spread()} if metrics == {'spread': 'MeanMetricOfOutputs'} else metrics
    result = fitted(tmp_path, val=POINTS, metrics=metrics, epochs=1)
    assert [*result.scores] == ['loss', *names]
    assert result.best_checkpoint.endswith(f'best_{best}_epoch_1.pth')


class Spread(MeanSquaredError):
    """A metric that does not say whether more is better."""

    higher_is_better = None


def test_the_default_work_dir_is_named_by_the_network(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fitted(None, epochs=1).work_dir.samefile(tmp_path / 'work_dirs' / 'Net')


def test_what_of_the_optimizer_is_not_the_networks_is_logged(tmp_path, caplog):
    """One of its parameters is elsewhere, so a checkpoint does not have it; and its scheduler is not called."""
    net, _ = parts()
    optimizer = torch.optim.SGD([*net.parameters(), nn.Parameter(torch.zeros(1))], lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    fit(net, POINTS, loss='MSELoss', optimizer=optimizer, epochs=1, work_dir=tmp_path, device='cpu')
    (inexact,) = (record for record in caplog.records if getattr(record, 'exactness', False))
    assert 'SGD also holds 1 parameters that the model does not have' in inexact.getMessage()
    assert 'a scheduler of torch is attached to SGD, and is not called: give lr_config=dict(' in caplog.text


# --- what is refused --------------------------------------------------------------------------------------------------

ELSEWHERE = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
TRIPLES = TensorDataset(X, Y, Y)
LOADER = DataLoader(POINTS)


@pytest.mark.parametrize(
    ('change', 'error', 'words'),
    [
        ({'net': Net}, TypeError, 'fit needs net, a torch.nn.Module, but got <class'),
        ({'train': None}, TypeError, r'fit needs train, a DataLoader, a data set, or an iterable .*, but got None'),
        ({'train': 'data.csv'}, TypeError, "fit needs train, a DataLoader.*, but got 'data.csv'"),
        ({'train': iter(LOADER)}, TypeError, 'an iterator .* ends after one pass: give what iter'),
        ({'val': 3}, TypeError, r'fit needs val, a DataLoader.*, or None, but got 3'),
        ({'loss': None}, TypeError, "fit needs loss, a function, a module, or 'CrossEntropyLoss', but got None"),
        ({'loss': nn.MSELoss}, TypeError, 'fit needs loss, a function.* but got <class'),
        ({'loss': 'MSLoss'}, KeyError, "MSLoss is not in the loss registry; did you mean 'MSELoss'"),
        ({'optimizer': None}, TypeError, r"fit needs optimizer, .*Adam\(net.parameters\(\)\).*got None"),
        ({'optimizer': ELSEWHERE}, PreflightError, 'optimizer .*holds no parameter of Net: it changes nothing'),
        ({'epochs': 0}, ValueError, 'epochs must be a whole number of at least 1, but got 0'),
        ({'epochs': None}, TypeError, 'epochs must be a whole number of at least 1, but got None'),
        ({'train': LOADER, 'batch_size': 8}, ValueError, 'batch_size=8 is for data sets, but train is a DataLoader: '),
        ({'train': [(X, Y)], 'workers': 1}, ValueError, 'workers=1 is for data sets, but train is a DataLoader'),
        ({'metrics': 3}, TypeError, 'metric 3 is neither a config nor a torchmetrics.Metric: give'),
        ({'loss': nn.MSELoss(reduction='none')}, ValueError, r'one number, but its result has the shape \(20, 1\)'),
        ({'loss': lambda x, y: 3.0}, TypeError, 'the loss must return a tensor or .*, but it returned 3.0'),
        ({'train': TRIPLES}, TypeError, r'fit trains on batches \(x, y\), but this one is a list of 3: let'),
        ({'train': X}, TypeError, r'fit trains on batches \(x, y\), but this one is a Tensor: let'),
        ({'epoch': 3}, TypeError, r"fit\(\) got an unknown keyword 'epoch'; did you mean 'epochs'"),
        ({'devise': 'cpu'}, TypeError, "unknown keyword 'devise': .*did you mean 'device'"),
        ({'optimizer__lr': 1.0}, TypeError, 'optimizer'),
        ({'lr': 0.05, 'optimizer': 'Adam'}, TypeError, r"such as optimizer=dict\(type='Adam', lr=0.05\)"),
    ],
)  # fmt: skip
def test_what_is_refused(change, error, words, tmp_path):
    net, optimizer = parts()
    given = {'loss': functional.mse_loss, 'optimizer': optimizer, 'epochs': 1, 'device': 'cpu', **change}
    with pytest.raises(error, match=f'(?s){words}'):
        fit(given.pop('net', net), given.pop('train', POINTS), work_dir=tmp_path / 'run', **given)


# --- in a config ------------------------------------------------------------------------------------------------------


def config_of(**changes):
    net, optimizer = parts()
    model = {'type': 'Supervised', 'model': net, 'loss': functional.mse_loss, 'metrics': MeanAbsoluteError()}
    return {
        'model': model,
        'data': {'train': shuffled(), 'val': {'all': shuffled(), 'some': DataLoader(POINTS, sampler=range(4))}},
        'optimizer': optimizer,
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 3},
        'evaluation': {'interval': 1, 'save_best': 'all/MeanAbsoluteError'},
        'seed': 0,
        **changes,
    }


def test_a_config_takes_the_same_objects(whole, tmp_path):
    lr_config = {'policy': 'step', 'step': [1, 2]}
    result = runnerkit.train(config_of(lr_config=lr_config), tmp_path, device='cpu')
    assert set(result.scores) == {f'{of}/{name}' for of in ('all', 'some') for name in ('loss', 'MeanAbsoluteError')}
    assert same_bits(whole.model, result.model)
    assert runnerkit.test(config_of(), 'val', checkpoint=result.last_checkpoint, device='cpu') == pytest.approx(
        result.scores
    )
    with pytest.raises(TypeError, match='a DataLoader may not give all samples in order: give its'):
        runnerkit.predict(tmp_path, 'val/all', config=config_of())


@pytest.mark.parametrize(
    ('changes', 'error', 'words'),
    [
        ({'data': {'train': LOADER, 'batch_size': 8}}, ValueError, 'data.batch_size=8.* is for data sets, but'),
        ({'data': {'train': LOADER, 'train_dataloader': {'shuffle': True}}}, ValueError, 'data.train_dataloader=.*for'),
        ({'data': {'train': 3}}, PreflightError, 'data.train .*a data set, or a loader'),
        ({'optimizer': 3}, PreflightError, 'optimizer .*the name of an optimizer, or a torch.optim.Optimizer'),
        ({'auto_scale_lr': {'enable': True, 'base_batch_size': 8}}, TypeError, 'auto_scale_lr needs optimizer=dict'),
    ],
)  # fmt: skip
def test_what_a_config_does_not_take(changes, error, words, tmp_path):
    config = {key: value for key, value in config_of(**changes).items() if key != 'evaluation'}
    with pytest.raises(error, match=f'(?s){words}'):
        runnerkit.train(config, tmp_path / 'run', device='cpu')


def test_a_few_samples_are_those_of_a_data_set(tmp_path):
    with pytest.raises(TypeError, match='--overfit takes samples of a data set, but data.train is a DataLoader'):
        fitted(tmp_path, overfit=2)


def test_several_optimizers_are_given(tmp_path):
    """Each of a part of the network, by name."""
    from runnerkit.optim import build_optimizer

    net, _ = parts()
    given = {'first': torch.optim.SGD(net[0].parameters(), lr=0.1), 'last': torch.optim.Adam(net[2].parameters())}
    assert build_optimizer(net, given) == given


# --- several ranks ----------------------------------------------------------------------------------------------------


def seen_by(rank, folder):
    """What each rank trains on in an epoch, and the weights."""
    logging.disable()
    seen = []

    class Looks(Hook):
        def before_train_iter(self, runner):
            seen.append(runner.data_batch[0])

    result = fitted(f'{folder}/run', val=LOADER, epochs=1, hooks=[Looks()])
    return torch.cat(seen), result.model.state_dict(), result.scores


def test_ranks_share_a_plain_loader(on_ranks, tmp_path):
    (first, weights, scores), (second, others, _) = on_ranks(__file__, 'seen_by', str(tmp_path))
    assert len(first) == len(second) == 10
    assert sorted(torch.cat([first, second])[:, 0].tolist()) == sorted(X[:, 0].tolist())
    assert all(torch.equal(value, others[name]) for name, value in weights.items())
    net = Net()
    net.load_state_dict({name.removeprefix('model.'): value for name, value in weights.items()})
    with torch.no_grad():
        assert scores['loss'] == pytest.approx(functional.mse_loss(net.eval()(X), Y).item(), rel=1e-5)
