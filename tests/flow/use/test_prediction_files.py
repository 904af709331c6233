"""Predictions as JSON, CSV and npy."""

import json

import numpy as np
import pytest
import torch

from runnerkit.cli import predict as tool
from runnerkit.flow.use.prediction_files import FORMATS, as_json, write_predictions

VECTORS = [torch.tensor([0.5, 2.0]), torch.tensor([1.0, -1.0])]
DICTS = [{'box': torch.tensor([1, 2]), 'label': 'é', 'score': np.float32(0.5)}] * 2


def written(tmp_path, name, predictions):
    write_predictions(str(tmp_path / name), ['a.png', 'b,c.png'], predictions)
    return tmp_path / name


def test_json(tmp_path):
    assert json.loads(written(tmp_path, 'x.json', VECTORS).read_text()) == [
        {'input': 'a.png', 'prediction': [0.5, 2.0]},
        {'input': 'b,c.png', 'prediction': [1.0, -1.0]},
    ]
    row = {'box': [1, 2], 'label': 'é', 'score': 0.5}
    assert [each['prediction'] for each in json.loads(as_json([0, 1], DICTS))] == [row, row]
    assert 'é' in as_json([0, 1], DICTS)
    nested = [(torch.ones(1, 2), [None, True])]
    assert json.loads(as_json([0], nested)) == [{'input': 0, 'prediction': [[[1.0, 1.0]], [None, True]]}]
    assert json.loads(as_json([], [])) == []


def test_csv(tmp_path):
    assert written(tmp_path, 'x.csv', VECTORS).read_text().splitlines() == [
        'input,prediction_0,prediction_1',
        'a.png,0.5,2.0',
        '"b,c.png",1.0,-1.0',
    ]
    lines = written(tmp_path, 'y.CSV', DICTS).read_text().splitlines()
    assert lines[:2] == ['input,box_0,box_1,label,score', 'a.png,1,2,é,0.5']
    nested = [{'a': {'x': 1, 'y': [2]}, 'b': {'x': 3}, 'prediction': {'x': 4}}] * 2
    assert written(tmp_path, 'n.csv', nested).read_text().splitlines()[:2] == [
        'input,a.x,a.y_0,b.x,prediction.x',
        'a.png,1,2,3,4',
    ]
    assert written(tmp_path, 'z.csv', [torch.tensor(3), 4]).read_text() == 'input,prediction\na.png,3\n"b,c.png",4\n'


def test_names_of_classes(tmp_path):
    def file(name, predictions, classes=('cat', 'dog')):
        write_predictions(str(tmp_path / name), ['a', 'b'], predictions, classes)
        return (tmp_path / name).read_text()

    labels = [torch.tensor(1), torch.tensor(2)]  # of which the last has no name
    assert json.loads(file('x.json', labels)) == [
        {'input': 'a', 'prediction': 1, 'class': 'dog'},
        {'input': 'b', 'prediction': 2},
    ]
    assert file('x.csv', labels) == 'input,prediction,class\na,1,dog\nb,2,\n'
    assert file('y.csv', VECTORS).startswith('input,prediction_cat,prediction_dog\na,0.5,2.0\n')
    assert 'class' not in file('y.json', VECTORS)
    for unfit in (('cat', 'cat'), ('cat',), ('cat', 'dog', 'cow')):
        assert file('y.csv', VECTORS, unfit).startswith('input,prediction_0,prediction_1\n')
    assert 'class' not in file('z.json', [True, -1])


def test_npy(tmp_path):
    images = [torch.zeros(2, 3), torch.ones(2, 3)]
    assert np.array_equal(np.load(written(tmp_path, 'x.npy', images)), torch.stack(images).numpy())
    assert np.load(written(tmp_path, 'y.npy', [1, 2])).tolist() == [1, 2]
    halves = [each.bfloat16() for each in VECTORS]
    assert np.array_equal(np.load(written(tmp_path, 'z.npy', halves)), torch.stack(VECTORS))


@pytest.mark.parametrize(
    'name, predictions, text',
    [
        ('x.txt', VECTORS, r'written as .json, .csv, .npy, but not as .*x.txt'),
        ('x', VECTORS, 'written as .json, .csv, .npy'),
        ('x.jsn', VECTORS, r"did you mean '.json'\?"),
        (
            'x.csv',
            [torch.ones(2, 2)] * 2,
            'several dimensions does not fit in a row of a CSV file: use --out FILE.npy or FILE.json',
        ),
        ('x.csv', [{'input': 1}] * 2, "would be in the column 'input' of a CSV file: write .json"),
        ('x.csv', [{'a': [1], 'a_0': 1}] * 2, "would be in the column 'a_0' of"),
        ('x.npy', [torch.ones(2), torch.ones(3)], 'do not fit in one array .*: write .json'),
        ('x.npy', DICTS, 'the predictions are no arrays of numbers, but dict: write .json'),
        ('x.npy', ['a', 'b'], 'no arrays of numbers, but str'),
        ('x.json', [object()] * 2, 'a object in a prediction cannot be written'),
    ],
)
def test_what_a_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path, name, predictions, text):
    with pytest.raises(ValueError, match=text):
        written(tmp_path, name, predictions)
    assert not list(tmp_path.iterdir())


def test_a_format_is_told_by_its_extension(tmp_path):
    assert tuple(FORMATS) == tool.FORMATS
    for name, start in {'a.json': b'[', 'a.CSV': b'input,', 'a.npy': b'\x93NUMPY'}.items():
        write_predictions(str(tmp_path / name), [0], [1.0])
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(ValueError, match='memory://x/a.csv is a URL'):
        write_predictions('memory://x/a.csv', [0], [1.0])
