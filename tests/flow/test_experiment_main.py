"""The command line of an experiment."""

import os

import pytest
import torch
from experiments import Line, config

from runnerkit.flow.experiment_main import main, merged_config, parser


def go(folder, *flags, kind=Line, **options):
    return main(kind, ['--output', str(folder), '--device', 'cpu', *flags], {**config(), 'rate': 0.5, **options})


def final(folder):
    return torch.load(folder / 'latest.pth')['state_dict']


def test_parakeets_flags():
    args = parser().parse_args(
        '--config c.yaml --data d --output o --checkpoint_path p --device gpu --nprocs 2 --opts a.b 1 c x'.split()
    )
    assert vars(args) == {
        'config': 'c.yaml',
        'data': 'd',
        'output': 'o',
        'checkpoint_path': 'p',
        'device': 'gpu',
        'nprocs': 2,
        'opts': ['a.b', '1', 'c', 'x'],
    }


def test_the_same_command_goes_on(tmp_path):
    assert go(tmp_path / 'whole') == 0
    assert go(tmp_path / 'cut', '--opts', 'training.max_iteration', '6') == 0
    assert go(tmp_path / 'cut') == 0
    assert all(map(torch.equal, final(tmp_path / 'cut').values(), final(tmp_path / 'whole').values()))


def test_a_file_and_options_over_the_default_config(tmp_path):
    (tmp_path / 'c.yaml').write_text('training:\n  max_iteration: 3\nmodel: {depth: 2, wide: false}\n')
    found = merged_config(
        {'rate': 0.5, 'training': {'valid_interval': 5}},
        str(tmp_path / 'c.yaml'),
        ['rate', '2', 'model.depth', '4', 'model.wide', 'true'],
    )
    assert found.training == {'max_iteration': 3, 'valid_interval': 5, 'save_interval': 10000}
    assert (found.rate, type(found.rate), found.model) == (2.0, float, {'depth': 4, 'wide': True})


@pytest.mark.parametrize(
    'flags, told',
    [
        (['--opts', 'rat', '1'], "--opts rat: the config has no 'rat' there; did you mean 'rate'?"),
        (['--opts', 'rate.x', '1'], "the config has no 'x' there"),
        (['--opts', 'rate', 'fast'], "--opts rate: 'fast' is a str, but the config has 0.5"),
        (['--opts', 'rate'], "--opts takes pairs, KEY VALUE KEY VALUE …, but 'rate' has no value"),
        (['--opts', 'training.valid_interval', '0'], 'training.valid_interval must be a whole number of at least 1'),
        (['--config', 'none.yaml'], 'none.yaml'),
        (['--nprocs', '0'], '--nprocs must be at least 1, but got 0'),
        (['--out', 'x'], 'unrecognized arguments: --out x'),
    ],
)
def test_wrong_flags_end_with_2(flags, told, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        go(tmp_path / 'run', *flags)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / 'run').exists()


def test_flags_of_ones_own_and_a_stop(tmp_path):
    seen = []

    class Mine(Line):
        def train_batch(self):
            seen.append(self.option('speaker'))
            os.kill(os.getpid(), 15)
            return super().train_batch()

    parse = parser()
    parse.add_argument('--speaker')
    flags = ['--output', str(tmp_path), '--device', 'cpu', '--speaker', 'nine']
    assert main(Mine, flags, config(), parse) == 128 + 15
    assert seen == ['nine']
    assert (tmp_path / 'iter_1.pth').exists()


def test_several_processes(tmp_path):
    assert go(tmp_path, '--nprocs', '2', max_iteration=2) == 0
    saved = torch.load(tmp_path / 'latest.pth')
    assert saved['runnerkit']['world_size'] == 2
    assert not any(name.startswith('module.') for name in saved['state_dict'])
