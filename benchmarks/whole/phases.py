"""Which part of a command takes which CPU seconds, for every engine alike: measured at functions that all of them call.

    python benchmarks/whole/phases.py RESULT.json SCRIPT ARGUMENT …       # or, in place of the script, -m MODULE

``imports``: loading modules, whenever it happens. ``set-up``: everything else before the first training batch.
``data``: fetching training batches. ``step``: from there to the end of the backward pass. ``update``: from there to
the next fetch: clipping, optimizer, averages, schedule, log. ``evaluation`` and ``saves``: the functions in `WITHIN`.
``end``: what follows the last of all these, and in `whole.py` what is left of the process and its child processes.
"""

import atexit
import functools
import importlib
import json
import runpy
import sys
import time
from importlib import _bootstrap
from pathlib import Path

#: Functions that are a phase as a whole, by module.
WITHIN = {
    'by_hand': {'evaluated': 'evaluation', 'saved': 'saves'},  # by hand
    'lenet_by_hand': {'evaluated': 'evaluation', 'saved': 'saves'},
    'runnerkit.hooks.evaluation': {'EvalHook._do_evaluate': 'evaluation', 'EvalHook._keep_best': 'saves'},
    'runnerkit.hooks.checkpoint': {'CheckpointHook._save_checkpoint': 'saves'},
    'runnerkit.flow.stages.inference': {'Infer.run': 'evaluation'},
    'lightning.pytorch.loops.evaluation_loop': {'_EvaluationLoop.run': 'evaluation'},
    'lightning.pytorch.trainer.trainer': {'Trainer.save_checkpoint': 'saves'},
    'mmengine.runner.loops': {'ValLoop.run': 'evaluation'},
    'mmengine.runner.runner': {'Runner.save_checkpoint': 'saves'},
    'transformers.trainer': {'Trainer.evaluate': 'evaluation', 'Trainer._save_checkpoint': 'saves'},
}
PHASES = ('imports', 'set-up', 'data', 'step', 'update', 'evaluation', 'saves', 'end')


class Meter:
    """The CPU seconds of each phase so far; ``tail`` is the part of ``update`` since the last other phase."""

    def __init__(self):
        self.phase, self.at, self.tail = 'set-up', time.process_time(), 0.0
        self.spent = {**dict.fromkeys(PHASES, 0.0), 'imports': self.at}

    def enter(self, phase):
        """Begin ``phase``, and return the one before."""
        before, now = self.phase, time.process_time()
        self.spent[before] += now - self.at
        if before == 'update':
            self.tail += now - self.at
        elif before != 'imports':
            self.tail = 0.0
        self.phase, self.at = phase, now
        return before

    def within(self, phase, function):
        """``function``, as a part of ``phase``."""

        @functools.wraps(function)
        def measured(*args, **kwargs):
            before = self.enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.enter(before)

        return measured

    def fetching(self, function):
        """A loader's ``__next__``, as ``data`` of a training."""

        @functools.wraps(function)
        def measured(iterator):
            if self.phase in ('evaluation', 'saves') or not sys.modules['torch'].is_grad_enabled():
                return function(iterator)
            after, _ = 'update', self.enter('data')
            try:
                batch, after = function(iterator), 'step'
                return batch
            finally:
                self.enter(after)

        return measured

    def backward(self, function):
        """``Tensor.backward``, the end of a step."""

        @functools.wraps(function)
        def measured(*args, **kwargs):
            function(*args, **kwargs)
            self.enter('update')

        return measured

    def loaded(self, name):
        """Measure the functions of the module ``name`` that has been loaded."""
        if name == 'torch':
            sys.modules[name].Tensor.backward = self.backward(sys.modules[name].Tensor.backward)
        if name == 'torch.utils.data.dataloader':
            iterator = sys.modules[name]._BaseDataLoaderIter
            iterator.__next__ = self.fetching(iterator.__next__)
        for path, phase in WITHIN.get(name, {}).items():
            *owners, last = path.split('.')
            owner = functools.reduce(getattr, owners, sys.modules[name])
            setattr(owner, last, self.within(phase, getattr(owner, last)))

    def listen(self):
        """Measure imports from now on."""
        load = _bootstrap._find_and_load  # what `import` and import_module call for a module that is not loaded

        def measured(name, *rest):
            if name in sys.modules:  # import_module asks again
                return load(name, *rest)
            before = self.enter('imports')
            try:
                module = load(name, *rest)
                self.loaded(name)
                return module
            finally:
                self.enter(before)

        _bootstrap._find_and_load = measured

    def write(self, path):
        self.enter('end')
        self.spent['update'] -= self.tail
        self.spent['end'] = self.tail
        path.write_text(json.dumps(self.spent))


if __name__ == '__main__':
    meter = Meter()
    atexit.register(meter.write, Path(sys.argv[1]))  # the first to be registered is the last to be called
    meter.listen()
    del sys.argv[:2]
    if sys.argv[0] == '-m':
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        importlib.import_module(Path(sys.argv[0]).stem).main(*sys.argv[1:])
