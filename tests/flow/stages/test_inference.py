"""Evaluating every checkpoint of a folder."""

import json
import re
import sys

import pytest
import torch

from runnerkit.config import Config
from runnerkit.flow import Flow, Options

CONFIG = {
    'model': {
        'type': 'Supervised',
        'model': {'type': 'Linear', 'in_features': 4, 'out_features': 1},
        'loss': {'type': 'MSELoss'},
        'metrics': {'error': {'type': 'MeanSquaredError'}},
    },
    'data': {
        'samples_per_gpu': 4,
        'train': {'type': 'support.Noisy', 'length': 8},
        'test': {'type': 'support.Noisy', 'length': 6},
    },
    'optimizer': {'type': 'SGD', 'lr': 0.1},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 3},
    'seed': 3,
}
PLAIN = {key: CONFIG[key] for key in ('model', 'data', 'seed')}


def inferred(work_dir, checkpoints, dry_run=False, **changes):
    flow = {'network': 'InferNetwork', 'startup': None, 'runner': {'type': 'Infer', 'checkpoints': str(checkpoints)}}
    options = Options(work_dir=str(work_dir), device='cpu', dry_run=dry_run)
    return Flow(Config({**PLAIN, 'flow': flow, **changes}), options).run()


@pytest.fixture
def trained(tmp_path):
    Flow(Config(CONFIG), Options(work_dir=str(tmp_path / 'run'), device='cpu')).run()
    return tmp_path / 'run'


def test_each_checkpoint_has_its_own_scores(trained, tmp_path, capsys):
    context = inferred(tmp_path / 'infer', trained)
    found = json.loads((tmp_path / 'infer' / 'scores.json').read_text())
    assert found == context['scores']
    assert [(each['checkpoint'], each['epoch'], each['iter']) for each in found] == [
        (f'epoch_{n}.pth', n, 2 * n) for n in (1, 2, 3)
    ]
    assert context.optimizer is None
    assert context.outcome.kind == 'completed'
    out = capsys.readouterr().out
    for each in found:
        alone = inferred(tmp_path / 'alone', trained / each['checkpoint'])['scores'][0]
        assert alone == each  # metrics begin anew for each
        assert f'{each["checkpoint"]}: ' in out
    assert len({each['error'] for each in found}) == 3


@pytest.mark.usefixtures('real_pictures')
def test_the_validation_curve_lies_beside_the_scores(trained, tmp_path, monkeypatch, capsys, caplog):
    from matplotlib.figure import Figure

    figures, save = [], Figure.savefig
    monkeypatch.setattr(Figure, 'savefig', lambda self, path, **_: figures.append(self) or save(self, path))
    found = inferred(tmp_path / 'infer', trained)['scores']
    picture = tmp_path / 'infer' / 'scores.png'
    assert picture.read_bytes().startswith(b'\x89PNG')
    assert 'Validation curve' in capsys.readouterr().out
    (figure,) = figures
    points = {axis.get_ylabel(): axis.get_lines()[0].get_xydata().T.tolist() for axis in figure.axes if axis.axison}
    assert points == {name: [[2, 4, 6], [each[name] for each in found]] for name in ('loss', 'error')}
    assert figure.get_suptitle() == 'infer: validation curve'
    inferred(tmp_path / 'one', trained / 'latest.pth')  # one point is no curve
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    with caplog.at_level('INFO', 'runnerkit'):
        inferred(tmp_path / 'without', trained)
    assert 'no validation curve is drawn: it needs matplotlib' in caplog.text
    assert [*tmp_path.glob('*/scores.png')] == [picture]
    assert len([*tmp_path.glob('*/scores.json')]) == 3


def test_checkpoints_of_other_programs_have_scores_and_no_curve(trained, tmp_path):
    weights = torch.load(trained / 'latest.pth', weights_only=True)['state_dict']
    for n in (1, 2):
        torch.save(weights, tmp_path / f'epoch_{n}.pth')
    first, second = inferred(tmp_path / 'infer', tmp_path)['scores']
    assert first == {**second, 'checkpoint': 'epoch_1.pth'}
    assert first['iter'] is None
    assert not (tmp_path / 'infer' / 'scores.png').exists()


def test_checkpoints_by_epoch_and_by_iteration_are_put_in_order(trained, tmp_path):
    (trained / 'epoch_3.pth').rename(trained / 'iter_6.pth')
    (trained / 'epoch_1.pth').rename(trained / 'iter_2.pth')
    found = inferred(tmp_path / 'infer', trained)['scores']
    assert [each['checkpoint'] for each in found] == ['iter_2.pth', 'epoch_2.pth', 'iter_6.pth']


def test_the_folder_of_the_training_may_be_the_work_dir(trained):
    """And stays the training's: its checkpoints are neither moved aside nor is its record overwritten."""
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    assert len(inferred(trained, trained)['scores']) == 3
    assert len(inferred(trained, trained / 'epoch_1.pth')['scores']) == 1
    assert {path.name: path.read_bytes() for path in trained.iterdir() if path.name in before} == before
    Flow(Config(CONFIG), Options(work_dir=str(trained), device='cpu')).run()
    assert not (trained / 'scores.json').exists()  # it is aside, with what it tells of
    assert len([*trained.with_name(f'{trained.name}.1').glob('scores.*')]) == 2


def test_a_dry_run_needs_no_checkpoints(tmp_path, capsys):
    flow = {
        'network': 'InferNetwork',
        'startup': None,
        'runner': {'type': 'Infer', 'checkpoints': str(tmp_path / 'no')},
    }
    Flow(Config({**PLAIN, 'flow': flow}), Options(work_dir=str(tmp_path / 'w'), device='cpu', dry_run=True)).run()
    said = capsys.readouterr().out
    assert 'runner    Infer (runnerkit.flow.stages.inference)' in said
    assert re.search(r"First batch of mode 'val':\n(  batch.*\n)+Its loss: \d\.\d{4}\n", said)
    assert not (tmp_path / 'w').exists()


def test_splits_and_named_sets(trained, tmp_path):
    noisy = {'type': 'support.Noisy', 'length': 6}
    data = {'test': {'clean': noisy, 'other': noisy}, 'test_late': noisy}
    (last,) = inferred(tmp_path / 'infer', trained / 'latest.pth', data=data)['scores']
    assert {name for name in last if 'error' in name} == {'clean/error', 'other/error', 'test_late/error'}


def test_the_checkpoints_may_lie_in_the_work_dir_of_the_inference(trained):
    """Nothing is moved aside there, also if there is nothing to evaluate."""
    before = {path.name for path in trained.glob('*.pth')}
    assert len(inferred(trained, trained)['scores']) == 3
    with pytest.raises(FileNotFoundError):
        inferred(trained, trained / 'code')
    assert {path.name for path in trained.glob('*.pth')} == before
    assert not trained.with_name(f'{trained.name}.1').exists()


def test_a_damaged_checkpoint_does_not_lose_the_scores_before_it(trained, tmp_path):
    damaged = trained / 'epoch_3.pth'
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(ValueError, match='epoch_3.pth'):
        inferred(tmp_path / 'infer', trained)
    assert [each['epoch'] for each in json.loads((tmp_path / 'infer' / 'scores.json').read_text())] == [1, 2]


def test_what_is_refused(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match='holds no checkpoints'):
        inferred(tmp_path / 'infer', tmp_path)
    with pytest.raises(KeyError, match='no data.test'):
        inferred(tmp_path / 'infer', trained, data={'train': {'type': 'support.Noisy'}})
    torch.save({'state_dict': {'x': torch.ones(1)}}, tmp_path / 'epoch_1.pth')
    with pytest.raises(RuntimeError):
        inferred(tmp_path / 'infer', tmp_path)


def test_two_ranks_share_the_work_and_know_all_scores(on_ranks, trained, tmp_path):
    alone = inferred(tmp_path / 'alone', trained)['scores']
    first, second = on_ranks(__file__, 'infer_on_rank', str(tmp_path / 'infer'), str(trained))
    assert first == second == json.loads((tmp_path / 'infer' / 'scores.json').read_text())
    assert [each['epoch'] for each in first] == [1, 2, 3]
    assert [each['error'] for each in first] == pytest.approx([each['error'] for each in alone], rel=1e-5)


def infer_on_rank(rank, work_dir, checkpoints):
    return inferred(work_dir, checkpoints)['scores']
