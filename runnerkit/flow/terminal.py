"""Stage 5, after the training, even if it failed: report the results and clean up."""

from __future__ import annotations

import os
import shutil
from typing import Any

from runnerkit.distributed import barrier, shutdown
from runnerkit.fileio.paths import is_url
from runnerkit.flow.context import Context
from runnerkit.flow.curve import plot
from runnerkit.flow.preflight import show_findings
from runnerkit.utils.logging import printable


class Terminal:
    """Report where the results are, draw the learning curve, leave the process group."""

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        try:
            if context.runner is not None and context.rank == 0 and not context.options.dry_run:
                self.report(context)
                self.draw(context)
            if context.outcome is not None or context.options.dry_run:  # else they have not been shown before
                show_findings(context, 'Once more, from the start of the run')
        finally:
            if context.outcome is not None and context.outcome.ended_well:
                barrier()  # no rank may leave the process group while another still communicates
            shutdown()
            if context.lock is not None:
                context.lock.release()
            if context.options.dry_run and context.work_dir.name.startswith('runnerkit-dry-run-'):
                shutil.rmtree(context.work_dir, ignore_errors=True)

    def report(self, context: Context) -> None:
        """Log the best score, and the paths of the best and the last checkpoint."""
        messages: dict[str, Any] = context.runner.meta.get('hook_msgs', {})
        if 'best_ckpt' in messages:
            context.logger.info('Best score %.4f, checkpoint %s', messages['best_score'], shown(messages['best_ckpt']))
        if 'last_ckpt' in messages:
            context.logger.info('Last checkpoint %s', shown(messages['last_ckpt']))

    def draw(self, context: Context) -> None:
        """Draw ``curve.png``, or log that matplotlib is missing."""
        try:
            path = plot(context.work_dir)
        except ModuleNotFoundError:
            context.logger.info("no learning curve is drawn: it needs matplotlib (pip install 'runnerkit[plot]')")
            return
        if path is not None:
            context.logger.info('Learning curve %s', shown(path))


def shown(path: str | os.PathLike[str]) -> str:
    """``path`` as the user would type it: relative if it is below the current folder."""
    path = os.fspath(path)
    below = not is_url(path) and os.path.abspath(path).startswith(os.getcwd() + os.sep)
    return printable(os.path.relpath(path) if below else path)
