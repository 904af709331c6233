"""How much of the package a run touches: the files that a training imports, the functions that a save enters.

.venv/bin/python tests/touched.py          all figures as JSON, in some seconds
"""

import ast
import json
import re
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / 'runnerkit'
PREFIX = str(PACKAGE)


def lines_of(files):
    """Their non-blank lines."""
    return sum(bool(line.strip()) for file in files for line in Path(file).read_text(encoding='utf-8').splitlines())


class Watch:
    """Collects the functions of the package that are entered, and the most frames of it at once."""

    def __enter__(self):
        self.functions, self.deepest, self.depth = set(), 0, 0
        sys.setprofile(self)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def __call__(self, frame, event, arg):
        code = frame.f_code
        if event not in ('call', 'return') or not code.co_filename.startswith(PREFIX):
            return
        self.depth += 1 if event == 'call' else -1
        self.deepest = max(self.deepest, self.depth)
        if not code.co_name.startswith('<'):
            self.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    def counts(self, what):
        return {
            f'functions of {what}': len(self.functions),
            f'files of {what}': len({each[0] for each in self.functions}),
        }


def of_a_training():
    """One epoch of configs/mnist/lenet.py on the command line; call it in a process of its own."""
    import matplotlib.figure  # noqa: F401  (others' imports are slow to watch)
    import torch.utils.tensorboard
    import torchmetrics  # noqa: F401

    from runnerkit.cli.main import main

    torch._dynamo  # noqa: B018
    with tempfile.TemporaryDirectory() as folder, Watch() as watch:
        words = ['--work-dir', folder, '--device', 'cpu', '--cfg-options', 'runner.max_epochs=1']
        assert main(['train', str(ROOT / 'configs/mnist/lenet.py'), *words]) == 0
    modules = [module for name, module in sys.modules.items() if name.partition('.')[0] == 'runnerkit']
    files = {module.__file__ for module in modules if getattr(module, '__file__', None)}
    return {
        'files that a training imports': len(files),
        'lines in them': lines_of(files),
        'functions that it enters': len(watch.functions),
        'its deepest frame': watch.deepest,
    }


def of_a_save_and_a_score():
    """``runner.save()``, and what `EvalHook` does after an epoch with ``save_best``; each the second time."""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    from runnerkit.hooks import EvalHook
    from runnerkit.runner import EpochBasedRunner

    class Model(nn.Linear):
        def train_step(self, data, optimizer):
            loss = self(data).square().mean()
            return dict(loss=loss, log_vars=dict(loss=loss), num_samples=len(data))

        def val_step(self, data, optimizer=None):
            return self.train_step(data, optimizer)

    counts = {}

    class Watched(EvalHook):
        def after_train_epoch(self, runner):
            with Watch() as score:
                super().after_train_epoch(runner)
            with Watch() as save:
                runner.save()
            counts.update({**save.counts('a save'), **score.counts('a score')})

    loader = DataLoader(torch.randn(16, 4), batch_size=4)
    model = Model(4, 1)
    with tempfile.TemporaryDirectory() as folder:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runner = EpochBasedRunner(model, optimizer=optimizer, work_dir=folder, max_epochs=2)
        log = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
        runner.register_training_hooks(dict(policy='fixed'), dict(), dict(interval=1), log)
        runner.register_hook(Watched(loader, interval=1, save_best='loss', rule='less'), priority='LOW')
        runner.run([loader], [('train', 1)])
    return counts


def of_the_source():
    """What the text of the package says."""
    files = [*PACKAGE.rglob('*.py')]
    calls, homes, short = Counter(), defaultdict(set), []
    for file in files:
        text = file.read_text(encoding='utf-8')
        calls.update(re.findall(r'\b_[a-z]\w*', text))
        tree = ast.parse(text)
        for node in ast.walk(tree):
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if is_function and re.match('_[^_]', node.name) and node.end_lineno - node.lineno < 8:
                short.append(node.name)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and re.match('_[^_]', node.name):
                homes[node.name].add(file)
    return {
        'files': len(files),
        'lines': lines_of(files),
        'short private functions with one call': sum(calls[name] == 2 for name in short),
        'private names in several files': sum(len(places) > 1 for places in homes.values()),
    }


if __name__ == '__main__':
    print(json.dumps({**of_a_training(), **of_a_save_and_a_score(), **of_the_source()}))
