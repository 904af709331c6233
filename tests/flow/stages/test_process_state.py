"""What a run changes for its whole process is put back."""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from support import weights

from runnerkit.config import Config
from runnerkit.flow import Flow, Options, StartupBase
from runnerkit.hooks import Hook
from runnerkit.utils.logging import ConsoleHandler, close_logger, get_logger, logger_initialized


def state():
    """All that two runs in one process could affect each other by, but for the states of random generators and what
    torch does once in a process (its handler for workers that die, what its imports set)."""
    logger, root = logging.getLogger('runnerkit'), logging.getLogger()
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        'cudnn': (cudnn.enabled, cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32),
        'matmul': (matmul.allow_tf32, torch.get_float32_matmul_precision()),
        'algorithms': torch.get_deterministic_debug_mode(),
        'threads of torch': (torch.get_num_threads(), torch.get_num_interop_threads()),
        'defaults of torch': (torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()),
        'generators': (id(np.random.get_bit_generator()), id(torch.default_generator)),
        'logger': (logger.level, logger.propagate, list(logger.handlers), [each.level for each in logger.handlers]),
        'root logger': [(handler, handler.level, list(handler.filters)) for handler in root.handlers],
        'loggers': dict(logger_initialized),
        'signals': {number: signal.getsignal(number) for number in signal.valid_signals() - {signal.SIGCHLD}},
        'environment': {**os.environ, 'TORCHINDUCTOR_CACHE_DIR': None},
        'imports': (list(sys.path), list(sys.meta_path), list(sys.path_hooks)),
        'start method': multiprocessing.get_start_method(),
        'warnings': [each for each in warnings.filters if not each[2].__module__.startswith('sympy')],
        'hooks of Python': (sys.excepthook, sys.unraisablehook, threading.excepthook, sys.stdout, sys.stderr),
        'threads': {thread for thread in threading.enumerate() if 'pin_memory' not in thread.name},
        'folder': os.getcwd(),
        'plots': sys.modules['matplotlib'].get_backend() if 'matplotlib' in sys.modules else None,
    }


def flow(work_dir, seed, **changes):
    """A small run; its weights."""
    options = changes.pop('options', {})
    cfg = {
        'model': {'type': 'support.Tiny'},
        'data': {
            'samples_per_gpu': 4,
            'workers_per_gpu': 1,
            'train': {'type': 'support.Noisy', 'length': 12},
            'val': {'type': 'support.Noisy', 'length': 8},
        },
        'optimizer': {'type': 'SGD', 'lr': 0.1},
        'optimizer_config': {},
        'lr_config': {'policy': 'step', 'step': [1]},
        'log_config': {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}]},
        'checkpoint_config': {},
        'evaluation': {},
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 2},
        **changes,
    }
    options = Options(work_dir=str(work_dir), seed=seed, device='cpu', **options)
    return weights(Flow(Config(cfg), options).run().runner.model)


SWITCHED = {'cudnn_benchmark': True, 'tf32': True, 'log_level': 'WARNING'}


class Fails(StartupBase):
    def startup(self, context):
        raise ZeroDivisionError


@pytest.fixture
def root_console():
    """A console on the root logger, as scripts have it."""
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)


def test_a_flow_leaves_nothing_behind_and_the_next_one_has_the_bits_of_a_fresh_process(tmp_path, root_console):
    child = os.fork()
    if child == 0:
        torch.save(flow(tmp_path / 'fresh', 7), tmp_path / 'fresh.pth')
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for switched in (SWITCHED, {**SWITCHED, 'options': {'deterministic': True}}):
        before = state()
        flow(tmp_path / 'first', 3, **switched)
        assert state() == before
    assert torch.equal(flow(tmp_path / 'second', 7), torch.load(tmp_path / 'fresh.pth'))


def test_a_console_that_was_there_before_shows_details_again(tmp_path):
    close_logger('runnerkit')  # of tests before this one
    logger = get_logger('runnerkit')
    try:
        (console,) = (handler for handler in logger.handlers if isinstance(handler, ConsoleHandler))
        Look.seen.clear()
        flow(tmp_path, 3, custom_hooks=[{'type': Look}])
        assert Look.seen == [False]
        assert console.verbose is True
    finally:
        close_logger('runnerkit')


class Look(Hook):
    seen = []

    def before_run(self, runner):
        self.seen += [each.verbose for each in runner.logger.handlers if isinstance(each, ConsoleHandler)]


def test_a_failed_flow_leaves_nothing_behind(tmp_path):
    before = state()
    with pytest.raises(ZeroDivisionError):
        Flow(Config(BROKEN), Options(work_dir=str(tmp_path), device='cpu'), stages={'startup': Fails}).run()
    assert state() == before


BROKEN = {
    'model': {'type': 'support.Tiny'},
    'data': {'train': {'type': 'support.Noisy'}},
    'optimizer': {'type': 'SGD', 'lr': 0.1},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 2},
    'seed': 5,
    'deterministic': True,
}
