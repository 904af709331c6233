"""Clean names of weights, whatever is wrapped around the model or its parts."""

from collections import OrderedDict

import pytest
import torch
from torch import nn

from runnerkit.checkpoint import get_state_dict, load_checkpoint, load_state_dict, save_checkpoint
from runnerkit.checkpoint.names import plain_names
from runnerkit.checkpoint.state_dict import load_part
from runnerkit.parallel import MODULE_WRAPPERS


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        return self.head(self.body(x))


def plain():
    return Net()


def around(wrap):
    return lambda: wrap(Net())


def within(wrap):
    def build():
        net = Net()
        net.body[0] = wrap(net.body[0])
        net.body = wrap(net.body)
        net.head = wrap(net.head)
        return wrap(net)

    return build


BUILT = {
    'plain': plain,
    'wrapped': around(nn.DataParallel),
    'compiled': around(torch.compile),
    'compiled and wrapped': around(lambda net: nn.DataParallel(torch.compile(net))),
    'wrapped and compiled': around(lambda net: torch.compile(nn.DataParallel(net))),
    'wrapped parts': within(nn.DataParallel),
    'compiled parts': within(torch.compile),
    'wrapped compiled parts': within(lambda net: nn.DataParallel(torch.compile(net))),
}


@pytest.mark.parametrize('kind', BUILT)
def test_names_are_those_of_the_plain_model(kind):
    model = BUILT[kind]()
    state, expected = get_state_dict(model), Net().state_dict()
    assert type(state) is OrderedDict
    assert list(state) == list(expected)
    assert state._metadata == expected._metadata
    assert list(get_state_dict(model, prefix='net.')) == [f'net.{name}' for name in expected]


@pytest.mark.parametrize('source, target', [(a, b) for a in BUILT for b in BUILT if 'plain' in (a, b) or a == b])
def test_any_file_loads_into_any_model(source, target, tmp_path):
    saved, model = BUILT[source](), BUILT[target]()
    save_checkpoint(saved, tmp_path / 'a.pth')
    load_checkpoint(model, tmp_path / 'a.pth', strict=True)
    for a, b in zip(get_state_dict(saved).values(), get_state_dict(model).values(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize('kind', BUILT)
def test_files_that_others_have_saved_with_the_wrappers_names_load(kind, tmp_path):
    saved = BUILT[kind]()
    torch.save(saved.state_dict(), tmp_path / 'a.pth')
    same, clean = BUILT[kind](), Net()
    load_state_dict(same, get_state_dict(saved), strict=True)
    if 'wrapped' not in kind:
        load_checkpoint(clean, tmp_path / 'a.pth', strict=True)
        assert torch.equal(clean.head.weight, get_state_dict(saved)['head.weight'])


def test_a_part_of_a_compiled_model_loads(tmp_path):
    saved, part = within(torch.compile)(), Net().body
    torch.save(saved.state_dict(), tmp_path / 'a.pth')
    load_part(part, 'body.', tmp_path / 'a.pth')
    assert torch.equal(part[0].weight, get_state_dict(saved)['body.0.weight'])


def test_names_of_averages_in_old_files_follow_those_of_the_weights():
    """They had the names of wrappers; what the weights do not name, or already name, stays as it is."""
    plain_ones = ['a.b.w', 'a_module.w', 'ema_a_module_w', 'ema_x__orig_mod_w', 'ema_module.y']
    found = plain_names(
        dict.fromkeys([*plain_ones, 'c._orig_mod.w', 'ema_c__orig_mod_w', 'ema_a_module_b__orig_mod_w'], 0)
    )
    assert list(found) == [*plain_ones, 'c.w', 'ema_c_w', 'ema_a_b_w']


def test_the_version_of_a_wrapped_part_reaches_it():
    model = nn.DataParallel(nn.Sequential(nn.DataParallel(nn.BatchNorm1d(2))))
    state = get_state_dict(model)
    del state['0.num_batches_tracked']
    found = model.module.load_state_dict
    seen = {}
    model.module.load_state_dict = lambda state, strict: seen.update(state._metadata) or found(state, strict)
    load_state_dict(model, state)
    assert seen['0.module'] == {'version': 2}


def test_a_given_dict_is_filled():
    given = {'other': 1}
    assert get_state_dict(nn.Linear(2, 1), given, 'a.') is given
    assert list(given) == ['other', 'a.weight', 'a.bias']
    ordered = nn.Linear(1, 1).state_dict(prefix='b.')
    get_state_dict(nn.BatchNorm1d(1), ordered, 'a.')
    assert ordered._metadata == {'b': {'version': 1}, 'a': {'version': 2}}


def test_parameters_themselves():
    model = nn.DataParallel(nn.Linear(2, 1))
    assert get_state_dict(model, keep_vars=True)['weight'] is model.module.weight


@pytest.fixture
def holder():
    class Holder:
        """A wrapper that is no module."""

        def __init__(self, module):
            self.module = module

    MODULE_WRAPPERS.register_module(module=Holder)
    yield Holder
    MODULE_WRAPPERS.module_dict.pop('Holder')


def test_a_wrapper_that_is_no_module(holder):
    model = holder(nn.Linear(2, 1))
    assert list(get_state_dict(model)) == ['weight', 'bias']
    load_state_dict(model, {'weight': torch.ones(1, 2), 'bias': torch.ones(1)}, strict=True)
    assert model.module.weight.tolist() == [[1, 1]]


def test_a_compiled_model_runs_and_is_saved(tmp_path):
    model = torch.compile(Net(), backend='eager')
    model(torch.ones(3, 2)).sum().backward()
    save_checkpoint(model, tmp_path / 'a.pth', torch.optim.SGD(model.parameters(), lr=0.1))
    assert list(torch.load(tmp_path / 'a.pth', weights_only=True)['state_dict']) == list(Net().state_dict())
