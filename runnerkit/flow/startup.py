"""Stage 3: where the weights come from, resumed, loaded, or as initialised."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from runnerkit.checkpoint import find_latest_at
from runnerkit.distributed import from_first_rank
from runnerkit.flow.context import Context
from runnerkit.hooks import CheckpointHook
from runnerkit.log_files import set_aside


class Startup:
    """Resume, or load weights, or neither: ``resume_from`` goes before auto-resume, which goes before ``load_from``."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        checkpoint = self.to_resume(context)
        load_from = context.options.load_from or context.cfg.get('load_from')
        if checkpoint is not None:
            context.runner.resume(checkpoint)
        elif load_from:
            context.runner.load_checkpoint(load_from)

    def to_resume(self, context: Context) -> str | None:
        """The checkpoint to go on from, if there is one."""
        options, cfg = context.options, context.cfg
        explicit = options.resume_from or cfg.get('resume_from')
        if explicit:
            return explicit
        if not (options.auto_resume or cfg.get('auto_resume')):
            return None
        places = self.places(context)
        latest = from_first_rank(partial(self.newest, places))
        if latest is None:
            if context.rank == 0:
                set_aside(context.work_dir)  # what a run has logged that died before its first checkpoint
            context.logger.info('nothing to resume in %s: the run starts from the beginning', ', '.join(places))
        return latest

    def places(self, context: Context) -> dict[str, Any]:
        """Where checkpoints of the run may lie, each with the arguments of its file client."""
        hooks = [hook for hook in getattr(context.runner, 'hooks', []) if isinstance(hook, CheckpointHook)]
        return {**{hook.place(context.runner): hook.file_client_args for hook in hooks}, str(context.work_dir): None}

    def newest(self, places: Mapping[str, Any]) -> str | None:
        """The newest whole checkpoint of all places."""
        found = [find_latest_at(place, client_args) for place, client_args in places.items()]
        return max((each for each in found if each is not None), default=(0.0, None))[1]
