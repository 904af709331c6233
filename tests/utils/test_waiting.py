"""Whoever waits for data asks the run around it whether to go on."""

from runnerkit.utils.waiting import WaitEnded, pulse, waiting_scope


def test_a_pulse_reaches_the_innermost_run():
    assert pulse() is False  # no run
    heard = []

    def outer():
        heard.append('outer')
        return True

    with waiting_scope(outer):
        assert pulse() is True
        with waiting_scope(lambda: False):
            assert pulse() is False
        pulse()
    assert heard == ['outer', 'outer']
    assert pulse() is False


def test_the_end_of_a_wait_says_why():
    assert WaitEnded().reason is None
    assert 'asked to end' in str(WaitEnded())
    assert WaitEnded('the stream has ended').reason == str(WaitEnded('the stream has ended'))
