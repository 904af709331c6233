"""Weights into models: names revised, differences told."""

import logging

import pytest
import torch
from torch import nn

from runnerkit.checkpoint import load_checkpoint, load_state_dict, weights_to_cpu
from runnerkit.checkpoint.state_dict import WeightsDoNotFit, ema_name


def test_prefixes_of_wrappers_are_stripped(tmp_path):
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save({'state_dict': {f'module.{k}': v for k, v in model.state_dict().items()}}, tmp_path / 'a.pth')
    load_checkpoint(other, str(tmp_path / 'a.pth'), strict=True)
    assert torch.equal(model.weight, other.weight)


def test_names_are_revised(tmp_path):
    model, other = nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save({f'old_{k}': v for k, v in model.state_dict().items()}, tmp_path / 'a.pth')
    load_checkpoint(other, str(tmp_path / 'a.pth'), revise_keys=[('^old_', '')])
    assert torch.equal(model.weight, other.weight)


def test_differences_are_logged_or_raised(caplog):
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 3))
    state = {
        '0.weight': torch.ones(1, 2),
        '1.weight': torch.ones(5, 5),
        'extra': torch.ones(1),
        ema_name('0.weight'): torch.ones(1, 2),
    }
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        load_state_dict(model, state)
    assert model[0].weight.tolist() == [[1, 1]]
    for part in (
        'size mismatch for 1.weight: copying a param with shape torch.Size([5, 5]) from checkpoint',
        'unexpected key in source state_dict: extra',
        'missing keys',
        '0.bias',
    ):
        assert part in caplog.text
    assert 'ema_0_weight' not in caplog.text
    with pytest.raises(RuntimeError, match='do not match exactly'):
        load_state_dict(model, state, strict=True)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    torch.save({'state_dict': {'encoder.w': torch.ones(3)}}, tmp_path / 'a.pth')
    with pytest.raises(
        ValueError,
        match=r'checkpoint of another model: none of its weights \(encoder.w\) fits Linear \(weight, bias\)',
    ):
        load_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'))


def test_the_weights_of_a_network_alone_fit_a_model_that_keeps_it(tmp_path, caplog):
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    torch.save(network.state_dict(), tmp_path / 'network.pth')
    model = nn.Module()
    model.model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    load_checkpoint(model, str(tmp_path / 'network.pth'))
    assert torch.equal(model.model[0].weight, network[0].weight)
    model.model[0] = nn.Linear(2, 4)  # as in a pruned network: what does not fit is left out
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        load_checkpoint(model, str(tmp_path / 'network.pth'))
    assert 'size mismatch for model.0.weight' in caplog.text


def test_the_first_line_tells_how_much_fitted(tmp_path, caplog):
    model = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 3), nn.BatchNorm1d(3))
    whole = {name: value for name, value in model.state_dict().items() if 'num_batches' not in name}
    torch.save({'state_dict': whole}, tmp_path / 'epoch_1.pth')
    part = {**whole, '1.weight': torch.ones(5, 5), 'extra': torch.ones(1), ema_name('0.weight'): torch.ones(1, 2)}
    del part['0.bias'], part['2.weight']
    torch.save({'state_dict': part}, tmp_path / 'part.pth')
    with caplog.at_level(logging.INFO, 'runnerkit'):
        load_checkpoint(model, tmp_path)
        load_checkpoint(model, tmp_path / 'part.pth')
    first, second = caplog.records
    assert (first.levelname, first.message) == ('INFO', f'loaded 8 of 8 tensors of {tmp_path / "epoch_1.pth"}')
    assert second.levelname == 'WARNING'
    assert second.message.splitlines()[0] == (
        f'loaded 5 of 8 tensors (2 missing, 1 of another shape, 1 unexpected) of {tmp_path / "part.pth"}.'
    )
    assert 'missing keys in source state_dict: 0.bias, 2.weight' in second.message
    with pytest.raises(WeightsDoNotFit, match='^loaded 5 of 8 tensors'):
        load_checkpoint(model, tmp_path / 'part.pth', strict=True)


def test_a_file_without_weights_is_refused(tmp_path):
    torch.save([1, 2], tmp_path / 'a.pth')
    with pytest.raises(RuntimeError, match='No state_dict found in checkpoint file .* it holds a list'):
        load_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'))


class Renamed(nn.Module):
    """Has called its one layer otherwise before its second version."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.new = nn.Linear(2, 1)
        self.norm = nn.BatchNorm1d(1)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
        if local_metadata.get('version', 1) < 2:
            for name in [name for name in state_dict if name.startswith(f'{prefix}old')]:
                state_dict[name.replace('old', 'new')] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)


def test_modules_that_rename_old_keys_see_them_and_their_version(tmp_path):
    state = {'a.old.weight': torch.ones(1, 2), 'a.old.bias': torch.ones(1)}
    torch.save(state, tmp_path / 'a.pth')
    model = nn.ModuleDict({'a': Renamed()})
    load_checkpoint(model, str(tmp_path / 'a.pth'))
    assert model['a'].new.weight.tolist() == [[1, 1]]
    weights = weights_to_cpu({'a.new.weight': torch.zeros(1, 2)})
    weights._metadata = {'a': {'version': 2}}
    torch.save({'state_dict': weights}, tmp_path / 'b.pth')
    load_checkpoint(model, str(tmp_path / 'b.pth'), revise_keys=[('^a', 'a')])
    assert model['a'].new.weight.tolist() == [[0, 0]]


def test_strictness_comes_first(tmp_path):
    torch.save({'x': torch.ones(1)}, tmp_path / 'a.pth')
    with pytest.raises(RuntimeError, match='unexpected key in source state_dict: x\nmissing keys .*: weight, bias'):
        load_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'), strict=True)


def test_a_count_that_old_files_lack_is_not_missed(tmp_path):
    model = nn.BatchNorm1d(2)
    state = {name: value for name, value in model.state_dict().items() if not name.endswith('num_batches_tracked')}
    load_state_dict(model, state, strict=True)
    state = model.state_dict()
    del state['num_batches_tracked']  # from a dict with the modules' versions, torch does not make one itself
    load_state_dict(model, state, strict=True)
    torch.save({'encoder.w': torch.ones(1)}, tmp_path / 'a.pth')
    with pytest.raises(ValueError, match='another model'):
        load_checkpoint(model, str(tmp_path / 'a.pth'))


def test_weights_that_are_not_made_yet():
    model = nn.LazyLinear(1)
    load_state_dict(model, {'weight': torch.ones(1, 3), 'bias': torch.zeros(1)}, strict=True)
    assert model(torch.ones(1, 3)).item() == 3


def test_the_log_may_be_a_logger_or_its_name(caplog):
    for logger in (logging.getLogger('somebody'), 'somebody'):
        with caplog.at_level(logging.WARNING, 'somebody'):
            load_state_dict(nn.Linear(2, 1), {'weight': torch.ones(1, 2)}, logger=logger)
    assert [(record.name, record.levelname) for record in caplog.records] == [('somebody', 'WARNING')] * 2


def test_weights_on_the_cpu_keep_what_is_beside_them():
    state = weights_to_cpu(nn.Sequential(nn.BatchNorm1d(2)).state_dict())
    assert state._metadata['0']['version'] == 2
    assert weights_to_cpu({'extra': {'n': 1}}) == {'extra': {'n': 1}}


def test_names_of_a_file_are_escaped_and_not_all_of_them_shown(caplog):
    forged = '\x1b[2J\n2030-01-01 - INFO - all is well\u202e'
    model = nn.Linear(2, 1)
    load_state_dict(model, {**model.state_dict(), forged: torch.ones(1)})
    assert '\\x1b[2J\\n2030-01-01 - INFO - all is well\\u202e' in caplog.text
    assert forged not in caplog.text

    model = nn.ParameterDict({f'p{i}': torch.ones(1) for i in range(30)})
    with pytest.raises(RuntimeError) as caught:
        load_state_dict(model, {name: torch.ones(2) for name in model.state_dict()}, strict=True)
    assert str(caught.value).count('size mismatch for') == 12
    assert '… (30 size mismatches in all)' in str(caught.value)


def own_kind(dtype):
    model = nn.Module()
    model.register_buffer('own', torch.zeros(3, dtype=dtype))
    model.register_buffer('other', torch.zeros(1))
    return model


F, C, N, B = torch.float32, torch.complex64, torch.int64, torch.bool


@pytest.mark.parametrize('given, own, fits', [
    (C, F, False), (N, F, False), (B, F, False), (F, N, False), (F, B, False), (F, C, False), (N, C, False),
    (torch.uint8, torch.float16, False), (torch.float64, torch.int8, False), (torch.complex128, N, False),
    (torch.float16, F, True), (torch.bfloat16, F, True), (torch.float64, torch.bfloat16, True),
    (F, torch.float16, True),
    (torch.complex128, C, True), (torch.int32, N, True), (torch.uint8, B, True), (B, torch.uint8, True),
])  # fmt: skip
def test_weights_of_another_kind_of_number_are_not_loaded_and_told(given, own, fits, tmp_path, caplog):
    state = {'own': torch.ones(3, dtype=given), 'other': torch.ones(1)}
    torch.save({'state_dict': state}, tmp_path / 'a.pth')
    model = own_kind(own)
    load_checkpoint(model, str(tmp_path / 'a.pth'))
    assert model.own.tolist() == torch.full((3,), fits, dtype=own).tolist()
    assert model.own.dtype is own
    assert model.other.item() == 1
    if fits:
        assert 'dtype' not in caplog.text
        load_state_dict(model, state, strict=True)
        return
    assert 'loaded 1 of 2 tensors (1 of another dtype)' in caplog.text
    assert f'own ({given}, in the model {own})' in caplog.text
    with pytest.raises(WeightsDoNotFit, match='dtype of another kind'):
        load_state_dict(model, state, strict=True)


def test_numbers_become_booleans_only_if_they_are_some():
    model = own_kind(B)
    with pytest.raises(WeightsDoNotFit, match='dtype of another kind'):
        load_state_dict(model, {**model.state_dict(), 'own': torch.tensor([0, 1, 2])}, strict=True)


def test_a_batch_counter_that_was_averaged_is_loaded():
    """Scripts that average checkpoints leave floats in it."""
    model = nn.BatchNorm1d(2)
    load_state_dict(model, {**model.state_dict(), 'num_batches_tracked': torch.tensor(7.0)}, strict=True)
    assert model.num_batches_tracked.item() == 7


def test_nothing_of_the_right_kind_is_another_model(tmp_path):
    torch.save({'weight': torch.ones(1, 2, dtype=C), 'bias': torch.ones(1, dtype=C)}, tmp_path / 'a.pth')
    with pytest.raises(ValueError, match='none of its weights'):
        load_checkpoint(nn.Linear(2, 1), str(tmp_path / 'a.pth'))
