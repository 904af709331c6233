"""The arguments of model and data that differ between a checkpoint's config and that of the run that resumes it."""

import pytest

from runnerkit.checkpoint.conditions import config_changes
from runnerkit.config import Config

RUN = {
    'model': {'type': 'Net', 'p': 0.1, 'init_cfg': 'first', 'head': {'type': 'Head', 'bins': [1, 2]}},
    'data': {
        'samples_per_gpu': 2,
        'train': {'type': '/p/nets.py:Points', 'file': '/p/a.csv', 'transforms': [{'type': 'Flip', 'p': 0.5}]},
        'val': {'clean': {'type': 'Points', 'part': 'val'}},
    },
    'work_dir': '/p/work_dirs/run',
}


def found(change=lambda cfg: None, **keys):
    cfg = Config(RUN)
    change(cfg)
    cfg.merge_from_dict(keys)
    return [tuple(each) for each in config_changes(Config(RUN).pretty_text, cfg.pretty_text)]


@pytest.mark.parametrize('key, was, now', [
    ('data.train.file', '/p/a.csv', '/p/b.csv'),
    ('data.train.file', '/p/a.csv', '/q/a.csv'),  # the work dir has not moved
    ('data.train.transforms.0.p', 0.5, 0.6),
    ('data.val.clean.part', 'val', 'test'),
    ('model.p', 0.1, float('nan')),
    ('model.head.type', 'Head', 'Neck'),
    ('model.head.bins', [1, 2], [1, 2, 3]),
    ('model.size', 'absent', 3),
])  # fmt: skip
def test_each_differing_argument_has_a_line(key, was, now):
    name = key.replace('transforms.0', 'transforms[0]')
    assert found(**{key: now}) == [(name, str(was), str(now), 'it takes effect now')]


def test_what_is_gone_or_long_is_shown():
    assert found(lambda cfg: cfg.model.pop('p')) == [('model.p', '0.1', 'absent', 'it takes effect now')]
    key, was, now, _ = found(**{'model.p': list(range(999))})[0]
    assert (key, was) == ('model.p', '0.1')
    assert len(now) < 100


@pytest.mark.parametrize('keys', [
    {},
    {'data.samples_per_gpu': 3, 'optimizer': {'lr': 1}, 'data.test': {'type': 'Points'}},  # other lines tell of these
    {'model.init_cfg': 'other', 'model.pretrained': 'x.pth'},  # replaced by the checkpoint's weights
    {'data.train.type': '/p/work_dirs/run/code/nets.py:Points'},  # resumed with the config of the work dir
    {'work_dir': '/q/work_dirs/run', 'data.train.file': '/q/a.csv'},  # the project has moved
    {'work_dir': '/mnt/p/work_dirs/run', 'data.train.file': '/mnt/p/a.csv'},
])  # fmt: skip
def test_what_is_the_same_has_none(keys):
    assert found(**keys) == []


def test_a_path_that_has_not_moved_with_the_folder_has_one():
    keys = {'work_dir': '/q/work_dirs/run', 'data.train.file': '/r/a.csv'}
    assert [each[0] for each in found(**keys)] == ['data.train.file']


@pytest.mark.parametrize('was', [None, 3, 'import os', 'x = (', "model = 'text'\ndata = 3"])
def test_texts_that_are_no_configs_are_not_compared(was):
    assert [each.what for each in config_changes(was, "model = 'text'")] == []
