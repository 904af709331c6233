"""ClearML: what its client is called with, and what the real one keeps without a server."""

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import call

import pytest

from runnerkit.hooks.logger import ClearMLLoggerHook


def test_calls(fake, train):
    clearml = fake('clearml')
    hook = ClearMLLoggerHook({'project_name': 'p'}, interval=2)
    train(hook, epochs=1)
    clearml.Task.init.assert_called_once_with(project_name='p')
    assert hook.task is clearml.Task.init.return_value
    assert hook.task_logger.report_scalar.mock_calls == [
        call('train/loss', 'train/loss', 1.5, 2),
        call('learning_rate', 'learning_rate', 0.1, 2),
        call('momentum', 'momentum', 0.9, 2),
        call('val/acc', 'val/acc', 0.25, 4),
        call('learning_rate', 'learning_rate', 0.1, 4),
        call('momentum', 'momentum', 0.9, 4),
    ]
    hook.task.close.assert_not_called()  # the task was there before


def test_a_task_of_its_own_is_closed_and_goes_on_after_a_resume(fake, train):
    clearml = fake('clearml')
    clearml.Task.current_task.return_value = None
    clearml.Task.init.return_value.id = 'task'
    train(ClearMLLoggerHook(), epochs=1)
    hook = ClearMLLoggerHook()
    hook.import_clearml()
    hook.clearml.Task.init.return_value.set_initial_iteration.assert_not_called()
    train(hook, resume='epoch_1.pth')
    assert clearml.Task.init.mock_calls[-1] is not None
    assert clearml.Task.init.call_args == call(continue_last_task='task')
    hook.task.set_initial_iteration.assert_called_once_with(0)
    assert hook.task.close.call_count == 2
    hook.task.mark_failed.assert_not_called()


def test_a_failed_run_is_one_there_too(fake, train, fail):
    clearml = fake('clearml')
    clearml.Task.current_task.return_value = None
    hook = ClearMLLoggerHook()
    with pytest.raises(ArithmeticError):
        train(hook, [fail])
    hook.task.mark_failed.assert_called_once_with(status_reason="failed: ArithmeticError('diverged')")
    hook.task.close.assert_called_once_with()


SCRIPT = """
from clearml import Task
from support import Tiny, loader, tiny_runner
from runnerkit.hooks.logger import ClearMLLoggerHook

Task.set_offline(True)
quiet = dict.fromkeys(
    ['auto_connect_frameworks', 'auto_resource_monitoring', 'auto_connect_streams', 'auto_connect_arg_parser'], False
)
hook = ClearMLLoggerHook({'project_name': 'p', 'task_name': 't', **quiet}, interval=2)
runner = tiny_runner(work_dir='exp', max_epochs=1)
runner.register_hook(hook)
runner.run([loader(16)], [('train', 1)])
assert Task.current_task() is None
"""


def test_the_real_client(tmp_path):
    """In a process of its own: it starts others, and waits ten seconds at the end of each task."""
    pytest.importorskip('clearml')
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    environment = {**os.environ, 'HOME': str(tmp_path), 'PYTHONPATH': path}
    subprocess.run([sys.executable, '-c', SCRIPT], cwd=tmp_path, env=environment, check=True, timeout=300)
    (written,) = tmp_path.glob('.clearml/cache/offline/*/metrics.jsonl')
    text = written.read_text()
    assert '"metric": "train/loss"' in text
    assert '"iter": 4' in text
