"""The first stage: device, seed, work dir, data."""

import os
import re

import pytest
import torch

from runnerkit.config import Config, PreflightError
from runnerkit.distributed import launch
from runnerkit.flow import Context, Instance, Options
from runnerkit.flow.preflight import check_switches
from runnerkit.flow.stages import instance
from runnerkit.flow.stages.instance import choose_device
from runnerkit.utils.exceptions import ToldByFirstRank
from runnerkit.utils.logging import close_logger


def test_devices():
    assert choose_device('cpu', 0, 1) == torch.device('cpu')
    assert choose_device(None, 0, 1).type == ('cuda' if torch.cuda.is_available() else 'cpu')
    with pytest.raises(ValueError, match="unknown device 'gpu'; use --device cpu, cuda, cuda:1"):
        choose_device('gpu', 0, 1)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match='no CUDA device found; use --device cpu'):
            choose_device('cuda:1', 0, 1)


@pytest.mark.parametrize('seed', ['abc', -1, 1.5, True])
def test_wrong_seeds(seed):
    with pytest.raises((TypeError, ValueError), match='seed must be a whole number of at least 0, or None, but got'):
        Instance(None).settle_seed(Context(Config({'seed': seed}), Options()))


def test_drawn_seeds_are_put_into_the_config():
    context = Context(Config({}), Options())
    Instance(None).settle_seed(context)
    assert context.cfg.seed == context.seed
    context = Context(Config({'seed': 5}), Options(seed=7))
    Instance(None).settle_seed(context)
    assert context.seed == 7


def test_a_second_run_in_a_work_dir_is_told(tmp_path):
    first = Context(Config({'work_dir': str(tmp_path)}))
    Instance(None).open_work_dir(first)
    child = os.fork()
    if child == 0:
        try:
            Instance(None).open_work_dir(Context(Config({'work_dir': str(tmp_path)})))
        except RuntimeError as error:
            (tmp_path / 'said').write_text(str(error))
        os._exit(0)
    os.waitpid(child, 0)
    assert f'{tmp_path} is in use by process {os.getpid()} on' in (tmp_path / 'said').read_text()
    first.closing.close()
    Instance(None).open_work_dir(first)
    first.closing.close()
    assert not (tmp_path / '.lock').exists()


def test_only_the_first_rank_looks_at_the_work_dir(tmp_path, monkeypatch):
    """The others would see files that it is moving."""
    (tmp_path / 'epoch_1.pth').write_text('')
    context = Context(Config({'work_dir': str(tmp_path)}), Options(if_used='refuse'))
    with pytest.raises(FileExistsError):
        Instance(None).open_work_dir(context)
    monkeypatch.setattr(instance, 'from_first_rank', lambda call: '20261121_114345')  # as on another rank
    Instance(None).open_work_dir(context)
    context.closing.close()


@pytest.mark.parametrize(
    'launcher, local_rank, error',
    [
        ('pytorch', '0', PreflightError),
        ('pytorch', '1', ToldByFirstRank),
        ('slurm', None, PreflightError),  # nobody knows which one is the first
        ('none', '1', PreflightError),
    ],
)
def test_a_wrong_config_is_told_by_the_first_process_of_a_machine(monkeypatch, launcher, local_rank, error):
    waits = []
    monkeypatch.setattr(launch.time, 'sleep', waits.append)
    if local_rank is None:
        monkeypatch.delenv('LOCAL_RANK', raising=False)
    else:
        monkeypatch.setenv('LOCAL_RANK', local_rank)
    context = Context(Config({'dist_params': {'backend': 'glo'}}), Options(launcher=launcher))
    with pytest.raises(error):
        Instance(None)(context)
    assert waits == ([launch.TELL_WITHIN] if error is ToldByFirstRank else [])


def test_no_log_of_an_earlier_start_is_overwritten(tmp_path):
    """Also by a run that starts within the same second."""
    for number, name in enumerate(('20261121_114345', '20261121_114345_2', '20261121_114345_3')):
        context = Context(Config({'work_dir': str(tmp_path)}), timestamp='20261121_114345')
        Instance(None).open_work_dir(context)
        context.logger.info('start %d', number)
        close_logger('runnerkit')
        context.closing.close()
        assert context.timestamp == name
        assert f'start {number}' in (tmp_path / f'{name}.log').read_text()


@pytest.mark.parametrize('where, parent', [('option', 'memory://bucket/exp/'), ('config', 'memory://')])
def test_a_work_dir_at_a_url_has_its_logs_on_the_disk(tmp_path, monkeypatch, where, parent):
    monkeypatch.chdir(tmp_path)
    url = f'{parent}run1/'
    cfg = Config({'checkpoint_config': {'interval': 1}, 'evaluation': {'out_dir': 'best'}, 'log_config': LOGS})
    if where == 'config':
        cfg.work_dir = url
    context = Context(cfg, Options(work_dir=url if where == 'option' else None))
    Instance(None).open_work_dir(context)
    context.closing.close()
    assert context.work_dir == tmp_path / 'work_dirs' / 'run1'
    assert cfg.work_dir == str(context.work_dir)
    parent = 'memory://' if where == 'config' else 'memory://bucket/exp'
    assert cfg.checkpoint_config.out_dir == parent
    assert cfg.evaluation.out_dir == 'best'
    assert [hook.get('out_dir') for hook in cfg.log_config.hooks] == [parent, None]


LOGS = {'hooks': [{'type': 'TextLoggerHook'}, {'type': 'TensorboardLoggerHook'}]}


def test_a_work_dir_by_a_file_url_is_a_folder(tmp_path):
    context = Context(Config({'work_dir': f'file://{tmp_path}/run'}))
    Instance(None).open_work_dir(context)
    context.closing.close()
    assert context.work_dir == tmp_path / 'run'


@pytest.mark.parametrize(
    'line, read, text',
    [
        ("seed = 'abc'", Instance.settle_seed, "but got 'abc' (cfg.py:2)"),
        ("log_level = 'LOUD'", Instance.open_work_dir, "log_level: Unknown level: 'LOUD' (cfg.py:2)"),
        ('num_threads = 0', lambda _, context: check_switches(context.cfg), 'num_threads (cfg.py:2): must be'),
        ("tf32 = 'no'", lambda _, context: check_switches(context.cfg), 'tf32 (cfg.py:2): must be'),
    ],
)
def test_an_error_names_file_and_line(line, read, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text(f'x = 1\n{line}\n')
    context = Context(Config.fromfile('cfg.py'), Options(work_dir=str(tmp_path / 'run')))
    try:
        with pytest.raises(Exception, match=re.escape(text)):
            read(Instance(None), context)
    finally:
        context.closing.close()


@pytest.mark.parametrize(
    'here, name, world_size, expected',
    [
        (None, None, 1, 'cpu'),
        ('cuda', None, 1, 'cuda:3'),
        ('cuda', None, 2, 'cuda:1'),
        ('cuda', 'cuda:5', 1, 'cuda:5'),
        ('cuda', 'cpu', 1, 'cpu'),
        ('xpu', None, 2, 'xpu:1'),
        ('mps', None, 1, 'mps'),
        ('mps', None, 2, 'cpu'),  # gloo cannot send what is there
    ],
)
def test_the_device_is_the_accelerator(monkeypatch, here, name, world_size, expected):
    monkeypatch.setattr('runnerkit.flow.stages.instance.accelerator', lambda: here)
    monkeypatch.setattr('runnerkit.flow.stages.instance.current_index', lambda kind: None if kind == 'mps' else 1)
    assert choose_device(name, 3, world_size) == torch.device(expected)


@pytest.mark.parametrize('here, name', [(None, 'xpu'), ('cuda', 'mps'), ('xpu', 'cuda')])
def test_a_device_that_is_not_here(monkeypatch, here, name):
    monkeypatch.setattr('runnerkit.flow.stages.instance.accelerator', lambda: here)
    with pytest.raises(ValueError, match=f'no {name.upper()} device found; use --device {here or "cpu"}'):
        choose_device(name, 0, 1)
