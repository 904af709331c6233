"""Runs by config with a wrapper around the model: on two ranks what one process does with the whole batch."""

import pytest
import torch
import wrapping_runs

from runnerkit.checkpoint import ema_name
from runnerkit.config import Config
from runnerkit.flow.stages.wrapping import wrapped
from runnerkit.parallel import MMDataParallel
from runnerkit.runner import EpochBasedRunner
from runnerkit.utils.logging import get_logger

LOGGER = get_logger('runnerkit')
CPU = torch.device('cpu')


@pytest.fixture(scope='module')
def results(on_ranks, tmp_path_factory):
    return on_ranks(wrapping_runs.__file__, 'on_rank', tmp_path_factory.mktemp('ranks'))


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    """A case in one process, run once."""
    done = {}

    def result(name):
        if name not in done:
            done[name] = wrapping_runs.case(tmp_path_factory.mktemp('alone'), name)
        return done[name]

    return result


def check_weights(own, other, rtol=3e-5, atol=3e-6):
    assert own.keys() == other.keys()
    for name, each in own.items():
        torch.testing.assert_close(each, other[name], rtol=rtol, atol=atol)


def check_rows(own, other):
    """Whether two runs have logged the same, in plain numbers."""
    assert len(own) == len(other)
    for row, expected in zip(own, other, strict=True):
        assert all(type(value) in (int, float) for key, value in row.items() if key != 'mode')
        assert row.keys() == expected.keys()
        assert row['mode'] == expected['mode']
        assert all(row[key] == pytest.approx(value, rel=1e-4) for key, value in expected.items() if key != 'mode')


CASES = [
    *(('DDP', name) for name in ('plain', 'accumulate')),
    *(('FSDP2', name) for name in wrapping_runs.CASES if name not in ('again', 'bf16', 'fp16', 'compiled')),
]


@pytest.mark.parametrize(('wrapper', 'name'), CASES)
def test_two_ranks_train_as_one_process_with_the_whole_batch(results, alone, wrapper, name):
    check_case(results, alone, wrapper, name)


@pytest.mark.thorough  # the test above; tests/nn/test_compiled.py compiles in one process
def test_two_ranks_train_compiled_as_one_process_with_the_whole_batch(on_ranks, alone, tmp_path):
    results = on_ranks(wrapping_runs.__file__, 'compiled_on_rank', tmp_path)
    for wrapper in ('DDP', 'FSDP2'):
        check_case(results, alone, wrapper, 'compiled')


def check_case(results, alone, wrapper, name):
    reference = alone(name)
    assert len(reference['rows']) == 4 + 2 * (name == 'ema')
    for result in results:
        own = result[wrapper, name]
        check_weights(own['weights'], reference['weights'])
        check_rows(own['rows'], reference['rows'])


@pytest.mark.parametrize('wrapper', ['DDP', 'FSDP2'])
def test_runs_are_bit_identical(results, wrapper):
    first = results[0][wrapper, 'plain']['weights']
    for result in results:
        for name in ('plain', 'again'):
            assert all(torch.equal(each, first[key]) for key, each in result[wrapper, name]['weights'].items())


@pytest.mark.parametrize('name', ['bf16', 'fp16'])
def test_mixed_precision(results, alone, name):
    assert alone('plain')['rows'][-1]['loss'] != alone(name)['rows'][-1]['loss']
    for result in results:
        check_weights(result['FSDP2', name]['weights'], alone(name)['weights'], rtol=0.05, atol=5e-3)


def test_each_case_does_what_it_is_named_after(alone):
    plain = alone('plain')['weights']
    for name in ('clip', 'accumulate', 'paramwise', 'fused', 'frozen'):
        assert any(not torch.equal(each, plain[key]) for key, each in alone(name)['weights'].items())
    rows = alone('clip')['rows']
    assert rows[0]['grad_norm'] > 1.0
    assert {'dis', 'gen'} == {row['mode'] for row in alone('modes')['rows']}
    averages = alone('ema')['weights']
    assert any(not torch.equal(each, averages[ema_name(key)]) for key, each in plain.items())
    assert alone('ema')['scores']


def test_where_torch_has_nothing_fused_for_sharded_weights_that_is_told(results):
    told = '\n'.join(results[0]['FSDP2', 'fused sgd']['told'])
    assert 'fused=True has no effect on SGD (torch has no fused SGD for sharded parameters)' in told
    assert 'fused: AdamW yes' in '\n'.join(results[0]['FSDP2', 'fused']['told'])


def test_one_process_without_a_launcher_is_not_wrapped():
    model = torch.nn.Linear(1, 1)
    assert wrapped(model, Config({}), CPU, LOGGER) is model
    for section in ({'type': 'DDP'}, {'type': 'FSDP2'}, {'type': 'Scaled'}, {'type': wrapping_runs.Scaled}):
        assert wrapped(model, Config({'model_wrapper': section}), CPU, LOGGER) is model
    assert isinstance(wrapped(model, Config({}), torch.device('cuda', 0), LOGGER), MMDataParallel)


@pytest.fixture(scope='module')
def further(on_ranks, tmp_path_factory):
    return on_ranks(wrapping_runs.__file__, 'more_on_rank', tmp_path_factory.mktemp('further'))


@pytest.mark.thorough  # tests/runner/test_ranks_change.py
@pytest.mark.parametrize('name', wrapping_runs.MORE)
def test_further_runs_are_those_of_one_process(further, tmp_path, name):
    reference = wrapping_runs.more(tmp_path, name)
    for result in further:
        check_weights(result[name]['weights'], reference['weights'])
        if 'skip' not in name:
            check_rows(result[name]['rows'], reference['rows'])


@pytest.mark.parametrize('name', ['skip', 'skip fused'])
def test_updates_with_bad_gradients_are_skipped_on_all_ranks(further, name):
    assert any('updates up to iteration' in line and 'were skipped' in line for line in further[0][name]['told'])
    for result in further:
        assert all(bool(torch.isfinite(each).all()) for each in result[name]['weights'].values())


def test_a_run_that_meets_nan_stops_on_all_ranks(further):
    assert all('NonFiniteError: the loss is not finite since iteration' in result['stop'] for result in further)


@pytest.mark.parametrize('kind', [wrapping_runs.Line, wrapping_runs.Networks])
def test_experiments_train_as_in_one_process(further, tmp_path, kind):
    reference = wrapping_runs.experiment(kind, tmp_path)
    for result in further:
        check_weights(result[kind.__name__]['weights'], reference['weights'])
        check_rows(result[kind.__name__]['rows'], reference['rows'])


def test_only_the_first_rank_builds_the_weights_where_the_model_allows_it(further):
    for name in ('initialised', 'supervised', 'old keys'):
        assert not any('built whole' in line for line in further[0][name]['told'])
    for name, reason in (('needs numbers', 'RuntimeError'), ('with tensor', 'no parameters or buffers')):
        (told,) = [line for line in further[0][name]['told'] if 'built whole on every rank' in line]
        assert reason in told


def test_a_wrapper_of_the_users_own(further, alone):
    for result in further:
        first = result['own wrapper']['rows'][0]
        assert first['loss'] == pytest.approx(alone('plain')['rows'][0]['loss'], rel=1e-4)  # logged before it is scaled
        own, other = result['own wrapper']['weights'], alone('plain')['weights']
        assert any(not torch.allclose(each, other[key], rtol=0.01) for key, each in own.items())
        assert 'WrongType: model_wrapper: Stepless has no broken_step, which Net has' in result['stepless']
        assert "no module of a class 'Blok'; did you mean 'Block'" in result['class']
        assert "did you mean 'factor'" in result['not taken']
    assert [result['class'].partition(':')[0] for result in further] == ['WrongValue', 'ToldByFirstRank']


class Counted(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def test_one_process_computes_activations_again_and_tells_what_it_does_not_do(caplog):
    caplog.set_level('INFO', logger='runnerkit')
    section = {'type': 'FSDP2', 'module_classes': ['Counted'], 'activation_checkpointing': True}
    model = torch.nn.Sequential(Counted(2, 2), torch.nn.ReLU())
    wrapped(model, Config({'model_wrapper': {**section, 'mp_policy': {'param_dtype': 'bf16'}}}), CPU, LOGGER)
    model(torch.ones(1, 2)).sum().backward()
    assert model[0].calls == 2
    assert 'so mp_policy has no effect' in caplog.text
    with pytest.raises(ValueError, match="no module of a class 'Countd'; did you mean 'Counted'"):
        wrapped(model, Config({'model_wrapper': {'type': 'FSDP2', 'module_classes': ['Countd']}}), CPU, LOGGER)


def test_a_model_without_a_wrapper_of_ours_gets_its_batches_from_the_runner(tmp_path):
    seen = []

    class Seeing(torch.nn.Module):
        def train_step(self, data, optimizer):
            seen.append(data['x'].device.type)
            return {'num_samples': 1}

    runner = EpochBasedRunner(Seeing(), max_epochs=1)
    runner.batch_device = torch.device('meta')
    runner.run([[{'x': torch.ones(1)}]], [('train', 1)])
    assert seen == ['meta']


def test_batch_norms_that_are_to_be_synchronised_need_gpus(monkeypatch):
    monkeypatch.setattr('runnerkit.flow.stages.wrapping.get_dist_info', lambda: (0, 2))
    cfg = Config({'sync_batchnorm': True, 'model_wrapper': {'type': 'MMDataParallel', 'device_ids': []}})
    with pytest.raises(ValueError, match='only on GPUs'):
        wrapped(torch.nn.BatchNorm1d(2), cfg, CPU, LOGGER)
    made = wrapped(torch.nn.BatchNorm1d(2), cfg, torch.device('meta'), LOGGER)
    assert isinstance(made.module, torch.nn.SyncBatchNorm)
