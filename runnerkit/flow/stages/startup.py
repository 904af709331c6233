"""Stage 3: load weights, or keep the initial ones; and note whether the run resumes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.store import why_not_finite
from runnerkit.distributed import from_first_rank
from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context
from runnerkit.flow.stages.defaults import custom_of_kind
from runnerkit.flow.stages.stage import STAGES, Stage
from runnerkit.flow.work_dir.resume import is_in, load_from, restarts, resume_from, resumes
from runnerkit.hooks import CheckpointHook
from runnerkit.hooks.storage import store_for
from runnerkit.log_files import set_aside
from runnerkit.registry import placed_errors


class StartupBase(Stage):
    """Note the checkpoint that the run resumes from, if any; then what a subclass does in `startup`.

    The runner stage resumes, after the hooks are registered: what `startup` has loaded is then replaced.
    """

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        context.resume_from = to_resume(context)
        self.startup(context)

    def startup(self, context: Context) -> None:
        """Change the model's weights, if they shall not be the initial ones."""

    def load(self, context: Context, is_fleet: bool = False, main_program: None = None) -> None:
        """Load the weights of the checkpoint in ``--load-from``, else the config's ``load_from``, if there is one.

        Args:
            context: of the run.
            is_fleet: no effect; PaddleRec's. Every rank loads.
            main_program: None; PaddleRec's. There are no programs.
        """
        weights = load_from(context)
        if weights:
            from runnerkit.checkpoint import load_checkpoint

            with placed_errors(None if context.options.load_from else context.cfg, 'load_from'):
                load_checkpoint(context.model, weights, 'cpu', logger=context.logger, revise_keys=[(r'^module.', '')])


@STAGES.register_module()
class Startup(StartupBase):
    """The default: the weights of ``load_from``, unless the run resumes."""

    def startup(self, context: Context) -> None:
        """Load the weights, if there are any to load."""
        if context.resume_from is None:
            self.load(context)


def to_resume(context: Context) -> str | None:
    """The checkpoint to resume from, if any. If its run is the one in the work dir, ``context.continues`` is set.

    A job that torchrun or Slurm has restarted continues its own run, whatever the command says.
    """
    stores, explicit = checkpoint_stores(context), resume_from(context)
    is_restarted = restarts(context)
    if explicit and not is_restarted:
        context.continues = any(is_in(explicit, store.place) for store in stores)
        return explicit
    if not (is_restarted or resumes(context)):
        return None
    context.continues = True
    if is_restarted:
        context.logger.info('restarted job: continuing the run in %s', shown(context.work_dir))
    path = from_first_rank(partial(newest, stores)) or explicit
    if not path:
        if context.rank == 0:
            set_aside(context.work_dir)  # logs of a run that was killed before its first checkpoint
        places = ', '.join(map(str, stores))
        context.logger.info('nothing to resume in %s: starting from the beginning', places)
    return path or None


def checkpoint_stores(context: Context) -> list[Store]:
    """The stores that may hold checkpoints of the run: its work dir, and its folder in each ``out_dir``."""
    cfg = context.cfg
    hooks: list[Any] = [cfg.get('checkpoint_config'), *custom_of_kind(cfg, CheckpointHook)]
    found = []
    with placed_errors(cfg, 'checkpoint_config'):
        for hook in hooks:
            read = hook.get if isinstance(hook, Mapping) else partial(getattr, hook)
            out_dir = read('out_dir', None) or context.work_dir
            found.append(store_for(out_dir, read('file_client_args', None), str(context.work_dir))[0])
    found.append(Store(context.work_dir))
    return list({store.place: store for store in reversed(found)}.values())


def newest(stores: list[Store]) -> str | None:
    """The newest checkpoint in all ``stores`` from which a run can resume."""
    found = [store.newest(why_not_resumable) for store in stores]
    return max(((each.written, each.path) for each in found if each is not None), default=(0.0, None))[1]


def why_not_resumable(path: Path) -> str | None:
    """Why a run cannot resume from the checkpoint, or would stay NaN; None if it can."""
    from runnerkit.checkpoint.integrity import Damage, training_state_problem, why_damaged
    from runnerkit.checkpoint.loader import load_checked, load_small

    if path.is_dir() and (damage := why_damaged(path)):
        return damage
    try:
        content = load_small(path, load_checked)
        return training_state_problem(content) or why_not_finite(content)
    except Damage as found:
        return str(found)
    except ValueError:  # it is intact but has to be trusted: the error of the resume says how
        return None
