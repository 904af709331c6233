"""Two runs compared by their records: each planted difference is found and named."""

import json
import math
import re

import planted
import pytest
import torch

from runnerkit.flow.moment.diff import as_plain, diff
from runnerkit.hooks.fingerprint import HASHES

# --- records in which one thing is changed by hand -------------------------------------------------------------------


def at(step, **values):
    """Changes a line of the log."""
    return dict(log=lambda line: {**line, **values} if line['step'] == step else line)


def entry(**values):
    """Changes the entry of the start."""
    return dict(journal=lambda start: start.update(values))


def saved(change):
    """Changes the checkpoint ``iter_8.pth``."""

    def do(folder):
        content = torch.load(folder / 'iter_8.pth', weights_only=True)
        change(content)
        torch.save(content, folder / 'iter_8.pth')

    return dict(files=do)


def edited(pattern, old, new):
    """Changes a text file."""

    def do(folder):
        (path,) = folder.glob(pattern)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return dict(files=do)


def flip(content):
    planted_bits = content['state_dict']['head.weight'].view(-1)[:1].view(torch.int32)
    planted_bits[0] ^= 1


def draw(content):
    content['runnerkit']['ranks'][0]['rng']['torch'][100] += 1


def nudge(line):
    loss = float(torch.nextafter(torch.tensor(line['loss']), torch.tensor(9.0)))
    return {**line, 'loss': loss} if line['step'] == 6 else line


#: By section: what is changed, the name of the first row, a part of the sentence, and how it is changed.
CASES = {
    'environment': [
        ('threads', 'The results are equal .*: A ran with 1 thread, B with 2', entry(threads=2)),
        (
            'versions.torch',
            'versions.torch is .* in A and 1.0 in B',
            dict(journal=lambda start: start['versions'].update(torch='1.0')),
        ),
        ('device', r'device is cpu in A and cuda', entry(device='cuda (H100)')),
    ],
    'seeds and ranks': [
        ('ranks', 'ranks is 1 in A and 2 in B', entry(ranks=2)),
        ('seed', 'seed is 0 in A and 1 in B', entry(seed=1)),
    ],
    'data': [
        (
            'data.train.samples',
            'data.train.samples is 24 in A and 23 in B',
            entry(data={'train': {'samples': 23, 'batches': 6}}),
        ),
        ("first_batch.batch['x']", 'the first batches differ', entry(first_batch={"batch['x']": 1})),
    ],
    'config': [
        ('--overfit', '--overfit is absent in A and 4 in B', entry(options={'overfit': 4})),
        (
            'optimizer.lr',
            r'optimizer.lr is 0.1 \(.*cfg.py:\d+\) in A and 0.10001 \(.*cfg.py:\d+\) in B',
            edited('cfg.py', 'lr=0.1', 'lr=0.10001'),
        ),
        (
            'optimizer.nesterov',
            'optimizer.nesterov is absent in A and True',
            edited('cfg.py', 'momentum=0.9', 'momentum=0.9, nesterov=True'),
        ),
    ],
    'code': [
        (
            'code/own.py',
            r'the code in code/own.py differs, first in line \d+: A has .*\* self.scale',
            edited('code/own.py', '* self.scale', '* self.scale * 2'),
        ),
        (
            'code/own.py',
            'the code in code/own.py differs: A has .*own.py, B absent',
            dict(files=lambda folder: (folder / 'code/own.py').unlink()),
        ),
    ],
    'log': [
        (
            'loss',
            r'Equal up to iteration 4; iteration 6 differs in loss \([\d.]+ ulp\): .* show no cause; .* --exactly',
            dict(log=nudge),
        ),
        ('loss', 'iteration 6 differs in loss: ', at(6, loss=math.nan)),
        ('lr', 'iteration 8 differs in lr', at(8, lr=0.1001)),
        ('accuracy', 'iteration 8 differs in accuracy: ', at(8, accuracy=1.0)),
        (
            'length',
            r'Equal as far as both go, 8 iterations: A has 12 iterations \(completed\), B 8',
            dict(log=lambda line: line if line['step'] <= 8 else None, **entry(iterations_at_end=8)),
        ),
    ],
    'fingerprints': [
        (
            'weights_hash',
            'Equal up to iteration 6; iteration 8 differs in weights: ',
            at(8, weights_hash='0' * 16),
        ),
        ('optimizer_hash', 'iteration 8 differs in optimizer state: ', at(8, optimizer_hash='0' * 16)),
        (
            'random_hash',
            'iteration 8 differs in random states: only the random states differ there, so one run has drawn',
            at(8, random_hash='0' * 16),
        ),
    ],
    'checkpoints': [
        (
            'weights',
            r'Equal up to iteration 4; iteration 8 differs in weights \(up to 1 ulp\): ',
            dict(log=lambda line: drop_hashes(line) if line['step'] > 4 else line, **saved(flip)),
        ),
        *(
            (name, f'iteration 8 differs in {name}', saved(change))
            for name, change in {
                'random states': draw,
                'optimizer state': lambda content: content['optimizer']['state'][0]['momentum_buffer'].add_(1),
                'optimizer options': lambda content: content['optimizer']['param_groups'][0].update(lr=0.2),
                'position in the data': lambda content: content['runnerkit']['progress'].update(samples=12),
                'weights': lambda content: content['state_dict'].pop('head.bias'),
            }.items()
        ),
    ],
}


def drop_hashes(line):
    return {name: value for name, value in line.items() if name not in HASHES}


@pytest.mark.parametrize(
    ('section', 'name', 'sentence', 'changes'),
    [pytest.param(section, *case, id=f'{section}: {case[0]}') for section, cases in CASES.items() for case in cases],
)
def test_what_is_changed_in_the_records_is_named(run, tmp_path, section, name, sentence, changes):
    records = {key: change for key, change in changes.items() if key != 'files'}
    other = planted.copied(run, tmp_path / 'other', **records)
    changes.get('files', lambda folder: None)(other)
    found = diff(run, other)
    assert re.search(sentence, found.sentence), found.sentence
    assert (found.rows[0].section, found.rows[0].name) == (section, name)
    assert not found.is_equal
    assert found.sentence.count('\n') == 0


def test_of_several_causes_the_outermost_is_named_and_those_too_late_are_not(run, tmp_path):
    other = planted.copied(run, tmp_path / 'other', **at(6, loss=1.0), **entry(threads=2, seed=3))
    found = diff(run, other)
    assert found.sentence.endswith('A ran with 1 thread, B with 2 threads (and 1 more).')
    found.rows = [row._replace(since=8) if row.name in ('threads', 'seed') else row for row in found.rows]
    assert found.causes == []


# --- runs ------------------------------------------------------------------------------------------------------------


def test_equal_runs_are_equal_wherever_they_are(config, run, tmp_path):
    again = planted.train(config, tmp_path / 'again')
    for other in (again, run, planted.copied(run, tmp_path / 'moved')):
        found = diff(run, other)
        assert found.is_equal
        assert found.sentence == 'A and B are equal in every value of 6 log lines and 2 checkpoints.'
        assert found.compared == {'log lines': 6, 'fingerprints': 6, 'checkpoints': 2}


def test_a_resumed_run_is_equal_to_an_undisturbed_one(config, run, tmp_path):
    planted.train(config, tmp_path / 'run', stop_after=1)
    found = diff(run, planted.train(config, tmp_path / 'run', resume=True))
    assert found.is_equal, found.sentence
    assert 'B was started again after 6 iterations' in found.notes


def test_a_setting_that_a_resume_has_changed_counts_from_there_on(config, run, tmp_path):
    planted.train(config, tmp_path / 'run', stop_after=1)
    found = diff(run, planted.train(config, tmp_path / 'run', {'optimizer.lr': 0.2}, resume=True))
    (row,) = [row for row in found.rows if row.section == 'config']
    assert (row.name, row.since) == ('optimizer.lr', 6)
    assert row.b == '0.2 (--cfg-options)'
    assert found.sentence.startswith('Equal up to iteration 6; iteration 8 differs in lr')


def test_a_change_that_changes_no_result_is_told_as_that(config, run, tmp_path):
    found = diff(run, planted.train(config, tmp_path / 'run', {'log_config.interval': 4}))
    assert [row.name for row in found.rows] == ['log_config.interval']
    assert found.sentence.startswith(
        'The results are equal (2 log lines and 2 checkpoints), but not what went into them'
    )


def test_dropout_that_is_seeded_anew_at_a_resume(config, run, tmp_path):
    planted.train(config, tmp_path / 'run', stop_after=1)
    options = {'custom_hooks.0.what': 'reseed', 'custom_hooks.0.at': 6}
    found = diff(run, planted.train(config, tmp_path / 'run', options, resume=True))
    assert found.sentence.startswith('Equal up to iteration 6; iteration 8 differs in loss')
    assert [row.since for row in found.causes] == [6, 6]
    assert 'random_hash' in [row.name for row in found.rows]


def test_checkpoints_can_be_compared_alone(run, tmp_path):
    assert diff(run / 'iter_8.pth', run / 'iter_8.pth').sentence == 'A and B are equal in every value of 1 checkpoint.'
    other = planted.copied(run, tmp_path / 'other')
    saved(flip)['files'](other)
    found = diff(run / 'iter_8.pth', other / 'iter_8.pth')
    assert [row.section for row in found.rows] == ['checkpoints']
    assert 'differs in 1 of 8 values' in found.rows[0].note
    assert diff(run, other / 'iter_8.pth').first == 8
    weights = {'state_dict': torch.load(run / 'iter_8.pth')['state_dict'], 'meta': {'iter': 8}}
    torch.save(weights, tmp_path / 'weights.pth')  # as MMCV writes it
    assert [
        row.section for row in diff(run / 'iter_8.pth', tmp_path / 'weights.pth').rows if row.section == 'log'
    ] == []


def test_nothing_in_common_is_no_equality(run):
    found = diff(run / 'iter_12.pth', run / 'iter_8.pth')
    assert found.sentence == 'A and B have no log line and no checkpoint of the same iteration in common.'
    assert not found.is_equal
    assert found.rows == []


def test_a_run_and_a_checkpoint_are_compared_by_what_both_have(run, tmp_path):
    for pair in ((run, run / 'iter_12.pth'), (run / 'iter_12.pth', run)):
        found = diff(*pair)
        assert found.is_equal, found.rows
        assert found.sentence == 'A and B are equal in every value of 1 checkpoint.'
    content = torch.load(run / 'iter_8.pth', weights_only=True)
    torch.save({key: content[key] for key in ('meta', 'state_dict')}, tmp_path / 'weights.pth')
    found = diff(run, tmp_path / 'weights.pth')
    assert found.is_equal
    assert found.notes == [
        f'compared with iter_8.pth of {run}',
        'B has no optimizer options',
        'B has no optimizer state',
    ]
    content['state_dict']['head.bias'] += 1
    torch.save({key: content[key] for key in ('meta', 'state_dict')}, tmp_path / 'weights.pth')
    found = diff(tmp_path / 'weights.pth', run)
    assert [row.name for row in found.rows] == ['weights']
    assert '--exactly' not in found.sentence
    content['meta']['iter'] = 7
    torch.save(content, tmp_path / 'weights.pth')
    with pytest.raises(FileNotFoundError, match=r'of iteration 7, and .* no intact one of that iteration .*8, 12'):
        diff(run, tmp_path / 'weights.pth')


def test_log_values_are_compared_with_all_their_digits(run, tmp_path):
    def log(line):
        return {**line, 'loss': line['loss'] * (1 + 1e-13)} if line['step'] == 6 else line

    (row,) = diff(run, planted.copied(run, tmp_path / 'other', log=log)).rows
    assert 0 < float(re.search(r'by (\S+) ulp', row.note)[1]) < 1e-4


def test_what_is_neither_run_nor_checkpoint_is_refused(run, tmp_path):
    with pytest.raises(FileNotFoundError, match='neither a work dir of a run nor a checkpoint'):
        diff(run, tmp_path)
    with pytest.raises(FileNotFoundError, match='neither'):
        diff(tmp_path / 'none', run)
    torch.save({'weight': torch.ones(1)}, tmp_path / 'other.pth')
    with pytest.raises(ValueError, match='not a checkpoint of a run'):
        diff(run, tmp_path / 'other.pth')


def test_no_code_of_the_runs_is_executed(run, tmp_path):
    other = planted.copied(run, tmp_path / 'other')
    for path in (other / 'cfg.py', other / 'code/own.py'):
        path.write_text('raise SystemExit("executed")\n' + path.read_text())
    assert {row.section for row in diff(run, other).rows} == {'code'}


def test_it_is_plain(run):
    plain = as_plain(diff(run, run))
    assert json.loads(json.dumps(plain)) == plain
    assert plain['equal'] is True
