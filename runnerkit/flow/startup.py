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
from runnerkit.flow.places import is_in, load_from, restarts, resume_from, resumes
from runnerkit.flow.preflight import Plan, is_complete, show_findings
from runnerkit.hooks import CheckpointHook
from runnerkit.log_files import set_aside
from runnerkit.registry import placed_errors


class Startup:
    """Resume, load weights, or neither: the first of ``resume_from``, auto-resume and ``load_from`` that applies."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        checkpoint, weights = self.to_resume(context), load_from(context)
        if checkpoint is not None:
            with placed_errors(None if context.options.resume_from else context.cfg, 'resume_from'):
                context.runner.resume(checkpoint)
            context.findings += is_complete(Plan.of(context), checkpoint)
        elif weights:
            with placed_errors(None if context.options.load_from else context.cfg, 'load_from'):
                context.runner.load_checkpoint(weights)
        show_findings(context, 'Before the first batch')

    def to_resume(self, context: Context) -> str | None:
        """The checkpoint to resume from, if any. If its run is the one in the work dir, ``context.continues`` is set.

        A job that torchrun or Slurm has restarted goes on where its own run was, whatever the command says.
        """
        stores, explicit = self.stores(context), resume_from(context)
        is_restarted = restarts(context)
        if explicit and not is_restarted:
            context.continues = any(is_in(explicit, store.place) for store in stores)
            return explicit
        if not (is_restarted or resumes(context)):
            return None
        context.continues = True
        latest = from_first_rank(partial(self.newest, stores))
        if latest is None and explicit:
            return explicit
        if latest is None:
            if context.rank == 0:
                set_aside(context.work_dir)  # logs of a run that was killed before its first checkpoint
            places = ', '.join(map(str, stores))
            context.logger.info('nothing to resume in %s: the run starts from the beginning', places)
        return latest

    def stores(self, context: Context) -> list[Store]:
        """The stores that may hold checkpoints of the run."""
        hooks = [hook for hook in getattr(context.runner, 'hooks', []) if isinstance(hook, CheckpointHook)]
        with placed_errors(context.cfg, 'checkpoint_config'):
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
