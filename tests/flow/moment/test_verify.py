"""Whether a work dir reproduces here."""

import shutil

import pytest
import torch

from runnerkit.flow.moment.verify import verify


def copied(work_dir, tmp_path):
    return shutil.copytree(work_dir, tmp_path / 'run', symlinks=True)


# The other kind is thorough: test_all_stretches_of_a_run_are_equal[epochs].
@pytest.mark.parametrize('kind', ['epochs', pytest.param('optimizers', marks=pytest.mark.thorough)])
def test_all_stretches_of_a_run_are_equal(trained, kind):
    work_dir, _ = trained(kind)
    found = verify(work_dir, True)
    assert [(each.begin, each.end, each.difference) for each in found.stretches] == [(0, 18, ''), (18, 24, '')]
    assert found.is_equal
    assert {each.compared for each in found.stretches} == {'everything'}


@pytest.mark.thorough  # test_all_stretches_of_a_run_are_equal; test_replay.py goes through several starts
def test_a_resumed_run_is_verified_with_each_of_its_starts(trained):
    """The checkpoint of a stop is compared in its weights and optimizer alone: no interval had saved it."""
    work_dir, _ = trained('resumed')
    found = verify(work_dir, True)
    assert [(each.begin, each.end) for each in found.stretches] == [
        (0, 5),
        (5, 8),
        (8, 10),
        (10, 15),
        (15, 20),
        (20, 24),
    ]
    assert found.is_equal, found.stretches
    assert [each.compared == 'everything' for each in found.stretches] == [True, False, True, True, True, True]
    assert len(found.discarded) == 1


def flip_bit(content):
    content['state_dict']['head.bias'].view(torch.int32)[0] ^= 1


def change_rate(content):
    content['optimizer']['param_groups'][0]['lr'] *= 1.00001


def draw(content):
    content['runnerkit']['ranks'][0]['rng']['torch'][5] ^= 1


def move(content):
    content['runnerkit']['ranks'][0]['readers'][0]['epoch'] += 1


@pytest.mark.parametrize(
    ('change', 'said'),
    [
        (flip_bit, "state_dict['head.bias'] differs in 1 of 1 values, by up to"),
        (change_rate, "optimizer['param_groups'][0]['lr'] was"),
        (draw, "rng[0]['torch'] differs in 1 of"),
        (move, "readers[0][0]['epoch'] was 4 and is 3"),
    ],
)
def test_the_first_difference_is_named(trained, tmp_path, change, said):
    run = copied(trained('epochs')[0], tmp_path)
    content = torch.load(run / 'epoch_4.pth', weights_only=True)
    change(content)
    torch.save(content, run / 'epoch_4.pth')
    found = verify(run)
    assert not found.is_equal
    assert [each.begin for each in found.stretches] == [18]
    assert said in found.stretches[0].difference


def test_a_changed_log_line_is_a_difference(trained, tmp_path):
    run = copied(trained('epochs')[0], tmp_path)
    (log,) = run.glob('*.log.json')
    lines = log.read_text().splitlines()
    lines[-1] = lines[-1].replace('"loss": 0.', '"loss": 1.')
    log.write_text('\n'.join(lines) + '\n')
    assert 'loss was 1.' in verify(run).stretches[0].difference


def test_without_two_checkpoints_there_is_nothing_to_compare(trained, tmp_path):
    run = copied(trained('epochs')[0], tmp_path)
    for path in run.glob('*.pth'):
        path.unlink()
    with pytest.raises(FileNotFoundError, match='nothing to compare with'):
        verify(run)
