"""Runs that the real MMCV 1.7.2 began go on here, as if it had gone on itself (benchmarks/old_checkpoints.py)."""

import json

import pytest
import torch
from mmcv_record import SAME_BITS, assert_same
from support import ROOT, benchmark

from runnerkit.checkpoint import load_checkpoint

OLD = ROOT / 'tests/data/old'
old = benchmark('old_checkpoints')


def end_of(name):
    return json.loads((OLD / f'{name}.end.json').read_text(encoding='utf-8'))


def as_trained(runner):
    """The weights as a run has them while it trains: at its end, the averages are apart."""
    return {name: [float(x).hex() for x in value.flatten()] for name, value in runner.model.state_dict().items()}


@pytest.mark.parametrize('name', old.RUNS)
def test_a_resumed_run_ends_where_mmcvs_own_ended(name, tmp_path):
    runner = old.build('runnerkit', str(tmp_path), **old.RUNS[name])
    runner.resume(str(OLD / f'{name}.pth'))
    assert runner.iter == 2 * old.BATCHES
    runner.run([old.loader()], [('train', 1)])
    expected = end_of(name)
    assert runner.iter == expected['iter'] == old.BATCHES * old.EPOCHS
    assert_same(as_trained(runner), expected['weights'])
    assert runner.meta['hook_msgs']['best_score'] == 0.75


@pytest.mark.skipif(not SAME_BITS, reason='this machine computes other last bits than that of the record')
@pytest.mark.parametrize('name', ['averages_normal', 'averages_early', 'averages_by_iteration'])
def test_taking_the_wrong_half_for_the_averages_ends_elsewhere(name, tmp_path):
    """Teeth for the test above: the priority matters, and where MMCV saved before it exchanged, it must not."""
    options = dict(old.RUNS[name])
    options['ema'] = dict(options['ema'], priority=49 if name == 'averages_normal' else 'NORMAL')
    runner = old.build('runnerkit', str(tmp_path), **options)
    runner.resume(str(OLD / f'{name}.pth'))
    runner.run([old.loader()], [('train', 1)])
    same = as_trained(runner) == end_of(name)['weights']
    assert same == (name == 'averages_by_iteration')


def test_names_of_averages_have_no_dots():
    names = set(torch.load(OLD / 'averages_normal.pth', weights_only=False)['state_dict'])
    assert {'ema_body_0_weight', 'body.0.weight'} <= names


@pytest.mark.parametrize('name', old.RUNS)
def test_the_weights_load(name, tmp_path):
    model = old.Net()
    checkpoint = load_checkpoint(model, str(OLD / f'{name}.pth'))
    assert checkpoint['meta']['CLASSES'] == ('no', 'yes')
    assert torch.equal(model.head.weight, checkpoint['state_dict']['head.weight'])


@pytest.mark.parametrize('iterations', [5, 6, 8, 11])
def test_an_iteration_run_goes_on_at_its_place_in_the_data(iterations, tmp_path):
    """MMCV starts its data anew; here batch k is batch k."""
    whole = old.build('runnerkit', str(tmp_path / 'whole'), by_epoch=False)
    whole.run([old.loader()], [('train', 1)])
    part = old.build('runnerkit', str(tmp_path / 'part'), by_epoch=False)
    part._max_iters = iterations
    part.run([old.loader()], [('train', 1)])
    path = as_mmcv_would(tmp_path / 'part' / f'iter_{iterations}.pth', iter=iterations - 1)
    resumed = old.build('runnerkit', str(tmp_path / 'resumed'), by_epoch=False)
    resumed.resume(path)
    resumed.run([old.loader()], [('train', 1)])
    assert as_trained(resumed) == as_trained(whole)
    assert resumed.epoch == whole.epoch


@pytest.mark.parametrize('iterations', [5, 6, 11])
def test_a_file_that_the_epoch_runner_saved_by_iteration_goes_on_inside_the_epoch(iterations, tmp_path):
    """MMCV calls the running epoch done (M-W4), and leaves out the rest of it."""

    def build(folder, **more):
        runner = old.build('runnerkit', str(tmp_path / folder), **more)
        hook = next(hook for hook in runner.hooks if type(hook).__name__ == 'CheckpointHook')
        hook.by_epoch, hook.interval = False, iterations
        return runner

    whole = build('whole')
    whole.run([old.loader()], [('train', 1)])
    epoch = (iterations - 1) // old.BATCHES + 1
    path = as_mmcv_would(tmp_path / 'whole' / f'iter_{iterations}.pth', iter=iterations - 1, epoch=epoch)
    resumed = build('resumed')
    resumed.resume(path)
    resumed.run([old.loader()], [('train', 1)])
    assert resumed.iter == whole.iter
    assert as_trained(resumed) == as_trained(whole)


def as_mmcv_would(path, **counts):
    """A file of ours as MMCV would have written it."""
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint['runnerkit'], checkpoint['meta']['runnerkit_version']
    checkpoint['meta'].update(counts)
    torch.save(checkpoint, path)
    return str(path)
