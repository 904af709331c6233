"""Stage 3: where the weights come from, resumed, loaded, or as initialised."""

from __future__ import annotations

from runnerkit.checkpoint import find_latest_checkpoint
from runnerkit.distributed import broadcast_object
from runnerkit.flow.context import Context


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
        found = find_latest_checkpoint(context.work_dir) if context.rank == 0 else None
        latest: str | None = broadcast_object(None if found is None else str(found))
        if latest is None:
            context.logger.info('nothing to resume in %s: the run starts from the beginning', context.work_dir)
        return latest
