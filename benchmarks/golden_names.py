"""Record the signatures of the real MMCV 1.x's public training names, as reference data for the tests.

Run it with the Python of a virtual environment with mmcv 1.7.2 (no compiled ops are needed):

    python benchmarks/golden_names.py tests/data

It reads ``mmcv_names.tsv`` there and writes ``mmcv_signatures.json``: for each ``module:name`` its kind, its parameters
as ``[name, kind, default]`` (None without a signature), and, at the first occurrence of a class, those of its public
methods. In addition to the file's names, it records all names of the root from ``utils`` and ``fileio``, and the weight
initialisation of ``mmcv.cnn``, which is in ``runnerkit.nn``.
"""

import csv
import importlib
import inspect
import json
import pathlib
import sys
import types

MORE = [
    ('mmcv.device', 'get_device'),
    ('mmcv.parallel._functions', 'Scatter'),
    ('mmcv.parallel._functions', 'scatter'),
    ('mmcv.parallel._functions', 'get_input_device'),
    ('mmcv.runner.optimizer.builder', 'TORCH_OPTIMIZERS'),
    ('mmcv.runner.fp16_utils', 'patch_norm_fp32'),
    ('mmcv.runner.fp16_utils', 'cast_tensor_type'),
    ('mmcv.runner.checkpoint', 'get_state_dict'),
    ('mmcv.runner.hooks.lr_updater', 'annealing_linear'),
    ('mmcv.runner.hooks.lr_updater', 'format_param'),
]
MORE_OF = ['mmcv.cnn.utils.weight_init']
PLAIN = (str, int, float, bool, type(None), tuple, list, dict)


def parameters(function):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return [[p.name, p.kind.name, default(p.default)] for p in signature.parameters.values()]


def default(value):
    """The text of a default, or only its kind if the text depends on the process."""
    if value is inspect.Parameter.empty:
        return None
    if hasattr(value, 'write'):
        return '<stream>'
    return repr(value) if isinstance(value, PLAIN) else f'<{type(value).__name__}>'


def described(thing, seen):
    if inspect.isclass(thing):
        first = thing not in seen
        seen.add(thing)
        return dict(kind='class', parameters=parameters(thing), **(dict(methods=methods(thing)) if first else {}))
    if callable(thing):
        return dict(kind='function', parameters=parameters(thing))
    return dict(kind=type(thing).__name__)


def methods(cls):
    found = {}
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        function = getattr(member, '__func__', member)
        if not name.startswith('_') and inspect.isfunction(function) and function.__module__.startswith('mmcv'):
            found[name] = parameters(getattr(cls, name))
    return found


def main(folder):
    sys.modules['torchvision'] = types.ModuleType('torchvision')  # imported only for URLs of models
    with open(folder / 'mmcv_names.tsv', encoding='utf-8') as file:
        rows = [(row['module'], row['name']) for row in csv.DictReader(file, delimiter='\t')] + MORE
    root = importlib.import_module('mmcv')
    parts = [importlib.import_module(f'mmcv.{part}') for part in ('utils', 'fileio')]
    rows += [('mmcv', name) for part in parts for name in part.__all__ if hasattr(root, name)]
    for part in map(importlib.import_module, MORE_OF):
        own = [name for name, value in vars(part).items() if getattr(value, '__module__', None) == part.__name__]
        rows += [(part.__name__, name) for name in own if not name.startswith('_')]
    table, seen = {}, set()
    for module, name in rows:
        table[f'{module}:{name}'] = described(getattr(importlib.import_module(module), name), seen)
    lines = ',\n'.join(f'{json.dumps(name)}: {json.dumps(entry)}' for name, entry in sorted(table.items()))
    (folder / 'mmcv_signatures.json').write_text('{\n' + lines + '\n}\n', encoding='utf-8')


if __name__ == '__main__':
    main(pathlib.Path(sys.argv[1]))
