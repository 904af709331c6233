"""The base of the steps of a pipeline whose work is a study."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.config import Config, refuse_unread_keys
from runnerkit.config.config_dict import walk
from runnerkit.config.origin import PreflightError
from runnerkit.fileio.paths import shown
from runnerkit.flow.from_python import config_from
from runnerkit.hooks import HOOKS, TensorboardLoggerHook
from runnerkit.registry import build_from_cfg, placed_errors
from runnerkit.search.algorithm import Proposal, as_type, plain
from runnerkit.search.executors import EXECUTORS, Executor
from runnerkit.search.job import as_option
from runnerkit.search.pipe_step import NothingUsable, PipeStep
from runnerkit.search.record import FAILED, PRUNED
from runnerkit.search.study import Study
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion


@dataclass
class Translation:
    """What a section in the shape of another system means here.

    Attributes:
        section: as the steps of this package read it; its ``config`` is the config of the trials itself.
        changes: ``changes(values)`` gives what chosen values change in that config, by dotted key.
        notes: what has no counterpart, for the log.
        units: what one parameter, and one operation, counts in the scores of that system, by name.
    """

    section: dict[str, Any]
    changes: Callable[[Mapping[str, Any]], dict[str, Any]]
    notes: list[str]
    units: Mapping[str, float]


class StudyStep(PipeStep):
    """A step whose work is a `Study`.

    Attributes:
        translation: of its section, if that has the shape of another system.
    """

    study: Study | None = None
    translation: Translation | None = None

    @property
    def config_file(self) -> str:
        """The config file of its trials; a config that the section contains is written into the step's folder."""
        given = self.get('config')
        if isinstance(given, Mapping):
            written = self.work_dir / 'config.py'
            text = Config(given).pretty_text.encode()
            # Running trials read it: write it only if it differs, in one piece.
            if not written.exists() or written.read_bytes() != text:
                write_atomically(written, text)
            return str(written)
        if given is None:
            raise WrongKey(f"{self.name} needs the key 'config'")
        if not isinstance(given, (str, os.PathLike)):
            raise WrongType(f'config must be the path of a config file, but got {given!r}')
        path = os.path.abspath(given)
        if not os.path.isfile(path):
            folder = os.path.dirname(path)
            names = os.listdir(folder) if os.path.isdir(folder) else []
            raise FileNotFoundError(
                f'config: there is no file {os.fspath(given)}{suggestion(os.path.basename(path), names)}; a relative '
                f'path starts from the folder of the config file that names it, or from {os.getcwd()}'
            )
        return path

    def content(self) -> Any:
        """The config of its trials, unless the section contains it."""
        if isinstance(self.get('config'), Mapping) or self.translation is not None:
            return None
        return Config.fromfile(self.config_file, import_custom_modules=False)._cfg_dict

    @property
    def network(self) -> str:
        """The dotted key of the network in the config."""
        return str(self.get('network'))

    @property
    def overrides(self) -> dict[str, Any]:
        """Changes of the config for all trials, by dotted key."""
        given = self.get('overrides')
        if not isinstance(given, Mapping):
            raise WrongType(f"overrides must be a dict such as {{'runner.max_epochs': 2}}, but got {given!r}")
        return dict(walk(dict(given)))

    def check(self) -> None:
        """Also refuse values of a wrong type, and those that no command line can repeat."""
        super().check()
        for key, least in (('seed', 0), ('threads', 1)):
            check_whole_number(key, self.get(key), least)
        for key, value in self.overrides.items():
            as_option(key, plain(value))

    def stop(self, number: int) -> None:
        """Stop the study."""
        if self.study is not None:
            self.study.stop(number)

    def base_config(self) -> Config:
        """The config of the trials, before anything of them is drawn."""
        given = self.get('config')
        cfg = config_from(dict(given) if isinstance(given, Mapping) else self.config_file, self.overrides)
        if 'pipeline' in cfg and 'model' not in cfg:
            raise WrongKey(f'config: {self.get("config")} is a search itself; give the config of one training')
        try:
            refuse_unread_keys(cfg)
        except PreflightError as error:
            # What a section overrides is given to the run as after --cfg-options, which was not typed here.
            raise WrongKey(f'{self.name}: {str(error).replace("(--cfg-options)", "(overrides)")}') from None
        return cfg

    def check_loggers(self) -> None:
        """Build the loggers of the trials once: all trials would fail for a package that is missing."""
        cfg = self.base_config()
        for each in [*((cfg.get('log_config') or {}).get('hooks') or ()), *(cfg.get('custom_hooks') or ())]:
            if isinstance(each, Mapping) and str(each.get('type')).endswith('LoggerHook'):
                # A tracker imports its client in its constructor.
                hook = build_from_cfg({key: each[key] for key in each if key != 'priority'}, HOOKS)
                if isinstance(hook, TensorboardLoggerHook):
                    hook.check_client()

    def executor(self) -> Any:
        """Where the trials run."""
        found = as_type(self.get('executor'))
        if self.pipeline.workers is not None:
            kind = 'Local' if found['type'] == 'Serial' else found['type']
            found = {**found, 'type': kind, 'workers': self.pipeline.workers}
            found.pop('quiet', None)
        with placed_errors(self.cfg, 'executor'):
            built = EXECUTORS.build(found)
            if not isinstance(built, Executor):
                raise WrongType(f'executor must be an Executor, but {found["type"]} gives a {type(built).__name__}')
            devices = getattr(built, 'devices', None)
            if devices and not torch.cuda.is_available():
                raise WrongValue(f'devices is {devices!r}, but no GPU was found: leave it out to train on the CPU')
        return built

    def changes(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What the chosen values of a trial change in its config, by dotted key."""
        return dict(values) if self.translation is None else self.translation.changes(values)

    def search(self, space: Any, objectives: Mapping[str, str], algorithm: Any, **more: Any) -> None:
        """Run a study."""
        study = Study(
            self.config_file,
            space,
            objectives,
            self.work_dir,
            algorithm,
            self.executor(),
            seed=self.get('seed'),
            name=self.name,
            device=self.pipeline.device,
            threads=self.get('threads'),
            overrides=self.overrides,
            network=self.network,
            report=self.report,
            on_change=self.pipeline.changed,
            known=self.known,
            changes=self.changes,
            **more,
        )
        self.study = study
        if self.pipeline.stop_signal is not None:  # it came while the study was being made
            study.stop(self.pipeline.stop_signal)
        try:
            study.run()
        finally:
            self.study = None
        if study.stop_signal is not None:
            self.pipeline.stop_signal = study.stop_signal
            return
        if not self.report.pareto_front(self.name):
            raise NothingUsable(self.why_nothing())

    def known(self, proposal: Proposal) -> dict[str, float]:
        """Scores of a proposal that are known before it is trained."""
        return {}

    def why_nothing(self) -> str:
        """Why no trial can be used."""
        records = self.report.of(self.name)
        failed, pruned = ([each for each in records if each.status == status] for status in (FAILED, PRUNED))
        counts = [f'{len(group)} {word}' for group, word in ((failed, 'have failed'), (pruned, 'were pruned')) if group]
        said = f'. Trial {failed[0].number}: {failed[0].message}' if failed else ''
        way_out = f'. Ended trials are not repeated: to start over, remove {shown(self.work_dir)}' if records else ''
        return (
            f'{self.name}: none of {len(records)} trials has completed ({", ".join(counts) or "there was none"})'
            f'{said}{way_out}'
        )
