from pathlib import Path

import pytest
import torch

from runnerkit.utils.imports import import_object

ByteModel = import_object(f'{Path(__file__).parents[3] / "configs/language/networks.py"}:ByteModel')


def test_logits_depend_on_the_bytes_so_far_alone():
    torch.manual_seed(0)
    model = ByteModel(width=16, blocks=2, heads=2, longest=12).eval()
    text = torch.randint(0, 256, (3, 10))
    logits = model(text)
    assert logits.shape == (3, 256, 10)
    changed = text.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 256
    assert torch.equal(model(changed)[..., :6], logits[..., :6])
    assert not torch.isclose(model(changed)[..., 6:], logits[..., 6:]).all(1).any()


def test_its_size():
    assert sum(parameter.numel() for parameter in ByteModel().parameters()) == 3_323_648
    with pytest.raises(ValueError, match='width must be a multiple of heads, but got 10 and 4'):
        ByteModel(width=10, heads=4)
