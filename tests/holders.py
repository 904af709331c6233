"""Parts of loaders that hold any attributes."""

from torch.utils.data import Dataset, Sampler


class Data(Dataset):
    """Any attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class Order(Sampler):
    """Any attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __iter__(self):
        return iter(range(4))

    def __len__(self):
        return 4


class Slots:
    __slots__ = ('__weakref__', 'rng', 'unset')

    def __init__(self, rng):
        self.rng = rng


class OneSlot(Slots):
    __slots__ = 'more'
