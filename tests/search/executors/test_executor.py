"""What every executor offers."""

from runnerkit.search.executors import EXECUTORS, Executor


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
