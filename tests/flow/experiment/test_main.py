"""The command line of an experiment."""

import os

import pytest
import torch
from experiments import Line, config
from parakeet_experiment import Experiment as Ported
from parakeet_experiment import get_cfg_defaults
from torch import multiprocessing

from runnerkit.flow.experiment.main import main, merged_config, parser


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


@pytest.mark.parametrize('default', [{}, {'seed': None}, {'seed': 4}])
def test_what_an_experiment_reads_need_not_be_in_the_config(default):
    found = merged_config(default, None, ['seed', '3', 'log_level', 'INFO', 'training.log_interval', '7'])
    assert (found.seed, found.log_level, found.training.log_interval) == (3, 'INFO', 7)
    with pytest.raises(KeyError, match="the config has no 'sed' there; did you mean 'seed'"):
        merged_config(default, None, ['sed', '3'])


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


@pytest.mark.parametrize('code, exits', [(0, 1), (None, 1), (256, 1), (3, 3), ('no data', 'no data')])
def test_a_run_that_ends_the_program_never_exits_with_0(code, exits, tmp_path):
    class Mine(Line):
        def train_batch(self):
            raise SystemExit(code)

    with pytest.raises(SystemExit) as ended:
        main(Mine, ['--output', str(tmp_path), '--device', 'cpu'], config())
    assert ended.value.code == exits


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


def test_a_file_of_parakeets_trains_as_the_table_says(tmp_path):
    """Its own messages and curves are there, and it goes on where it was, bit for bit."""
    flags = ['--device', 'cpu', '--opts', 'data.batch_size', '5', 'training.max_iteration']
    for folder, last in (('whole', '6'), ('cut', '4'), ('cut', '6')):
        assert main(Ported, ['--output', str(tmp_path / folder), *flags, last], get_cfg_defaults()) == 0
    assert all(map(torch.equal, final(tmp_path / 'cut').values(), final(tmp_path / 'whole').values()))
    log = next((tmp_path / 'whole').glob('*.log')).read_text()
    assert '4 batches for training' in log
    assert 'Rank: 0, step: 6, time: 0.0' in log
    assert log.count('Valid: loss: ') == 2
    events = b''.join(path.read_bytes() for path in (tmp_path / 'whole' / 'tf_logs').iterdir())
    assert all(name in events for name in (b'train_loss/mel_loss', b'valid_sentence_1', b'valid/loss'))


@pytest.mark.distributed
def test_several_processes(tmp_path, monkeypatch):
    """Forked from one that has imported torch; a process that is spawned takes seconds to import it."""
    start = multiprocessing.start_processes

    def forked(*args, start_method, **options):
        assert start_method == 'spawn'
        return start(*args, start_method='forkserver', **options)

    monkeypatch.setattr(multiprocessing, 'start_processes', forked)
    assert go(tmp_path, '--nprocs', '2', max_iteration=2) == 0
    saved = torch.load(tmp_path / 'latest.pth')
    assert saved['runnerkit']['world_size'] == 2
    assert not any(name.startswith('module.') for name in saved['state_dict'])
