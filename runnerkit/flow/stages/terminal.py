"""Stage 5, after the training, even if it failed: report the results."""

from __future__ import annotations

from functools import partial
from typing import Any

from runnerkit.fileio.paths import shown
from runnerkit.flow.context import Context
from runnerkit.flow.look.curve import draw_and_tell, plot
from runnerkit.flow.preflight import show_findings
from runnerkit.flow.report.page import write_runs
from runnerkit.flow.report.record import is_run
from runnerkit.flow.stages.stage import STAGES, Stage
from runnerkit.flow.work_dir.journal import is_trial
from runnerkit.utils.exceptions import one_line
from runnerkit.utils.logging import print_result, printable


class TerminalBase(Stage):
    """The end of a run, however it ended (``context.outcome``): a subclass overrides `terminal`.

    The flow closes afterwards what the stages have opened.
    """

    def __call__(self, context: Context) -> None:
        """Run the stage."""
        self.terminal(context)

    def terminal(self, context: Context) -> None:
        """Do what is left to do: clean up data, upload the model."""


@STAGES.register_module()
class Terminal(TerminalBase):
    """The default: report where the results are, draw the learning curve, write the report, repeat warnings."""

    def terminal(self, context: Context) -> None:
        """Report."""
        has_run = getattr(context.runner, 'outcome', None) is not None  # else the files there are of another run
        if has_run and context.rank == 0 and not context.options.dry_run:
            self.report(context)
            best = context.runner.meta.get('hook_msgs', {}).get('best_ckpt')
            outcome = '' if context.outcome is None or context.outcome.kind == 'completed' else context.outcome.kind
            draw_and_tell('learning curve', partial(plot, context.work_dir, best, outcome), context.logger)
            self.write_report(context)
        if has_run or context.options.dry_run:  # else they have not been shown before
            show_findings(context, 'Warnings' if context.options.dry_run else 'Once more, from the start of the run')

    def report(self, context: Context) -> None:
        """Print the latest scores, the best one, and the paths of the best and the last checkpoint."""
        by_iter: dict[int, list[str]] = {}
        for name, score in context.runner.scores.items():
            by_iter.setdefault(score.iter, []).append(f'{printable(name)} {score.value:.4g}')
        for done in sorted(by_iter):
            print_result(f'Scores after {done} iterations: {", ".join(by_iter[done])}', context.logger)
        messages: dict[str, Any] = context.runner.meta.get('hook_msgs', {})
        if 'best_ckpt' in messages:
            best = f'Best score {messages["best_score"]:.4f}, checkpoint {shown(messages["best_ckpt"])}'
            print_result(best, context.logger)
        if 'last_ckpt' in messages:
            print_result(f'Last checkpoint {shown(messages["last_ckpt"])}', context.logger)

    def write_report(self, context: Context) -> None:
        """Write ``report.html``, unless ``report`` is off in the config or this is a trial of a study."""
        is_wanted = context.cfg is None or context.cfg.get('report', True)
        if not is_wanted or is_trial(context) or not is_run(context.work_dir):
            return
        try:
            context.logger.info('Report %s', shown(write_runs([context.work_dir])))
        except Exception as error:  # what was trained is worth more than its report
            context.logger.warning('no report is written: %s: %s', type(error).__name__, one_line(error))
            context.logger.debug('no report is written', exc_info=True)
