"""What every executor offers, and trials in this process."""

from studies import config_file

from runnerkit.search.executors import EXECUTORS, Executor, SerialExecutor
from runnerkit.search.job import Job


def test_names():
    assert {'Serial', 'Local'} <= set(EXECUTORS.module_dict)


def test_the_base_is_a_context_that_may_be_asked_to_stop():
    class Nothing(Executor):
        running = 0

        def start(self, job, report):
            pass

        def wait(self, seconds):
            return []

    with Nothing() as executor:
        assert executor.stop() is None
        assert executor.slots == 1


def job(folder):
    return Job(0, str(config_file(folder)), {}, str(folder / 'run'), 3, {'error': 'min'})


def test_it_runs_at_once_and_prints_to_a_file(tmp_path, capsys):
    executor = SerialExecutor()
    executor.start(job(tmp_path), lambda step, scores: False)
    assert executor.running == 1
    ((_, result),) = executor.wait(1.0)
    assert result.status == 'completed'
    assert executor.running == 0
    assert executor.wait(1.0) == []
    assert 'Run completed' in (tmp_path / 'output.log').read_text()
    assert capsys.readouterr().err == ''


def test_it_may_print_here(tmp_path, capsys):
    executor = SerialExecutor(quiet=False)
    executor.start(job(tmp_path), lambda step, scores: False)
    assert executor.wait(1.0)[0].result.status == 'completed'
    assert 'Run completed' in capsys.readouterr().err
    assert not (tmp_path / 'output.log').exists()
