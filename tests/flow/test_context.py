"""What stages pass on to each other."""

import pytest

from runnerkit.flow import Context, Options


def test_a_misspelt_field_is_refused_with_the_nearest_one():
    context = Context(None)
    with pytest.raises(
        AttributeError, match=r"no attribute 'modle'; set .* context\['modle'\] = …; did you mean 'model'\?"
    ):
        context.modle = 3
    with pytest.raises(AttributeError, match=r"no attribute 'zebra'; set your own values as items"):
        context.zebra = 3
    with pytest.raises(AttributeError):
        Options().sead = 3
    context.model = 3
    assert context.model == 3


def test_items_are_the_users_own():
    context = Context(None)
    context['teacher'] = 'net'
    assert context['teacher'] == 'net'
    assert 'teacher' in context
    assert 'model' not in context
    with pytest.raises(KeyError, match="no stage has set context\\['techer'\\]; did you mean 'teacher'"):
        context['techer']
