"""Vega's names around a search: the report of the running pipeline, and the generator of a search's proposals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runnerkit.search.algorithm import SearchAlgorithm, as_proposal
from runnerkit.search.record import RUNNING, Record
from runnerkit.search.report import CURRENT, Report


def current_report() -> Report:
    """The report of the pipeline that is running.

    Raises:
        RuntimeError: none is running.
    """
    found = CURRENT.get()
    if found is None:
        raise RuntimeError(
            'no pipeline is running here, so there is no report: ask the Report that Pipeline.run returns'
        )
    return found


class ReportServer:
    """The report of the running pipeline; see `Report`."""

    @property
    def all_records(self) -> list[Record]:
        """The records of all steps."""
        return current_report().all_records

    def pareto_front(
        self, step_name: str | None = None, nums: int | None = None, records: Iterable[Record] | None = None
    ) -> list[Record]:
        """The completed trials that no other one beats; see `Report.pareto_front`."""
        return current_report().pareto_front(step_name, nums, records)

    @classmethod
    def close(cls, step_name: str, worker_id: int) -> None:
        """Forget a record that still runs.

        Raises:
            KeyError: there is no such record.
        """
        report = current_report()
        if report.get(step_name, worker_id).status == RUNNING:
            report.forget(step_name, worker_id)


class ReportClient:
    """One record of the running pipeline at a time."""

    @classmethod
    def get_record(cls, step_name: str, worker_id: int) -> Record:
        """The record of a trial.

        Raises:
            KeyError: there is none.
        """
        return current_report().get(step_name, worker_id)

    @classmethod
    def update(cls, record: Record) -> None:
        """Take in a record, or what has become of it."""
        current_report().update(record)


class Generator:
    """Asks a search algorithm what to try, and tells it what came of it.

    Args:
        search_alg: the algorithm.
    """

    def __init__(self, search_alg: SearchAlgorithm) -> None:
        self.search_alg, self._next = search_alg, 0

    @property
    def is_completed(self) -> bool:
        """Whether the search is over."""
        return self.search_alg.is_completed

    def sample(self) -> tuple[int, Any] | None:
        """A number, and the description of a network, or the values if none is searched. None: nothing yet."""
        found = self.search_alg.search()
        if found is None:
            return None
        proposal, self._next = as_proposal(found), self._next + 1
        return self._next - 1, proposal.hps if proposal.desc is None else proposal.desc

    def update(self, step_name: str, worker_id: int) -> None:
        """Tell the algorithm of a trial that has ended."""
        self.search_alg.update(ReportClient.get_record(step_name, worker_id))
