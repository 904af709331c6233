"""What is different in MMCV's checkpoints; tests/test_old_checkpoints.py resumes real ones."""

import pytest

from runnerkit.checkpoint.integrity import gpus_of_run, is_mmcv_file


def test_our_files_tell_their_version():
    assert not is_mmcv_file({'meta': {'runnerkit_version': '0.1'}})
    assert is_mmcv_file({'meta': {'mmcv_version': '1.7.2'}})
    assert is_mmcv_file({'state_dict': {}})


@pytest.mark.parametrize(
    'text, number', [('[0, 1]', 2), ('range(3)', 3), ('range(0, 4)', 4), ('print(1)', 0), ('7', 0), ('[0', 0)]
)
def test_the_number_of_gpus_is_read_and_never_executed(text, number):
    assert gpus_of_run({'config': f'a = 1\ngpu_ids = {text}\n'}) == number


def test_without_a_config_the_number_of_gpus_is_not_known():
    assert gpus_of_run({}) == 0
