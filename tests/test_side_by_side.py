"""The same trainings as the real MMCV 1.7.2 did, to the last bit (benchmarks/side_by_side.py)."""

import pytest
import torch
from mmcv_record import RECORD, assert_same, side_by_side


@pytest.mark.parametrize('name', side_by_side.SETUPS)
def test_weights_and_learning_rates_are_mmcvs(name, tmp_path):
    found = side_by_side.train('runnerkit', side_by_side.SETUPS[name], str(tmp_path))
    assert found['rates'] == RECORD[name]['rates']
    assert_same(found['weights'], RECORD[name]['weights'])


@pytest.mark.parametrize('name', ['adam, poly', 'adamw, cosine', 'sgd, exp'])
def test_a_loop_by_hand_ends_at_the_same_bits_on_any_machine(name, tmp_path):
    """With the learning rates that MMCV recorded."""
    ours = side_by_side.train('runnerkit', side_by_side.SETUPS[name], str(tmp_path))
    torch.manual_seed(0)
    model = side_by_side.Net()
    data = [{'x': torch.randn(1, 6, 6), 'y': torch.tensor(i % 3)} for i in range(8 * side_by_side.BATCHES)]
    options = dict(side_by_side.SETUPS[name]['optimizer'])
    optimizer = getattr(torch.optim, options.pop('type'))(model.parameters(), **options)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    rates = iter(RECORD[name]['rates'])
    torch.manual_seed(1)
    for _ in range(side_by_side.EPOCHS):
        for batch in loader:
            optimizer.param_groups[0]['lr'] = float.fromhex(next(rates))
            optimizer.zero_grad()
            model.train_step(batch, optimizer)['loss'].backward()
            optimizer.step()
    by_hand = {key: [float(x).hex() for x in value.flatten()] for key, value in model.state_dict().items()}
    assert ours['weights'] == by_hand


def test_the_setups_train_differently():
    """Teeth: no two of them end at the same weights, so that none of them is switched off."""
    ends = [repr(RECORD[name]['weights']) for name in side_by_side.SETUPS]
    assert len(ends) >= 12
    twins = {name for name in side_by_side.SETUPS if ends.count(repr(RECORD[name]['weights'])) > 1}
    assert twins == set()
