import pytest

from runnerkit.config import Config
from runnerkit.data import TRANSFORMS, Compose, build_dataset
from runnerkit.data.files import dataset_of_files


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


class Row:
    """A Compose of another library, which builds nothing."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, sample):
        for transform in self.transforms:
            sample = transform(sample)
        return sample


class Both:
    """As in torchvision."""

    def __init__(self, transform, target_transform):
        self.transform, self.target_transform = transform, target_transform

    def __call__(self, sample, target):
        return self.transform(sample), self.target_transform(target)


class Pictures:
    def __init__(self, transform=None, target_transform=None):
        self.transform, self.target_transform = transform, target_transform
        self.transforms = Both(transform, target_transform)

    from_files = classmethod(lambda cls, files, **settings: cls(**settings))

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return self.transforms(1, 2)


ADD = {'type': Add, 'number': 1}


@pytest.mark.parametrize('name', [Row, f'{__file__}:Row'])
def test_transforms_that_the_data_set_does_not_build_are_built(name):
    row = {'type': name, 'transforms': [ADD, {'type': Row, 'transforms': [ADD]}, lambda sample: sample * 2]}
    cfg = {'type': Pictures, 'transform': row, 'target_transform': ADD}
    pictures = build_dataset(cfg)
    assert pictures[0] == (6, 3)
    assert pictures.transform is pictures.transforms.transform
    assert cfg['transform']['transforms'][0] == {'type': Add, 'number': 1}
    assert build_dataset([cfg, {'type': 'RepeatDataset', 'times': 2, 'dataset': cfg}])[2] == (6, 3)
    assert dataset_of_files(cfg, ['a.png'])[0] == (6, 3)


class OtherName:
    def __init__(self, transform):
        self.augment = transform


def test_an_attribute_may_have_another_name():
    assert build_dataset({'type': OtherName, 'transform': ADD}).augment(1) == 2


class Builds(Pictures):
    """Builds its transform, knows its names for others, and keeps dicts of its own."""

    def __init__(self, transform, transforms):
        super().__init__(TRANSFORMS.build(transform), ADD)
        self.given, self.names, self.own = transform, transforms, {'type': 'Mine'}
        self.samples = [ADD] * 200


def test_what_a_data_set_builds_itself_or_calls_otherwise_is_left_alone():
    built = build_dataset({'type': Builds, 'transform': ADD, 'transforms': {'type': 'of another registry'}})
    assert built.transform(1) == 2
    assert built.given == ADD
    assert built.names == {'type': 'of another registry'}
    assert built.own == {'type': 'Mine'}
    assert built.samples[0] == ADD


def test_a_wrong_transform_is_told_with_its_line(tmp_path):
    file = tmp_path / 'cfg.py'
    for text in ("transform=dict(type='Compsoe')", "target_transform=dict(type='operator.nothing')"):
        file.write_text(f'data = dict(\n    type={__file__ + ":Pictures"!r},\n    {text})\n')
        with pytest.raises(KeyError, match=r'not in the transform registry.*cfg.py:3|cfg.py:3'):
            build_dataset(Config.fromfile(str(file)).data)
