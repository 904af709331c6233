"""The same trainings as the real MMCV 1.7.2 did, to the last bit (benchmarks/side_by_side.py)."""

import pytest
from mmcv_record import RECORD, assert_same, side_by_side


@pytest.mark.parametrize('name', side_by_side.SETUPS)
def test_weights_and_learning_rates_are_mmcvs(name, tmp_path):
    found = side_by_side.train('runnerkit', side_by_side.SETUPS[name], str(tmp_path))
    assert found['rates'] == RECORD[name]['rates']
    assert_same(found['weights'], RECORD[name]['weights'])


def test_the_setups_train_differently():
    """Teeth: no two of them end at the same weights, so that none of them is switched off."""
    ends = [repr(RECORD[name]['weights']) for name in side_by_side.SETUPS]
    assert len(ends) >= 12
    twins = {name for name in side_by_side.SETUPS if ends.count(repr(RECORD[name]['weights'])) > 1}
    assert twins == set()
