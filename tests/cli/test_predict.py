"""The predicting tool."""

import csv
import json
import logging
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import runnerkit
from runnerkit.cli.predict import main
from runnerkit.data.files import dataset_of_files
from runnerkit.flow.use import predict as prediction
from runnerkit.nn import Supervised

READS_FILES = """
    CLASSES = ['only']

    @classmethod
    def from_files(cls, files, **settings):
        return [(torch.load(file),) for file in files]

    def __len__(self):
"""


@pytest.fixture
def trained(project, train):
    """The project after a training, whose data set takes files; two of them lie beside it."""
    points = project / 'points.py'
    points.write_text(points.read_text().replace('    def __len__(self):\n', READS_FILES, 1))
    assert train('--cfg-options', 'runner.max_epochs=1', '--device', 'cpu')[0] == 0
    for name, value in (('a', 0.0), ('b', 1.0)):
        torch.save(torch.full((4,), value), project / f'{name}.pt')
    return project


@pytest.fixture
def said(capsys):
    def call(*words):
        code = main([*map(str, words), '--device', 'cpu'])
        printed = capsys.readouterr()
        is_json = code == 0 and '--out' not in words
        return code, json.loads(printed.out) if is_json else (printed.out + printed.err).strip()

    return call


def test_files_and_splits_as_json(trained, said):
    files = [str(trained / f'{name}.pt') for name in 'ab']
    code, rows = said(trained / 'run', *files)
    assert code == 0
    expected = runnerkit.load_model(trained / 'run')(torch.stack([torch.zeros(4), torch.ones(4)]))
    assert [row['input'] for row in rows] == files
    assert np.allclose([row['prediction'] for row in rows], expected.detach())
    code, rows = said(trained / 'run', 'val', '--apply', 'sigmoid')
    assert [row['input'] for row in rows] == list(range(8))
    assert all(0 < row['prediction'][0] < 1 for row in rows)


def test_the_log_says_once_that_the_run_has_its_own_copy_of_the_code(trained, said, caplog, monkeypatch):
    run, file, readers = trained / 'run', trained / 'b.pt', []
    monkeypatch.setattr(logging.getLogger('runnerkit'), 'propagate', True)
    monkeypatch.setattr(
        prediction, 'dataset_of_files', lambda cfg, files: readers.append(cfg['type']) or dataset_of_files(cfg, files)
    )
    for words in ([run, file], [run, file], [run, 'val']):
        assert said(*words)[0] == 0
    (line,) = [record.getMessage() for record in caplog.records if 'copy of your code' in record.getMessage()]
    assert line.startswith(f"The run's copy of your code reads these files: {run / 'code'}. If you have changed the ")
    way_out = f'runnerkit predict cfg.py FILE --checkpoint {run}'
    assert line.endswith(way_out)
    monkeypatch.chdir(trained)
    assert said(*(str(file) if word == 'FILE' else word for word in way_out.split()[2:]))[0] == 0
    assert readers == [f'{run}/code/points.py:Points'] * 2 + [f'{trained}/points.py:Points']


def test_files_under_a_collate_fn_that_reads_targets(trained, said):
    (trained / 'pairs.py').write_text('def pairs(samples):\n    return [target for _, target in samples]\n')
    options = ('--checkpoint', trained / 'run', '--cfg-options', f'data.collate_fn={trained}/pairs.py:pairs')
    code, error = said(trained / 'cfg.py', trained / 'a.pt', *options)
    assert code == 1
    assert 'In the collate_fn pairs, read the target only if len(samples[0]) > 1' in error


def test_names_of_classes(trained, said, tmp_path):
    run = trained / 'run'
    assert torch.load(run / 'latest.pth', weights_only=True)['meta']['CLASSES'] == ('only',)
    assert runnerkit.load_model(run).CLASSES == ('only',)
    code, rows = said(run, 'val', '--apply', 'argmax')
    assert rows[0] == {'input': 0, 'prediction': 0, 'class': 'only'}
    assert 'class' not in said(run, 'val')[1][0]
    for apply, head in (('softmax', 'input,prediction_only'), ('sigmoid', 'input,prediction_0')):
        assert said(run, 'val', '--apply', apply, '--out', tmp_path / 'x.csv')[0] == 0
        assert (tmp_path / 'x.csv').read_text().splitlines()[0] == head


def test_each_source_and_the_options(trained, said):
    run = trained / 'run'
    wanted = said(run, 'test')
    assert wanted[0] == 0
    for words in (
        [run / 'cfg.py', 'test'],
        [trained / 'cfg.py', 'test', '--checkpoint', run],
        [trained / 'cfg.py', 'test', '--cfg-options', f'work_dir={run}'],
        [run / 'epoch_1.pth', 'test'],
        [run, 'test', '--which', 'latest', '--batch-size', '1'],
    ):
        code, rows = said(*words)
        assert code == 0, rows
        assert np.allclose([row['prediction'] for row in rows], [row['prediction'] for row in wanted[1]], atol=1e-6)
    assert len(said(run, 'test', '--cfg-options', 'data.test.length=3')[1]) == 3
    shutil.copy(run / 'epoch_1.pth', trained / 'alone.pth')
    code, error = said(trained / 'alone.pth', 'test')
    assert code == 1
    assert '--trust' in error
    assert said(trained / 'alone.pth', 'test', '--trust')[0] == 0


def test_which_checkpoint_and_how_many_samples_at_once(trained, said, monkeypatch):
    run, sizes, call = trained / 'run', [], Supervised.predict
    monkeypatch.setattr(Supervised, 'predict', lambda self, data: sizes.append(len(data[0])) or call(self, data))
    best = said(run, 'test')[1]
    weights = torch.load(run / 'epoch_1.pth')
    for value in weights['state_dict'].values():
        value.zero_()
    torch.save(weights, run / 'epoch_1.pth')
    assert said(run, 'test', '--which', 'best') == (0, best)
    latest = said(run, 'test', '--which', 'latest', '--batch-size', '5')[1]
    assert [row['prediction'] for row in latest] == [[0.0]] * 6
    assert sizes == [4, 2, 4, 2, 5, 1]


class Helper:
    """An object that only an unrestricted pickle can hold."""


def test_pickles_are_loaded_only_if_they_are_trusted(trained, said):
    path = trained / 'run' / 'epoch_1.pth'
    torch.save({**torch.load(path), 'helper': Helper()}, path)
    words = (trained / 'cfg.py', 'test', '--checkpoint', path)
    code, error = said(*words)
    assert code == 1
    assert 'could run code when loaded' in error
    assert '--trust-pickles' in error
    assert len(said(*words, '--trust-pickles')[1]) == 6


def test_formats(trained, said, tmp_path):
    run, found = trained / 'run', {}
    for name in ('x.json', 'x.csv', 'x.npy'):
        code, printed = said(run, 'test', '--out', tmp_path / name)
        assert (code, printed.split(', with')[0]) == (0, f'6 predictions in {tmp_path / name}')
    found = np.load(tmp_path / 'x.npy')
    assert found.shape == (6, 1)
    rows = list(csv.DictReader((tmp_path / 'x.csv').open()))
    assert np.allclose([float(row['prediction_0']) for row in rows], found[:, 0])
    assert np.allclose([row['prediction'] for row in json.loads((tmp_path / 'x.json').read_text())], found)


def test_wrong_usage(trained, said):
    run = trained / 'run'
    for words, number, text in (
        ([run, 'tset'], 2, "did you mean 'test'?"),
        ([run.with_name('rnu'), 'test'], 2, "did you mean 'run'?"),
        ([run, 'test', '--out', 'x.txt'], 2, '--out x.txt: predictions are written as .json, .csv, .npy'),
        ([run, 'test', '--out', trained / 'nowhere' / 'x.csv'], 2, f'no such folder: {trained / "nowhere"}'),
        ([trained / 'cfgg.py', 'test'], 2, "did you mean 'cfg.py'"),
    ):
        code, error = said(*words)
        assert (code, text in error) == (number, True), error


def test_data_sets_that_take_no_files_are_refused_with_what_to_write(project, train, said):
    train('--cfg-options', 'runner.max_epochs=1', '--device', 'cpu')
    code, error = said(project / 'run', project / 'points.py')
    assert code == 2
    assert 'Points takes no files; write a class method from_files(cls, files, **settings)' in error
    assert 'Traceback' not in error


def test_a_file_may_hold_many_samples_which_are_numbered(trained, said):
    (trained / 'rows.py').write_text(
        'import torch\n\n\nclass Rows:\n    @classmethod\n    def from_files(cls, files, **settings):\n'
        '        return [(row,) for file in files for row in torch.load(file)]\n'
    )
    torch.save(torch.eye(4)[:3], trained / 'table.pt')
    rows_class = f'data.test.type={trained}/rows.py:Rows'
    code, rows = said(trained / 'run', trained / 'table.pt', '--cfg-options', rows_class)
    assert code == 0, rows
    assert [row['input'] for row in rows] == [0, 1, 2]


def test_a_copied_work_dir_predicts_when_the_project_is_gone(trained, said, tmp_path_factory):
    files = [trained / f'{name}.pt' for name in 'ab']
    wanted = [row['prediction'] for row in said(trained / 'run', *files)[1]]
    elsewhere = tmp_path_factory.mktemp('elsewhere')
    for path in (trained / 'run', *files):
        shutil.move(path, elsewhere / path.name)
    shutil.rmtree(trained)
    done = subprocess.run(
        [sys.executable, '-m', 'runnerkit', 'predict', 'run', 'a.pt', 'b.pt', '--device', 'cpu'],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row['input'] for row in rows] == ['a.pt', 'b.pt']
    assert np.allclose([row['prediction'] for row in rows], wanted)
