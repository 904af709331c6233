"""Runs with a limit of batches an epoch, from the config to the scores."""

import copy
import json

import pytest
import torch
from plans import BY_ITER, CONFIG
from support import Noisy, weights
from torch.utils.data import IterableDataset

import runnerkit
from runnerkit.config import PreflightError
from runnerkit.hooks import Hook

QUICK = {'seed': 3, 'device': 'cpu'}


class Indexed(Noisy):
    """`Noisy`, whose samples have no noise: a batch tells which samples are in it."""

    def __getitem__(self, i):
        return torch.full((4,), i / 100), torch.tensor([float(i % 2)])


class Scored(Indexed):
    """A data set that scores predictions itself."""

    def evaluate(self, results, logger=None):
        return {'count': len(results)}


class Sees(Hook):
    """Writes down the samples of each epoch, how long it is, and what is evaluated; may end the run like a kill."""

    def __init__(self, seen, dies_at=None):
        self.seen, self.dies_at = seen, dies_at

    def before_train_iter(self, runner):
        if runner.completed_iters == self.dies_at:
            raise KeyboardInterrupt
        self.seen.append((runner.epoch, runner.data_batch[0][:, 0].tolist()))

    def before_run(self, runner):
        self.seen.append(('length', runner.max_iters, runner.max_epochs))


def limited(kind='epoch', **changes):
    """Two epochs, or more, of three batches of four of forty samples; an evaluation of one batch."""
    cfg = copy.deepcopy({**CONFIG, **(BY_ITER if kind == 'iter' else {})})
    cfg['data'].update(train={'type': Indexed, 'length': 40}, train_dataloader={'max_batches': 3})
    cfg['data'].update(val={'type': Indexed, 'length': 24}, val_dataloader={'max_batches': 1})
    cfg['checkpoint_config'] = {'interval': 1, 'by_epoch': False, 'max_keep_ckpts': 1}
    cfg['evaluation'] = {'interval': 1 if kind == 'epoch' else 3}
    for key, value in changes.items():
        cfg['data'][key].update(value)
    return cfg


def samples_of(seen, epoch):
    return [sample for number, batch in seen if number == epoch for sample in batch] if seen else []


def run(cfg, folder, dies_at=None, **options):
    seen = []
    result = runnerkit.train(cfg, folder, custom_hooks=[Sees(seen, dies_at)], **{**QUICK, **options})
    return result, seen[0], [each for each in seen if each[0] != 'length']


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_epochs_end_at_the_limit_and_each_sees_other_samples(kind, tmp_path):
    result, length, seen = run(limited(kind), tmp_path)
    assert length == (('length', 9, 3) if kind == 'epoch' else ('length', 15, None))
    epochs = [samples_of(seen, epoch) for epoch in range(3)]
    assert [len(set(epoch)) for epoch in epochs] == [12, 12, 12]
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 3
    assert result.scores['loss'] > 0


def test_an_evaluation_sees_the_first_batches(tmp_path):
    cfg = limited(val={'length': 4})
    del cfg['data']['val_dataloader']
    whole, _, _ = run(cfg, tmp_path / 'whole')
    first, _, _ = run(limited(), tmp_path / 'first')
    entry, _, _ = run({**limited(), 'evaluation': None, 'workflow': [('train', 1), ('val', 1)]}, tmp_path / 'entry')
    assert first.scores == whole.scores
    losses = [record['loss'] for record in entry.history if record['mode'] == 'val']
    assert losses == [record['loss'] for record in first.history if record['mode'] == 'val']


#: A sampler of torch's, with a generator of its own.
TORCHS = {'sampler': {'type': 'RandomSampler', 'generator': torch.Generator().manual_seed(1)}, 'shuffle': True}


@pytest.mark.parametrize(
    'kind, options, dies_at',
    [
        ('epoch', {}, 4),
        ('epoch', {'workers_per_gpu': 2, 'persistent_workers': True}, 5),
        pytest.param('epoch', {'seeded': False}, 4, marks=pytest.mark.thorough),
        pytest.param('epoch', TORCHS, 4, marks=pytest.mark.thorough),
        ('epoch', {**TORCHS, 'seeded': False}, 5),
        pytest.param('epoch', {}, 6, marks=pytest.mark.thorough),
        pytest.param('iter', {'workers_per_gpu': 1}, 4, marks=pytest.mark.thorough),
        ('iter', {**TORCHS, 'seeded': False}, 8),
    ],
)
@pytest.mark.filterwarnings('ignore:This DataLoader will create')
def test_a_run_that_was_killed_inside_a_limited_epoch_continues_exactly(kind, options, dies_at, tmp_path):
    def fresh():
        cfg = limited(kind, train={'type': Noisy})  # with noise from all generators
        own = {**options}
        if 'sampler' in own:
            own['sampler'] = {**own['sampler'], 'generator': torch.Generator().manual_seed(1)}
        cfg['data']['train_dataloader'].update(own)
        return cfg

    whole, _, seen = run(fresh(), tmp_path / 'whole')
    with pytest.raises(KeyboardInterrupt):
        run(fresh(), tmp_path / 'cut', dies_at=dies_at)
    rest, _, after = run(fresh(), tmp_path / 'cut', resume=True)
    assert after == seen[dies_at:]
    assert torch.equal(weights(rest.model), weights(whole.model))
    assert rest.scores == whole.scores


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(4), torch.ones(1)


def test_an_endless_stream_has_epochs(tmp_path):
    """Each seeded by its number; a resume reads again from the epoch's beginning."""
    cfg = limited()
    cfg['data']['train'] = {'type': Endless}
    whole, length, seen = run(cfg, tmp_path / 'whole')
    assert length == ('length', 9, 3)
    assert len({str(batch) for _, batch in seen}) == 9
    with pytest.raises(KeyboardInterrupt):
        run(cfg, tmp_path / 'cut', dies_at=5)
    rest, _, after = run(cfg, tmp_path / 'cut', resume=True)
    assert after == seen[5:]
    assert torch.equal(weights(rest.model), weights(whole.model))


def test_a_limit_that_the_data_does_not_reach_is_told(tmp_path, caplog):
    cfg = limited(train_dataloader={'max_batches': 11})
    cfg['data']['val_dataloader']['max_batches'] = 6  # exactly as many as there are
    run(cfg, tmp_path)
    assert 'data.train_dataloader.max_batches' in caplog.text
    assert 'has no effect: the data has 10 batches, and the limit is 11' in caplog.text
    assert 'val_dataloader.max_batches' not in caplog.text.partition('Before the run')[2]


def test_a_changed_limit_is_told_at_the_resume(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        run(limited(), tmp_path, dies_at=4)
    run(limited(train_dataloader={'max_batches': 5}), tmp_path, resume=True)
    assert 'loader 0: batches' in caplog.text


def test_an_epoch_that_is_behind_a_smaller_limit_is_over(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt):
        run(limited(), tmp_path, dies_at=5)
    _, _, seen = run(limited(train_dataloader={'max_batches': 1}), tmp_path, resume=True)
    assert [epoch for epoch, _ in seen] == [2]
    assert 'loader 0: batches' in caplog.text
    assert 'read again' not in caplog.text  # there is no such batch any more


@pytest.mark.parametrize('value', [0, -1, 0.5, '3', True])
def test_a_limit_is_a_whole_number(value, tmp_path):
    with pytest.raises((PreflightError, TypeError, ValueError), match='max_batches'):
        run(limited(train_dataloader={'max_batches': value}), tmp_path)


def test_a_data_set_that_scores_all_of_its_samples_is_not_limited(tmp_path):
    with pytest.raises(PreflightError, match=r'(?s)val_dataloader.max_batches.*Scored.evaluate needs the predictions'):
        run(limited(val={'type': Scored}), tmp_path)


# --- ranks -----------------------------------------------------------------------------------------------------------


def test_with_two_ranks_both_have_as_many_batches(on_ranks, tmp_path):
    """Also where the data of the evaluation cannot be shared equally, and after a kill."""
    first, second = on_ranks(__file__, 'train_on_rank', str(tmp_path))
    whole, _, rest, scores, resumed_scores = first
    assert [[number for number, _ in each] for each in (whole, second[0])] == [[0] * 3 + [1] * 3 + [2] * 3] * 2
    seen = [samples_of(whole, epoch) + samples_of(second[0], epoch) for epoch in range(3)]
    assert [len(set(epoch)) for epoch in seen] == [24] * 3
    assert rest == whole[4:]
    assert second[2] == second[0][4:]
    assert scores == resumed_scores == second[3] == second[4]


def train_on_rank(rank, folder):
    def cfg():
        changed = limited(val={'length': 9}, val_dataloader={'max_batches': 2})
        changed['dist_params'] = {'backend': 'gloo'}
        return changed

    whole, length, seen = run(cfg(), f'{folder}/whole')
    try:
        run(cfg(), f'{folder}/cut', dies_at=4)
    except KeyboardInterrupt:
        pass
    rest, _, after = run(cfg(), f'{folder}/cut', resume=True)
    return seen, length, after, json.loads(json.dumps(whole.scores)), rest.scores
