"""The journal of a study: Optuna reads it, and what a killed process has left of a line does not spoil it."""

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
