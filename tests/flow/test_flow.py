"""The stages of a run."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from runnerkit.flow import Context, Flow
from runnerkit.hooks.hook import Outcome


def test_the_default_stages_in_their_order():
    assert [type(stage).__name__ for stage in Flow().stages] == ['Instance', 'Network', 'Startup', 'Runner', 'Terminal']


def test_the_last_stage_runs_whatever_happens():
    done = []

    def fails(context):
        raise ValueError('boom')

    flow = Flow(
        [
            lambda context: done.append('first'),
            fails,
            lambda context: done.append('never'),
            lambda context: done.append('last'),
        ]
    )
    with pytest.raises(ValueError, match='boom'):
        flow(Context(None))
    assert done == ['first', 'last']


def test_the_context_is_handed_on_and_returned():
    def publish(context):
        context['score'] = 'seen'

    context = Context(None)
    assert Flow([publish, lambda context: None])(context) is context
    assert context['score'] == 'seen'


@pytest.mark.parametrize('error, kind', [(ValueError('boom'), 'failed'), (KeyboardInterrupt(), 'interrupted')])
def test_the_last_stage_learns_that_another_one_failed(error, kind):
    def fails(context):
        raise error

    def runs(context):
        context.outcome = Outcome('completed')

    for stages in ([fails], [runs, fails]):
        learnt = []
        with pytest.raises(type(error)):
            Flow([*stages, lambda context: learnt.append(context.outcome)])(Context(None))
        assert learnt == [Outcome(kind, error=error)]


def test_the_last_stage_learns_what_the_run_says_of_its_own_end():
    """A run that Ctrl-C has stopped raises KeyboardInterrupt when it is saved."""
    learnt = []

    def runs(context):
        context.outcome = Outcome('stopped', 'SIGINT')
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Flow([runs, lambda context: learnt.append(context.outcome)])(Context(None))
    assert learnt == [Outcome('stopped', 'SIGINT')]


def test_only_one_thread_runs_at_a_time():
    """Both would draw from the same generators: neither could be repeated."""

    def nothing(context):
        pass

    with ThreadPoolExecutor(1) as other:

        def meets_another(context):
            Flow([nothing])(Context(None))  # inside this run
            with pytest.raises(RuntimeError, match='another thread of this process is training'):
                other.submit(Flow([nothing]), Context(None)).result()

        Flow([meets_another, nothing])(Context(None))
        with pytest.raises(ZeroDivisionError):
            other.submit(Flow([lambda context: 1 / 0, nothing]), Context(None)).result()
        Flow([nothing])(Context(None))
