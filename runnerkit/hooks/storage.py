"""Where hooks put checkpoints: the work dir, or another folder or URL; and to which run such a folder belongs."""

from __future__ import annotations

import os
import socket
import uuid
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.store import OWNER
from runnerkit.distributed import from_first_rank
from runnerkit.fileio.paths import join
from runnerkit.hooks.hook import Hook, RunnerView

if TYPE_CHECKING:
    from runnerkit.fileio.file_client import FileClient


class StoringHook(Hook):
    """A hook that saves checkpoints in an ``out_dir``; by default in the work dir.

    Attributes:
        out_dir: from the start of the run, ``<out_dir>/<name of the work dir>`` if it was given, else the work dir.
    """

    needs_training = True

    out_dir: str | None = None
    file_client_args: dict[str, Any] | None = None
    _store: Store | None = None
    _is_below_out_dir = False

    def store(self, runner: RunnerView) -> Store:
        """Return the store for the files of ``runner``. It is decided once; a second run of the hook uses it again."""
        if self._store is None:
            out_dir = self.out_dir or runner.work_dir
            if out_dir is None:
                raise ValueError(
                    f'{type(self).__name__} has nowhere to save to: give the runner a work_dir, or the hook an out_dir'
                )
            store, self._is_below_out_dir = store_for(out_dir, self.file_client_args, runner.work_dir)
            self._store, self.out_dir = store, store.place
        return self._store

    @cached_property
    def file_client(self) -> FileClient:
        """What reads, writes and deletes in ``out_dir``, from the start of the run."""
        if self._store is None:
            raise AttributeError(f'{type(self).__name__} has no file_client before the run starts')
        client: FileClient = self._store.client
        return client

    def claim_store(self, runner: RunnerView) -> Store:
        """Return `store` and claim it for this run. All ranks call it when the run begins."""
        store = self.store(runner)
        if self._is_below_out_dir and runner.work_dir is not None:
            messages = runner.meta.setdefault('hook_msgs', {})
            messages['run'] = from_first_rank(partial(claim, store, runner.work_dir, messages.get('run')))
        return store

    def _delete_quietly(self, runner: RunnerView, name: str, only_look: bool = False) -> bool:
        """Delete (or look for) that checkpoint unless it is the best one; returns whether to look for older ones."""
        store = self.store(runner)
        path = store.path(name)
        if path == runner.meta['hook_msgs'].get('best_ckpt'):
            return True
        try:
            return store.has(name) if only_look else store.delete(name)
        except Exception as error:  # each storage raises different errors
            runner.logger.warning('the old checkpoint %s could not be deleted (%s)', path, error)
            return False


def store_for(
    out_dir: str | os.PathLike[str], file_client_args: dict[str, Any] | None, work_dir: str | None
) -> tuple[Store, bool]:
    """The store of a run that saves in ``out_dir``: its folder ``<out_dir>/<name of the work dir>``, unless ``out_dir``
    is the work dir; and whether it is such a folder."""
    store = Store(out_dir, file_client_args)
    if work_dir is None or store.place == work_dir:
        return store, False
    return Store(join(store.place, os.path.basename(work_dir.rstrip('/\\'))), file_client_args), True


def claim(store: Store, work_dir: str, resumed: str | None = None) -> str:
    """Make sure that ``store`` belongs to the run in ``work_dir``; claim it if it has no owner.

    A run is identified by an id, which is created once per work dir and stored there, so that a work dir can be moved.
    A work dir that was deleted and created again on the same machine still owns the store. So does a work dir of the
    same path on another machine if there is nothing to overwrite (a container that was restarted).
    """
    home = Store(work_dir)
    own = (home.owner() or {}).get('run')
    run = own or resumed or uuid.uuid4().hex
    me = {'run': run, 'work_dir': work_dir, 'host': socket.gethostname()}
    if own is None:
        home.set_owner(me)
    owner = store.owner()
    if owner is not None and owner.get('run') in (run, resumed):
        return str(owner['run'])
    if owner is not None and not (
        owner.get('work_dir') == work_dir
        and (owner.get('host') == me['host'] or not (store.numbered() or store.best()))
    ):
        raise FileExistsError(
            f'{store} belongs to the run in {owner.get("work_dir")!r} on {owner.get("host")!r}: the run in '
            f'{work_dir!r} would overwrite its checkpoints. Give this run another out_dir, or a work dir of another '
            'name. To go on with that run, use its work dir or resume one of its checkpoints. If it is over and its '
            f'checkpoints may be overwritten, delete {store.path(OWNER)}'
        )
    store.set_owner(me)
    return run


def is_owned(store: Store, work_dir: str) -> bool:
    """Whether ``store`` is known to belong to the run in ``work_dir``, or to one that was there before."""
    owner, home = store.owner() or {}, Store(work_dir).owner() or {}
    same_place = owner.get('work_dir') == work_dir and owner.get('host') == socket.gethostname()
    return same_place or (owner.get('run') is not None and owner.get('run') == home.get('run'))
