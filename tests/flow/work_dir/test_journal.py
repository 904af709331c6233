"""What a run writes about itself."""

import errno
import json
import os
from pathlib import Path

import numpy as np
import plans
import pytest
from PIL import Image

from runnerkit import report_image
from runnerkit.checkpoint.conditions import hook_changes
from runnerkit.flow import train
from runnerkit.flow.report.record import read_run
from runnerkit.flow.work_dir import journal
from runnerkit.flow.work_dir.journal import JournalHook
from runnerkit.hooks import Hook
from runnerkit.hooks.predictions import PredictionsHook
from runnerkit.utils.logging import NOT_EXACT


def starts(folder):
    return json.loads((folder / 'run.json').read_text())['starts']


def test_each_start_has_an_entry_that_the_end_completes(tmp_path):
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    train(plans.CONFIG, work_dir=str(tmp_path), auto_resume=True)
    first, second = starts(tmp_path)
    assert (first['outcome'], first['iterations'], first['iterations_at_end']) == ('stopped', 0, 5)
    assert (second['outcome'], second['iterations'], second['iterations_at_end']) == ('completed', 5, 15)
    assert Path(second['resumed_from']).name == 'epoch_1.pth'
    assert first['parameters'] == 4 * 8 + 8 + 8 + 1
    assert first['data'] == {'train': {'samples': 20, 'batches': 5}, 'evaluation': {'samples': 6, 'batches': 2}}
    assert first['seconds']['evaluation'] > 0
    assert first['seconds']['saving'] > 0
    assert first['modules'][0] == {'name': 'model', 'type': 'Sequential', 'parameters': 49, 'trainable': 49}
    assert second['exactness'] == []
    assert first['begin'] < first['end'] < second['begin']
    assert read_run(tmp_path).outcome == 'completed'
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    assert [len(starts(folder)) for folder in (tmp_path, tmp_path.with_name(f'{tmp_path.name}.1'))] == [1, 2]


@pytest.mark.parametrize('save_best', ['error', 'auto'])
def test_a_run_records_what_is_better(tmp_path, save_best):
    """The metric has declared it, and the score's name does not tell."""
    metrics = {'error': {'type': 'MeanAbsoluteError'}}
    cfg = {
        **plans.CONFIG,
        'model': {**plans.CONFIG['model'], 'metrics': metrics},
        'evaluation': {'save_best': save_best},
    }
    train(cfg, work_dir=str(tmp_path), stop_after=1)
    assert starts(tmp_path)[0]['rules'] == {'error': 'less'}


def test_old_starts_keep_only_what_is_short(tmp_path, monkeypatch):
    """Else a run that is resumed thousands of times has a file that is too large to be read."""
    monkeypatch.setattr(journal, 'MOST_STARTS', 6)
    monkeypatch.setattr(journal, 'MOST_WHOLE', 3)
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    former = starts(tmp_path)[0]
    numbered = [{**former, 'number': number} for number in range(1, 21)]
    (tmp_path / 'run.json').write_text(json.dumps({'version': 1, 'starts': numbered}))
    train(plans.CONFIG, work_dir=str(tmp_path), auto_resume=True)
    found = starts(tmp_path)
    assert [start['number'] for start in found] == [1, 17, 18, 19, 20, 21]
    assert [start['number'] for start in found if 'settings' in start] == [19, 20, 21]
    assert found[0] == {key: value for key, value in former.items() if key not in ('settings', 'modules')}
    assert not (tmp_path / 'run.json.damaged').exists()


@pytest.mark.parametrize('raises', ['png_of', 'write_atomically', 'batch_checksums'])
def test_a_record_that_cannot_be_written_is_a_warning(raises, tmp_path, monkeypatch):
    def fails(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    class WithoutText(RuntimeError):
        def __str__(self):
            raise ZeroDivisionError('an error without a text')

    class Shows(Hook):
        def after_train_iter(self, runner):
            report_image('x', np.zeros((4, 4), 'uint8'))
            if runner.iter == 2:
                raise WithoutText

    monkeypatch.setattr(journal, raises, fails)
    with (
        pytest.warns(RuntimeWarning, match='run.json cannot be written .*No space left on device'),
        pytest.raises(WithoutText),
    ):
        train(plans.CONFIG, work_dir=str(tmp_path), hooks=[Shows()])
    for start in starts(tmp_path) if raises != 'write_atomically' else ():
        assert (start['outcome'], start['iterations_at_end'], 'reason' in start) == ('failed', 3, False)


class Inexact(Hook):
    """Logs that something is not exact."""

    def before_train_epoch(self, runner):
        runner.logger.warning('the order of %s is not saved', 'x', extra=NOT_EXACT)


class Reads(Hook):
    """Reads the journal while the run is running: a kill would leave it so."""

    def after_train_epoch(self, runner):
        self.kept = starts(Path(runner.work_dir))


def test_what_a_run_calls_not_exact_is_kept(tmp_path):
    reads = Reads()
    train(plans.CONFIG, work_dir=str(tmp_path), hooks=[Inexact(), reads], stop_after=1)
    assert starts(tmp_path)[0]['exactness'] == reads.kept[0]['exactness'] == ['the order of x is not saved']
    assert read_run(tmp_path).exactness == ['the order of x is not saved']


def test_a_checkpoint_of_an_older_version_is_resumed_without_a_warning():
    assert hook_changes([], [f'{JournalHook.__name__}#0', f'{PredictionsHook.__name__}#0']) == []


class Fails(Hook):
    """Ends the run with an error."""

    def after_train_iter(self, runner):
        raise KeyError('the reason')


def test_a_damaged_journal_is_kept_aside(tmp_path):
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    (tmp_path / 'run.json').write_text('{"starts": [')
    train(plans.CONFIG, work_dir=str(tmp_path), auto_resume=True)
    assert (tmp_path / 'run.json.damaged').read_text() == '{"starts": ['
    assert [each['iterations'] for each in starts(tmp_path)] == [5]


def test_a_failed_run_says_why(tmp_path):
    with pytest.raises(KeyError):
        train(plans.CONFIG, work_dir=str(tmp_path), hooks=[Fails()])
    (start,) = starts(tmp_path)
    assert (start['outcome'], start['reason']) == ('failed', "KeyError: 'the reason'")
    run = read_run(tmp_path)
    assert (run.outcome, run.reason) == ('failed', start['reason'])


def fails_on_one_rank(rank, work_dir):
    class FailsThere(Hook):
        def after_train_iter(self, runner):
            if runner.rank == 1:
                raise KeyError('the reason')

    with pytest.raises((KeyError, RuntimeError)) as caught:
        train(plans.CONFIG, work_dir=work_dir, hooks=[FailsThere()], device='cpu')
    return type(caught.value).__name__


def test_the_error_of_another_rank_is_the_reason(on_ranks, tmp_path):
    """The first rank only sees that it is gone."""
    assert on_ranks(__file__, 'fails_on_one_rank', str(tmp_path)) == ['RuntimeError', 'KeyError']
    (start,) = starts(tmp_path)
    assert (start['outcome'], start['reason']) == ('failed', "rank 1: KeyError: 'the reason'")
    assert not (tmp_path / journal.ERROR).exists()


class Draws(Hook):
    """Reports a picture after each epoch."""

    def after_train_epoch(self, runner):
        report_image('a/b ü', np.full((700, 2), runner.epoch / 4))


def test_a_full_disk_at_the_end_leaves_the_outcome(tmp_path, monkeypatch):
    class FullDisk(Hook):
        def after_train_iter(self, runner):
            monkeypatch.setattr(journal, 'write_atomically', no_space)

    def no_space(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    train(plans.CONFIG, work_dir=str(tmp_path), hooks=[FullDisk()])
    assert starts(tmp_path)[0]['outcome'] == 'completed'
    assert starts(tmp_path)[0]['iterations_at_end'] == 15
    (tmp_path / 'run.json').rename(tmp_path / 'moved.json')  # a link is not followed
    (tmp_path / 'run.json').symlink_to('moved.json')
    before = (tmp_path / 'moved.json').read_bytes()
    train(plans.CONFIG, work_dir=str(tmp_path), auto_resume=True, cfg_options={'runner.max_epochs': 4})
    assert (tmp_path / 'moved.json').read_bytes() == before


def test_reported_pictures_are_files_of_the_run(tmp_path):
    train(plans.CONFIG, work_dir=str(tmp_path), hooks=[Draws()])
    found = read_run(tmp_path).images
    assert [(each.name, each.iterations) for each in found] == [('a/b ü', 5), ('a/b ü', 10), ('a/b ü', 15)]
    assert [np.asarray(Image.open(each.file)).tolist()[0] for each in found] == [[0], [64], [128]]
    assert Image.open(found[0].file).size == (1, 350)
    train(plans.CONFIG, work_dir=str(tmp_path), stop_after=1)
    assert read_run(tmp_path).images == []  # those of the earlier run have moved with it
