"""Trials on a Ray cluster: of one machine, or of many."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from runnerkit.search.blame import is_machine_error
from runnerkit.search.executors.executor import EXECUTORS, Ended, Executor
from runnerkit.search.executors.local import LocalExecutor
from runnerkit.search.job import Job, Report, Result
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.logging import get_logger
from runnerkit.utils.numbers import check_whole_number

_POLL = 0.25  # seconds between two looks at what has come
_ANSWER = 60.0  # seconds in which the cluster must answer
_CONNECT = 5.0  # seconds in which its address must
_GRACE = 15.0  # seconds that a cancelled trial has to end its process


@dataclass
class _Task:
    job: Job
    report: Report
    attempt: int
    task: Any


@EXECUTORS.register_module('Ray')
class RayExecutor(Executor):
    """Runs each job as a task of Ray, in a process that the task starts, as `LocalExecutor` does.

    All machines must see the config file and the work dir by the same paths, and have runnerkit. A task that is lost
    with its machine, or with Ray's own process, is started again and continues from its checkpoint. A trial that fails
    by itself is not.

    Args:
        address: of the cluster: ``'host:6379'``, ``'ray://host:10001'``, or ``'auto'`` for the one of this machine;
            None: one is started on this machine, and ended with the study.
        cpus: CPUs of a trial, as Ray counts them.
        gpus: GPUs of a trial; parts of one are allowed. Each trial sees only its own.
        retries: how often a trial is started again that was lost.
        workers: how many trials run at once; None: as many as the cluster has room for.
        limit: seconds after which a trial is ended as failed, from when its task begins; None: never.
    """

    def __init__(
        self,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        retries: int = 1,
        workers: int | None = None,
        limit: float | None = None,
    ) -> None:
        if address is not None and (not isinstance(address, str) or not address):
            raise WrongType(f"address must be a text such as 'host:6379', or None, but got {address!r}")
        for name, value in (('cpus', cpus), ('gpus', gpus)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
                raise WrongType(f'{name} must be a number of at least 0, but got {value!r}')
        check_whole_number('retries', retries, at_least=0)
        check_whole_number('workers', workers, or_none=True)
        LocalExecutor(1, limit=limit)  # refuses a wrong limit
        self.address, self.cpus, self.gpus = address, cpus, gpus
        self.retries, self.workers, self.limit = retries, workers, limit
        self.slots = workers or 1
        self._running: list[_Task] = []
        self._ray: Any = None
        self._is_ours, self._is_stopping = False, False

    def __enter__(self) -> Executor:
        """Connect to the cluster, or start one.

        Raises:
            ImportError: Ray is not installed.
            ConnectionError: there is no cluster at the address.
            ValueError: it has no room for a single trial.
        """
        self._ray = ray = import_ray()
        if not ray.is_initialized():
            self._connect()
        try:
            self.slots = self.workers or self._room()
            options = {'num_cpus': 0, 'max_restarts': 0}
            self._mailbox = ray.remote(Mailbox).options(**options).remote()
            self._task = ray.remote(run_here).options(
                num_cpus=self.cpus,
                num_gpus=self.gpus,
                max_retries=0,
                runtime_env={'env_vars': {'PYTHONPATH': os.pathsep.join(path or os.getcwd() for path in sys.path)}},
            )
        except BaseException:
            self._disconnect()
            raise
        return self

    @property
    def running(self) -> int:
        """How many tasks there are."""
        return len(self._running)

    def start(self, job: Job, report: Report) -> None:
        """Hand a task to the cluster."""
        self._running.append(_Task(job, report, 0, self._submit(job, 0)))

    def wait(self, seconds: float) -> list[Ended]:
        """Answer the trials that report; those that have ended."""
        until = time.monotonic() + seconds
        ended: list[Ended] = []
        while not ended and self._running:
            left = until - time.monotonic()
            said = self._get(self._mailbox.take.remote(max(0.0, min(left, _POLL))))
            for key, step, scores in said:
                self._answer(key, step, scores)
            tasks = [each.task for each in self._running]
            done, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
            ended = [found for each in list(self._running) if each.task in done and (found := self._end(each))]
            if left <= 0:
                break
        return ended

    def stop(self) -> None:
        """Let the trials save and end; those that have not begun do not begin."""
        self._is_stopping = True
        self._get(self._mailbox.stop.remote())

    def __exit__(self, *error: object) -> None:
        tasks = [each.task for each in self._running]
        self._running.clear()
        try:
            # A task that is cancelled ends its trial's processes on the way; one that does not, is killed.
            for force in (False, True):
                for task in tasks:
                    self._ray.cancel(task, force=force)
                _, tasks = self._ray.wait(tasks, num_returns=len(tasks), timeout=_GRACE) if tasks else ([], [])
            self._ray.kill(self._mailbox)
        finally:
            self._disconnect()

    # --- tasks -------------------------------------------------------------------------------------------------------

    def _submit(self, job: Job, attempt: int) -> Any:
        return self._task.remote(asdict(job), attempt, self._mailbox, self.limit)

    def _answer(self, key: str, step: int, scores: dict[str, float]) -> None:
        # A report of a task that was lost is not the study's business: the next one reports again.
        each = next((each for each in self._running if key_of(each.job, each.attempt) == key), None)
        prune = each is not None and each.report(step, scores)
        self._get(self._mailbox.answer.remote(key, prune))

    def _end(self, each: _Task) -> Ended | None:
        """How a task has ended; None if it is started again."""
        errors = self._ray.exceptions
        try:
            result = Result(**self._ray.get(each.task, timeout=_ANSWER))
        except errors.RayTaskError as error:
            cause = error.cause
            message = f'{type(cause).__name__}: {cause}'
            result = Result('failed', message=message, is_of_machine=is_machine_error(cause))
        except errors.RayError as error:
            why = f'its Ray task was lost ({type(error).__name__})'
            if self._is_stopping:
                result = Result('stopped', message=why)
            elif each.attempt < self.retries:
                each.attempt += 1
                get_logger('runnerkit').warning(
                    'Trial %d: %s; it is started again, %d of %d', each.job.number, why, each.attempt, self.retries
                )
                each.job = Job(**{**asdict(each.job), 'again': True})
                each.task = self._submit(each.job, each.attempt)
                return None
            else:
                times = f' {each.attempt + 1} times' if each.attempt else ''
                result = Result('failed', message=f'{why}{times}: {str(error).strip().splitlines()[0]}')
        self._running.remove(each)
        return Ended(each.job, result)

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference, timeout=_ANSWER)
        except self._ray.exceptions.GetTimeoutError:
            raise ConnectionError(f'the Ray cluster has not answered for {_ANSWER:g} s') from None
        except self._ray.exceptions.RayActorError as error:
            raise ConnectionError(f"the Ray cluster has lost the study's mailbox: {error}") from None

    # --- the cluster -------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        options: dict[str, Any] = {'log_to_driver': False, 'logging_level': 'ERROR'}
        if self.address is None:
            # 'local' also where RAY_ADDRESS names a cluster.
            options |= {'address': 'local', 'include_dashboard': False}
            if self.workers is not None:
                options['num_cpus'] = max(1, round(self.workers * self.cpus + 0.499))
        else:
            if self.address != 'auto':
                check_address(self.address)
            options['address'] = self.address
        os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self._ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConnectionError(
                f'there is no Ray cluster at address={self.address!r} ({error}): start one with `ray start --head`, or '
                'leave out address'
            ) from None
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, handler)  # Ray has set its own, which ends the process
        self._is_ours = True

    def _disconnect(self) -> None:
        if self._is_ours:
            self._ray.shutdown()
            self._is_ours = False

    def _room(self) -> int:
        """How many trials the machines of the cluster can run at once."""
        nodes = [node['Resources'] for node in self._ray.nodes() if node['Alive']]
        wanted = [(kind, value) for kind, value in (('CPU', self.cpus), ('GPU', self.gpus)) if value]
        found = sum(int(min((node.get(kind, 0) / value for kind, value in wanted), default=1)) for node in nodes)
        if found:
            return found
        there = '; '.join(f'{node.get("CPU", 0):g} CPUs and {node.get("GPU", 0):g} GPUs' for node in nodes)
        raise WrongValue(
            f'no machine of the Ray cluster has room for a trial with cpus={self.cpus:g} and gpus={self.gpus:g} (there '
            f'are {there or "none"})'
        )


class Mailbox:
    """An actor between the study and its trials: they leave their scores and wait for the answers. All messages are
    plain values that JSON knows."""

    def __init__(self) -> None:
        self._said: deque[tuple[str, int, dict[str, float]]] = deque()
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._came, self._stopping = asyncio.Event(), asyncio.Event()

    async def ask(self, key: str, step: int, scores: dict[str, float]) -> bool:
        """A trial's scores after ``step``; whether it is pruned."""
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._said.append((key, step, scores))
        self._came.set()
        return await answer

    async def take(self, seconds: float) -> list[tuple[str, int, dict[str, float]]]:
        """What the trials have said since the last call; waits so long for the first one."""
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except asyncio.TimeoutError:
            return []
        self._came.clear()
        said = list(self._said)
        self._said.clear()
        return said

    async def answer(self, key: str, prune: bool) -> None:
        """Answer the last report of a trial."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(prune)

    async def stop(self) -> None:
        """Let all trials save and end."""
        self._stopping.set()

    async def stopping(self) -> bool:
        """Returns when they are to."""
        return await self._stopping.wait()


def run_here(described: dict[str, Any], attempt: int, mailbox: Any, limit: float | None) -> dict[str, Any]:
    """The task: run a job in a child process, which sees the same GPUs."""
    import ray

    job = Job(**described)
    key, stopping = key_of(job, attempt), mailbox.stopping.remote()

    def report(step: int, scores: dict[str, float]) -> bool:
        return bool(ray.get(mailbox.ask.remote(key, step, scores)))

    with LocalExecutor(1, limit=limit) as executor:
        executor.start(job, report)
        while not (ended := executor.wait(1.0)):
            if stopping is not None and ray.wait([stopping], timeout=0)[0]:
                executor.stop()
                stopping = None
    return asdict(ended[0].result)


def key_of(job: Job, attempt: int) -> str:
    """The name of a task in the mailbox."""
    return f'{job.number}.{attempt}'


def check_address(address: str) -> None:
    """Refuse the address of a cluster that does not answer; Ray itself would wait for minutes."""
    host, _, port = address.rpartition('://')[2].rpartition(':')
    if not host or not port.isdigit():
        raise WrongValue(f"address must be such as 'host:6379' or 'ray://host:10001', but got {address!r}")
    try:
        socket.create_connection((host.strip('[]'), int(port)), _CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(
            f'there is no Ray cluster at address={address!r} ({error}): start one with `ray start --head`, or leave '
            'out address'
        ) from None


def import_ray() -> Any:
    """The package ray."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(f'the executor Ray needs ray: pip install ray ({error})') from error
    return ray
