"""Vega's names around a search: the report of the running pipeline, and the generator of a search's proposals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runnerkit.compat.vega.algorithms import SearchAlgorithm
from runnerkit.compat.vega.current import running_pipeline
from runnerkit.compat.vega.networks import SearchSpace
from runnerkit.compat.vega.record import ReportRecord
from runnerkit.search import algorithm as core
from runnerkit.search.algorithm import as_proposal
from runnerkit.search.record import RUNNING, Record


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


class Generator:
    """Asks a search algorithm what to try, and passes it the results.

    Args:
        search_alg: the algorithm; None: that of the running step.

    Attributes:
        search_space: that of the running step, if the algorithm is.
    """

    search_space: SearchSpace | None = None

    def __init__(self, search_alg: core.SearchAlgorithm | None = None) -> None:
        if search_alg is None:
            self.search_space = SearchSpace()
            search_alg = SearchAlgorithm(self.search_space.search_space)
        self.search_alg: core.SearchAlgorithm = search_alg
        self._next = 0

    @property
    def is_completed(self) -> bool:
        """Whether the search is over."""
        return self.search_alg.is_completed

    def sample(self) -> tuple[Any, Any] | None:
        """A number, and the description of a network, or the values if none is searched. None: nothing yet."""
        found: Any = self.search_alg.search()
        if found is None or isinstance(found, tuple):
            return found
        proposal, self._next = as_proposal(found), self._next + 1
        return self._next - 1, proposal.hps if proposal.desc is None else proposal.desc

    def update(self, step_name: str, worker_id: int) -> None:
        """Pass the algorithm a trial that has ended."""
        record: Any = ReportClient.get_record(step_name, worker_id)
        self.search_alg.update(record.serialize() if isinstance(self.search_alg, SearchAlgorithm) else record)
