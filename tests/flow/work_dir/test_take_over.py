"""Taking over a work dir."""

import logging
import socket

from runnerkit.checkpoint import Store
from runnerkit.config import Config
from runnerkit.flow import Context
from runnerkit.flow.work_dir import take_over
from runnerkit.flow.work_dir.take_over import other_stores, set_checkpoints_aside
from runnerkit.hooks import CheckpointHook, Hook


class Fake:
    """A runner, as far as its hooks and its work dir."""


def test_the_log_names_what_the_work_dir_lacks(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(take_over, 'files_needed', lambda cfg: [tmp_path / 'nets.py'])
    with caplog.at_level(logging.INFO, 'runnerkit'):
        take_over.take_over(Context(Config({}), work_dir=tmp_path, logger=logging.getLogger('runnerkit')))
    assert (
        'nets.py, which registers classes of the config and is not copied. To copy it: '
        f"custom_imports=dict(imports=['{tmp_path}" in caplog.text
    )


def test_a_folder_has_one_store_whatever_it_is_called(tmp_path, monkeypatch):
    """An ``out_dir`` that is the parent of the work dir means the work dir."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'runs' / 'a').mkdir(parents=True)
    (tmp_path / 'link').symlink_to('runs')
    runner = Fake()
    runner.work_dir = str(tmp_path / 'link' / 'a')
    for out_dirs, others in (
        (['runs', 'link', str(tmp_path / 'runs'), None], []),
        (['kept', str(tmp_path / 'kept'), 'memory://b', 'link'], ['kept/a', 'memory://b/a']),
    ):
        runner.hooks = [Hook(), *(CheckpointHook(out_dir=out_dir) for out_dir in out_dirs)]
        stores = other_stores(Context(Config({}), work_dir=tmp_path / 'link' / 'a', runner=runner))
        assert [store.place.removeprefix(f'{tmp_path}/') for store in stores] == others


def test_whose_checkpoints_these_are_is_known_until_the_last_one_has_moved(tmp_path):
    store = Store(tmp_path / 'kept')
    (tmp_path / 'kept').mkdir()
    for name in ('best_a_epoch_1.pth', 'epoch_1.pth'):
        (tmp_path / 'kept' / name).write_text('')
    store.set_owner({'work_dir': str(tmp_path), 'host': socket.gethostname(), 'run': 'a'})
    moved = []
    store.move = lambda names, to: moved.extend(names)
    set_checkpoints_aside(
        Context(Config({}), work_dir=tmp_path, logger=logging.getLogger('runnerkit')), store, 'earlier/x'
    )
    assert moved == ['best_a_epoch_1.pth', 'epoch_1.pth', '.run.json']
