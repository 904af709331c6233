"""The tool that rebuilds a batch from its coordinates."""

import re
import shlex

import pytest
import torch

from runnerkit.cli.batch import describe_tensor, main, walk_tensors
from runnerkit.cli.main import main as runnerkit
from runnerkit.data import build_dataloader, build_dataset
from runnerkit.parallel import DataContainer

SICK = '''

class Sick(Points):
    """One sample is bad in one epoch: by chance, as an augmentation is."""

    def __getitem__(self, i):
        x, y = super().__getitem__(i)
        if i == 7 and torch.rand(()) < 0.5:
            x = x / 0
        return x, y
'''


@pytest.fixture
def sick(project):
    """The project with a data set that has a bad sample, and a hook that notices."""
    points, cfg = project / 'points.py', project / 'cfg.py'
    points.write_text(points.read_text() + SICK)
    text = cfg.read_text().replace('train=dict(type=dataset)', "train=dict(type=dataset.replace('Points', 'Sick'))")
    cfg.write_text(text + "custom_hooks = [dict(type='NonFiniteHook')]\n")
    return project


def test_the_command_in_the_error_finds_the_bad_sample(sick, train, capsys):
    code, _, last = train()
    assert code == 5
    assert last.startswith('error: the loss is not finite since iteration ')
    assert 'Traceback' not in last
    command = shlex.split(last.partition('To see that batch: ')[2].partition('. No checkpoint')[0])
    assert command[:2] == ['runnerkit', 'batch']
    assert runnerkit(command[1:]) == 0
    shown = capsys.readouterr().out
    samples = shown.splitlines()[1].removeprefix('samples of the data set: ').split(', ')
    assert f'4 infinite, in number {samples.index("7")} (from 0) of the batch' in shown


def test_a_batch_is_that_of_the_training(project, capsys, tmp_path):
    out = tmp_path / 'batch.pth'
    options = ['--epoch', '2', '--batch', '3', '--rank', '1', '--world-size', '2', '--out', str(out)]
    assert main([str(project / 'cfg.py'), *options]) == 0
    dataset = build_dataset({'type': f'{project}/points.py:Points'})
    loader = build_dataloader(dataset, 4, 0, seed=3, ranks=(1, 2))
    loader.set_epoch(1)
    expected = list(loader)[2]
    for own, other in zip(torch.load(out), expected, strict=True):
        assert torch.equal(own, other)
    assert 'epoch 2, batch 3, seed 3, rank 1 of 2\nsamples of the data set: ' in capsys.readouterr().out


@pytest.mark.parametrize(
    'options, text',
    [
        (['--epoch', '1', '--batch', '6'], '--batch 6: an epoch has fewer batches .5.'),
        (['--epoch', '1', '--batch', '1', '--split', 'vall'], "no 'vall' section; it has train[^_]*\n"),
        (['--epoch', '1', '--batch', '1', '--rank', '1'], '--rank must be one of the 1 of --world-size'),
        (['--epoch', '1', '--batch', '1', '--cfg-options', 'seed=None'], 'has no seed: .*--seed'),
    ],
)
def test_wrong_coordinates(project, capsys, options, text):
    assert main([str(project / 'cfg.py'), *options]) == 2
    assert re.search(text, capsys.readouterr().err)


def test_a_stream_that_has_ended_has_no_known_length(project, capsys):
    (project / 'stream.py').write_text(
        'from torch.utils.data import IterableDataset\n\n\nclass Stream(IterableDataset):\n'
        '    def __iter__(self):\n        return iter(range(8))\n'
    )
    cfg = f'data = dict(samples_per_gpu=4, train=dict(type={str(project / "stream.py") + ":Stream"!r}))\nseed = 3\n'
    (project / 'stream_cfg.py').write_text(cfg)
    assert main([str(project / 'stream_cfg.py'), '--epoch', '1', '--batch', '3']) == 2
    assert '--batch 3: an epoch has fewer batches (of unknown number)' in capsys.readouterr().err


def test_counts_start_at_one(project, capsys):
    with pytest.raises(SystemExit):
        main([str(project / 'cfg.py'), '--epoch', '0', '--batch', '1'])
    assert "must be a whole number of at least 1, but got '0'" in capsys.readouterr().err


def test_what_is_told_of_a_tensor():
    nan, inf = float('nan'), float('inf')
    assert describe_tensor(torch.tensor([[1.0, 2.0], [nan, inf]])) == (
        '(2, 2) float32, from 1 to 2, 1 NaN, 1 infinite, in number 1 (from 0) of the batch'
    )
    assert describe_tensor(torch.tensor([nan, 1.0])).endswith('1 NaN, 0 infinite, in number 0 (from 0) of the batch')
    assert describe_tensor(torch.tensor(nan)) == '() float32, 1 NaN, 0 infinite'
    assert describe_tensor(torch.arange(3)) == '(3,) int64, from 0 to 2'
    assert describe_tensor(torch.empty(0)) == '(0,) float32'
    nested = {'img': DataContainer([torch.ones(1)]), 'meta': ['text', torch.ones(2)]}
    assert [name for name, _ in walk_tensors(nested, 'batch')] == ["batch['img'][0]", "batch['meta'][1]"]
