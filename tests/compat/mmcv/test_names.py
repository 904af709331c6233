"""Every public training name of MMCV 1.7.2, with its signature: against tables that the real one printed
(benchmarks/golden_names.py)."""

import importlib
import inspect
import json

from support import ROOT, benchmark
from torch.nn import BatchNorm2d
from torch.nn.parallel import DistributedDataParallel

parameters = benchmark('golden_names').parameters  # told as in the table
DATA = ROOT / 'tests/data'
TABLE = json.loads((DATA / 'mmcv_signatures.json').read_text(encoding='utf-8'))
ROWS = [line.split('\t')[:2] for line in (DATA / 'mmcv_names.tsv').read_text(encoding='utf-8').splitlines()[1:]]

# Names that lie elsewhere, and differences on purpose, each with the reason.
HOMES = {'mmcv.cnn.utils.weight_init': 'runnerkit.nn'}
_STDOUT = 'file=None is the stdout of the call, not that of the import'
_NAMED = 'names the arguments that MMCV hands on'
DIFFERS = {
    'BaseRunner.train': "abstract, and without the loader that MMCV's runners take",
    'BaseRunner.val': "abstract, and without the loader that MMCV's runners take",
    'Caffe2XavierInit': _NAMED,
    'MMDataParallel': _NAMED,
    'ProgressBar': _STDOUT,
    'track_iter_progress': _STDOUT,
    'track_parallel_progress': _STDOUT,
    'track_progress': _STDOUT,
}
# The table was made with torch 2.13; an older one has other parameters in some of its own classes.
if inspect.signature(DistributedDataParallel).parameters['broadcast_buffers'].default is not None:
    DIFFERS['MMDistributedDataParallel'] = "takes what torch's takes"
LATER = [] if 'bias' in inspect.signature(BatchNorm2d).parameters else [['bias', 'KEYWORD_ONLY', 'True']]


def home_of(module):
    return HOMES.get(module, module.replace('mmcv', 'runnerkit', 1))


def resolve(name):
    module, _, attribute = name.partition(':')
    return getattr(importlib.import_module(home_of(module)), attribute)


def misfit(theirs, ours):
    """What keeps calls written for ``theirs`` from meaning the same to ``ours``; None if nothing does.

    Ours may have more parameters at the end, as long as they have defaults.
    """
    fixed = [each for each in theirs if not each[1].startswith('VAR_')]
    given = [each for each in ours if not each[1].startswith('VAR_')]
    if given[: len(fixed)] != fixed:
        return 'order, names or defaults'
    if any(each[2] is None for each in given[len(fixed) :]):
        return 'an added parameter has no default'
    variable = {each[1] for each in theirs if each[1].startswith('VAR_')}
    if not variable <= {each[1] for each in ours}:
        return 'takes fewer'
    return None


def test_the_table_has_every_row_of_the_list():
    assert len(ROWS) == 277
    assert {f'{module}:{name}' for module, name in ROWS} <= set(TABLE)


def test_a_misfit_is_noticed():
    def theirs(a, b=1, **kwargs): ...

    def same_and_more(a, b=1, c=None, **kwargs): ...

    def renamed(a, beta=1, **kwargs): ...

    def other_default(a, b=2, **kwargs): ...

    def not_at_the_end(a, c=None, b=1, **kwargs): ...

    def demanding(a, b=1, *, c, **kwargs): ...

    def narrow(a, b=1): ...

    assert misfit(parameters(theirs), parameters(same_and_more)) is None
    for other in (renamed, other_default, not_at_the_end, demanding, narrow):
        assert misfit(parameters(theirs), parameters(other))


def test_each_name_is_there_with_its_signature():
    for name, theirs in TABLE.items():
        ours = resolve(name)
        assert inspect.isclass(ours) == (theirs['kind'] == 'class'), name
        if theirs.get('parameters') is None:
            continue
        found = {'': ([each for each in theirs['parameters'] if each not in LATER], parameters(ours))}
        for method, expected in theirs.get('methods', {}).items():
            if expected is not None:
                assert hasattr(ours, method), f'{name} has no {method}'
                found[method] = expected, parameters(getattr(ours, method))
        attribute = name.partition(':')[2]
        wrong = {key: pair for key, pair in found.items() if misfit(*pair)}
        assert {key: pair for key, pair in wrong.items() if f'{attribute}.{key}'.rstrip('.') not in DIFFERS} == {}
