"""Several runs side by side, and the list of them."""

import json
import shutil

import pytest
import written_runs as made

from runnerkit.flow.report import comparison as module
from runnerkit.flow.report.comparison import compare, runs
from runnerkit.flow.report.record import read_run


@pytest.fixture
def three(tmp_path):
    """Two runs that differ by their seed, and one of another learning rate."""
    for seed, loss in ((1, 1.0), (2, 0.8)):
        made.write_log(tmp_path / f'seed{seed}', made.lines_of(loss=loss), seed=seed)
    made.write_log(tmp_path / 'other', made.lines_of(2), seed=1, config=made.CONFIG.replace('0.1', '0.2'))
    return [tmp_path / name for name in ('seed1', 'seed2', 'other')]


def test_a_comparison_has_scores_differing_keys_and_spreads(three):
    found = compare(three)
    assert found.columns == ['run', 'outcome', 'last acc', 'epoch', 'iterations', 'duration', 'seed']
    assert [row[:5] for row in found.rows] == [
        ['seed1', 'completed', 0.75, 3, 30],
        ['seed2', 'completed', pytest.approx(0.8), 3, 30],
        ['other', 'completed', pytest.approx(2 / 3), 2, 20],
    ]
    assert found.best == {'last acc': pytest.approx(0.8)}
    assert found.differing == {'seed': [1, 2, 1], 'optimizer.lr': [0.1, 0.1, 0.2]}
    (group,) = found.groups
    assert group.names == ['seed1', 'seed2']
    assert list(group.scores) == ['acc']
    assert group.scores['acc'] == pytest.approx((0.775, 0.0353553, 0.75, 0.8), rel=1e-4)


@pytest.fixture
def rated(tmp_path):
    """Runs of three rates; each got worse after its best evaluation but the middle one, which is the best."""
    folders = []
    for rate, best, last in ((0.001, 0.5, 0.4), (0.1, 0.9, 0.9), (1.0, 0.7, 0.1)):
        lines = [
            {'mode': 'val', 'epoch': epoch, 'iter': 1, 'step': epoch, 'loss': epoch - acc, 'acc': acc}
            for epoch, acc in ((1, best), (2, last))
        ]
        folders.append(made.write_log(tmp_path / f'r{rate}', lines, config=made.CONFIG.replace('0.1', str(rate))))
        (folders[-1] / 'best_acc_epoch_1.pth').write_bytes(b'never read')
    return folders


def test_the_run_with_the_best_score_is_first_with_the_scores_of_that_evaluation(rated):
    found = compare(rated)
    assert found.names == ['r0.1', 'r1.0', 'r0.001']
    assert found.columns[2:6] == ['best acc', 'loss at best', 'last acc', 'last loss']
    assert found.rows[1][2:6] == pytest.approx([0.7, 0.3, 0.1, 1.9])
    assert found.best == pytest.approx({'best acc': 0.9, 'loss at best': 0.1, 'last acc': 0.9, 'last loss': 1.1})
    assert found.differing == {'optimizer.lr': [0.1, 1.0, 0.001]}


@pytest.mark.parametrize('rule, first', [('greater', 'b'), ('less', 'a'), (None, 'b')])
def test_what_is_better_is_known_from_the_config_where_the_name_does_not_say_it(tmp_path, rule, first):
    for name, value in (('b', 2.0), ('a', 1.0)):
        line = {'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 1, 'quux': value}
        made.write_log(
            tmp_path / name,
            [line],
            config=f'evaluation = dict(rule={rule!r})\nname = {name!r}\n'.replace('{', '{{').replace('}', '}}'),
        )
        (tmp_path / name / 'best_quux_epoch_1.pth').write_bytes(b'never read')
    found = compare([tmp_path / 'b', tmp_path / 'a'])
    assert found.names[0] == first
    assert bool(found.best) == bool(rule)


@pytest.mark.parametrize('rule, first', [('greater', 'b'), ('less', 'a')])
def test_what_is_better_is_known_from_what_a_run_has_recorded(tmp_path, rule, first):
    for name, value in (('b', 2.0), ('a', 1.0)):
        made.write_log(tmp_path / name, [{'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 1, 'quux': value}])
        (tmp_path / name / 'best_quux_epoch_1.pth').write_bytes(b'never read')
        (tmp_path / name / 'run.json').write_text(json.dumps({'starts': [{'rules': {'quux': rule}}, {}]}))
    assert compare([tmp_path / 'b', tmp_path / 'a']).names[0] == first
    assert [each['best_rule'] for each in runs(tmp_path)] == [rule] * 2


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    folders = [made.write_log(tmp_path / name / 'run', made.lines_of()) for name in 'ab']
    assert compare(folders).names == ['a/run', 'b/run']
    assert compare([folders[0], folders[0]]).names  # even the same one twice


def test_of_losses_the_smallest_is_best(tmp_path):
    lines = [{'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 1, 'loss': value} for value in (2.0, 1.0)]
    folders = [made.write_log(tmp_path / str(i), [line]) for i, line in enumerate(lines)]
    assert compare(folders).best == {'last loss': 1.0}


def test_the_best_of_a_score_is_known_by_its_name_alone(tmp_path):
    for i in (1, 2):
        lines = [{'mode': 'val', 'epoch': 1, 'iter': 1, 'step': 1, 'mae': i, 'mAP': i, 'val/loss': i}]
        made.write_log(tmp_path / str(i), lines)
    assert compare([tmp_path / '1', tmp_path / '2']).best == {'last mAP': 2, 'last val/loss': 1}


@pytest.mark.parametrize('end', ['failed: KeyError()', 'interrupted: Ctrl-C', 'diverged'])
def test_a_run_that_has_not_ended_well_is_not_averaged(three, end):
    log = three[0] / '20260101_100000.log'
    log.write_text(made.TEXT.replace('Run completed', f'Run {end}'))
    assert compare(three).groups == []


def test_a_run_that_is_deleted_meanwhile_is_left_out(three, tmp_path, monkeypatch):
    def read(folder, **options):
        if folder.name == 'seed1':
            shutil.rmtree(folder)
        return read_run(folder, **options)

    monkeypatch.setattr(module, 'read_run', read)
    assert {each['name'] for each in runs(tmp_path)} == {'seed2', 'other'}


def test_the_list_of_runs_is_plain_and_newest_first(three, tmp_path):
    made.write_log(tmp_path / 'other.1', made.lines_of(1))
    made.write_log(tmp_path / 'newest', [], text=made.TEXT.replace('2026', '2027'))
    made.write_log(tmp_path / 'v.2', made.lines_of(1))  # no run has been in its work dir before
    (tmp_path / 'no run').mkdir()
    found = runs(tmp_path)
    assert found[0]['name'] == 'newest'
    assert {each['name'] for each in found} == {'newest', 'seed1', 'seed2', 'other', 'v.2'}
    assert {each['name']: each.get('score.acc') for each in found}['seed1'] == 0.75
    assert len(runs(tmp_path, earlier=True)) == 6
    assert runs(tmp_path / 'no run') == []


def test_no_such_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match='no such folder'):
        runs(tmp_path / 'nowhere')


def test_neither_list_nor_comparison_reads_training_lines_between_others(tmp_path, monkeypatch):
    folders = []
    for seed in (1, 2):
        steps = [{'mode': 'train', 'epoch': 1, 'iter': n, 'step': n, 'loss': seed / n} for n in range(1, 201)]
        folders.append(made.write_log(tmp_path / f'seed{seed}', [*steps, *made.lines_of(23, 21)], seed=seed))
    whole = [read_run(folder) for folder in folders]
    expected = compare(whole)
    records = [module.plain_record(run, tmp_path) for run in whole]
    lines = []

    def read(folder, **options):
        run = read_run(folder, **options)
        lines.append(len(run.lines))
        return run

    monkeypatch.setattr(module, 'read_run', read)
    assert compare(folders) == expected
    assert sorted(runs(tmp_path), key=str) == sorted(records, key=str)
    assert max(lines) < 20 < 200 < len(whole[0].lines)
