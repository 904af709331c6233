"""Stage 4: the training itself."""

from __future__ import annotations

from pathlib import Path

from runnerkit.flow.context import Context


class Runner:
    """Write the final config to the work dir, and run the workflow."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        if context.rank == 0:
            # Only now, so that a run refused earlier does not overwrite the config of the run before.
            cfg = context.cfg
            cfg.dump(str(context.work_dir / (Path(cfg.filename).name if cfg.filename else 'config.py')))
        try:
            context.runner.run(context.loaders, context.workflow)
        finally:
            context.outcome = context.runner.outcome
