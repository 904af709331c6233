"""Ends the ranks of a run when one of them dies, hangs or raises an error, and says which one it was, and where.

Every rank has a thread that looks twice a second at the process group's store. A rank that fails leaves its traceback
there. A rank that has died is missed by the others on its machine. A rank that hangs is found by rank 0, when itself
has not moved for long: all ranks then show their stacks. A process that is stopped, or whose machine has gone, is
found by its silence.

A second thread ends the process in time. It waits for nothing that another process could keep it waiting for.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from torch import distributed as dist
from torch.distributed import distributed_c10d

from runnerkit.distributed.collectives import all_gather_objects
from runnerkit.distributed.info import get_dist_info, ranks_in_words
from runnerkit.utils.ending import END_WITHIN, end_after, end_not, exit_limited, limit_exit, stderr
from runnerkit.utils.exceptions import PeerFailed, ToldByFirstRank
from runnerkit.utils.processes import is_alive, process_state, start_of

#: Seconds without an iteration after which a run is ended, as one that hangs.
HANG_AFTER = 600.0

_BEAT = 0.5  # seconds between two looks at the store
_ANSWER = 4 * _BEAT  # seconds for a rank to learn or to report who has failed
_ALL_ANSWER = 10.0  # seconds for all ranks to show their stacks
_DEPTH = 12  # how many of its innermost frames a rank shows

#: Files whose functions wait for the other ranks, and those that do where they call C++.
_WAITS = (
    os.path.join('torch', 'distributed', ''),
    os.path.join('runnerkit', 'distributed', ''),
)
_WAITS_IN_CPP = (os.path.join('torch', 'autograd', ''), os.path.join('torch', 'nn', 'parallel', 'distributed.py'))

#: What torch's backends say when they have lost another rank.
_LOST = ('gloo', 'NCCL', 'Connection closed by peer', 'Connection reset by peer', 'Broken pipe')


_ENDED = '\nThe run is ended (dist_params.hang_after={:g})'
_STORE = 'the store of the ranks, which rank 0 or torchrun keeps,'

#: Why a rank may have died without an error of Python's.
DIED = (
    "its stderr and its exit code in the launcher's summary say why. -9: it was killed, often for its memory. -6: it "
    'was aborted, by gloo if the ranks called different collectives, or the same one with tensors of different sizes. '
    '-11: it crashed. Other codes: it called os._exit'
)

#: The watch of the run that this process is in.
_running: Watch | None = None


def failed_rank(patience: float = 0.0) -> PeerFailed | None:
    """What the running `Watch` knows of another rank that has failed; may be called from any thread.

    Args:
        patience: seconds that it gets to find out, if there is one.
    """
    if _running is None:
        return None
    _running._await_note(patience)
    note = _running._note
    return None if note is None or note['rank'] == _running._rank else PeerFailed(note['text'])


def is_watched() -> bool:
    """Whether a `Watch` is running, which ends this process should it be stuck."""
    return _running is not None


class Watch:
    """Watches the ranks of a run, as a context; an error that leaves it is sent to the other ranks.

    All ranks enter it together.

    Args:
        logger: on rank 0, what has happened is logged there.
        heartbeat: changes whenever the run moves; its first item is how many iterations have been done. None where a
            pause may be as long as it likes, such as in an evaluation. Called from a thread.
        failure: the error with which the run has failed, although the main thread may still do something about it;
            else None. Called from a thread.
        end_within: seconds within which all ranks end after one has failed, at least 4. They include an exit of the
            interpreter that begins within them.
        hang_after: seconds for which ``heartbeat`` may stay as it is, three times as long in the first iteration, which
            may compile; None: for ever. Only a run in which a rank waits for another one is ended. After ``end_within``
            seconds the log has each rank's stack. For so long a rank's process may also be stopped wherever it is, and
            three times as long it may give no sign of life.

    Raises:
        ValueError: seconds that are not more than 0.
    """

    def __init__(
        self,
        logger: logging.Logger,
        heartbeat: Callable[[], tuple[Any, ...] | None] = lambda: None,
        failure: Callable[[], BaseException | None] = lambda: None,
        end_within: float = END_WITHIN,
        hang_after: float | None = HANG_AFTER,
    ) -> None:
        for name, value in (('end_within', end_within), ('hang_after', hang_after)):
            is_none = value is None and name == 'hang_after'
            if not is_none and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
                raise ValueError(f'{name} must be more than 0 seconds, but got {value!r}')
        self._logger, self._heartbeat, self._failure = logger, heartbeat, failure
        self._end_within, self._hang_after = end_within, hang_after
        self._rank, self._world_size = get_dist_info()
        self._thread = threading.Thread(target=self._run, name='runnerkit-watch', daemon=True)
        self._over, self._leaving, self._lock = threading.Event(), False, threading.Lock()
        self._guard = threading.Thread(target=self._end_in_time, name='runnerkit-end', daemon=True)
        self._note: dict[str, Any] | None = None  # the rank that has failed, if any
        self._draft: dict[str, Any] | None = None  # the same, before the store has answered
        self._deadline: float | None = None  # for leaving in order
        self._limit = 0.0  # for being gone
        self._looks = 0  # at the store
        self._silence: dict[int, tuple[str | None, int]] = {}  # by rank: its sign of life, and for how many looks
        self._trusted: set[int] = set()  # ranks of this machine that end by themselves
        self._former_handler: Any = None  # of SIGTERM
        self._at: tuple[Any, ...] | None = None
        self._since = 0.0
        self._stage = 0  # of a pause: how many limits it has passed
        self._answers_until = self._say_again = 0.0

    def __enter__(self) -> Watch:
        if not faulthandler.is_enabled() and stderr() is sys.stderr:
            faulthandler.enable()  # so that a crash in C++ leaves a stack as well
        self._main = threading.get_ident()
        with exit_limited(self._end_within):
            members = all_gather_objects((_machine(), os.getpid(), time.time(), start_of(os.getpid())))
        machine = members[self._rank][0]
        self._neighbours = {
            rank: pid for rank, (place, pid, *_) in enumerate(members) if place == machine and rank != self._rank
        }
        self._starts = {rank: members[rank][3] for rank in self._neighbours}
        # A separate connection, so that a wait of the main thread does not block the store; and separate keys, since
        # the ranks may have been watched before.
        default: Any = distributed_c10d._get_default_store()
        self._store = default.clone()
        self._key = f'runnerkit/watch/{members[0][1]}-{members[0][2]}'
        self._thread.start()
        self._guard.start()
        global _running
        _running = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = error is None  # others may go, too, from now on
        if error is not None:  # first of all, since the store may not answer
            self._draft = _note(self._rank, describe_error(error, self._rank), asks=is_lost(error))
            self._set_limit(max(_ANSWER, self._end_within - _ANSWER))
        try:
            if error is not None and not _is_told(error):
                self._leave(error)
        finally:
            with suppress(RuntimeError):
                self._set(f'done/{self._rank}', '')

    def finish(self) -> None:
        """Watch no longer: the process group has been left."""
        global _running
        _running = None
        self._over.set()
        if self._former_handler is not None:
            signal.signal(signal.SIGTERM, self._former_handler)
        for thread in (self._thread, self._guard):
            if thread.is_alive():
                thread.join(timeout=4 * _BEAT)
        if self._deadline is not None:  # only now: a thread may have set it meanwhile
            end_not()  # the process may go on; its exit has its own limit

    def _leave(self, error: BaseException) -> None:
        if threading.current_thread() is threading.main_thread():
            # Launchers end the other ranks as soon as one has gone; this one ends by itself, when it knows why.
            self._former_handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lost = is_lost(error)
        if lost:
            # The rank that has caused it gets the time to say so, and the thread the time to see it.
            self._await_note(2 * _ANSWER)
        if self._note is None:
            # No rank has failed, but a collective has: most likely it has waited too long for a rank that hangs.
            self._publish(self._rank, describe_error(error, self._rank), asks=lost)
        try:
            if lost and self._note is not None and self._note['rank'] != self._rank:
                raise PeerFailed(self._note['text']) from error
            self._await_log()
        finally:
            self._end_silent((self._deadline or 0.0) - 2 * _BEAT)

    # --- the threads -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.wait(_BEAT):
            try:
                if self._note is None:
                    self._look()
                else:
                    self._kill_stopped()
                    self._trusted.update(rank for rank in self._neighbours if self._get(f'noted/{rank}') is not None)
            except RuntimeError as error:
                self._trusted.update(self._neighbours)  # since they can no longer say anything
                if not self._leaving:
                    self._learn(_note(0, f'rank 0 and the store of the ranks have gone: {error}'))
            self._looks += 1

    def _end_in_time(self) -> None:
        looks = silent = 0  # counted, not measured: a whole job may be suspended
        while not self._over.wait(_BEAT):
            silent, looks = (silent + 1 if looks == self._looks else 0), self._looks
            longest = self._hang_after
            if self._note is None and longest is not None and silent * _BEAT > longest:
                self._trusted.update(self._neighbours)
                self._note = _note(0, f'{_STORE} has not answered for {longest:g} s', hangs=True)
                self._set_limit(_ANSWER)
                self._kill_stopped()
            if self._deadline is not None and time.monotonic() > self._deadline and not self._over.is_set():
                self._end()

    def _look(self) -> None:
        found = self._get('failed')
        if found is not None:
            self._learn(json.loads(found))
            return
        error = self._failure()
        if error is not None and not _is_told(error) and not is_lost(error):
            self._publish(self._rank, describe_error(error, self._rank))
            return
        self._miss_neighbours()
        self._await_signs_of_life()
        self._time()

    def _learn(self, note: dict[str, Any]) -> None:
        """Some rank has failed: log it, and be through soon."""
        with self._lock:
            if self._note is not None:
                return
            hangs, asks = note['hangs'], note['asks']
            wait = _ANSWER if hangs else 4 * _ANSWER if asks else max(_ANSWER, self._end_within - _ANSWER)
            self._set_limit(wait)
            self._note = note
        with suppress(RuntimeError):  # the store may go with rank 0
            self._set(f'noted/{self._rank}', '')
            if asks:
                self._set(f'stood/{self._rank}', json.dumps(stands_at(self._main)))
            if self._rank == 0:
                if note['rank'] != 0:  # its own traceback is logged where it is raised
                    self._logger.error('%s', note['text'])
                if asks:
                    self._logger.error('%s', self._where_all_stood())
                self._set('logged', '')

    def _where_all_stood(self) -> str:
        self._until(lambda: all(self._places('stood')), 2 * _ANSWER)
        return verdict(self._places('stood'), 'Where the ranks stood then.')[1]

    def _places(self, name: str) -> list[dict[str, Any] | None]:
        """Each rank's position and stack; None for one that has not answered."""
        answers = [self._get(f'{name}/{rank}') for rank in range(self._world_size)]
        return [json.loads(each) if each else None for each in answers]

    def _end(self) -> None:
        """Leave although the main thread is stuck, with its stack on stderr."""
        note = self._note or self._draft
        text = 'a rank has failed' if note is None else note['text']
        file = stderr()
        if file is not None:
            print(f'rank {self._rank} is ended where it is, since {text}\n', file=file, flush=True)
            faulthandler.dump_traceback(file, all_threads=True)
        try:
            raise PeerFailed(text)
        except PeerFailed as error:
            record(error)
        self._end_silent(self._limit - 2 * _BEAT)
        if self._rank == 0:
            self._logger.error('rank 0 is ended where it is:\n%s', stands_at(self._main)['stack'])
        for handler in self._logger.handlers:
            handler.flush()
        os._exit(1)

    def _set_limit(self, seconds: float) -> None:
        """Let this process leave in order for so many seconds, and be gone soon after that, whatever it is stuck in."""
        if self._over.is_set():
            return
        now = time.monotonic()
        self._deadline = min(now + seconds, self._deadline or math.inf)
        if not self._limit:
            self._limit = now + max(self._end_within, seconds + _ANSWER)
            end_after(self._limit - now)
            limit_exit(self._limit - now)

    def _end_silent(self, patience_until: float) -> None:
        """Wait for the ranks of this machine to learn of the failure, and kill those that do not in time."""
        while silent := [rank for rank in self._neighbours if self._lives(rank) and rank not in self._trusted]:
            is_late = time.monotonic() > patience_until
            self._kill(rank for rank in silent if is_late or self._is_stopped(rank))
            if is_late:
                return
            time.sleep(_BEAT / 5)

    def _kill_stopped(self) -> None:
        """Kill the ranks of this machine whose processes are stopped, as they will not end by themselves."""
        self._kill(rank for rank in self._neighbours if self._lives(rank) and self._is_stopped(rank))

    def _kill(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(self._neighbours[rank], signal.SIGKILL)
                text = 'rank %d (process %d) cannot end by itself and is killed'
                self._logger.error(text, rank, self._neighbours[rank])

    def _lives(self, rank: int) -> bool:
        """Whether the process of a rank of this machine runs, rather than a later one of the same number."""
        pid = self._neighbours[rank]
        return is_alive(pid) and start_of(pid) == self._starts[rank] is not None

    def _has_gone(self, rank: int) -> bool:
        return rank in self._neighbours and not self._lives(rank)

    def _is_stopped(self, rank: int) -> bool:
        return rank in self._neighbours and process_state(self._neighbours[rank]) == 'T'

    def _await_signs_of_life(self) -> None:
        """Give one, and look for those of the others: for all of them on rank 0, else for rank 0's and this machine's.

        They are counted in looks, so that a job that is suspended as a whole survives.
        """
        if self._hang_after is None or self._leaving:
            return
        pause = max(1, int(self._hang_after / _BEAT / 8))
        if self._looks % pause:
            return
        self._set(f'life/{self._rank}', str(self._looks))
        watched = range(1, self._world_size) if self._rank == 0 else {0, *self._neighbours}
        for rank in watched:
            sign, stopped = self._get(f'life/{rank}'), self._is_stopped(rank)
            former, looks = self._silence.get(rank, (sign, -pause))
            looks = looks + pause if sign == former or stopped else 0
            self._silence[rank] = sign, looks
            longest = self._hang_after if stopped else 3 * self._hang_after
            if looks * _BEAT >= longest and self._get(f'done/{rank}') is None:
                what = 'its process is stopped' if stopped else 'it hangs in a call of C++, or its machine has gone'
                text = f'rank {rank} has given no sign of life for {looks * _BEAT:.0f} s: {what}'
                self._publish(rank, text + _ENDED.format(self._hang_after), hangs=True)
                return

    def _miss_neighbours(self) -> None:
        for rank, pid in self._neighbours.items():
            if is_alive(pid) or self._leaving or self._get(f'done/{rank}') is not None:
                continue
            self._publish(
                rank,
                f'rank {rank} (process {pid} on {socket.gethostname()}) has died without an error: {DIED}. Rank '
                f'{self._rank} was then at\n{stands_at(self._main)["stack"]}',
            )
            return

    def _time(self) -> None:
        """See whether the run moves; rank 0 asks all ranks for their stacks where it does not."""
        now = self._looks * _BEAT  # not measured, since a whole job may be suspended
        at = self._heartbeat()
        if at is None or at != self._at:
            self._at, self._since = at, now
            for stage in range(1, self._stage + 1):
                self._set(f'places/{stage}/{self._rank}', '')
            self._stage, self._answers_until = 0, 0.0
            return
        if self._hang_after is None:
            return
        longest = self._hang_after if at[0] else 3 * self._hang_after
        paused = now - self._since
        stage = int(paused >= min(longest, self._end_within)) + int(paused >= longest)
        if stage > self._stage or (stage == 2 and now >= self._say_again):
            if stage > self._stage:
                self._answers_until = now + _ALL_ANSWER
            self._stage, self._say_again = stage, now + _ALL_ANSWER
            self._set(f'places/{stage}/{self._rank}', json.dumps(stands_at(self._main)))
        elif self._rank == 0 and self._answers_until:
            places = self._places(f'places/{stage}')
            if all(places) or now >= self._answers_until:
                self._judge(places, paused, longest)

    def _judge(self, places: Sequence[Mapping[str, Any] | None], seconds: float, longest: float) -> None:
        """On rank 0: end a run that hangs. One in which no rank waits for another one works at something long."""
        culprit, text = verdict(places, f'No iteration has been finished for {seconds:.0f} s.')
        if self._stage == 2 and any(place is not None and place['waits'] for place in places):
            self._publish(culprit, text + _ENDED.format(self._hang_after), hangs=True)
        elif self._stage == 2:
            self._answers_until = self._looks * _BEAT + _ALL_ANSWER
        else:
            self._answers_until = 0.0
            self._logger.warning('%s\nThe run is ended if this lasts %g s', text, longest)

    # --- the store ---------------------------------------------------------------------------------------------------

    def _publish(self, rank: int | None, text: str, hangs: bool = False, asks: bool = False) -> None:
        """Tell all ranks that one has failed; the first report wins. ``asks``: also request every rank's stack."""
        note = self._draft = _note(rank, text, hangs, asks)
        with suppress(RuntimeError):  # the store may have gone with rank 0
            note = json.loads(self._store.compare_set(f'{self._key}/failed', '', json.dumps(note)))
        self._learn(note)

    def _get(self, name: str) -> str | None:
        key = f'{self._key}/{name}'
        return self._store.get(key).decode() if self._store.check([key]) else None

    def _set(self, name: str, value: str) -> None:
        self._store.set(f'{self._key}/{name}', value)

    def _await_note(self, seconds: float) -> None:
        self._until(lambda: self._note is not None, seconds)

    def _await_log(self) -> None:
        """Stay until rank 0 has logged the failure: launchers end the other ranks as soon as one has gone."""
        with suppress(RuntimeError):
            self._until(lambda: self._get('logged') is not None or self._has_gone(0), 2 * _ANSWER)

    def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_so() and time.monotonic() < deadline:
            time.sleep(_BEAT / 5)


def _note(rank: int | None, text: str, hangs: bool = False, asks: bool = False) -> dict[str, Any]:
    return {'rank': rank, 'text': text, 'hangs': hangs, 'asks': asks}


def is_lost(error: BaseException) -> bool:
    """Whether an error is that of a rank that has lost another one, rather than its own."""
    if isinstance(error, (dist.DistError, PeerFailed)):
        return True
    return isinstance(error, RuntimeError) and any(each in str(error) for each in _LOST)


def describe_error(error: BaseException, rank: int) -> str:
    """The report of an error for the other ranks: whose it is, and its traceback."""
    trace = ''.join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    return f'rank {rank} (on {socket.gethostname()}) has failed:\n{trace}'


def stands_at(thread: int) -> dict[str, Any]:
    """Where a thread is: whether it waits for other ranks there, its innermost line, and its stack."""
    stack = traceback.extract_stack(sys._current_frames().get(thread))[-_DEPTH:]
    waits = any(each in frame.filename for frame in stack for each in _WAITS)
    waits = waits or (bool(stack) and any(each in stack[-1].filename for each in _WAITS_IN_CPP))
    return {'waits': waits, 'stack': ''.join(traceback.format_list(stack)).rstrip()}


def verdict(places: Sequence[Mapping[str, Any] | None], headline: str) -> tuple[int | None, str]:
    """Which rank keeps the others waiting.

    Args:
        places: for each rank what `stands_at` has found; None if it has not answered.
        headline: what the text begins with.

    Returns:
        The rank, if it is a single one, and the text with the stacks: each one once, with its ranks.
    """
    ranks: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        if place is None:
            text = 'gave no answer: its Python hangs in a call of C++, its machine has gone, or it has moved meanwhile'
        elif place['waits']:
            text = f'waits for the others at\n{place["stack"]}'
        else:
            text = f'waits for no other rank; it is at\n{place["stack"]}'
        ranks.setdefault(text, []).append(rank)
    culprits = [rank for rank, place in enumerate(places) if place is None or not place['waits']]
    # Those who keep the others waiting come first.
    order = sorted(ranks.items(), key=lambda item: (item[1][0] not in culprits, item[1]))
    found = '\n'.join(f'{ranks_in_words(its)}: {text}' for text, its in order)
    all_wait = '' if culprits else ' All ranks wait, perhaps in different collectives.'
    one = culprits[0] if len(culprits) == 1 else None
    return one, f'{headline}{all_wait}\n{found}'


def record(error: BaseException) -> None:
    """Leave ``error`` for torchrun's summary, which else has no traceback; to be called while it is handled."""
    if os.environ.get('TORCHELASTIC_ERROR_FILE'):
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(error)


def _is_told(error: BaseException) -> bool:
    """Whether another rank reports it, or the user has interrupted the run."""
    return isinstance(error, (KeyboardInterrupt, ToldByFirstRank))


def _machine() -> tuple[str, ...]:
    """What processes have in common that see each other's process ids."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(os.readlink('/proc/self/ns/pid'))
    with suppress(OSError), open('/proc/sys/kernel/random/boot_id') as file:
        parts.append(file.read().strip())
    return tuple(parts)
