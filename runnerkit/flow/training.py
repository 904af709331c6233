"""Stage 4: the training itself."""

from __future__ import annotations

from runnerkit.flow.context import Context


class Runner:
    """Run the workflow."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        try:
            context.runner.run(context.loaders, context.workflow)
        finally:
            context.outcome = context.runner.outcome
