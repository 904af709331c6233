"""Stage 3: resume a run, load weights, or keep the initial ones."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from runnerkit.checkpoint import Store, why_damaged
from runnerkit.checkpoint.integrity import training_state_problem
from runnerkit.checkpoint.loader import load_tensors
from runnerkit.distributed import from_first_rank
from runnerkit.flow.context import Context
from runnerkit.hooks import CheckpointHook
from runnerkit.log_files import set_aside
from runnerkit.registry import placed_errors


class Startup:
    """Resume, load weights, or neither: the first of ``resume_from``, auto-resume and ``load_from`` that applies."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        checkpoint = self.to_resume(context)
        load_from = context.options.load_from or context.cfg.get('load_from')
        if checkpoint is not None:
            with placed_errors(None if context.options.resume_from else context.cfg, 'resume_from'):
                context.runner.resume(checkpoint)
        elif load_from:
            with placed_errors(None if context.options.load_from else context.cfg, 'load_from'):
                context.runner.load_checkpoint(load_from)

    def to_resume(self, context: Context) -> str | None:
        """The checkpoint to resume from, if any."""
        options, cfg = context.options, context.cfg
        explicit = options.resume_from or cfg.get('resume_from')
        if explicit:
            return explicit
        if not (options.auto_resume or cfg.get('auto_resume')):
            return None
        stores = self.stores(context)
        latest = from_first_rank(partial(self.newest, stores))
        if latest is None:
            if context.rank == 0:
                set_aside(context.work_dir)  # logs of a run that was killed before its first checkpoint
            places = ', '.join(map(str, stores))
            context.logger.info('nothing to resume in %s: the run starts from the beginning', places)
        return latest

    def stores(self, context: Context) -> list[Store]:
        """The stores that may hold checkpoints of the run."""
        hooks = [hook for hook in getattr(context.runner, 'hooks', []) if isinstance(hook, CheckpointHook)]
        stores = [*(hook.store(context.runner) for hook in hooks), Store(context.work_dir)]
        return list({store.place: store for store in stores}.values())

    def newest(self, stores: Iterable[Store]) -> str | None:
        """The newest checkpoint in all ``stores`` from which a run can resume."""
        found = [store.newest(why_not_resumable) for store in stores]
        return max(((each.written, each.path) for each in found if each is not None), default=(0.0, None))[1]


def why_not_resumable(path: Path) -> str | None:
    """Why a run cannot resume from the checkpoint file; None if it can."""
    damage = why_damaged(path)
    if damage is not None:
        return damage
    try:
        return training_state_problem(load_tensors(path))
    except ValueError:  # it is intact but has to be trusted: the error of the resume tells how
        return None
