"""Going back to a checkpoint in the middle of a run."""

from __future__ import annotations

from typing import Any, NoReturn

from runnerkit.runner.resuming import Resuming


class GoBack(Exception):
    """The run of ``runner`` is to go on from ``checkpoint``; its loop catches it."""

    def __init__(self, runner: Any, checkpoint: str) -> None:
        super().__init__(checkpoint)
        self.runner, self.checkpoint = runner, checkpoint


class Rollback(Resuming):
    """The part of a runner that goes back to a checkpoint of its own, as a resumed run would."""

    def roll_back(self, checkpoint: str) -> NoReturn:
        """Leave the running iteration or epoch at once and go on from ``checkpoint``, a file of this run; for hooks.

        In a distributed run all ranks call it at the same place. It raises what `run` catches: nothing after it is
        done, neither the rest of a hook nor the hooks behind it. Not for the points inside an update
        (``after_backward``, ``after_step``), which would be left half done.
        """
        raise GoBack(self, checkpoint)

    def _return_to(self, asked: GoBack) -> None:
        """Be where a run would be that has just resumed the checkpoint."""
        if asked.runner is not self:  # that of a run around this one
            raise asked
        self.data_batch, self.outputs, self._stepped, self._round_began = None, {}, None, None
        for update in self._updates.values():
            update.accumulated = 0  # what an update that the file does not know has gathered is void
        for reader in self._readers.entries:
            reader.close()
        self.resume(asked.checkpoint)
        self._restore()
        self.call_hook('after_roll_back')
