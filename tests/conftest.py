"""What all tests share: starting several ranks, the marker of the tests that do, and no process that stays behind."""

import gc
import os
import sys

import forks
import processes
import pytest
import ranks
import torch
import torch.distributed.fsdp


@pytest.fixture(scope='session')
def on_ranks():
    """`ranks.on_ranks`: a function of a test file on several ranks."""
    return ranks.on_ranks


@pytest.fixture(scope='session')
def launch():
    """`forks.launch`: a function in two processes of torch's launcher."""
    return forks.launch


def pytest_collection_modifyitems(items):
    """Mark the tests that ask for a fixture that starts ranks, be it by another fixture."""
    for item in items:
        if {'on_ranks', 'launch'}.intersection(getattr(item, 'fixturenames', ())):
            item.add_marker('distributed')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Escape what no UTF-8 text holds: xdist cannot send what a test of hostile texts has logged. What shards a model
    is skipped with a torch that cannot."""
    report = yield
    if report.failed and not HAS_FSDP2 and any(each in report.longreprtext for each in NO_FSDP2):
        report.outcome, report.longrepr = 'skipped', (str(item.path), 0, 'FSDP2 needs a later torch')
    report.sections = [(name, text.encode('utf-8', 'backslashreplace').decode()) for name, text in report.sections]
    return report


HAS_FSDP2 = hasattr(torch.distributed.fsdp.FSDPModule, 'reset_iter_state')
#: What runnerkit says, and what torch 2.6 says where a test shards by itself.
NO_FSDP2 = ('FSDP2 needs torch', "'Stream' object has no attribute 'record_event'")

gc.disable()  # what is imported and collected stays, and is much


def pytest_collection_finish():
    """Leave out of each garbage collection what the tests themselves are made of, which takes more than it all."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope='session', autouse=True)
def one_thread():
    """Tests fork this process, and a fork waits for ever for threads of torch that it does not have. `make test` asks
    for one thread, too; this is for a file that is tested by hand."""
    torch.set_num_threads(1)


@pytest.fixture(scope='session', autouse=True)
def key_of_the_tests(tmp_path_factory):
    """The key that seals work dirs is not that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_STATE_HOME', str(tmp_path_factory.mktemp('state')))
        yield


@pytest.fixture(scope='session', autouse=True)
def no_pictures():
    """See `pictures.leave_out`. Yields what draws, for the fixture `real_pictures`."""
    import pictures

    with pytest.MonkeyPatch.context() as patch:
        yield pictures.leave_out(patch)


@pytest.fixture(scope='session', autouse=True)
def no_power_loss():
    """Nothing waits for the disk: processes die in tests, machines do not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, 'fsync', lambda file: None)
        yield


@pytest.fixture
def real_pictures(no_pictures, monkeypatch):
    """For a test, or a file of tests, about pictures: they are drawn, and reports are written."""
    from matplotlib.figure import Figure

    from runnerkit.flow.report.page import write_runs

    savefig, draw_curve = no_pictures
    monkeypatch.setattr(Figure, 'savefig', savefig)
    monkeypatch.setattr('runnerkit.flow.look.curve.draw_curve', draw_curve)
    monkeypatch.setattr('runnerkit.flow.stages.terminal.write_runs', write_runs)


@pytest.fixture
def warm(monkeypatch):
    """Python programs that the test starts are forks of this process, see `forks.WarmPopen`."""
    monkeypatch.setattr('subprocess.Popen', forks.WarmPopen)


@pytest.fixture(autouse=True)
def mmcv_is_forgotten():
    """Runs log MMCV's lines in a process that has imported our stand-in for ``mmcv``: that ends with the test."""
    before = 'mmcv' in sys.modules
    yield
    if not before and getattr(sys.modules.get('mmcv'), 'IS_RUNNERKIT', False):
        for name in [name for name in sys.modules if name.partition('.')[0] == 'mmcv']:
            del sys.modules[name]


@pytest.fixture(scope='session', autouse=True)
def no_process_stays_behind():
    """Fails after the last test that this process runs, if anything that the tests have started lives on.

    With xdist each of its workers looks after what it has started itself.
    """
    processes.adopt_orphans()
    yield
    gc.collect()
    left = processes.left_by(os.getpid())
    if left:
        pytest.fail('these processes outlive the tests, not only the last one:\n' + '\n'.join(left), pytrace=False)
