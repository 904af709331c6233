"""A run again, up to any moment of it, in a scratch folder."""

from __future__ import annotations

import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from runnerkit.config.pretty import refuse_marks
from runnerkit.data import DATASETS, Stream
from runnerkit.distributed import barrier, broadcast_object, get_dist_info
from runnerkit.flow.context import Context, Options
from runnerkit.flow.flow import Flow
from runnerkit.flow.from_python import config_from
from runnerkit.flow.moment.history import History, Saved, Start, history_of, saved_in
from runnerkit.flow.moment.logs import Difference, compare_logs
from runnerkit.flow.moment.passage import NO_STREAM, REPLAYING, Passage
from runnerkit.flow.stages.defaults import hooks_by_name
from runnerkit.flow.work_dir.journal import MOST_TEXT
from runnerkit.flow.work_dir.record import SCRIPT, STARTS, check_made_here, is_made_here
from runnerkit.hooks import HOOKS
from runnerkit.hooks.hook import Hook, RunnerView
from runnerkit.hooks.logger import LoggerHook
from runnerkit.hooks.predictions import names_at
from runnerkit.registry import Registry
from runnerkit.utils.numbers import values_in
from runnerkit.utils.user_files import file_of_module
from runnerkit.version import __version__

#: Flags of a start that a replay takes over; the others say where it writes and what it continues.
_FLAGS = {'validate', 'deterministic', 'diff_seed', 'auto_scale_lr', 'overfit', 'load_from', 'gpu_id'}


@dataclass(frozen=True)
class Sample:
    """A sample of a batch.

    Attributes:
        index: in the data set.
        name: its name or file, if the data set has a list of these; else the index as a text.
    """

    index: int
    name: str


class Moment:
    """A run that waits before an iteration; `replay` makes it.

    Random numbers that are drawn while it waits are not missing in the next step. What is changed in the model stays
    changed.

    Attributes:
        discarded: sentences about iterations that the run has trained and lost.
        since: the completed iterations with which the replay began.
    """

    def __init__(
        self,
        passage: Passage,
        history: History,
        folders: Sequence[Path],
        since: int,
        doubts: Callable[[], list[str]],
    ) -> None:
        self._passage, self._history, self._folders, self._doubts = passage, history, folders, doubts
        self.since = since
        self.discarded = history.discarded

    @property
    def run(self) -> Any:
        """The runner, which waits before the iteration."""
        return self._passage.runner

    @property
    def model(self) -> Any:
        """The model, in the wrappers of the run."""
        return self.run.model

    @property
    def batch(self) -> Any:
        """The batch of the iteration, as the step gets it."""
        return self.run.data_batch

    @property
    def iter(self) -> int:
        """How many iterations are done: the 0-based index of the iteration that comes."""
        return int(self.run.completed_iters)

    @property
    def epoch(self) -> int:
        """The 0-based index of the epoch."""
        return int(self.run.epoch)

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, and no iteration comes."""
        return not self._passage.is_waiting

    @property
    def samples(self) -> list[Sample] | None:
        """The samples of this rank's batch, in their order; None if the loader does not tell."""
        runner = self.run
        reader = runner.readers.find(runner.data_loader)
        order = None if reader is None else reader.order
        if order is None:
            return None
        given = runner.progress.batches - reader.left_out if runner.by_epoch else reader.given - 1
        positions = order.sampler.positions(reader.samples(given))[: order.batch_size]
        indices = order.sampler.indices(reader.epoch, positions)
        return [Sample(*each) for each in zip(indices, names_at(reader.dataloader.dataset, indices), strict=True)]

    @property
    def doubts(self) -> list[str]:
        """Why the moment may not be the original one, as sentences; empty if nothing is known."""
        return list(dict.fromkeys(self._doubts()))

    @property
    def differences(self) -> list[Difference]:
        """The values that differ between the log lines of the run and those of the replay so far; times, memory and
        host are left out. Empty on other ranks than the first, which logs."""
        return [] if self.run.rank else compare_logs(self._history.run.lines, self._folders, self.since, self.iter)

    @property
    def compared(self) -> int:
        """How many log lines the run has written on the way so far."""
        return sum(self.since < line['step'] <= self.iter for line in self._history.run.lines)

    @property
    def length(self) -> int | None:
        """How many iterations the run has trained; None if nothing tells."""
        return self._history.length

    @property
    def folder(self) -> Path:
        """The scratch folder that is the work dir of the replay."""
        return self._folders[-1]

    def call(self, task: Callable[[Any], Any]) -> Any:
        """What ``task(runner)`` returns. It is called as a part of the run, with its settings and random states."""
        return self._passage.call(task)

    def step(self) -> dict[str, Any]:
        """Train the iteration, with all its hooks; returns its outputs. The moment is then that before the next one."""
        if self.has_ended:
            raise EOFError(f'the run has ended after {self.iter} iterations')
        self._passage.advance(self.iter + 1)
        return dict(self.run.outputs)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Save a checkpoint of the moment, on every rank; returns its path. A run that resumes it begins with this
        iteration."""
        folder, name = os.path.split(os.path.abspath(path))
        template = name.replace('{', '{{').replace('}', '}}')
        return str(self.call(lambda runner: runner.save(folder, template, create_symlink=False, caller=self)))


@contextmanager
def replay(
    work_dir: str | os.PathLike[str],
    to: int | str,
    *,
    trust: bool = False,
    hooks: Sequence[Hook] = (),
    config: Any = None,
    device: str | None = None,
) -> Iterator[Moment]:
    """Train a run again up to the moment before an iteration, and wait there.

    ::

        with replay('work_dirs/lenet', to=4213) as moment:
            print(moment.samples)
            outputs = moment.step()

    The replay begins with the newest intact checkpoint at or before the iteration, or with the beginning of the run.
    Each iteration is trained with the config and the code of the start that has trained it. It happens in a scratch
    folder: nothing is written to the work dir, and hooks with ``sends_outside`` are left out.

    Args:
        work_dir: of the run.
        to: how many iterations are done, from 0; or a place as the log writes it, ``'[3][50]'``: the moment before that
            iteration.
        trust: execute the config and the code of a work dir that you have not made on this machine.
        hooks: hooks to add, with the priority NORMAL.
        config: the config of the run, if its work dir cannot hold all of it (objects from Python).
        device: by default that of the run.

    Raises:
        FileNotFoundError: no run has written there, or neither a checkpoint nor the beginning of the run can be had.
        ValueError: there is no such iteration; the work dir is not yours; the run had another number of ranks.
    """
    history = history_of(Path(work_dir))
    with travel(history, history.iteration_at(to), trust=trust, hooks=hooks, config=config, device=device) as moment:
        yield moment


@contextmanager
def travel(
    history: History,
    number: int,
    *,
    since: Saved | None = None,
    is_end: bool = False,
    trust: bool = False,
    hooks: Sequence[Hook] = (),
    config: Any = None,
    device: str | None = None,
) -> Iterator[Moment]:
    """`replay` of the run of ``history`` to the iteration ``number``."""
    check_ranks(history)
    if since is None and not is_end:
        since = next((saved for saved in history.checkpoints() if saved.iterations <= number), None)
    begin = since.iterations if since else 0
    starts = starts_between(history, begin, number - 1 if is_end else number, since)
    for start in starts:
        check_trust(start, trust or config is not None)
    folders: list[Path] = []
    doubts = [text for start in starts for text in doubts_of(history, start)]
    with ExitStack() as stack:
        stack.enter_context(places_of_run(folders, history.run.folder))
        scratch = stack.enter_context(scratch_folder())
        source = since.path if since else None
        for start in starts:
            is_last = start is starts[-1]
            if config is None:
                stack.enter_context(own_names())
            folders.append(scratch / str(start.number) / history.run.folder.absolute().name)
            prepare = partial(
                flow_of, start, source, folders[-1], config, device, hooks if is_last else (), history.run.seed
            )
            passage = Passage(prepare, partial(start.roll_backs, begin if start is starts[0] else start.begin))
            stack.callback(passage.leave)
            passage.advance(number if is_last else start.end)
            if not is_last:
                source = checkpoint_at(passage, folders[-1], int(start.end or 0))
                passage.leave()
                doubts += told_anew(passage, start)
            elif not passage.is_waiting and passage.runner.completed_iters != number:
                again = ' It has not gone back to a checkpoint as the run has.' if start.rolled_back else ''
                ended = passage.runner.completed_iters
                raise ValueError(f'the replay ended after {ended} iterations, not before iteration {number}.{again}')
        yield Moment(passage, history, folders, begin, lambda: [*doubts, *told_anew(passage, starts[-1])])


def told_anew(passage: Passage, start: Start) -> list[str]:
    """What a replay has logged about exactness, without changes that ``start`` made as well when it resumed."""
    recorded = start.entry.get('exactness', ())
    return [text for text in passage.told if not (text.startswith('Changed since') and text[:MOST_TEXT] in recorded)]


def starts_between(history: History, begin: int, number: int, since: Saved | None) -> list[Start]:
    """The starts that have trained the iterations from ``begin`` to the moment before ``number``."""
    first = history.start_of(begin)
    oldest = min((saved.iterations for saved in history.checkpoints()), default=None)
    if since is None and (first.begin > 0 or first.entry.get('resumed_from')):
        has = (
            'it has no intact checkpoint'
            if oldest is None
            else f'its oldest intact checkpoint is of iteration {oldest}'
        )
        raise FileNotFoundError(
            f'iteration {number} of {history.run.folder} cannot be had: {has}, and the run began with '
            f'{first.entry.get("resumed_from")}, which is gone'
        )
    found = [start for start in history.starts if start.number >= first.number]
    return [start for start in found if start is first or start.begin <= number]


def check_ranks(history: History) -> None:
    """Refuse another number of ranks: each rank has its own random states and samples."""
    here, then = get_dist_info()[1], history.run.last_start.get('ranks', 1)
    if here != then:
        raise ValueError(
            f'the run in {history.run.folder} had {then} rank{"s" * (then != 1)}, and this is a replay on {here}: each '
            'rank has its own random states and samples. Start it with torchrun --nproc-per-node '
            f'{then} -m runnerkit … --launcher pytorch, with the same arguments'
        )


def check_trust(start: Start, trust: bool) -> None:
    """Refuse code that this user has not made."""
    if start.config is None:
        raise FileNotFoundError(
            f'the config of start {start.number} is not in the work dir (a program may have built the run in Python). '
            'Give it to runnerkit.replay(…, config=…).'
        )
    check_made_here(start.config, trust)


def doubts_of(history: History, start: Start) -> Iterator[str]:
    """What is known to differ between a start and this process."""
    if start.end is not None and not (history.run.folder / STARTS).is_dir():  # which each resume makes
        yield (
            f'start {start.number} is replayed with the config and the code of the newest start: the version of '
            'runnerkit that has resumed the run kept no others'
        )
    later = [entry.get('number', 0) for entry in history.run.starts[1:]]
    if start.number == 1 and later and later[0] > 2:
        yield (
            f'run.json no longer has the starts 2 to {later[0] - 1}: their iterations are replayed with the config of '
            'start 1'
        )
    versions = {'runnerkit': __version__, 'torch': torch.__version__, 'python': sys.version.split()[0]}
    for name, then in (start.entry.get('versions') or {}).items():
        if versions.get(name, then) != then:
            yield f'the run used {name} {then}, and this is {versions[name]}'
    if start.config is not None and not is_made_here(start.config):
        yield f'{start.config.parent} was not written on this machine, or its code has changed since'


def flow_of(
    start: Start,
    source: str | None,
    work_dir: Path,
    config: Any,
    device: str | None,
    hooks: Sequence[Hook],
    seed: int | None,
    guard: Callable[[Context], Any],
) -> Flow | ScriptReplay:
    """What trains as ``start`` did, from the checkpoint ``source``; None: from the beginning."""
    cfg = config_from(start.config if config is None else config, {})
    for key in ('resume_from', 'auto_resume', 'profiler_config'):
        cfg.pop(key, None)
    for section in (cfg.get('checkpoint_config'), cfg.get('evaluation')):
        if isinstance(section, dict):
            section.pop('out_dir', None)
    hooks_by_name(cfg)
    for section, key in ((cfg, 'custom_hooks'), (cfg.get('log_config'), 'hooks')):
        if isinstance(section, dict | type(cfg)) and section.get(key):
            section[key] = list(filter(None, map(kept_inside, section[key])))
    if config is None:
        refuse_marks(cfg._cfg_dict)
    refuse_streams(cfg.get('data'))
    entry = start.entry
    if SCRIPT in cfg:
        options = Options(work_dir=str(work_dir), resume_from=source, seed=entry.get('seed', seed))
        return ScriptReplay(cfg[SCRIPT].removesuffix(':__main__'), entry, options, hooks, guard)
    if cfg.get('num_threads') is None and entry.get('threads'):
        cfg.num_threads = entry['threads']
    flags = {key: value for key, value in (entry.get('options') or {}).items() if key in _FLAGS}
    options = Options(
        **flags,
        work_dir=str(work_dir),
        resume_from=source,
        seed=entry.get('seed', seed),
        device=device or str(entry.get('device', 'cpu')).split()[0],
    )
    added = [(hook, 'NORMAL') for hook in hooks]
    return Flow(cfg, options, stages={'terminal': None}, hooks=added, guard=guard)


class ScriptReplay:
    """In place of a flow: the script with a user's loop, run again. Its `runnerkit.loop` finds this as ``REPLAYING``.

    Args:
        script: the path of the copy in the work dir; empty for a notebook.
        entry: what ``run.json`` says of the start.
        options: those of the replay.
        hooks: to register.
        guard: a context around the training.
    """

    def __init__(
        self,
        script: str,
        entry: Mapping[str, Any],
        options: Options,
        hooks: Sequence[Hook],
        guard: Callable[[Context], Any],
    ) -> None:
        if not script:
            raise ValueError('the loop of this run was not written in a file, so it cannot be replayed')
        words = [str(each) for each in entry.get('command', ())] or [script]
        original = Path(str(entry.get('folder', '.')), words[0])
        is_same = original.is_file() and original.read_bytes() == Path(script).read_bytes()
        self._script, self._words = str(original if is_same else script), words
        self._options, self.hooks, self.guard = options, hooks, guard

    def options(self, work_dir: str | os.PathLike[str]) -> Options:
        """The options of the loop that the script has made for ``work_dir``."""
        if Path(work_dir).name != Path(str(self._options.work_dir)).name:
            raise ValueError(f'a script with several loops cannot be replayed: it begins with that of {work_dir}')
        return self._options

    def run(self) -> None:
        """Run the script, with its former arguments."""
        token, words = REPLAYING.set(self), sys.argv
        sys.argv = [self._script, *self._words[1:]]
        try:
            runpy.run_path(self._script, run_name='__main__')
        finally:
            sys.argv = words
            REPLAYING.reset(token)


def refuse_streams(data: Any) -> None:
    """Refuse a run over a stream by the config of its data, before the source is made."""
    for path, value in values_in(data):
        kind = DATASETS.get(value) if path[-1:] == ('type',) and isinstance(value, str) else value
        if isinstance(kind, Stream) or (isinstance(kind, type) and issubclass(kind, Stream)):
            raise ValueError(NO_STREAM.format(what='.'.join(map(str, ('data', *path)))))


class Quiet(LoggerHook):
    """In place of a logger that sends its values: it averages them as often, and logs nothing."""

    def log(self, runner: RunnerView) -> None:
        """Nothing."""


def kept_inside(config: Any) -> Any:
    """A hook, or the config of one, as a replay has it: None if it sends something outside."""
    named = config.get('type') if isinstance(config, Mapping) else config
    kind: Any = HOOKS.get(named) if isinstance(named, str) else named
    if not getattr(kind, 'sends_outside', False):
        if isinstance(config, dict):
            config.pop('out_dir', None)
        return config
    if not (isinstance(config, Mapping) and isinstance(kind, type) and issubclass(kind, LoggerHook)):
        return None
    kept = {key: config[key] for key in ('interval', 'ignore_last', 'by_epoch', 'priority') if key in config}
    return {'type': Quiet, **kept}


def checkpoint_at(passage: Passage, folder: Path, iterations: int) -> str:
    """The checkpoint with which the next start began: the one that was saved here at that place, or a new one."""
    if passage.is_waiting:
        passage.call(lambda runner: runner.finish_saving())
    saved = next((each for each in saved_in(folder) if each.iterations == iterations), None)
    if saved is not None:
        return saved.path
    return str(
        passage.call(lambda runner: runner.save(filename_tmpl='at_start.pth', create_symlink=False, caller=passage))
    )


@contextmanager
def own_names() -> Iterator[None]:
    """Within it, the user's files are imported again, and what they had registered is not there: two starts or runs may
    have code under the same names."""
    places: list[dict[str, Any]] = [sys.modules, *(registry.loaded for registry in Registry.everywhere)]
    former = [dict(names) for names in places]

    def forget() -> None:
        for names in places:
            for name, made in list(names.items()):
                if file_of_module(name if names is sys.modules else str(getattr(made, '__module__', ''))) is not None:
                    del names[name]

    forget()
    try:
        yield
    finally:
        forget()
        for names, before in zip(places, former, strict=True):
            names.update(before)


@contextmanager
def places_of_run(folders: Sequence[Path], work_dir: Path) -> Iterator[None]:
    """Within it, messages of errors name the work dir of the run in place of the ``folders`` of its replay, so that the
    commands in them work."""
    try:
        yield
    except Exception as error:
        for folder in map(str, folders):
            args = error.args
            error.args = tuple(each.replace(folder, str(work_dir)) if isinstance(each, str) else each for each in args)
        raise


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, the same one on all ranks, which is removed at the end."""
    rank = get_dist_info()[0]
    folder = Path(str(broadcast_object(tempfile.mkdtemp(prefix='runnerkit-replay-') if rank == 0 else None)))
    try:
        yield folder
    finally:
        barrier()
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
