"""The checks of ``model_wrapper``."""

import pytest
from plans import of_config, told

from runnerkit.flow import Options
from runnerkit.flow.preflight import Plan
from runnerkit.flow.preflight.wrapping import wrapper_fits
from runnerkit.parallel import MODULE_WRAPPERS, MMDataParallel

FSDP2 = {'model_wrapper': {'type': 'FSDP2'}}

#: What is changed, the key and the words of the error, and what mends it.
ERRORS = [
    ({'model_wrapper': {'type': 'FSDP'}}, 'model_wrapper.type', "Did you mean 'FSDP2'?", FSDP2),
    (
        {'model_wrapper': {'type': 'FSDP2', 'module_classes': ['Linear'], 'min_num_params': 3}},
        'model_wrapper.min_num_params',
        'both select',
        {'model_wrapper.min_num_params': ...},
    ),
    ({**FSDP2, 'channels_last': True}, 'channels_last', 'FSDP2', {'channels_last': False}),
    (
        {**FSDP2, 'optimizer_config.detect_anomalous_params': True},
        'optimizer_config.detect_anomalous_params',
        'one process',
        {'model_wrapper.type': 'DDP'},
    ),
    (
        {'model_wrapper': {'broadcast_buffers': True}, 'broadcast_buffers': False},
        'broadcast_buffers',
        'differs from model_wrapper.broadcast_buffers=True',
        {'broadcast_buffers': True},
    ),
]


@pytest.mark.parametrize('changes, key, words, mends', ERRORS)
def test_what_is_refused(changes, key, words, mends):
    assert told(of_config(changes), 'error', key, words)
    assert not told(of_config(changes, mends), 'error', key, words)


def test_batch_norms_are_synchronised_on_gpus_only():
    changes, several = {'sync_batchnorm': True}, Options(launcher='pytorch', device='cpu')

    def is_refused(changes, options):
        return told(of_config(changes, options=options), 'error', 'sync_batchnorm', 'only on GPUs')

    assert is_refused(changes, several)
    assert not is_refused(changes, Options(device='cpu'))
    assert not is_refused(changes, Options(launcher='pytorch', device='cuda'))
    assert not is_refused({'sync_batchnorm': False}, several)


def test_mmcvs_keys_are_not_for_a_wrapper_of_the_users_own():
    plan = of_config({'model_wrapper': {'type': 'MMDataParallel'}, 'find_unused_parameters': True})
    (finding,) = wrapper_fits(plan)
    assert (finding.level, finding.key) == ('warning', 'find_unused_parameters')
    assert not list(wrapper_fits(of_config({'find_unused_parameters': True})))


@pytest.mark.parametrize(
    'named', ['DDP', 'MMDistributedDataParallel', 'DistributedDataParallel', 'own.py:Wrapper', 'a.B']
)
def test_names_that_are_known_or_may_be(named):
    changes = {'model_wrapper': {'type': named}}
    assert not told(of_config(changes), 'error', 'model_wrapper.type', 'unknown model wrapper')
    assert MODULE_WRAPPERS.get('MMDataParallel') is MMDataParallel
    assert not list(wrapper_fits(Plan()))
