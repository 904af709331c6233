"""A work dir and a checkpoint that somebody else has prepared, through the commands: no control character, no error
that is Python's own, no wait, and nothing written outside."""

import importlib.util
import json
import os
import shutil

import pytest
import torch
from hostile import TEXT, WRONG, places, poisoned, raw_in, renamed, replaced, said
from support import ROOT, thinned

from runnerkit.flow.work_dir.journal import MOST_STARTS


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    """A folder with a config and two runs of it, ``a`` and ``b``."""
    spec = importlib.util.spec_from_file_location('files_of_cli', ROOT / 'tests' / 'cli' / 'conftest.py')
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    folder = tmp_path_factory.mktemp('made')
    for name, text in module.FILES.items():
        (folder / name).write_text(text.replace('max_epochs=3', 'max_epochs=2'))
    for name, lr in (('a', 0.1), ('b', 0.05)):
        code, text, wrong = said(
            ['train', folder / 'cfg.py', '--work-dir', folder / name, '--cfg-options', f'optimizer.lr={lr}']
        )
        assert (code, wrong) == (0, []), text
    return folder


@pytest.fixture
def hostile(made, tmp_path):
    """A copy of the run ``a``, which a test changes, and a function that runs commands on it."""
    run = shutil.copytree(made / 'a', tmp_path / 'run', symlinks=True)

    def check(*names):
        return {name: checked(name, made, run) for name in names}

    check.run = run
    return check


LOOKING = ('diff', 'report', 'report both', 'runs', 'compare')
RUNNING = ('resume', 'replay', 'verify', 'predict', 'test')
WITH_CHECKPOINT = ('diff checkpoint', 'resume from', 'load from', 'publish', 'convert', 'predict with', 'evaluate')


def checked(name, made, run):
    """The exit code of a command on ``run``, and what it said, once both are found to be harmless."""
    checkpoint, out, train = run / 'epoch_1.pth', run.parent, ['train', made / 'cfg.py', '--work-dir']
    known = {*out.glob('*/*.log')}
    argv = {
        'diff': ['diff', run, made / 'b'],
        'report': ['report', run],
        'report both': ['report', run, made / 'b', '--out', out / 'both.html'],
        'runs': ['runs', out],
        'compare': ['compare', run, made / 'b'],
        'resume': [*train, run, '--auto-resume', '--cfg-options', 'runner.max_epochs=3'],
        'anew': [*train, run, '--cfg-options', 'runner.max_epochs=1'],
        'replay': ['replay', run, '--to', '7'],
        'verify': ['verify', run],
        'predict': ['predict', run, 'test'],
        'test': ['test', run],
        'diff checkpoint': ['diff', checkpoint, made / 'a' / 'epoch_1.pth'],
        'resume from': [*train, out / 'other', '--resume-from', checkpoint],
        'load from': [*train, out / 'other', '--load-from', checkpoint],
        'publish': ['publish', checkpoint, out / 'published.pth'],
        'convert': ['convert', checkpoint, out / 'weights.safetensors'],
        'predict with': ['predict', checkpoint, 'test', '--trust'],
        'evaluate': ['test', run, checkpoint, '--work-dir', out / 'scores'],
    }[name]
    code, text, wrong = said(argv)
    wrong += raw_in({*out.glob('*/*.log')} - known)
    assert not wrong, '\n'.join([name, *wrong, text[-2000:]])
    return code, text


def test_every_text_of_every_record(hostile):
    for path in (hostile.run / 'run.json', hostile.run / 'best_predictions.json'):
        path.write_text(json.dumps(poisoned(json.loads(path.read_text()))))
    (log,) = hostile.run.glob('*.log.json')
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text(''.join(json.dumps({**line, 'loss' + TEXT: 1.5}) + '\n' for line in lines))
    (text_log,) = hostile.run.glob('*.log')
    with text_log.open('a', errors='surrogateescape') as file:
        file.write('2026-01-01 00:00:00,000 - x - WARNING - \x1b[2J\u202e bad\n')
    found = hostile(*LOOKING, 'resume')
    assert r'\x1b]0;t\x07' in found['diff'][1]


def test_every_text_of_a_checkpoint(hostile):
    path = hostile.run / 'epoch_1.pth'
    content = torch.load(path)
    weights = content['state_dict']
    torch.save({**poisoned(content), 'state_dict': weights, 'optimizer': content['optimizer']}, path)
    hostile(*WITH_CHECKPOINT)
    # Names of hooks, and what was not evaluated, are quoted.
    content['meta']['not_evaluated'] = TEXT
    content['runnerkit']['ranks'][0]['hooks']['Other' + TEXT] = {}
    torch.save(content, path)
    code, text = hostile('resume from')['resume from']
    assert code == 0
    assert text.count(r'\x1b]0;t\x07') >= 2


@thinned(kind=WRONG, command=LOOKING)
def test_wrong_values_in_run_json(hostile, kind, command):
    path = hostile.run / 'run.json'
    before = json.loads(path.read_text())
    found = list(places(before))
    for place in found if kind == 'a dict' and command == 'diff' else found[:: len(found) // 6]:
        path.write_text(json.dumps(replaced(before, place, WRONG[kind])))
        hostile(command)
        if command == 'diff' and (new := renamed(before, place)):
            path.write_text(json.dumps(new))
            hostile(command)


@pytest.mark.parametrize(
    'command', [pytest.param(each, marks=pytest.mark.thorough) for each in (*WITH_CHECKPOINT, 'replay', 'resume')]
)
def test_wrong_values_in_a_checkpoint(hostile, command):
    """The cheaper test is the next one."""
    wrong_values(hostile, command, 1)


def test_some_wrong_values_in_a_checkpoint(hostile):
    wrong_values(hostile, 'resume from', 30)


def wrong_values(hostile, command, step):
    """Run ``command`` with each (or every ``step``-th) place of a checkpoint replaced by a wrong kind of value."""
    path = hostile.run / 'epoch_1.pth'
    content = torch.load(path)
    kinds = list(WRONG.values())
    for number, place in list(enumerate(places(content)))[::step]:
        torch.save(replaced(content, place, kinds[number % len(kinds)]), path)
        hostile(command)


KINDS = {
    'a pipe': lambda path, victims: os.mkfifo(path),
    'a link': lambda path, victims: path.symlink_to(victims / 'file'),
    'a link to nothing': lambda path, victims: path.symlink_to(victims / 'new'),
    'a link to a folder': lambda path, victims: path.symlink_to(victims / 'folder'),
    'a device': lambda path, victims: path.symlink_to('/dev/zero'),
    'a folder': lambda path, victims: path.mkdir(),
}
NAMES = ['run.json', '*.log.json', '*.log', '*.superseded', 'best_predictions.json', 'best_samples']
NAMES += ['first_batch', 'starts', 'code', 'cfg.py', '.flow.json', 'latest.pth', 'epoch_1.pth']
NAMES += ['report.html', 'curve.png', '.lock']


@thinned(name=NAMES, kind=KINDS, command=('resume', 'anew', 'report', 'diff', 'replay'))
def test_places_that_are_taken(hostile, tmp_path, name, kind, command):
    victims = tmp_path / 'victims'
    (victims / 'folder' / 'inner').mkdir(parents=True)
    for each in (victims / 'file', victims / 'folder' / '1-1.png'):
        each.write_text('mine')
    (log,) = hostile.run.glob('*.log.json')
    stamp = log.name.removesuffix('.log.json')
    place = hostile.run / name.replace('*.superseded', f'{log.name}.superseded').replace('*', stamp)
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)
    KINDS[kind](place, victims)
    if name == '*.superseded':
        with log.open('a') as file:
            file.write('{"half')
    before = sorted(victims.rglob('*'))
    hostile(command)
    assert sorted(victims.rglob('*')) == before
    assert {each.read_text() for each in before if each.is_file()} == {'mine'}


def test_the_recorded_starts_are_bounded(hostile):
    path = hostile.run / 'run.json'
    content = json.loads(path.read_text())
    first = content['starts'][0]
    content['starts'] = [{**first, 'number': number + 1} for number in range(MOST_STARTS)]
    path.write_text(json.dumps(content))
    hostile('resume')
    numbers = [start['number'] for start in json.loads(path.read_text())['starts']]
    assert numbers == [1, *range(3, MOST_STARTS + 2)]
    assert os.listdir(hostile.run / 'starts') == [str(MOST_STARTS)]
    assert 'run.json no longer has the starts 2 to 2' not in hostile('report')['report'][1]
