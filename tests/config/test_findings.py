"""What a check finds, and how it is said."""

import pytest

from runnerkit.config.origin import Finding, PreflightError, listed, without_errors

WARNING = Finding('warning', 'evaluation.interval', 'cfg.py:7', 'no evaluation takes place', 'Let it be at most 3.')
ERROR = Finding('error', '', '', 'all 4 parameters are frozen', '')


def test_one_finding_is_one_or_two_lines():
    assert str(WARNING) == 'evaluation.interval (cfg.py:7): no evaluation takes place\n  Let it be at most 3.'
    assert str(ERROR) == 'all 4 parameters are frozen'
    assert listed([ERROR, WARNING]).splitlines() == [
        '- all 4 parameters are frozen',
        '- evaluation.interval (cfg.py:7): no evaluation takes place',
        '    Let it be at most 3.',
    ]


def test_all_errors_are_raised_together():
    assert without_errors([WARNING]) == [WARNING]
    other = Finding('error', 'workflow', '', 'empty', '')
    with pytest.raises(PreflightError, match=r'because of 2 errors:\n- all 4 .*\n- workflow: empty$') as raised:
        without_errors([ERROR, WARNING, other])
    assert raised.value.findings == (ERROR, other)
