"""The journal of a study: Optuna reads it, and what a killed process has left of a line does not spoil it."""

import resource
import signal

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from runnerkit.search.journal import Journal


def entries(backend):
    return list(backend.read_logs(0))


def test_optunas_own_backend_reads_it_and_goes_on(tmp_path):
    path = str(tmp_path / 'journal')
    journal = Journal(path)
    study = optuna.create_study(storage=JournalStorage(journal), study_name='a')
    study.optimize(lambda trial: trial.suggest_float('x', 0, 1), n_trials=3)
    journal.sync()
    theirs = optuna.load_study(study_name='a', storage=JournalStorage(JournalFileBackend(path)))
    assert [each.value for each in theirs.trials] == [each.value for each in study.trials]
    ours = optuna.load_study(study_name='a', storage=JournalStorage(Journal(path)))
    ours.optimize(lambda trial: trial.suggest_float('x', 0, 1), n_trials=1)
    assert len(theirs.trials) == 4


@pytest.mark.parametrize('left', [b'{"op_co', b''])
def test_half_a_line_is_removed(left, tmp_path):
    path = tmp_path / 'journal'
    Journal(str(path)).append_logs([{'a': 1}, {'a': 2}])
    with open(path, 'ab') as file:
        file.write(left)
    journal = Journal(str(path))
    assert entries(journal) == [{'a': 1}, {'a': 2}]
    journal.append_logs([{'a': 3}])
    assert entries(journal) == entries(JournalFileBackend(str(path))) == [{'a': 1}, {'a': 2}, {'a': 3}]


def test_entries_that_belong_together_are_written_at_once(tmp_path):
    path = tmp_path / 'journal'
    journal = Journal(str(path))
    journal.append_logs([{'a': 1}])
    with journal.together():
        journal.append_logs([{'a': 2}])
        journal.append_logs([{'a': 3}])
        assert entries(journal) == [{'a': 1}, {'a': 2}, {'a': 3}]
        assert list(journal.read_logs(2)) == [{'a': 3}]
        assert path.read_bytes().count(b'\n') == 1
    journal.append_logs([{'a': 4}])
    assert entries(journal) == entries(JournalFileBackend(str(path))) == [{'a': number} for number in (1, 2, 3, 4)]


def test_of_entries_that_belong_together_all_are_kept_or_none(tmp_path):
    path = tmp_path / 'journal'
    journal = Journal(str(path))
    journal.append_logs([{'a': 1}])
    journal.append_logs([{'a': 2}, {'a': 3}])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert entries(Journal(str(path))) == ([{'a': 1}] if length > 7 else [])


def test_what_a_full_disk_did_not_take_is_not_written_later(tmp_path):
    path = str(tmp_path / 'journal')
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    journal = Journal(path)
    journal.append_logs([{'a': 1}])
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12, limit[1]))
        with pytest.raises(OSError, match='File too large'):
            journal.append_logs([{'a': 2}])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, former)
    again = Journal(path)
    again.append_logs([{'a': 3}])
    del journal
    assert entries(Journal(path)) == [{'a': 1}, {'a': 3}]
