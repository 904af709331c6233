"""The commands that control a run from another process; torch is not imported."""

from __future__ import annotations

from runnerkit.utils.exceptions import WrongValue
from runnerkit.utils.suggest import did_you_mean

#: The commands, and what they do.
COMMANDS = {
    'status': 'show the state of the run',
    'start': 'begin a run that waits for it',
    'pause': 'wait after the running iteration',
    'resume': 'continue after a pause',
    'save': 'save a checkpoint after the running iteration',
    'stop': 'end the run after the running iteration',
}


def check_command(command: str) -> None:
    """Refuse what is no command."""
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS)
        raise WrongValue(f'unknown command {command!r} ({", ".join(COMMANDS)}); {hint}'.rstrip('; '))
