"""Which run a folder of checkpoints belongs to, so that two runs with one ``out_dir`` do not overwrite each other."""

from __future__ import annotations

import socket
import uuid

from runnerkit.checkpoint.store import OWNER, Store


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
