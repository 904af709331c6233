"""Quotas: reading them, counting, and what they refuse."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from runnerkit.config import Config
from runnerkit.search.quota import Quota

MODEL = nn.Linear(100, 10)  # 1,010 parameters; 2,000 operations for one sample
SAMPLE = torch.zeros(1, 100)


@pytest.mark.parametrize(
    'text, refused',
    [
        ('params < 1011', None),
        ('params < 1_010', 'params 1,010 is not < 1,010'),
        ('params <= 1010', None),
        ('params>1e3', None),
        ('1e6 <= params', 'params 1,010 is not >= 1,000,000'),
        ('1e3 < params < 2e3', None),
        ('2e3 > params > 1e3', None),
        ('1e3 < params <= 1005', 'params 1,010 is not <= 1,005'),
        ('params in [1010, 1010]', None),
        ('params in [ 0, .5e2 ]', 'params 1,010 is not <= 50'),
        ('params < 1e6 and flops < 2001', None),
        ('params < 1e6 and flops < 2000', 'flops 2,000 is not < 2,000'),
        (
            'params < 10 and flops < 10 and model_valid',
            'params 1,010 is not < 10 and flops 2,000 is not < 10',
        ),
        ('model_valid', None),
    ],
)
def test_what_a_quota_refuses(text, refused):
    assert Quota(text).why_not(MODEL, SAMPLE) == refused


def test_numbers_in_vegas_units():
    quota = Quota('flops < 10 and params in [0.5, 1]', units={'flops': 1e6, 'params': 1e3})
    assert quota.why_not(MODEL, SAMPLE) == 'params 1,010 is not <= 1,000'
    assert Quota('params in [1, 2]', {'params': 1e3}).why_not(MODEL) is None


def test_a_sample_is_needed_only_where_the_model_has_to_be_called():
    assert [Quota(text).needs_sample for text in ('params < 1', 'flops < 1', 'model_valid')] == [False, True, True]
    assert Quota('params < 1e6').why_not(MODEL) is None
    with pytest.raises(TypeError, match=r"the quota 'flops < 1' needs a sample"):
        Quota('flops < 1').why_not(MODEL)
    with pytest.raises(TypeError, match='needs a sample'):
        Quota('params < 30').why_not(nn.LazyLinear(10))
    assert Quota('params < 30').why_not(nn.LazyLinear(10), SAMPLE) == 'params 1,010 is not < 30'


def test_a_model_that_does_not_take_the_sample_is_refused():
    for text in ('model_valid', 'flops < 1e9'):
        why = Quota(text).why_not(MODEL, torch.zeros(1, 99))
        assert why.startswith('the Linear does not take a sample: RuntimeError: mat1 and mat2 shapes')


def test_the_model_of_a_config_and_a_sample_of_its_data():
    def cfg(out, loss='MSELoss'):
        model = {'type': 'Supervised', 'model': {'type': 'Linear', 'in_features': 4, 'out_features': out}}
        data = {'samples_per_gpu': 4, 'workers_per_gpu': 2, 'train': {'type': 'support.Noisy'}}
        return Config({'model': {**model, 'loss': {'type': loss}}, 'data': data})

    quota = Quota('params < 1e3 and flops < 100')
    rng = torch.get_rng_state()
    assert quota.why_not_config(cfg(1)) is None
    assert quota.why_not_config(cfg(20)) == 'flops 160 is not < 100'
    assert Quota('params < 50').why_not_config(Config({'model': cfg(20).model})) == 'params 100 is not < 50'
    why = quota.why_not_config(cfg(1, loss='MSELos'))
    assert why.startswith('the model cannot be built: KeyError: Supervised: MSELos is not in the loss registry')
    assert torch.equal(torch.get_rng_state(), rng)


@pytest.mark.parametrize(
    'text, error, told',
    [
        (3, TypeError, "a quota must be a text such as 'params < 1e6', but got 3"),
        ('', ValueError, "'' in the quota '' is no term: there are 'params < 1e6'"),
        ('parms < 1e6', KeyError, "has an unknown term 'parms'; did you mean 'params'? (there are params, flops, mod"),
        ('flop in [1, 2]', KeyError, "unknown term 'flop'; did you mean 'flops'?"),
        ('valid', KeyError, "unknown term 'valid'; did you mean 'model_valid'?"),
        ('latency < 5', KeyError, 'such as the latency, can be an objective'),
        ('params', ValueError, "'params' in the quota 'params' is no term"),
        ('model_valid < 3', ValueError, "'model_valid < 3' in the quota"),
        ('params < 1e6 or flops < 3', ValueError, "'params < 1e6 or flops < 3' in the quota"),
        ('params < 1M', ValueError, "'params < 1M' in the quota"),
        ('params == 3', ValueError, "'params == 3' in the quota"),
        ('params < __import__("os").getpid()', ValueError, 'is no term'),
    ],
)
def test_what_is_no_quota(text, error, told):
    with pytest.raises(error) as caught:
        Quota(text)
    assert told in caught.value.args[0]


def test_a_quota_is_read_without_torch():
    code = 'import sys\nfrom runnerkit.search.quota import Quota\nQuota("params < 1")\nprint("torch" in sys.modules)'
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == 'False', done.stderr
