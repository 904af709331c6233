import pytest

from runnerkit.data import TRANSFORMS, Compose


class Add:
    def __init__(self, number):
        self.number = number

    def __call__(self, sample):
        return sample + self.number

    def __repr__(self):
        return f'Add({self.number})'


def test_transforms_in_a_row():
    pipeline = Compose([{'type': Add, 'number': 1}, lambda sample: sample * 2])
    assert pipeline(3) == 8
    assert Compose([])(3) == 3
    assert TRANSFORMS.build({'type': 'Compose', 'transforms': [Add(1), Add(2)]})(0) == 3
    assert repr(Compose([Add(1), Add(2)])) == 'Compose(\n    Add(1)\n    Add(2)\n)'


def test_a_sample_given_up():
    called = []
    assert Compose([lambda sample: None, called.append])(3) is None
    assert called == []


@pytest.mark.parametrize('wrong', [3, 'Flip'])
def test_neither_config_nor_callable(wrong):
    with pytest.raises(TypeError, match=f'but got {type(wrong).__name__}: {wrong!r}'):
        Compose([wrong])
