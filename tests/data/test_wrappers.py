import pytest

from runnerkit.data import RepeatDataset


def test_repeats():
    repeated = RepeatDataset(['a', 'b'], times=3)
    assert list(repeated) == ['a', 'b'] * 3
    assert len(repeated) == 6
    assert repeated[5] == 'b'


@pytest.mark.parametrize('index', [-1, 6])
def test_out_of_range(index):
    with pytest.raises(IndexError, match='2 samples 3 times'):
        RepeatDataset(['a', 'b'], times=3)[index]
