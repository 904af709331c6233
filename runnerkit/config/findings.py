"""What a look at a config or at a run before it starts has found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One problem that is reported before a run starts.

    Attributes:
        level: `'error'`: the run cannot be what was meant, and does not start; `'warning'`: it starts.
        key: The config's key, with dots: `data.train.type`; empty where it is about none.
        where: `file:line` of that key; empty where that is not known.
        what: What will happen.
        way_out: What to write instead, or what to do.
    """

    level: Literal['error', 'warning']
    key: str
    where: str
    what: str
    way_out: str

    def __str__(self) -> str:
        place = ' '.join(part for part in (self.key, f'({self.where})' if self.where else '') if part)
        first = f'{place}: {self.what}' if place else self.what
        return f'{first}\n  {self.way_out}' if self.way_out else first


class PreflightError(ValueError):
    """A run cannot do what its config says, and does not start.

    Attributes:
        findings: The errors, all of them.
    """

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        count = f'{len(self.findings)} errors' if len(self.findings) > 1 else 'an error'
        super().__init__(f'the run does not start, because of {count}:\n{listed(self.findings)}')


def listed(findings: Iterable[Finding]) -> str:
    """``findings`` as a text, each a bullet of one or two lines."""
    return '\n'.join('- ' + str(each).replace('\n', '\n  ') for each in findings)


def without_errors(findings: Iterable[Finding]) -> list[Finding]:
    """The warnings among ``findings``.

    Raises:
        PreflightError: There are errors among them.
    """
    found = list(findings)
    errors = [each for each in found if each.level == 'error']
    if errors:
        raise PreflightError(errors)
    return found
