"""Ends the ranks of a run when one of them dies, hangs or raises an error, and says which one it was, and where.

Every rank has a thread that looks twice a second at the process group's store. A rank that fails leaves its traceback
there. A rank that has died is missed by the others on its machine. A rank that hangs is found by rank 0, when itself
has not moved for long: all ranks then say where they stand.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from torch import distributed as dist
from torch.distributed import distributed_c10d

from runnerkit.distributed.collectives import all_gather_objects
from runnerkit.distributed.info import get_dist_info, ranks_in_words
from runnerkit.utils.exceptions import PeerFailed, ToldByFirstRank
from runnerkit.utils.processes import is_alive

#: Seconds within which the other ranks end when one has died or raised an error.
END_WITHIN = 30.0

#: Seconds without an iteration after which a run is ended, as one that hangs.
HANG_AFTER = 600.0

_BEAT = 0.5  # seconds between two looks at the store
_ANSWER = 4 * _BEAT  # seconds for a rank to hear or to write down who has failed
_ALL_ANSWER = 10.0  # seconds for all ranks to say where they stand
_DEPTH = 12  # how many of its innermost frames a rank shows

#: Files whose functions wait for the other ranks, and those that do where they call C++.
_WAITS = (
    os.path.join('torch', 'distributed', ''),
    os.path.join('runnerkit', 'distributed', ''),
    os.path.join('runnerkit', 'runner', 'signals.py'),
)
_WAITS_IN_CPP = (os.path.join('torch', 'autograd', ''), os.path.join('torch', 'nn', 'parallel', 'distributed.py'))

#: What torch's backends say when they have lost another rank.
_LOST = ('gloo', 'NCCL', 'Connection closed by peer', 'Connection reset by peer', 'Broken pipe')


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
    """Watches the ranks of a run, as a context; an error that leaves it is told to the other ranks.

    All ranks enter it together.

    Args:
        logger: on rank 0, what has happened is logged there.
        heartbeat: changes whenever the run moves; None where a pause may be as long as it likes, such as in an
            evaluation. Called from a thread.
        failure: the error with which the run has failed, although the main thread may still do something about it;
            else None. Called from a thread.
        end_within: seconds within which all ranks end after one has failed.
        hang_after: seconds for which ``heartbeat`` may stay as it is, three times as long until it has changed once
            (the first iteration may compile); None: for ever. Only a run in which a rank waits for another one is
            ended. After ``end_within`` seconds the log names who stands where.

    Raises:
        ValueError: seconds that are not more than 0.
    """

    def __init__(
        self,
        logger: logging.Logger,
        heartbeat: Callable[[], Hashable | None] = lambda: None,
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
        self._note: dict[str, Any] | None = None  # who has failed, once anybody has
        self._deadline: float | None = None
        self._former_handler: Any = None  # of SIGTERM
        self._at: Hashable | None = None
        self._since, self._has_moved = 0.0, False
        self._stage = 0  # of a pause: how many limits it has passed
        self._answers_until = self._say_again = 0.0

    def __enter__(self) -> Watch:
        if not faulthandler.is_enabled() and _has_file(sys.stderr):
            faulthandler.enable()  # so that a crash in C++ leaves a stack as well
        self._main = threading.get_ident()
        members = all_gather_objects((_machine(), os.getpid(), time.time()))
        machine = members[self._rank][0]
        self._neighbours = {
            rank: pid for rank, (place, pid, _) in enumerate(members) if place == machine and rank != self._rank
        }
        # A connection of its own, so that a wait of the main thread keeps nobody from the store; and keys of its own,
        # since the ranks may have been watched before.
        default: Any = distributed_c10d._get_default_store()
        self._store = default.clone()
        self._key = f'runnerkit/watch/{members[0][1]}-{members[0][2]}'
        self._thread.start()
        global _running
        _running = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving = error is None  # others may go, too, from now on
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
        if self._thread.is_alive():
            self._thread.join(timeout=4 * _BEAT)

    def _leave(self, error: BaseException) -> None:
        if threading.current_thread() is threading.main_thread():
            # Launchers end the other ranks as soon as one has gone; this one ends by itself, when it knows why.
            self._former_handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lost = is_lost(error)
        if lost:
            # Whoever has caused it gets the time to say so, and the thread the time to see it.
            self._await_note(2 * _ANSWER)
        if self._note is None:
            # Nobody has failed, but a collective has: most likely it has waited too long for a rank that hangs.
            self._publish(self._rank, describe(error, self._rank), asks=lost)
        if lost and self._note is not None and self._note['rank'] != self._rank:
            raise PeerFailed(self._note['text']) from error
        self._await_log()

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.wait(_BEAT):
            if self._note is None:
                try:
                    self._look()
                except RuntimeError as error:
                    if not self._leaving:
                        self._learn(_note(0, f'rank 0 and the store of the ranks have gone: {error}'))
            if self._deadline is not None and time.monotonic() > self._deadline and not self._over.is_set():
                self._end()

    def _look(self) -> None:
        found = self._get('failed')
        if found is not None:
            self._learn(json.loads(found))
            return
        error = self._failure()
        if error is not None and not _is_told(error) and not is_lost(error):
            self._publish(self._rank, describe(error, self._rank))
            return
        self._miss_neighbours()
        self._time()

    def _learn(self, note: dict[str, Any]) -> None:
        """Some rank has failed: log it, and be through soon."""
        with self._lock:
            if self._note is not None:
                return
            hangs, asks = note['hangs'], note['asks']
            wait = _ANSWER if hangs else 4 * _ANSWER if asks else max(_ANSWER, self._end_within - _ANSWER)
            self._deadline = time.monotonic() + wait
            self._note = note
        with suppress(RuntimeError):  # the store may go with rank 0
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
        """What each rank has said of where it stands; None for one that has not answered."""
        answers = [self._get(f'{name}/{rank}') for rank in range(self._world_size)]
        return [json.loads(each) if each else None for each in answers]

    def _end(self) -> None:
        """Leave although the main thread is stuck, with its stack on stderr."""
        text = 'a rank has failed' if self._note is None else self._note['text']
        if _has_file(sys.stderr):
            print(f'rank {self._rank} is ended where it stands, since {text}\n', file=sys.stderr, flush=True)
            faulthandler.dump_traceback(sys.stderr, all_threads=True)
        try:
            raise PeerFailed(text)
        except PeerFailed as error:
            record(error)
        for handler in self._logger.handlers:
            handler.flush()
        os._exit(1)

    def _miss_neighbours(self) -> None:
        for rank, pid in self._neighbours.items():
            if is_alive(pid) or self._leaving or self._get(f'done/{rank}') is not None:
                continue
            self._publish(
                rank,
                f'rank {rank} (process {pid} on {socket.gethostname()}) has died without an error: it was killed, '
                "perhaps for its memory, or has crashed, or has called os._exit. The launcher's summary has its exit "
                'code',
            )
            return

    def _time(self) -> None:
        """See whether the run moves; rank 0 asks all ranks where they stand, where it does not."""
        now, at = time.monotonic(), self._heartbeat()
        if at is None or at != self._at:
            self._has_moved = self._has_moved or (at is not None and self._at is not None)
            self._at, self._since = at, now
            for stage in range(1, self._stage + 1):
                self._set(f'stands/{stage}/{self._rank}', '')
            self._stage, self._answers_until = 0, 0.0
            return
        if self._hang_after is None:
            return
        longest = self._hang_after if self._has_moved else 3 * self._hang_after
        stands = now - self._since
        stage = int(stands >= min(longest, self._end_within)) + int(stands >= longest)
        if stage > self._stage or (stage == 2 and now >= self._say_again):
            if stage > self._stage:
                self._answers_until = now + _ALL_ANSWER
            self._stage, self._say_again = stage, now + _ALL_ANSWER
            self._set(f'stands/{stage}/{self._rank}', json.dumps(stands_at(self._main)))
        elif self._rank == 0 and self._answers_until:
            places = self._places(f'stands/{stage}')
            if all(places) or now >= self._answers_until:
                self._judge(places, stands, longest)

    def _judge(self, places: Sequence[Mapping[str, Any] | None], seconds: float, longest: float) -> None:
        """On rank 0: end a run that hangs. One in which no rank waits for another one works at something long."""
        culprit, text = verdict(places, f'No iteration has been finished for {seconds:.0f} s.')
        if self._stage == 2 and any(place is not None and place['waits'] for place in places):
            self._publish(
                culprit, f'{text}\nThe run is ended (dist_params.hang_after={self._hang_after:g})', hangs=True
            )
        elif self._stage == 2:
            self._answers_until = time.monotonic() + _ALL_ANSWER
        else:
            self._answers_until = 0.0
            self._logger.warning('%s\nThe run is ended if this goes on for %g s', text, longest)

    # --- the store ---------------------------------------------------------------------------------------------------

    def _publish(self, rank: int | None, text: str, hangs: bool = False, asks: bool = False) -> None:
        """Tell all ranks that one has failed; what is told first counts. ``asks``: for where each one stands."""
        note = _note(rank, text, hangs, asks)
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
            self._until(lambda: self._get('logged') is not None, 2 * _ANSWER)

    def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_so() and time.monotonic() < deadline:
            time.sleep(_BEAT / 5)


def _note(rank: int | None, text: str, hangs: bool = False, asks: bool = False) -> dict[str, Any]:
    return {'rank': rank, 'text': text, 'hangs': hangs, 'asks': asks}


def is_lost(error: BaseException) -> bool:
    """Whether an error is that of a rank that has lost another one, rather than one of its own."""
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and any(each in str(error) for each in _LOST)


def describe(error: BaseException, rank: int) -> str:
    """What the other ranks are told of an error: whose it is, and its traceback."""
    trace = ''.join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    return f'rank {rank} (on {socket.gethostname()}) has failed:\n{trace}'


def stands_at(thread: int) -> dict[str, Any]:
    """Where a thread stands: whether it waits for other ranks there, its innermost line, and its stack."""
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
            text = f'waits for no other rank; it stands at\n{place["stack"]}'
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
    """Whether another rank tells it, or whoever has interrupted the run knows it."""
    return isinstance(error, (KeyboardInterrupt, ToldByFirstRank))


def _has_file(stream: Any) -> bool:
    """Whether ``stream`` is a file of the system, as faulthandler needs."""
    try:
        return stream.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False


def _machine() -> tuple[str, ...]:
    """What processes have in common that see each other's process ids."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(os.readlink('/proc/self/ns/pid'))
    with suppress(OSError), open('/proc/sys/kernel/random/boot_id') as file:
        parts.append(file.read().strip())
    return tuple(parts)
