"""What stages have in common."""

import pytest

from runnerkit.flow import STAGES, InstanceBase, NetworkBase, RunnerBase, Stage, StartupBase, TerminalBase


def test_the_default_stages_have_names():
    assert {'Instance', 'Network', 'Startup', 'Runner', 'Terminal'} < set(STAGES.module_dict)


def test_all_bases_are_stages():
    for base in (InstanceBase, NetworkBase, StartupBase, RunnerBase, TerminalBase):
        assert issubclass(base, Stage)
    with pytest.raises(NotImplementedError):
        Stage(None)(None)
