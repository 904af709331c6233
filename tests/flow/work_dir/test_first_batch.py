"""The samples of the first training batch, as a report shows them."""

import numpy as np
import plans
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from runnerkit.flow import train
from runnerkit.flow.report.page import page_of
from runnerkit.flow.report.record import read_run
from runnerkit.flow.work_dir import journal
from runnerkit.flow.work_dir.previous_runs import files_of_a_run
from runnerkit.hooks import Hook
from runnerkit.hooks import predictions as module
from runnerkit.hooks.predictions import FIRST_BATCH, keep_first_batch
from runnerkit.hooks.report import ReportHook


class Shades(Dataset):
    """Grey pictures that an augmentation has turned into noise around their class."""

    classes = ('dark', '<b>light')

    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.rand(1, 8, 6) + index % 2, index % 2


class Keeps(Hook):
    """Keeps the first batch, and the random numbers at the end."""

    def before_train_iter(self, runner):
        if runner.iter == 0:
            self.batch = runner.data_batch

    def after_run(self, runner):
        self.state = torch.get_rng_state()
        self.weights = [each.clone() for each in runner.model.parameters()]


CLASSES = {
    'model.model': [{'type': 'Flatten'}, {'type': 'Linear', 'in_features': 48, 'out_features': 2}],
    'model.loss': {'type': 'CrossEntropyLoss'},
    'model.metrics': {'accuracy': {'type': 'MulticlassAccuracy', 'num_classes': 2}},
    'data.train': Shades(),
    'data.val': Shades(),
    'evaluation.save_best': 'accuracy',
    'data.samples_per_gpu': 16,
    'seed': 0,
}


def trained(folder, changes, **options):
    keeps = Keeps()
    train(plans.config(changes), work_dir=str(folder), hooks=[keeps], **options)
    return keeps


@pytest.mark.parametrize('changes', [{}, plans.BY_ITER])
def test_pictures_are_those_of_the_batch_with_its_augmentations(tmp_path, changes):
    images, labels = trained(tmp_path, {**CLASSES, **changes, 'evaluation': {'interval': 1}}).batch
    run = read_run(tmp_path)
    assert run.first_samples == [{'target': Shades.classes[label]} for label in labels[:12]]
    for number in range(12):
        picture = np.asarray(Image.open(tmp_path / FIRST_BATCH / f'{number}.png'))
        image = images[number, 0] - images[number].min()
        assert abs(picture / 255 - (image / image.max()).numpy()).max() < 0.01
    assert len(list((tmp_path / FIRST_BATCH).iterdir())) == 12
    page = page_of([run]).split('<h2>First training batch</h2>')[1].split('</section>')[0]
    assert page.count('<img') == 12
    assert page.count('<b>&lt;b&gt;light</b>') == int(labels[:12].sum())


def test_rows_of_a_table_are_rows_of_the_report(tmp_path):
    rows, targets = trained(tmp_path, {'seed': 0}).batch
    run = read_run(tmp_path)
    assert [each['target'] for each in run.first_samples] == targets[:, 0].tolist()
    found = torch.tensor([[*each['row'].values()] for each in run.first_samples])
    torch.testing.assert_close(found, rows, atol=1e-4, rtol=0)
    assert not (tmp_path / FIRST_BATCH).exists()
    page = page_of([run]).split('<h2>First training batch</h2>')[1].split('</section>')[0]
    assert page.count('<tr>') == 5  # a head, and the four of the batch
    assert f'{rows[0, 3]:.4g}' in page
    page = page_of([run]).split('<h3>Highest loss</h3>')[1].split('<h3>')[0]
    assert '<button>3</button>' in page


def test_a_resumed_run_keeps_its_first_batch(tmp_path):
    trained(tmp_path, CLASSES, stop_after=1)
    before = (tmp_path / FIRST_BATCH / '0.png').read_bytes()
    trained(tmp_path, CLASSES, auto_resume=True)
    assert (tmp_path / FIRST_BATCH / '0.png').read_bytes() == before
    assert ['first_samples' in start for start in read_run(tmp_path).starts] == [True, False]


def test_nothing_of_the_run_changes(tmp_path, monkeypatch):
    one = trained(tmp_path / 'one', CLASSES)
    monkeypatch.setattr(journal, 'keep_first_batch', lambda *args: [])
    other = trained(tmp_path / 'other', CLASSES)
    assert torch.equal(one.state, other.state)
    assert all(map(torch.equal, one.weights, other.weights))
    assert not (tmp_path / 'other' / FIRST_BATCH).exists()


def test_trials_of_a_study_keep_none(tmp_path):
    hooks = [ReportHook(lambda step, scores: False, ('loss',))]
    train(plans.config(CLASSES), work_dir=str(tmp_path), hooks=hooks, stop_after=1)
    assert not (tmp_path / FIRST_BATCH).exists()
    assert [start.get('first_samples') for start in read_run(tmp_path).starts] == [None]


def test_the_pictures_are_files_of_a_run(tmp_path):
    for name in (FIRST_BATCH, 'mine'):
        (tmp_path / name).mkdir()
    (tmp_path / 'run.json').write_text('{}')
    assert files_of_a_run(tmp_path) == [FIRST_BATCH, 'run.json']


def test_a_failure_does_not_end_the_run(tmp_path, monkeypatch):
    def fails(*args):
        raise KeyError('no batch')

    monkeypatch.setattr(module, 'views_of', fails)
    with pytest.warns(RuntimeWarning, match='run.json cannot be written .*no batch'):
        trained(tmp_path, CLASSES)
    assert read_run(tmp_path).outcome == 'completed'


@pytest.mark.parametrize(
    'batch, targets',
    [
        ({'y': torch.tensor([1, 7, -1]), 'x': torch.zeros(3, 4)}, ['<b>light', 7, -1]),
        ((torch.zeros(3, 4), torch.tensor([[0.5], [1.5], [0.0]])), [0.5, 1.5, 0.0]),
        ((torch.zeros(3, 4), torch.zeros(3, 2)), [None] * 3),
        (torch.zeros(3, 4), [None] * 3),
        ((torch.zeros(3, 40), torch.zeros(3)), []),
        ('a text', []),
    ],
)
def test_targets_are_named_where_there_are_any(batch, targets, tmp_path):
    assert [each['target'] for each in keep_first_batch(batch, Shades(), tmp_path)] == targets
