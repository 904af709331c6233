"""Records of trials under Vega's names."""

from __future__ import annotations

from typing import Any

from runnerkit.config import ConfigDict
from runnerkit.config.config_dict import as_config
from runnerkit.search.record import Record


class ReportRecord(Record):
    """A record under Vega's names.

    Args:
        step_name: the step.
        worker_id: the number of the trial there.
        **more: other attributes of a `Record`.
    """

    def __init__(self, step_name: str = '', worker_id: int = 0, **more: Any) -> None:
        super().__init__(step_name, worker_id, **more)

    @classmethod
    def of(cls, record: Record) -> ReportRecord:
        """``record`` itself under these names: what is changed in one of both has changed in the other one."""
        found = cls.__new__(cls)
        found.__dict__ = record.__dict__
        return found

    @property
    def step_name(self) -> str:
        """The step."""
        return self.step

    @property
    def worker_id(self) -> int:
        """The number of the trial in its step."""
        return self.number

    def serialize(self) -> ConfigDict:
        """All of it as a dict whose items are also attributes. ``rewards`` is a list, also of one objective."""
        rules = {name: rule.upper() for name, rule in self.objectives.items()}
        names = {'step_name': self.step, 'worker_id': self.number, 'uid': self.uid, 'rewards': self.rewards}
        found: ConfigDict = as_config({**self.as_dict(), **names, 'objectives': rules})
        return found

    @staticmethod
    def parsed(content: Any) -> Record:
        """The record of which `serialize` gave ``content``; a record is returned unchanged."""
        if isinstance(content, Record):
            return content
        rules = {name: rule.lower() for name, rule in content['objectives'].items()}
        return Record.from_dict({**content, 'objectives': rules})
