"""The stages of a run."""

import pytest

from runnerkit.flow import Context, Flow


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
        context.outcome = 'seen'

    context = Context(None)
    assert Flow([publish, lambda context: None])(context) is context
    assert context.outcome == 'seen'
