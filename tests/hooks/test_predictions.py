"""The predictions of the best evaluation."""

import math

import numpy as np
import plans
import pytest
import torch
from PIL import Image
from support import Measured, Noisy, loader, tiny_runner
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Dataset, RandomSampler, Subset

from runnerkit.data import build_dataloader
from runnerkit.data.builder import RepeatDataset
from runnerkit.flow import Context, train
from runnerkit.flow.report.record import read_run
from runnerkit.flow.work_dir.journal import recording_hooks
from runnerkit.hooks import EvalHook
from runnerkit.hooks import predictions as module
from runnerkit.hooks.predictions import PREDICTIONS, SAMPLES, Pass, PredictionsHook, are_kept, names_of_samples, rows_of
from runnerkit.hooks.report import ReportHook


class Shades(Dataset):
    """Grey pictures of 120 x 5 pixels, the lighter half of which are the class light."""

    classes = ('dark', 'light')

    def __init__(self, length=40):
        self.samples = [(f'{number}.png', 2 * number // length) for number in range(length)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return torch.full((1, 120, 5), index / len(self)) + torch.arange(5) / 100, self.samples[index][1]


CLASSES = {
    'model.model': [
        {'type': 'Flatten'},
        {'type': 'Linear', 'in_features': 600, 'out_features': 2},
    ],
    'model.loss': {'type': 'CrossEntropyLoss'},
    'model.metrics': {'accuracy': {'type': 'MulticlassAccuracy', 'num_classes': 2}},
    'data.train': Shades(),
    'data.val': Shades(),
    'evaluation.save_best': 'accuracy',
    'optimizer.lr': 0.001,
}


def test_classes_have_names_confidences_and_pictures_of_the_worst_and_the_best(tmp_path):
    train(plans.config(CLASSES), work_dir=str(tmp_path))
    run = read_run(tmp_path)
    found = run.predictions
    assert (found['score'], found['iterations']) == ('accuracy', run.best.step)
    assert found['classes'] == ['dark', 'light']
    samples = found['samples']
    assert [each['name'] for each in samples] == [f'{number}.png' for number in range(40)]
    assert [each['target'] for each in samples] == [0] * 20 + [1] * 20
    right = [each['target'] == each['prediction'] for each in samples]
    assert sum(right) / 40 == pytest.approx(run.best.value)
    for each, is_right in zip(samples, right, strict=True):
        assert each['loss'] == pytest.approx(
            -math.log(each['confidence'] if is_right else 1 - each['confidence']), abs=1e-3
        )
    ordered = sorted(samples, key=lambda each: each['loss'])
    shown = [each['name'] for each in samples if each['picture']]
    assert {each['name'] for each in (*ordered[:12], *ordered[-12:])} == set(shown)
    picture = np.asarray(Image.open(tmp_path / samples[int(shown[0].split('.')[0])]['picture']))
    assert picture.shape == (60, 3)  # every second pixel
    assert (abs(picture.astype(int) - [0, 128, 255]) < 2).all()
    assert len(list((tmp_path / SAMPLES).iterdir())) == len(shown)  # none of a former best


@pytest.mark.parametrize('changes', [{}, plans.BY_ITER])
def test_numbers_of_the_best_evaluation_are_kept_when_later_ones_are_worse(tmp_path, changes):
    greatest = {'evaluation': {**plans.CONFIG['evaluation'], **changes.get('evaluation', {}), 'rule': 'greater'}}
    train(plans.config(changes, greatest, {'seed': 0, 'optimizer.lr': 0.01}), work_dir=str(tmp_path))
    run = read_run(tmp_path)
    found = run.predictions
    assert found['iterations'] == run.best.step < run.step
    assert sum(each['loss'] for each in found['samples']) / 6 == pytest.approx(run.best.value, rel=1e-3)
    assert {(each['confidence'], each['picture']) for each in found['samples']} == {(None, None)}
    assert [each['name'] for each in found['samples']] == [*'012345']


def test_a_large_evaluation_is_not_kept(tmp_path, monkeypatch):
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    assert (tmp_path / PREDICTIONS).is_file()
    monkeypatch.setattr(module, 'MOST_BYTES', 300)
    train(plans.CONFIG, work_dir=str(tmp_path / 'small'), stop_after=1)
    assert read_run(tmp_path / 'small').predictions is None


@pytest.mark.parametrize('step', ['name_of_scores', 'best_now', 'rows_of', 'names_of_samples'])
def test_no_step_of_the_record_fails_the_run(step, tmp_path, monkeypatch):
    def fails(*args):
        raise KeyError(step)

    monkeypatch.setattr(module, step, fails)
    with pytest.warns(RuntimeWarning, match=f'best_predictions.json cannot be written .*{step}'):
        train(plans.CONFIG, work_dir=str(tmp_path))
    run = read_run(tmp_path)
    assert (run.outcome, run.predictions) == ('completed', None)


def test_a_score_may_have_a_slash_of_its_own(tmp_path):
    changes = {**CLASSES, 'model.metrics': {'top/accuracy': CLASSES['model.metrics']['accuracy']}}
    train(plans.config(changes, {'evaluation.save_best': 'top/accuracy'}), work_dir=str(tmp_path), stop_after=1)
    assert read_run(tmp_path).predictions['score'] == 'top/accuracy'


def test_predictions_of_an_earlier_validation_are_not_those_of_the_best(tmp_path):
    """The evaluation, which decides, has no val points; the workflow's validation has, after the epoch."""

    class Scores(Noisy):
        accuracy = 0.0

        def evaluate(self, results, logger=None):
            self.accuracy += 0.1
            return {'accuracy': self.accuracy}

    runner = tiny_runner(model=Measured(), work_dir=tmp_path, max_epochs=2)
    runner.register_hook(EvalHook(DataLoader(Scores(4)), save_best='accuracy', test_fn=lambda *args: []))
    runner.register_hook(PredictionsHook(tmp_path))
    runner.run([loader(8), loader(4)], [('train', 1), ('val', 1)])
    assert sorted(path.name for path in tmp_path.glob('best_*')) == ['best_accuracy_epoch_2.pth']


def test_trials_of_a_study_keep_none(tmp_path):
    context = Context(None, work_dir=tmp_path, val_loader=DataLoader(Noisy(6)))
    assert [type(hook).__name__ for hook in recording_hooks(context)] == [
        'JournalHook',
        'LossJumpHook',
        'PredictionsHook',
    ]
    context.hooks.append((ReportHook(lambda step, scores: False, ('loss',)), 'NORMAL'))
    assert [type(hook).__name__ for hook in recording_hooks(context)] == ['JournalHook', 'LossJumpHook']


LOGITS = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
CHANCES = torch.tensor([[0.9, 0.1], [0.25, 0.75]])


@pytest.mark.parametrize(
    'preds, target, rows',
    [
        (LOGITS, torch.tensor([0, 0]), [[0, 0, 0.8808, 0.1269], [0, 1, 0.7311, 1.3133]]),
        (CHANCES, torch.tensor([0, 0]), [[0, 0, 0.9, 0.1054], [0, 1, 0.75, 1.3863]]),
        (LOGITS.bfloat16(), torch.tensor([-100, 1]), [[-100, 0, 0.8808, math.nan], [1, 1, 0.7311, 0.3133]]),
        (torch.tensor([[1.0], [2.0]]), torch.tensor([[1.5], [2.0]]), [[1.5, 1, math.nan, 0.25], [2, 2, math.nan, 0]]),
        (torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64), None),
        (torch.zeros(2, 1), torch.zeros(2), None),
        ([1.0], torch.zeros(1), None),
    ],
)
def test_what_counts_as_classes_and_as_numbers(preds, target, rows):
    found = rows_of(preds, target) if are_kept(preds, target) else None
    assert (found is None) == (rows is None)
    if rows is not None:
        torch.testing.assert_close(found, torch.tensor(rows), atol=1e-4, rtol=0, equal_nan=True)


def test_rounded_probabilities_are_no_logits():
    chances = torch.randn(64, 10).mul(3).softmax(1).bfloat16()
    assert torch.equal(rows_of(chances, torch.zeros(64).long())[:, 2], chances.float().amax(1))


def test_names_are_those_of_the_files():
    data = Shades(6)
    assert names_of_samples(DataLoader(data), 3) == ['0.png', '1.png', '2.png']
    assert names_of_samples(DataLoader(Subset(data, [4, 2])), 2) == ['4.png', '2.png']
    assert names_of_samples(DataLoader(data, shuffle=True), 2) == ['place 0', 'place 1']
    drawn = BatchSampler(RandomSampler(data), 2, drop_last=False)  # torch then has a SequentialSampler, too
    assert names_of_samples(DataLoader(data, batch_sampler=drawn), 2) == ['place 0', 'place 1']
    assert names_of_samples(build_dataloader(data, 2, 0, shuffle=False), 2) == ['0.png', '1.png']
    data.samples = [{'img_info': {'filename': f'{number}.jpg'}} for number in range(6)]
    assert names_of_samples(DataLoader(data), 1) == ['0.jpg']
    assert names_of_samples(DataLoader(Noisy(6)), 2) == ['0', '1']


def test_names_are_those_of_the_files_in_wrapping_data_sets():
    files, none = Shades(3), Noisy(2)
    both = ConcatDataset([none, files, Subset(files, [2, 0])])
    assert names_of_samples(DataLoader(both), 7) == ['0', '1', '0.png', '1.png', '2.png', '2.png', '0.png']
    assert names_of_samples(DataLoader(Subset(both, [6, 1, 3])), 3) == ['0.png', '1', '1.png']
    assert names_of_samples(DataLoader(RepeatDataset(files, 2)), 6) == 2 * ['0.png', '1.png', '2.png']
    assert names_of_samples(DataLoader(RepeatDataset(none, 2)), 4) == ['0', '1', '0', '1']


class Rows(Noisy):
    columns = ('a', 'b', 'c', 'd')

    def __getitem__(self, i):
        return torch.tensor([i, math.nan, 0.123456789, 4.0]), torch.tensor([float(i % 2)])


@pytest.mark.parametrize('columns', [Rows.columns, None, ('too', 'few')])
def test_rows_of_a_table_are_kept_with_the_names_of_their_columns(columns):
    data = Rows(30)
    data.columns = columns
    seen = Pass(DataLoader(data))
    for begin in (0, 15):
        batch = [torch.stack(each) for each in zip(*(data[i] for i in range(begin, begin + 15)), strict=True)]
        seen.add({'preds': torch.arange(begin, begin + 15.0), 'target': torch.zeros(15)}, batch)
    rows = dict(seen.rows())
    assert sorted(rows) == [*range(12), *range(18, 30)]  # the best and the worst
    names = columns if columns == Rows.columns else '0123'
    assert rows[20] == dict(zip(names, (20, None, 0.12346, 4), strict=True))
    assert [*seen.pictures()] == []


@pytest.mark.parametrize(
    'batch',
    [
        (torch.zeros(15, 33), torch.zeros(15, 4)),  # many columns; a target is no row
        (torch.zeros(15, 4, dtype=torch.int64),),  # such as tokens
        (torch.zeros(14, 4),),
        (torch.zeros(15, 0),),
        ('text',),
    ],
)
def test_other_batches_have_no_rows(batch):
    seen = Pass(DataLoader(Noisy(15)))
    seen.add({'preds': torch.zeros(15), 'target': torch.zeros(15)}, batch)
    assert dict(seen.rows()) == {}
    assert len(seen.samples()) == 15


def test_rows_are_in_the_record_of_a_run(tmp_path):
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    assert [[*each['row']] for each in read_run(tmp_path).predictions['samples']] == 6 * [[*'0123']]


def test_an_evaluation_that_is_not_understood_is_forgotten():
    seen = Pass(DataLoader(Noisy(6)))
    for preds in (LOGITS, None, LOGITS):
        seen.add({'preds': preds, 'target': torch.tensor([0, 0])}, None)
    assert seen.samples() == [] == [*seen.pictures()]


def test_pictures_go_to_the_device_of_the_predictions():
    """The other way round, the host would wait for the device at each batch. A meta tensor cannot be read at all."""
    seen = Pass(DataLoader(Noisy(6)))
    for _ in range(2):
        seen.add({'preds': LOGITS.to('meta'), 'target': torch.tensor([0, 1], device='meta')}, torch.zeros(2, 3, 4, 4))
    seen._note_waiting()
    assert {each.device.type for each in seen._shown[0]} == {'meta'}


@pytest.mark.parametrize('together', [0, 200, 10**6])
def test_batches_that_wait_for_each_other_are_kept_as_they_were(together, monkeypatch):
    """Of the last batches, one is smaller, and one has no pictures; a static output is overwritten by the next."""
    monkeypatch.setattr(module, 'TOGETHER', together)
    noted, preds, target = Pass(DataLoader(Noisy(40))), torch.zeros(4, 3), torch.zeros(4).long()
    pictures, rows = torch.zeros(4, 1, 8, 8), []
    for number, size in enumerate([4] * 8 + [2, 4]):
        preds.copy_(torch.randn(4, 3, generator=torch.Generator().manual_seed(number)))
        pictures.fill_(number)
        noted.add({'preds': preds[:size], 'target': target[:size]}, (pictures[:size] if number < 9 else 'text',))
        rows += rows_of(preds[:size], target[:size]).tolist()
    pictures.fill_(99)
    found = noted.samples()
    assert [each['loss'] for each in found] == pytest.approx([row[3] for row in rows], rel=1e-4)
    losses = {row[3]: place for place, row in enumerate(rows[:34])}
    ordered = [losses[loss] for loss in sorted(losses)]
    shown = [(place, float(view.mean())) for _, places, views in noted._shown for place, view in zip(places, views)]
    assert sorted(int(place) for place, _ in shown) == sorted([*ordered[:12], *ordered[-12:]])
    assert all(value == int(place) // 4 for place, value in shown)
