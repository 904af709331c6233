"""A sharded checkpoint becomes a file, and a file a sharded checkpoint."""

import pytest
import torch
from folders import checkpoint, same, write
from safetensors.torch import load_file

from runnerkit.checkpoint import why_damaged
from runnerkit.checkpoint.convert import convert_checkpoint
from runnerkit.checkpoint.folder import read_folder


def test_there_and_back_nothing_is_lost(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    assert convert_checkpoint(tmp_path / 'epoch_1.pth', tmp_path / 'one.pth') == (tmp_path / 'one.pth', 'file')
    assert same(torch.load(tmp_path / 'one.pth', weights_only=True), checkpoint())
    assert why_damaged(tmp_path / 'one.pth') is None
    assert convert_checkpoint(tmp_path / 'one.pth', tmp_path / 'two.pt')[1] == 'folder'
    assert why_damaged(tmp_path / 'two.pt') is None
    assert same(read_folder(tmp_path / 'two.pt'), checkpoint())


@pytest.mark.filterwarnings('ignore:torch.quantize_per_tensor', 'ignore:TypedStorage')
def test_quantized_weights_survive(tmp_path):
    weight = torch.quantize_per_tensor(torch.arange(3.0), 0.1, 0, torch.qint8)
    torch.save({'state_dict': {'w': weight}}, tmp_path / 'a.pth')
    convert_checkpoint(tmp_path / 'a.pth', tmp_path / 'b.pth')
    found = read_folder(tmp_path / 'b.pth')['state_dict']['w']
    assert torch.equal(found.dequantize(), weight.dequantize())


@pytest.mark.parametrize('is_folder', [True, False])
def test_safetensors_get_the_weights_that_are_used(tmp_path, is_folder):
    whole = checkpoint()
    whole['state_dict'] |= {'tied': whole['state_dict']['w'], 'ema_w': torch.zeros(5, 3)}
    if is_folder:
        write(tmp_path / 'epoch_1.pth', whole)
    else:
        torch.save(whole, tmp_path / 'epoch_1.pth')
    assert convert_checkpoint(tmp_path, tmp_path / 'w.safetensors')[1] == 'weights'
    found = load_file(tmp_path / 'w.safetensors')
    del whole['state_dict']['ema_w']
    assert same(found, whole['state_dict'])
    assert convert_checkpoint(tmp_path / 'w.safetensors', tmp_path / 'back.pth')[1] == 'weights'
    assert convert_checkpoint(tmp_path / 'back.pth', tmp_path / 'again.pth')[1] == 'weights'
    assert read_folder(tmp_path / 'back.pth')['state_dict'].keys() == whole['state_dict'].keys()


def test_what_is_there_is_not_overwritten_and_other_endings_are_refused(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    with pytest.raises(FileExistsError, match=r'epoch_1.pth exists: delete it'):
        convert_checkpoint(tmp_path, tmp_path / 'epoch_1.pth')
    with pytest.raises(ValueError, match=r'memory://x/a.pth is a URL: give a local path'):
        convert_checkpoint(tmp_path, 'memory://x/a.pth')
    with pytest.raises(ValueError, match=r'to name.pth .* or to name.safetensors'):
        convert_checkpoint(tmp_path, tmp_path / 'model.onnx')
    torch.save({'meta': {}, 'state_dict': {}}, tmp_path / 'empty.pth')
    with pytest.raises(ValueError, match='holds no weights'):
        convert_checkpoint(tmp_path / 'empty.pth', tmp_path / 'x.safetensors')


def test_a_part_of_a_sharded_checkpoint_is_none(tmp_path):
    write(tmp_path / 'epoch_1.pth', checkpoint())
    for name in ('rest.pth', '__0_0.distcp'):
        with pytest.raises(
            FileNotFoundError, match=r'is a part of a sharded checkpoint: give its folder, .*epoch_1.pth'
        ):
            convert_checkpoint(tmp_path / 'epoch_1.pth' / name, tmp_path / 'x.pth')
