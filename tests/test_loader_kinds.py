"""A sample of the table of loaders; the whole one is `python benchmarks/faults.py --loaders`."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from support import benchmark

FAULTS = Path(__file__).resolve().parent.parent / 'benchmarks' / 'faults.py'
kills, loader_kinds = benchmark('kills.loaders'), benchmark('loader_kinds')

#: Cheap ones, each of another kind of state.
SAMPLE = [
    'build_dataloader, batch sampler from a config',
    'DataLoader, shuffling val',
    'sampler with random.Random',
    'sampler that counts',
    'data set with np.random.Generator',
    'data set that counts',
    'two trainings with generators',
    'stateful loader',
    'prefetcher',
]


# With one moment and every second kind, all of the sample's state is there: it guards the rest.
@pytest.mark.parametrize(
    'names, moments',
    [
        (SAMPLE[::2], ['in epoch 2']),
        pytest.param(SAMPLE, ['in epoch 2', 'in validation'], marks=pytest.mark.thorough),
    ],
)
def test_loaders_of_any_kind_are_resumed_exactly_or_it_is_told(warm, names, moments):
    options = ['--loaders', *names, '--moments', *moments]
    done = subprocess.run([sys.executable, str(FAULTS), *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f'{2 * len(names)} kinds of loaders in a runner each, 0 not as promised' in done.stdout


@pytest.mark.parametrize('runner', ['epoch', 'iter'])
def test_the_table_has_many_kinds_for_each_runner(runner):
    kinds = [kind for kind in loader_kinds.KINDS.values() if runner in kind.runners]
    assert len(kinds) > 100
    assert sum(kind.quiet for kind in kinds) > 40
    assert sum(kind.is_deep for kind in kinds) < 20


def test_no_kind_is_there_twice():
    tree = ast.parse(Path(loader_kinds.__file__).read_text(encoding='utf-8'))
    table = next(node.value for node in tree.body if isinstance(node, ast.AnnAssign) and node.target.id == 'KINDS')
    assert len(table.keys) == len(loader_kinds.KINDS)


@pytest.mark.parametrize(
    'verdict, right, right_if_quiet',
    [
        ('exact, silent', True, True),
        ('exact, but warned', True, False),
        ('differs, warned', True, False),
        ('warned', True, False),
        ('DIFFERS SILENTLY', False, False),
        ('FAILS', False, False),
    ],
)
def test_what_counts_as_promised(verdict, right, right_if_quiet):
    finding = kills.Finding(verdict)
    assert (kills.is_good(finding, quiet=False), kills.is_good(finding, quiet=True)) == (right, right_if_quiet)
    assert kills.is_good(finding, False, is_deep=True) == (right or verdict == 'DIFFERS SILENTLY')


WHOLE = {'losses': [('train', 0, 0.5), ('train', 1, 0.25), ('train', 2, 0.125)], 'state': 'a'}


@pytest.mark.parametrize(
    'found, told, verdict',
    [
        ({'losses': WHOLE['losses'][1:]}, '', 'exact, silent'),
        ({'losses': WHOLE['losses'][1:]}, 'a sentence', 'exact, but warned'),
        ({'losses': WHOLE['losses'][1:], 'state': 'b'}, '', 'DIFFERS SILENTLY'),
        ({'losses': WHOLE['losses'][:2]}, '', 'DIFFERS SILENTLY'),
        ({'losses': []}, '', 'exact, silent'),  # it was killed when all was done
        ({'losses': [('train', 2, 0.126)]}, 'a sentence', 'differs, warned'),
    ],
)
def test_weights_and_the_last_losses_are_compared(found, told, verdict):
    assert kills.judged({**WHOLE, **found}, WHOLE, told) == kills.Finding(verdict, told)
