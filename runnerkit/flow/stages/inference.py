"""A run that does not train: it evaluates every checkpoint of a folder."""

from __future__ import annotations

import json
import os
from functools import partial
from operator import itemgetter
from pathlib import Path

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.atomic import is_checkpoint_folder, write_atomically
from runnerkit.data.named import name_of_scores
from runnerkit.distributed import from_first_rank
from runnerkit.flow.context import Context
from runnerkit.flow.look import curve
from runnerkit.flow.look.dry_run import DryRun, printer
from runnerkit.flow.stages.defaults import required_section, splits_in
from runnerkit.flow.stages.loading import build_loaders
from runnerkit.flow.stages.network import NetworkBase
from runnerkit.flow.stages.stage import STAGES
from runnerkit.flow.stages.training import RunnerBase
from runnerkit.flow.use.scoring import scoring
from runnerkit.flow.work_dir.resume import is_in
from runnerkit.utils.exceptions import WrongKey
from runnerkit.utils.logging import print_result, printable

#: The files with the scores and with their curves, in the work dir.
SCORES, PICTURE = 'scores.json', 'scores.png'


@STAGES.register_module()
class InferNetwork(NetworkBase):
    """The model without an optimizer, and the splits ``test`` and ``test_…`` of ``data``."""

    def build_network(self, context: Context) -> None:
        """Build the loaders and the model."""
        data = required_section(context.cfg, 'data')
        splits = [split for split in splits_in(data) if split == 'test' or split.startswith('test_')]
        if not splits:
            raise WrongKey('the config has no data.test to evaluate on')
        for split in splits:
            prefix = '' if split == 'test' else split
            context.loaders += build_loaders(context, data, split, prefix=prefix).values()
        self.build_model(context)


@STAGES.register_module()
class Infer(RunnerBase):
    """Evaluate every checkpoint of a folder, oldest first; scores are computed again for each.

    The scores of all are in ``scores.json`` in the work dir, and in ``context['scores']``: a list of dicts with
    ``checkpoint``, ``epoch``, ``iter`` and the scores by name. ``scores.png`` has the validation curve, if there are
    several checkpoints and matplotlib is installed.

    Args:
        context: the run's.
        checkpoints: a folder, or one checkpoint.
    """

    def __init__(self, context: Context, checkpoints: str) -> None:
        self.checkpoints = checkpoints

    def __call__(self, context: Context) -> None:
        """Run the stage: nothing of a training is set up."""
        if context.options.dry_run:
            with scoring(context, context.work_dir):
                self.try_out(context)
            return
        with context.guard(context):
            self.run(context)

    def try_out(self, context: Context) -> None:
        """Evaluate one batch of each data set with the initial weights: the checkpoints may not be there yet."""
        dry, loaders = DryRun(context), context.loaders
        dry.show_plan(context)
        for text, loss in dry.try_batches(context, {('val', name_of_scores(loader)): loader for loader in loaders}):
            printer(context)(f'{text}\nIts loss: {loss}')

    def begin(self, context: Context) -> None:
        """Make the work dir this run's; if it is the folder of the checkpoints, it stays that of their run."""
        if not is_in(self.checkpoints, context.work_dir):
            super().begin(context)

    def run(self, context: Context) -> None:
        """Evaluate, and write the scores."""
        context['scores'] = scores = []
        paths = from_first_rank(self.paths)
        self.begin(context)
        with scoring(context, context.work_dir) as score:
            for path in paths:
                checkpoint = context.runner.load_checkpoint(path, strict=True)
                meta, name = checkpoint.get('meta') or {}, os.path.basename(path)
                numbers = score(checkpoint)
                scores.append({'checkpoint': name, 'epoch': meta.get('epoch'), 'iter': meta.get('iter'), **numbers})
                if all(each['iter'] is not None for each in scores):
                    scores.sort(key=itemgetter('iter'))  # epoch_<n>.pth and iter_<n>.pth may stand side by side
                if context.rank == 0:
                    text = ', '.join(f'{printable(name)} {value:.4g}' for name, value in numbers.items())
                    print_result(f'{name}: {text}', context.logger)
                    # Each time, so that an error in a later one does not lose them.
                    write_atomically(context.work_dir / SCORES, (json.dumps(scores, indent=2) + '\n').encode())
        if context.rank == 0:
            curve.draw_and_tell('validation curve', partial(self.draw, context), context.logger)

    def draw(self, context: Context) -> Path | None:
        """Draw the scores over the iterations after which the checkpoints were saved."""
        lines = [{'mode': 'test', 'step': each['iter'], **each} for each in context['scores']]
        if len(lines) < 2 or any(line['step'] is None for line in lines):  # one point, or files of other programs
            return None
        title = f'{context.work_dir.name}: validation curve'
        return curve.draw_curve(lines, context.work_dir / PICTURE, title, focus=False)

    def paths(self) -> list[str]:
        """The checkpoints to evaluate."""
        if os.path.isfile(self.checkpoints) or is_checkpoint_folder(self.checkpoints):
            return [self.checkpoints]
        files = sorted(Store(self.checkpoints).numbered(), key=lambda each: each.number)
        if not files:
            raise FileNotFoundError(
                f'{self.checkpoints} holds no checkpoints (epoch_<n>.pth or iter_<n>.pth): give the folder in which a '
                'run has saved them'
            )
        return [each.path for each in files]
