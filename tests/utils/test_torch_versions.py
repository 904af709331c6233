"""What differs between versions of torch, where the torch here can pass for an older one."""

import pytest
import torch
from torch import distributed as dist
from torch.distributed import checkpoint as dcp

from runnerkit.utils import torch_versions


def test_shards_are_written_and_read_by_one_process_alone(monkeypatch):
    """Which torch 2.6 does with its older functions only."""
    for name in ('save', 'load'):
        chosen = torch_versions.shards_function(name)
        assert chosen in (getattr(dcp, name), getattr(dcp, f'{name}_state_dict'))
        monkeypatch.setattr(dcp, name, lambda state_dict, *, checkpoint_id=None: None)
        assert torch_versions.shards_function(name) is getattr(dcp, f'{name}_state_dict')


@pytest.mark.parametrize('has_clone', [True, False])
def test_the_second_connection_reaches_the_same_keys(has_clone, monkeypatch):
    monkeypatch.setenv('TORCHELASTIC_RESTART_COUNT', '3')
    first = dist.TCPStore('localhost', 0, is_master=True)
    whole = dist.PrefixStore('one', dist.PrefixStore('two', first))
    if has_clone and not hasattr(whole, 'clone'):
        pytest.skip('the stores of this torch have no clone')
    if not has_clone:
        monkeypatch.setattr(dist, 'PrefixStore', Prefixed)
        whole = Prefixed('one', Prefixed('two', first))
    again = [torch_versions.second_connection(whole) for _ in range(2)]
    again[0].set('a', 'b')
    assert again[1].get('a') == b'b'
    if has_clone:
        assert whole.get('a') == b'b'
    else:
        assert again[0].underlying_store is not first
        assert first.get('attempt_3/a') == b'b'


class Prefixed:
    """A store that adds a prefix, without ``clone``, as in torch 2.6."""

    def __init__(self, prefix, store):
        self.prefix, self.underlying_store, self.timeout = prefix, store, store.timeout

    def set(self, key, value):
        self.underlying_store.set(f'{self.prefix}/{key}', value)

    def get(self, key):
        return self.underlying_store.get(f'{self.prefix}/{key}')


def test_a_torch_that_does_not_shard_rightly_is_refused(monkeypatch):
    monkeypatch.setattr(dist.fsdp, 'FSDPModule', object)
    with pytest.raises(RuntimeError, match=r'FSDP2 needs torch 2\.13 or later, but this is .*Use DDP'):
        torch_versions.check_sharding()


def test_each_compiled_module_has_its_own_limit_of_variants_where_torch_can(monkeypatch):
    monkeypatch.setattr(torch, 'compile', lambda model=None, *, isolate_recompiles=False: None)
    assert torch_versions.compile_defaults() == {'isolate_recompiles': True}
    monkeypatch.setattr(torch, 'compile', lambda model=None, *, mode=None: None)
    assert torch_versions.compile_defaults() == {}


def test_errors_of_an_accelerator(monkeypatch):
    monkeypatch.setattr(torch, 'AcceleratorError', KeyError, raising=False)
    assert torch_versions.accelerator_errors() == (KeyError,)
    monkeypatch.delattr(torch, 'AcceleratorError')
    assert torch_versions.accelerator_errors() == ()
