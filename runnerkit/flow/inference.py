"""A run that does not train: it evaluates every checkpoint of a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from operator import methodcaller
from typing import Any

from runnerkit.checkpoint import Store
from runnerkit.checkpoint.atomic import write_atomically
from runnerkit.distributed import from_first_rank
from runnerkit.flow.context import Context
from runnerkit.flow.defaults import required_section
from runnerkit.flow.dry_run import describe, printer, stages_of
from runnerkit.flow.loading import build_loaders
from runnerkit.flow.network import NetworkBase
from runnerkit.flow.scoring import scoring
from runnerkit.flow.splits import splits_in
from runnerkit.flow.stage import STAGES
from runnerkit.flow.training import RunnerBase
from runnerkit.utils.exceptions import WrongKey
from runnerkit.utils.logging import print_result, printable

#: The file with the scores, in the work dir.
SCORES = 'scores.json'


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
            found = build_loaders(context, data, split, prefix=prefix)
            context.loaders += found.values()
        self.build_model(context)


@STAGES.register_module()
class Infer(RunnerBase):
    """Evaluate every checkpoint of a folder, oldest first; scores are computed anew for each.

    The scores of all are in ``scores.json`` in the work dir, and in ``context['scores']``: a list of dicts with
    ``checkpoint``, ``epoch``, ``iter`` and the scores by name.

    Args:
        context: the run's.
        checkpoints: a folder, or one checkpoint.
    """

    def __init__(self, context: Context, checkpoints: str) -> None:
        self.checkpoints = checkpoints

    def __call__(self, context: Context) -> None:
        """Run the stage: nothing of a training is set up, and of an earlier run in the work dir nothing is moved."""
        if context.options.dry_run:
            self.show(context)
            return
        with context.guard(context):
            self.run(context)

    def run(self, context: Context) -> None:
        """Evaluate."""
        context['scores'] = found = []
        paths = from_first_rank(self.paths)
        with scoring(context) as score:
            for path in paths:
                found.append(self.scores(context, path, score))
                if context.rank == 0:  # each time, so that an error in a later one does not lose them
                    content = json.dumps(found, indent=2) + '\n'
                    write_atomically(context.work_dir / SCORES, methodcaller('write', content.encode()))

    def show(self, context: Context) -> None:
        """Show what the run would do. The checkpoints may be those that another run has yet to write."""
        say = printer(context)
        say(stages_of(context))
        try:
            say(f'Checkpoints to evaluate: {", ".join(from_first_rank(self.paths))}')
        except FileNotFoundError as error:
            say(f'Checkpoints to evaluate: none yet ({error})')
        with scoring(context):
            say(f'Hooks:\n{context.runner.get_hook_info() or "none"}')
        for loader in context.loaders:
            say('\n'.join(['First batch:', *describe(next(iter(loader)))]))

    def paths(self) -> list[str]:
        """The checkpoints to evaluate.

        Raises:
            FileNotFoundError: there are none.
        """
        if os.path.isfile(self.checkpoints):
            return [self.checkpoints]
        found = sorted(Store(self.checkpoints).numbered(), key=lambda each: each.number)
        if not found:
            raise FileNotFoundError(
                f'{self.checkpoints} holds no checkpoints (epoch_<n>.pth or iter_<n>.pth): give the folder in which a '
                'run has saved them'
            )
        return [each.path for each in found]

    def scores(self, context: Context, path: str, score: Callable[[Any], dict[str, float]]) -> dict[str, Any]:
        """The scores of one checkpoint, after where it was saved."""
        checkpoint = context.runner.load_checkpoint(path, strict=True)
        meta = checkpoint.get('meta') or {}
        numbers = score(checkpoint)
        if context.rank == 0:
            told = ', '.join(f'{printable(name)} {value:.4g}' for name, value in numbers.items())
            print_result(f'{os.path.basename(path)}: {told}', context.logger)
        return {'checkpoint': os.path.basename(path), 'epoch': meta.get('epoch'), 'iter': meta.get('iter'), **numbers}
