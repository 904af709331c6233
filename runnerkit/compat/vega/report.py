"""Records under Vega's names, and the report of the running pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runnerkit.compat.vega.current import running_pipeline
from runnerkit.config import ConfigDict
from runnerkit.config.config_dict import as_config
from runnerkit.search.record import RUNNING, Record


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


class ReportServer:
    """The report of the running pipeline; see `runnerkit.search.report.Report`."""

    @property
    def all_records(self) -> list[ReportRecord]:
        """The records of all steps."""
        return [*map(ReportRecord.of, running_pipeline().report.all_records)]

    def pareto_front(
        self, step_name: str | None = None, nums: int | None = None, records: Iterable[Record] | None = None
    ) -> list[ReportRecord]:
        """The completed trials that no other one beats; see `runnerkit.search.report.Report.pareto_front`."""
        return [*map(ReportRecord.of, running_pipeline().report.pareto_front(step_name, nums, records))]

    def output_pareto_front(self, step_name: str) -> None:
        """Write the records of a step to its folder, as `SearchPipeStep` does after every change."""
        pipeline = running_pipeline()
        pipeline.report.save(pipeline.work_dir / step_name, step_name)

    @classmethod
    def close(cls, step_name: str, worker_id: int) -> None:
        """Forget a record that still runs.

        Raises:
            KeyError: there is no such record.
        """
        report = running_pipeline().report
        if report.get(step_name, worker_id).status == RUNNING:
            report.forget(step_name, worker_id)


class ReportClient:
    """One record of the running pipeline at a time."""

    @classmethod
    def get_record(cls, step_name: str, worker_id: int) -> ReportRecord:
        """The record of a trial.

        Raises:
            KeyError: there is none.
        """
        return ReportRecord.of(running_pipeline().report.get(step_name, worker_id))

    @classmethod
    def update(cls, record: Record) -> None:
        """Take in a record, or what has become of it."""
        running_pipeline().report.update(record)
