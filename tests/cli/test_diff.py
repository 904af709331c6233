"""`runnerkit diff` on the command line."""

import json

import planted
import pytest
import torch

from runnerkit.cli.main import main as command
from runnerkit.cli.moment import diff_main as main
from runnerkit.utils.ending import DIFFERENT, USAGE


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    config = planted.project(tmp_path_factory.mktemp('project'))
    return planted.train(config, config.parent / 'run', {'runner.max_epochs': 1})


@pytest.fixture
def other(run, tmp_path):
    def log(line):
        return {**line, 'loss': line['loss'] + 1} if line['step'] == 4 else line

    return planted.copied(run, tmp_path / 'other', log=log, journal=lambda start: start.update(threads=2))


def test_equal_runs_give_0(run, capsys):
    assert main([str(run), str(run)]) == 0
    assert capsys.readouterr().out == 'A and B are equal in every value of 3 log lines and 1 checkpoint.\n'


def test_different_ones_give_3_and_both_values(run, other, capsys):
    assert main([str(run), str(other)]) == DIFFERENT == 3
    shown = capsys.readouterr().out
    assert 'environment\n  threads\n    A  1\n    B  2\n' in shown
    assert '\nlog\n  loss: the line at 4 iterations' in shown
    last = shown.splitlines()[-1]
    assert last == 'Equal up to iteration 2; iteration 4 differs in loss: A ran with 1 thread, B with 2 threads.'


def test_long_sections_are_cut(run, tmp_path, capsys):
    def journal(start):
        start['data'] = {f'loader {i}': {'samples': i} for i in range(20)}

    assert main([str(run), str(planted.copied(run, tmp_path / 'other', journal=journal))]) == DIFFERENT
    assert '… and 10 more' in capsys.readouterr().out


def test_json_has_everything(run, other, capsys):
    assert main([str(run), str(other), '--json']) == DIFFERENT
    found = json.loads(capsys.readouterr().out)
    assert (found['equal'], found['first'], found['equal_to']) == (False, 4, 2)
    assert found['rows'][0]['name'] == 'threads'


def test_wrong_usage_gives_2(run, tmp_path, capsys):
    assert main([str(run), str(tmp_path / 'none')]) == USAGE
    assert 'neither a work dir of a run nor a checkpoint' in capsys.readouterr().err
    assert main([str(run), str(run / 'iter_6.pth'), '--exactly']) == USAGE
    assert '--exactly replays runs, and iter_6.pth is a checkpoint' in capsys.readouterr().err
    assert main([str(run / 'iter_6.pth'), str(planted.copied(run, tmp_path / 'other') / 'iter_6.pth')]) == 0
    content = torch.load(run / 'iter_6.pth', weights_only=True)
    content['meta']['iter'] = 5
    torch.save(content, tmp_path / 'iter_5.pth')
    assert main([str(run / 'iter_6.pth'), str(tmp_path / 'iter_5.pth')]) == USAGE
    assert 'no checkpoint of the same iteration in common' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(run)])


def test_exactly_replays_both(run, other, capsys):
    assert main([str(run), str(other), '--exactly']) == DIFFERENT
    assert 'The replays are equal up to iteration 4' in capsys.readouterr().out


def train_two_and_compare(folder):
    """On each of two ranks that torch's launcher has started; returns the exit code."""
    config = planted.project(folder)
    shared = ['--launcher', 'pytorch']
    for name, what in (('a', 'None'), ('b', 'flip')):
        words = ['train', str(config), '--work-dir', str(folder / name), *shared]
        command(words + ['--cfg-options', f'custom_hooks.0.what={what}', 'custom_hooks.0.at=3'])
    return command(['diff', str(folder / 'a'), str(folder / 'b'), '--exactly', *shared]) - DIFFERENT


@pytest.mark.thorough  # tests/cli/test_verify.py replays on two ranks, and the test above finds such differences
def test_as_many_ranks_as_the_runs_had(launch, tmp_path, capfd):
    launch(train_two_and_compare, tmp_path)
    said = capfd.readouterr().out
    assert said.count('Equal up to iteration 3; in iteration 4 a hook has changed body.0.weight before the step') == 1
