"""A pipeline: steps one after another, whose records pass from one to the next."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config import Config
from runnerkit.fileio.paths import lies_in, plain_file_name
from runnerkit.flow.from_python import config_from
from runnerkit.flow.stages.instance import choose_device
from runnerkit.registry import placed_errors
from runnerkit.search import benchmark, search_pipe_step, train_pipe_step  # noqa: F401  # they register their steps
from runnerkit.search.pipe_step import CURRENT, PIPE_STEPS, PipeStep
from runnerkit.search.record import Record, parse_json_file
from runnerkit.search.report import Report
from runnerkit.search.study import describe_identity, local_folder, settle_paths
from runnerkit.search.study_step import StudyStep
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.lock import FolderLock
from runnerkit.utils.logging import get_logger
from runnerkit.utils.suggest import near_miss, suggestion

#: What reads pipelines with sections in the shape of another system: ``reader(config, names of the steps)`` has
#: ``work_dir``, which may be None, and ``translate(name, section)``, which returns a `Translation`, or None for a
#: section in another shape.
_READERS = EntryPoints('runnerkit.pipelines')

#: The file in a step's folder that says that it is done, and with what.
STATE = 'step.json'

#: Top-level keys of a pipeline's config apart from the sections of its steps.
TOP = ('pipeline', 'general', 'work_dir', 'custom_imports')

#: Keys of a section that do not change what comes of its step.
_HOW = ('executor',)


class Pipeline:
    """Run the steps listed in ``pipeline``, one after another.

    Killed at any moment, it resumes when it is run again in the same work dir: steps that are done are not repeated,
    unless their sections have changed.

    Args:
        config: a config file, a `Config`, or a dict like one. ``pipeline`` is a list of names, each that of a section
            with ``pipe_step=dict(type=…)``.
        work_dir: where all of it goes, each step in a folder of its name; by default the config's, else
            ``work_dirs/<config>``.
        device: where trials train; None: a GPU if there is one.
        workers: how many trials run at once, in place of what the steps' executors say.
        on_change: called with the pipeline after each change.
        trust: measure models also if their work dirs are not known to be of this user's own runs on this machine. That
            executes the config and the code in them.

    Attributes:
        names: of the steps, in their order.
        steps: the steps by name.
        current: the name of the step that is being done.
        report: the records of all steps.
        stop_signal: the signal that has ended the pipeline before its end, if one has.

    Raises:
        KeyError: a step has no section, or a section a key that is not known.
        TypeError: a part of the config has another shape.
        ValueError: a part has a wrong value, or there is no such device.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | Config,
        work_dir: str | os.PathLike[str] | None = None,
        device: str | None = None,
        workers: int | None = None,
        on_change: Callable[[Pipeline], None] | None = None,
        trust: bool = False,
    ) -> None:
        self.trust = trust
        self.cfg = config_from(config, {})
        if device is not None:
            choose_device(device, 0, 1)
        self.device, self.workers = device, workers
        self.names = names_of_steps(self.cfg)
        self._readers = [_READERS.load(name)(self.cfg, self.names) for name in _READERS.names()]
        default = os.path.join('work_dirs', Path(self.cfg.filename).stem if self.cfg.filename else 'search')
        theirs = next((each.work_dir for each in self._readers if each.work_dir), default)
        self.work_dir = local_folder(work_dir or self.cfg.get('work_dir') or theirs)
        self.on_change = on_change or (lambda pipeline: None)
        self.logger = get_logger('runnerkit')
        self.report = Report()
        self.current: str | None = None
        self.stop_signal: int | None = None
        self.steps: dict[str, PipeStep] = {}
        for name in self.names:
            self.steps[name] = self._make(name)
        for name, step in self.steps.items():
            with placed_errors(self.cfg, name):
                step.check()

    def run(self) -> Report:
        """Do the steps that are not done yet.

        Returns:
            The records of all steps.

        Raises:
            BlockingIOError: another process works in the work dir.
            NothingUsable: a step has given nothing that the next one could use.
        """
        self.work_dir.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(self.work_dir)
        current = CURRENT.set(self)
        try:
            mark = ''
            for name, step in self.steps.items():
                mark = self._mark(name, mark)
                if self._restore(step, mark):
                    self.logger.info('Step %s is done already', name)
                    continue
                if self.stop_signal is not None:
                    break
                self.current = name
                self.logger.info('Step %s (%s)', name, type(step).__name__)
                self.changed()
                step.work_dir.mkdir(parents=True, exist_ok=True)
                (step.work_dir / STATE).unlink(missing_ok=True)
                step.do()
                if self.stop_signal is not None:
                    break
                self._keep(step, mark)
        finally:
            self.current = None
            CURRENT.reset(current)
            try:
                self.report.save(self.work_dir)
            finally:
                lock.release()
        return self.report

    def stop(self, number: int) -> None:
        """End the pipeline as after a signal: running trials save, and it can resume later."""
        self.stop_signal = number
        if self.current is not None:
            self.steps[self.current].stop(number)

    def in_its_units(self, counts: Mapping[str, float]) -> dict[str, float]:
        """``params`` and ``flops`` in the units of the whole report: those of another system, if a section has its
        shape."""
        translations = (getattr(step, 'translation', None) for step in self.steps.values())
        units: Mapping[str, float] = next((each.units for each in translations if each is not None), {})
        return {name: count * units.get(name, 1) for name, count in counts.items()}

    def changed(self, report: Report | None = None) -> None:
        """Keep the report's files up to date, and tell the listener."""
        self.report.keep(self.work_dir)
        self.on_change(self)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _make(self, name: str) -> PipeStep:
        section = self.cfg[name]
        step = PIPE_STEPS.build(section['pipe_step'])
        if not isinstance(step, PipeStep):
            raise WrongType(f'{name}.pipe_step.type must be a subclass of PipeStep, but it gives a {type(step)}')
        step.name, step.cfg, step.work_dir = name, section, self.work_dir / name
        step.report, step.pipeline = self.report, self
        if isinstance(step, StudyStep):
            with placed_errors(self.cfg, name):
                found = (reader.translate(name, section) for reader in self._readers)
                step.translation = next((each for each in found if each is not None), None)
                step.cfg = section if step.translation is None else step.translation.section
        return step

    def _mark(self, name: str, before: str) -> str:
        """What a step that is done must have been done with: its section, its config, and those of the steps before."""
        section = {key: value for key, value in self.cfg[name].items() if key not in _HOW}
        text = json.dumps([section, self.steps[name].content()], default=describe_identity)
        return hashlib.sha256(f'{before}{text}'.encode()).hexdigest()

    def _restore(self, step: PipeStep, mark: str) -> bool:
        """Whether the step is done; then its records are taken in."""
        path = step.work_dir / STATE
        if not path.exists():
            return False
        way_out = 'put back a copy of it, or remove it: the step is done again, without its trials that have ended'
        before, records = parse_json_file(
            path, lambda state: (state['mark'], [Record.from_dict(each) for each in state['records']]), way_out
        )
        if before != mark:
            self.logger.info('Step %s is done again: it, or a step before it, has changed in the config', step.name)
            return False
        if isinstance(step, StudyStep):
            settle_paths(records, step.work_dir, step.name, step.config_file, step.overrides)
        else:
            for record in records:
                self._settle(record)
        for record in records:
            self.report.update(record)
        return True

    def _settle(self, record: Record) -> None:
        """Let ``record`` name only what this pipeline has trained: its file may come from elsewhere."""
        source = next((each for each in self.report.all_records if each.uid == record.source), None)
        found = source and source.weights_file  # settled before, below an `out_dir` as well
        if source and found and os.path.basename(found) == os.path.basename(record.weights_file or ''):
            record.work_dir, record.weights_file = source.work_dir, found
            return
        is_inside = Path(os.path.realpath(record.work_dir)).is_relative_to(os.path.realpath(self.work_dir))
        if not is_inside or not lies_in(record.weights_file or '', record.work_dir):
            record.weights_file = None

    def _keep(self, step: PipeStep, mark: str) -> None:
        records = [record.as_dict() for record in self.report.of(step.name)]
        text = json.dumps({'mark': mark, 'records': records}, indent=2)
        write_atomically(step.work_dir / STATE, text.encode())


def names_of_steps(cfg: Config) -> list[str]:
    """The names in ``pipeline``, each of which has a section with a ``pipe_step``."""
    names = cfg.get('pipeline')
    if names is None:
        raise WrongKey(f'the config has no pipeline{_instead_of_pipeline(cfg)}')
    names = [names] if isinstance(names, str) else names
    with placed_errors(cfg, 'pipeline'):
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            raise WrongType(f"pipeline must be a list of names of steps, such as ['nas'], but got {names!r}")
        for name in names:
            plain_file_name(name)
            if names.count(name) > 1:
                raise WrongValue(f'pipeline has the step {name!r} twice: give the second one another name')
            if name in TOP:
                raise WrongValue(f'pipeline has the step {name!r}, which is the name of another section')
            if name not in cfg:
                sections = [key for key in cfg if isinstance(cfg[key], Mapping)]
                hint = suggestion(name, sections)
                raise WrongKey(f'the config has no section {name!r}, which is a step of its pipeline{hint}')
    for name in names:
        section = cfg[name]
        if not isinstance(section, Mapping) or not isinstance(section.get('pipe_step'), Mapping):
            with placed_errors(cfg, name):
                raise WrongType(f"the step {name!r} needs pipe_step=dict(type='SearchPipeStep'), or another type")
    for key in cfg:
        meant = near_miss(str(key), (*TOP, *names))
        if meant and meant not in cfg:
            with placed_errors(cfg, key):
                raise WrongKey(f'unknown key {key!r}; did you mean {meant!r}?')
    return list(names)


def _instead_of_pipeline(cfg: Config) -> str:
    """What to do with a config without ``pipeline``, by what it has."""
    meant = near_miss('pipeline', [str(key) for key in cfg])
    if meant:
        return f", such as pipeline = ['nas', 'fullytrain']; did you mean {meant!r} to be 'pipeline'?"
    if 'model' in cfg and ('runner' in cfg or 'optimizer' in cfg):
        return '; this is the config of one training: runnerkit train'
    names = [str(key) for key, part in cfg.items() if isinstance(part, Mapping) and 'pipe_step' in part]
    if names:
        return f': write which steps are done, and in which order: pipeline = {names!r}'
    return ", such as pipeline = ['nas', 'fullytrain'], each a section with a pipe_step"
