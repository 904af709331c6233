"""Ranks that are frozen or stuck at each place of a run: all processes of the run end, and say why."""

import signal
import time

import frozen
import pytest
from forks import CleanFork
from support import free_port

STOPPED = 'rank {} has given no sign of life for'
TIMED_OUT = 'Timed out waiting'

#: By where the process of which rank stops, or what is stuck: the exit codes, and what the one that is left says.
FAULTS = {
    'start of 1': ([1, -9], STOPPED.format(1)),
    'training of 1': ([1, -9], TIMED_OUT),
    'evaluation of 1, far': ([1, None], TIMED_OUT),  # on another machine, where nobody here can end it
    'evaluation of 0': ([-9, 1], 'rank 1 is ended where it is'),  # as rank 0 keeps the store
    'lock of 1': ([1, -9], TIMED_OUT),
    'saving of 1': ([1, -9], TIMED_OUT),
    'patience of 0': ([-9, 1], 'torchrun keeps, has not answered for 2 s'),
    'exit of 1': ([1, -9], STOPPED.format(1)),
    'error and stuck save': ([1, 1], 'rank 0 is ended where it is'),
    'error and stuck exit': ([1, 1], 'Timeout (0:00:0'),
}

#: With torch's launcher, which keeps the store itself: what the rank says that is left.
LAUNCHED = {'evaluation of 1': TIMED_OUT, 'patience of 0': STOPPED.format(0)}


#: One of each way to end; the other places are thorough, as these guard them.
FEW = ('start of 1', 'training of 1', 'evaluation of 0', 'error and stuck save', 'error and stuck exit')


def cases(faults, few):
    """The parameters of a test: those of ``few`` and, thorough, the others."""
    return [fault if fault in few else pytest.param(fault, marks=pytest.mark.thorough) for fault in faults]


def prepared(folder, init):
    folder.mkdir()
    text = frozen.CONFIG.replace('HERE', frozen.__file__).replace('INIT', init)
    (folder / 'cfg.py').write_text(text)
    return folder


def begun(folder, fault):
    """Both ranks, which meet in a file, or at rank 0."""
    prepared(folder, '' if fault.endswith(' of 0') else f'init_method="file://{folder}/meet"')
    port, forks = free_port(), []
    for rank in range(2):
        (folder / str(rank)).mkdir()
        forks.append(CleanFork(frozen.train, rank, folder, fault, port, folder=folder / str(rank)))
    return forks


def under_launcher(launch, folder, fault):
    launch(frozen.train, None, folder, fault)


@pytest.fixture(scope='module')
def ended(launch, tmp_path_factory, request):
    """The exit codes of the processes and what they have said, by each fault that is to be tested. All runs wait at the
    same time."""
    root = tmp_path_factory.mktemp('ends')
    tests = [item for item in request.session.items if str(item.path) == __file__]
    chosen = [(item.originalname.endswith('with_a_launcher'), item.callspec.params['fault']) for item in tests]
    runs = {fault: begun(root / fault.replace(' ', '_'), fault) for launched, fault in chosen if not launched}
    for fault in (fault for launched, fault in chosen if launched):
        folder = prepared(root / f'launched_{fault}'.replace(' ', '_'), '')
        runs['launched', fault] = [CleanFork(under_launcher, launch, folder, fault, folder=folder)]
    codes, deadline = {}, time.monotonic() + 300
    while waits := [(name, fork) for name, forks in runs.items() for fork in forks if fork not in codes]:
        for name, fork in waits:
            if fork.has_ended():
                codes[fork] = fork.code()
            elif time.monotonic() > deadline or (name == 'evaluation of 1, far' and runs[name][0] in codes):
                fork.send(signal.SIGKILL)
                fork.code()
                codes[fork] = None
        time.sleep(0.05)
    return {name: ([codes[fork] for fork in forks], [fork.said() for fork in forks]) for name, forks in runs.items()}


@pytest.mark.parametrize('fault', cases(FAULTS, FEW))
def test_all_processes_end_without_a_launcher(fault, ended):
    codes, said = ended[fault]
    expected, text = FAULTS[fault]
    assert codes == expected, said
    assert any(text in each for each in said)


@pytest.mark.parametrize('fault', cases(LAUNCHED, ['patience of 0']))
def test_all_processes_end_with_a_launcher(fault, ended):
    (code,), (said,) = ended['launched', fault]
    assert code == 1
    assert LAUNCHED[fault] in said
    assert 'cannot end by itself and is killed' in said
