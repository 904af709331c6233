"""Studies begun and killed at commit 5e7366e9; ``tests/data/old/studies.json.gz`` has what they had written."""

import os

from studies import AtOnce, config_file

from runnerkit.search import Condition, Float, Int, Space
from runnerkit.search.study import Study

#: A space with each kind of parameters, a condition and a forbidden combination.
SPACE = {
    'parameters': {
        'optimizer.lr': Float(1e-3, 1e-1, log=True),
        'optimizer.momentum': {'type': 'Float', 'low': 0, 'high': 0.9, 'step': 0.3},
        'model.widths': [[8, 16], [16, 32]],
        'model.depth': Int(1, 4),
        'model.code': {'type': 'BinaryCode', 'length': 3},
        'optimizer.nesterov': {'type': 'Bool'},
    },
    'conditions': [Condition('optimizer.nesterov', 'optimizer.momentum', 'IN', [0.3, 0.9])],
    'forbidden': [{'model.widths': [16, 32], 'model.depth': 4}],
}
ASHA = {'type': 'ASHA', 'min_resource': 1, 'reduction_factor': 2}

#: The algorithm of each study, and the report at which it was killed: a trial has three.
STUDIES = {
    'TPE': ({'type': 'TPE', 'trials': 9, 'n_startup_trials': 3, 'pruner': ASHA}, 11),
    'QMC': ({'type': 'QMC', 'trials': 6}, 7),
    'NSGA2': ({'type': 'NSGA2', 'trials': 8, 'population_size': 3}, 13),
    'Grid': ({'type': 'GridSearch', 'trials': 14, 'points': 2}, 23),
}


class Killed(AtOnce):
    """Ends the process after so many reports."""

    def __init__(self, reports):
        super().__init__()
        self.left = reports

    def start(self, job, report):
        def reported(*args):
            self.left -= 1
            if self.left < 0:
                os._exit(9)
            return report(*args)

        super().start(job, reported)


def too_large(proposal):
    return 'it is too large' if sum(proposal.hps['model.code']) == 3 else None


def study(name, folder, kill=False):
    algorithm, reports = STUDIES[name]
    config = folder / 'config.py'
    if not config.exists():
        config_file(folder, model={'type': 'support.Line', 'widths': [1], 'depth': 1, 'code': [1]},
                    optimizer={'type': 'SGD', 'lr': 0.1, 'momentum': 0.0, 'nesterov': False})  # fmt: skip
    executor = Killed(reports) if kill else AtOnce()
    return Study(
        config, Space.of(SPACE), {'error': 'min'}, folder / 'study', algorithm, executor, seed=3, why_not=too_large
    )
