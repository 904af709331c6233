"""The step of a pipeline that measures trained models: size, latency, and scores on data that no trial has seen."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from runnerkit.config import Config
from runnerkit.flow.use.load import load_model
from runnerkit.flow.use.testing import test
from runnerkit.flow.work_dir.record import check_made_here, config_of
from runnerkit.registry import placed_errors
from runnerkit.search.algorithm import checked_objectives
from runnerkit.search.pipe_step import PIPE_STEPS, NothingUsable, PipeStep
from runnerkit.search.quota import counted, first_batch
from runnerkit.search.record import COMPLETED, FAILED, Record
from runnerkit.utils.exceptions import WrongKey, WrongType, one_line
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.seed import preserved_rng
from runnerkit.utils.suggest import suggestion

#: What may stand in ``latency``, and the defaults.
LATENCY = {'rounds': 30, 'warmup': 3, 'batch_size': 1, 'threads': 1}

#: Scores of which less is better, unless objectives say otherwise.
SMALLER = ('flops', 'params', 'latency')


@PIPE_STEPS.register_module()
class BenchmarkPipeStep(PipeStep):
    """Measures the models of earlier steps: ``params``, ``flops`` of one sample, ``latency`` in milliseconds of one
    batch, and the scores on a split of the data.

    The latency is the median over rounds, in each of which every model is called once, so that what else the machine
    does meets all of them alike.
    """

    KEYS = {'source': None, 'nums': None, 'split': 'test', 'objectives': None, 'latency': {}, 'evaluator': None}

    def check(self) -> None:
        """Also refuse a source that there is not, and settings of the latency that are not known."""
        super().check()
        for step in self.sources():
            self.check_split(step)
        latency = self.get('latency')
        if latency is False:
            return
        if not isinstance(latency, Mapping):
            raise WrongType(f'latency must be a dict such as dict(rounds=30), or False, but got {latency!r}')
        with placed_errors(self.cfg, 'latency'):
            for key, value in latency.items():
                if key not in LATENCY:
                    raise WrongKey(f'latency has no key {key!r}{suggestion(str(key), LATENCY)}')
                check_whole_number(f'latency.{key}', value, 0 if key == 'warmup' else 1)

    def do(self) -> None:
        """Measure all models."""
        records = self.targets()
        made = [self._record(number, record) for number, record in enumerate(records)]
        models: dict[int, tuple[nn.Module, Any]] = {}
        for record in made:
            self.report.update(record)
            self.pipeline.changed()
            try:
                models[record.number] = self._measure(record)
            except Exception as error:
                record.status, record.message = FAILED, f'{type(error).__name__}: {one_line(error)}'
                record.end = time.time()
                self.pipeline.logger.warning('%s failed: %s', record.uid, record.message)
            if self.pipeline.stop_signal is not None:
                return
        if models and self.get('latency') is not False:
            settings = {**LATENCY, **self.get('latency')}
            for number, value in latencies(models, settings['rounds'], settings['warmup'], settings['threads']).items():
                made[number].performance['latency'] = value
        for record in made:
            if record.number in models:
                record.status, record.end = COMPLETED, time.time()
                record.check_scores()
            self.pipeline.changed()
        if not any(record.status == COMPLETED for record in made):
            raise NothingUsable(f'{self.name}: none of {len(made)} models could be measured. {made[0].message}')

    def check_split(self, source: PipeStep) -> None:
        """Refuse a split that the config of the step ``source`` does not have."""
        base_config = getattr(source, 'base_config', None)
        if base_config is None:  # a user's step: the configs of its models are known when it is done
            return
        split, data = self.get('split'), base_config().data
        if split not in data:
            splits = [key for key, part in data.items() if isinstance(part, Mapping) and 'type' in part]
            raise WrongKey(
                f'{self.name}: split is {split!r}, but the config of the step {source.name} has no data.{split}'
                f'{suggestion(str(split), splits)} (it has {", ".join(splits)})'
            )

    def targets(self) -> list[Record]:
        """The records of these models: all that have completed, or, with ``nums``, the front or the best so many."""
        found: list[Record] = []
        for name in (step.name for step in self.sources()):
            records = self.report.choice(name, self.get('nums')) if self.get('nums') else self.report.of(name)
            found += [each for each in records if each.status == COMPLETED]
        if not found:
            names = ', '.join(step.name for step in self.sources())
            raise NothingUsable(f'{self.name}: no trial of {names} has completed, so there is no model to measure')
        return found

    def _record(self, number: int, source: Record) -> Record:
        given = self.get('objectives')
        kept = ('hps', 'desc', 'seed', 'threads', 'work_dir', 'weights_file', 'moment', 'iter')
        return Record(
            **{name: getattr(source, name) for name in kept},
            step=self.name,
            number=number,
            objectives=dict(source.objectives) if given is None else checked_objectives(given),
            source=source.uid,
            start=time.time(),
        )

    def _measure(self, record: Record) -> tuple[nn.Module, Any]:
        """Count and evaluate a model; returns it with a batch."""
        path = config_of(record.work_dir)
        if path is None or record.weights_file is None:
            raise FileNotFoundError(
                f'{record.work_dir} holds no config with a checkpoint of the moment at which the trial was scored '
                f'({record.moment}, iteration {record.iter})'
            )
        cfg = Config.fromfile(check_made_here(path, self.pipeline.trust))
        device, split = self.pipeline.device, self.get('split')
        if split not in cfg.data:
            raise WrongKey(f'the config has no data.{split}{suggestion(split, list(cfg.data))} ({path})')
        record.performance.update(test(path, split, checkpoint=os.fspath(record.weights_file), device=device))
        with preserved_rng():
            record.performance.update(self.pipeline.in_its_units(counted(cfg)))
            device = device or ('cuda' if torch.cuda.is_available() else 'cpu')
            model = load_model(record.weights_file, path, device=device)
            size = (self.get('latency') or {}).get('batch_size', LATENCY['batch_size'])
            batch = first_batch(cfg, split, size, next(model.parameters()).device)
        return model, batch


def latencies(
    models: Mapping[int, tuple[nn.Module, Any]], rounds: int, warmup: int = 3, threads: int = 1
) -> dict[int, float]:
    """Milliseconds that each model takes for its batch, the median over ``rounds``."""
    found: dict[int, list[float]] = {number: [] for number in models}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            for turn in range(warmup + rounds):
                for number, (model, batch) in models.items():
                    start = _now(batch)
                    called(model, batch)
                    if turn >= warmup:
                        found[number].append(1000 * (_now(batch) - start))
    finally:
        torch.set_num_threads(before)
    return {number: statistics.median(times) for number, times in found.items()}


def called(model: nn.Module, batch: Any) -> Any:
    """What the model makes of a batch."""
    predict = getattr(model, 'predict', None)
    if callable(predict):
        return predict(batch)
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, list | tuple) else model(batch)


def _now(batch: Any) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
