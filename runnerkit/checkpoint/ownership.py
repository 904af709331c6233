"""Which run a folder of checkpoints belongs to: of two work dirs of one name with one ``out_dir``, one is refused."""

from __future__ import annotations

import socket
import uuid

from runnerkit.checkpoint.store import OWNER, Store


def claim(store: Store, work_dir: str, resumed: str | None = None) -> str:
    """Make sure that ``store`` belongs to the run in ``work_dir``; a store without an owner is taken.

    A run is known by an id, which is made once per work dir and kept in it, so that a work dir can be moved. A work dir
    that was deleted and made again on the same machine has the same owner, as has one of the same path on another
    machine as long as there is nothing to overwrite (a container that was started again).

    Args:
        store: where the run is going to save.
        work_dir: the run's folder on this machine.
        resumed: the id of the run whose checkpoint this one goes on from.

    Returns:
        The run's id.

    Raises:
        FileExistsError: the store belongs to another run.
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
