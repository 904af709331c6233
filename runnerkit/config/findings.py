"""What a look at a config or at a run before it starts has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that a user should hear before a run starts.

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
