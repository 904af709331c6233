"""The trainings of `loader_kinds.py`, killed at chosen moments: exact and silent, or with a warning."""

import importlib
import json
import logging
import os
import pickle
import random
import signal
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from kills.attempts import Attempt, digest
from kills.cells import BATCHES, EPOCHS, Net

from runnerkit.hooks import CheckpointHook, Hook, OptimizerHook
from runnerkit.hooks.hook import POINTS


class Small(Net):
    """`Net` with a second training step, and dropout: the run's own random stream matters."""

    def __init__(self):
        super().__init__(0.3)

    gen_step = Net.train_step


class Dies(Hook):
    """Records all losses; at a given moment, saves and dies.

    Args:
        moment: a point and its number of calls in this process; None: never.
    """

    runs_last = True

    def __init__(self, moment):
        self.when = moment
        self.passed = dict.fromkeys(POINTS, 0)
        self.losses = []

    def _pass(self, point, runner):
        self.passed[point] += 1
        if self.when == (point, self.passed[point]):
            runner.save_checkpoint(runner.work_dir, filename_tmpl='saved.pth')
            os.kill(os.getpid(), signal.SIGKILL)

    def before_train_iter(self, runner):
        self._pass('before_train_iter', runner)

    def after_train_iter(self, runner):
        self.losses.append((runner.mode, runner.iter, float(runner.outputs['loss'])))
        self._pass('after_train_iter', runner)

    def after_train_epoch(self, runner):
        self._pass('after_train_epoch', runner)

    def after_val_iter(self, runner):
        self.losses.append(('val', runner.iter, float(runner.outputs['loss'])))
        self._pass('after_val_iter', runner)

    def after_val_epoch(self, runner):
        self._pass('after_val_epoch', runner)


class Messages(logging.Handler):
    """Writes log records about the run's exactness to a file: those marked so, and warnings that name a loader."""

    def __init__(self, path, resumed):
        super().__init__()
        self.path, self.resumed = path, resumed

    def emit(self, record):
        # `Dies` saves in the middle of a point, after all hooks, which the file says for itself.
        is_of_save = any(
            text in record.getMessage() for text in ('among hooks that may change the run', 'inside an evaluation')
        )
        if getattr(record, 'exactness', False) and not is_of_save:
            self.note(record.levelname, record.getMessage())

    def warn(self, message, *where, **more):
        if 'loader' in str(message).lower() and any(
            part in where[1] for part in ('runnerkit/data', 'runnerkit/runner')
        ):
            self.note('WARNING', str(message))

    def note(self, level, text):
        with self.path.open('a') as file:
            file.write(json.dumps([self.resumed, level, text]) + '\n')


def moments_of(plan, name):
    """The moments of kills, by name: for each process a point and its number of calls."""
    found = {
        'in epoch 1': [('after_train_iter', 2)],
        'last batch of epoch 1': [('after_train_iter', 5)],
        'batch fetched': [('before_train_iter', 7)],
        'in epoch 2': [('after_train_iter', 8)],
    }
    if name == 'epoch':
        found['end of epoch 1'] = [('after_train_epoch', 1)]
    if plan.by_epoch[-1][0] == 'val':
        found['in validation'] = [('after_val_iter', 1)]
    found['3 times'] = [('after_train_iter', 3)] * 3
    return found


def train_kind(kind, name, moment, work_dir, every=False):
    """One process of a kind of loader in one of its runners: from the checkpoint to ``moment``, or to the end.

    Args:
        every: whether a checkpoint is saved after each iteration.
    """
    np.random.seed(0)
    random.seed(0)
    torch.manual_seed(0)
    resumed = (work_dir / 'saved.pth').exists()
    model, dies, messages = Small(), Dies(moment), Messages(work_dir / 'messages', resumed)
    limit = kind.limit or ({'max_epochs': EPOCHS} if name == 'epoch' else {'max_iters': BATCHES * EPOCHS})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    runner = kind.runners[name](model, optimizer=optimizer, work_dir=str(work_dir), **limit)
    logging.getLogger('runnerkit').addHandler(messages)
    warnings.simplefilter('always')
    warnings.showwarning = messages.warn
    plan = kind.build()
    for hook in plan.hooks:
        runner.register_hook(hook)
    if not any(isinstance(hook, OptimizerHook) for hook in plan.hooks):
        runner.register_hook(OptimizerHook())
    runner.register_hook(CheckpointHook(1 if every else 1000, by_epoch=False, save_last=False, max_keep_ckpts=1))
    runner.register_hook(dies)
    np.random.seed(99)  # the resumed state does not depend on the current generator states
    random.seed(99)
    torch.manual_seed(99)
    if resumed:
        runner.resume(str(work_dir / 'saved.pth'))
    runner.run(plan.loaders, plan.workflow(name))
    best = runner.meta.get('hook_msgs', {}).get('best_score')
    state = digest([model.state_dict(), optimizer.state_dict(), str(best), runner.epoch, runner.iter])
    return {'losses': dies.losses, 'state': state}


class Finding(NamedTuple):
    """The result of a kind in a runner, and its first message at the resume."""

    verdict: str
    message: str = ''


def killed_at(kind, name, moments, folder, label, whole):
    """The finding for runs that are killed at ``moments``, each process at the next one."""
    for moment in (*moments, None):
        attempt = Attempt(partial(train_kind, kind, name, moment, every=len(moments) > 1), folder, label)
        attempt.kill_after(60)
        if moment is not None and attempt.result.exists():
            return Finding('NOT KILLED')
    first = first_message(folder / label, resumed=True)
    if not attempt.result.exists():
        return Finding('FAILS', last_line(attempt.errors))
    return judged(pickle.loads(attempt.result.read_bytes()), whole, first)


def judged(found, whole, message):
    """The finding for a resumed run that ended with ``found``, when the undisturbed one ended with ``whole``."""
    last = whole['losses'][max(0, len(whole['losses']) - len(found['losses'])) :]
    if found == {**whole, 'losses': last}:
        return Finding('exact, but warned' if message else 'exact, silent', message)
    return Finding('differs, warned' if message else 'DIFFERS SILENTLY', message)


def first_message(work_dir, resumed):
    """The first message of runs in this work dir at their resume, or else at their start."""
    lines = [json.loads(line) for line in read(work_dir / 'messages').splitlines()]
    return next((text for was, level, text in lines if was == resumed and (not resumed or level != 'INFO')), '')


def read(path):
    return path.read_text() if path.exists() else ''


def last_line(path):
    return read(path).strip().rpartition('\n')[2]


def prove_kind(kind, name, folder, labels=()):
    """The results of a kind in the runner ``name``, by moment; only at the moments ``labels``, if given."""
    attempt = Attempt(partial(train_kind, kind, name, None), folder, 'whole')
    attempt.kill_after(60)
    if not attempt.result.exists():
        return {'undisturbed': Finding('FAILS', last_line(attempt.errors))}
    whole = pickle.loads(attempt.result.read_bytes())
    chosen = moments_of(kind.build(), name)
    found = {
        label: killed_at(kind, name, moments, folder, label, whole)
        for label, moments in chosen.items()
        if label in labels or not labels
    }
    at_start = first_message(folder / 'whole', resumed=False)
    if at_start:
        found['at the start'] = Finding('warned', at_start)
    if any(each.verdict == 'DIFFERS SILENTLY' for each in found.values()):
        again = Attempt(partial(train_kind, kind, name, None), folder, 'again')
        again.kill_after(60)
        if pickle.loads(again.result.read_bytes()) != whole:
            found['undisturbed'] = Finding('NOT REPEATABLE')
    return found


#: Verdicts that are good for every kind, and for kinds with hidden state.
GOOD, GOOD_TOO = ('exact, silent',), ('exact, but warned', 'differs, warned', 'warned')


def is_good(finding, quiet, is_deep=False):
    """Whether the promise holds: no silent difference (but of a state that lies deep), and no message about a kind that
    is known to be exact."""
    if is_deep and finding.verdict == 'DIFFERS SILENTLY':
        return True
    return finding.verdict in GOOD or (finding.verdict in GOOD_TOO and not quiet)


def prove_loaders(titles=(), labels=()):
    """Print the results for the named kinds of loaders, or for all; return the number of broken promises."""
    kinds = importlib.import_module('loader_kinds').KINDS
    bad = cells = 0
    for title in titles or kinds:
        for name in kinds[title].runners:
            with tempfile.TemporaryDirectory(prefix='loaders-') as folder:
                findings = prove_kind(kinds[title], name, Path(folder), labels)
            # The random numbers used to fetch a waiting batch are lost, so a warning is always allowed there.
            good = all(
                is_good(each, kinds[title].quiet and label != 'batch fetched', kinds[title].is_deep)
                for label, each in findings.items()
            )
            bad, cells = bad + (not good), cells + 1
            print(f'{" " if good else "!"} {title} | {name} | {summary(findings)}', flush=True)
    print(f'{cells} kinds of loaders in a runner each, {bad} not as promised')
    return bad


def summary(findings):
    """Each verdict, with its moments if they differ, and the first message."""
    verdicts = {}
    for label, each in findings.items():
        verdicts.setdefault(each.verdict, []).append(label)
    message = next((f' | {each.message}' for each in findings.values() if each.message), '')
    return '; '.join(key if len(verdicts) == 1 else f'{key} ({", ".join(verdicts[key])})' for key in verdicts) + message
