"""The accelerator of a machine that has one, here made up, and of one that has none."""

from types import SimpleNamespace

import pytest
import torch

from runnerkit.distributed.devices import accelerator, current_index, device_count, use_device


@pytest.fixture
def machine(monkeypatch):
    """Make torch believe that there are two devices of a type."""

    def has(kind):
        chosen = []
        monkeypatch.setattr(torch.cuda, 'is_available', lambda: kind == 'cuda')
        found = None if kind is None else SimpleNamespace(type=kind)
        of_torch = SimpleNamespace(is_available=lambda: kind is not None, current_accelerator=lambda: found)
        monkeypatch.setattr(torch, 'accelerator', of_torch, raising=False)
        if kind is not None:
            devices = SimpleNamespace(
                device_count=lambda: 2, set_device=chosen.append, current_device=lambda: chosen[-1]
            )
            for name in ('device_count', 'set_device', 'current_device'):
                monkeypatch.setattr(getattr(torch, kind), name, getattr(devices, name), raising=False)
        return chosen

    return has


@pytest.mark.parametrize('kind', ['cuda', 'xpu', 'mps', None])
def test_the_accelerator(machine, kind):
    machine(kind)
    assert accelerator() == kind


@pytest.mark.parametrize('kind', ['cuda', 'xpu'])
def test_one_of_several_devices(machine, kind):
    chosen = machine(kind)
    assert device_count(kind) == 2
    use_device(kind, 1)
    assert chosen == [1]
    assert current_index(kind) == 1


def test_devices_without_a_number(machine):
    chosen = machine('mps')
    assert device_count('cpu') == 1
    for kind in ('cpu', 'mps'):
        use_device(kind, 0)
        assert current_index(kind) is None
    assert chosen == []


def test_a_type_that_torch_does_not_have():
    assert device_count('abacus') == 0
