"""Finds out whether what a run has trained is finite: its weights, the states of its optimizers, its losses."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from runnerkit.checkpoint import get_state_dict
from runnerkit.checkpoint.finite import AT_START, NON_FINITE, described, why_not_finite
from runnerkit.distributed import all_gather_objects
from runnerkit.optim.finite import find_non_finite
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.dtensors import is_sharded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runnerkit.runner.updates import Updates


class Finiteness:
    """Looks when a checkpoint is saved, and when a run ends: never in between.

    Attributes:
        exempt: the names of buffers and frozen parameters that were not finite when the run began, such as masks; None
            before that.
        last: on rank 0, the newest checkpoint that is finite, once it is written.
    """

    def __init__(self) -> None:
        self.exempt: frozenset[str] | None = None
        self.last: str | None = None

    def begin(self, runner: Updates) -> None:
        """Note what is not finite on purpose, unless the resumed run has noted it; all ranks call it."""
        if self.exempt is None:
            names = list(find_non_finite({k: v for k, v in _weights(runner).items() if not v.requires_grad}))
            each = all_gather_objects(names) if is_sharded(runner.model) else [names]
            self.exempt = frozenset().union(*each)

    def resume(self, loaded: Mapping[str, Any], checkpoint: str) -> None:
        """Know what the run has noted that ``checkpoint`` is of, a file with the content ``loaded``."""
        if NON_FINITE in loaded['meta']:
            self.exempt = frozenset(loaded['meta'].get(AT_START, ()))
        self.last = checkpoint if why_not_finite(loaded) is None else None

    def look(self, runner: Updates, alone: bool = False) -> dict[str, str]:
        """What is not finite, in words, under ``'weights'``, ``'optimizer'`` and ``'loss'``; empty if all is.

        Losses are those since the last checkpoint; they do not count where a loss scaler or a hook skips updates with
        bad gradients. All ranks call it and get the same answer, unless it is asked ``alone``.
        """
        weights, exempt = _weights(runner), self.exempt or ()
        states = dict(_states(runner, weights))
        checked = {('weights', name): each for name, each in weights.items() if name not in exempt}
        bad = find_non_finite({**checked, **{('optimizer', name): each for name, each in states.items()}})
        found = {}
        for kind in ('weights', 'optimizer'):
            if of_kind := {name: count for (which, name), count in bad.items() if which == kind}:
                found[kind] = described(of_kind)
        skips = any(update.scaler for update in runner._updates.values())
        skips = skips or any(getattr(hook, 'skips_updates', False) for hook in runner.hooks)
        if not skips and not runner._train_log.losses_are_finite():
            found['loss'] = 'a training loss since the last checkpoint'
        for each in () if alone else all_gather_objects(found):
            found = {**each, **found}
        return found

    def facts(self, found: Mapping[str, str]) -> dict[str, Any]:
        """What the meta of a checkpoint says: what `look` has found, and what was not finite at the start."""
        return {NON_FINITE: dict(found), **({AT_START: sorted(self.exempt)} if self.exempt else {})}

    @staticmethod
    def advice(runner: Updates, found: Mapping[str, str]) -> str:
        """What to say at the end of a run whose weights are not finite."""
        last = runner._finiteness.last
        if last is None:
            remedy = 'There is no finite checkpoint: train anew with a smaller learning rate'
        else:
            remedy = f'Continue from the newest finite checkpoint, {last}, with a smaller learning rate: '
            remedy += _command(runner, last)
        return (
            f'THE RUN HAS DIVERGED: NaN or infinite values in {found["weights"]}. Checkpoints with such values are '
            f'never the best one and replace no finite one. {remedy} (or clip gradients, '
            'optimizer_config.grad_clip.max_norm; NonFiniteHook finds the first bad batch).'
        )


def _weights(runner: Updates) -> dict[str, Tensor]:
    """Parameters and buffers by their names in a checkpoint."""
    if not isinstance(runner.model, nn.Module):
        return {}
    held = get_state_dict(runner.model, keep_vars=True)
    return {name: each for name, each in held.items() if isinstance(each, Tensor)}


def _states(runner: Updates, weights: Mapping[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
    """The states of optimizers that belong to single values of parameters, as momenta do."""
    names = {id(each): name for name, each in weights.items()}
    for optimizer in named_optimizers(runner.optimizer).values():
        for parameter, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                # Other single numbers may be infinite until there is something to count.
                if isinstance(value, Tensor) and (value.dim() or value.shape == parameter.shape):
                    yield f'{key} of {names.get(id(parameter), "a parameter")}', value


def _command(runner: Updates, checkpoint: str) -> str:
    config = os.path.join(runner.work_dir or '', str(runner.meta.get('exp_name', '')))
    if not os.path.isfile(config):
        return f'runner.resume({checkpoint!r})'
    words = ['runnerkit', 'train', config, '--work-dir', str(runner.work_dir), '--resume-from', checkpoint]
    optimizers = named_optimizers(runner.optimizer)
    rates = {float(group.get('initial_lr', group['lr'])) for each in optimizers.values() for group in each.param_groups}
    if len(rates) == 1 and '' in optimizers:
        words += ['--cfg-options', f'optimizer.lr={rates.pop() / 10:.3g}']
    return shlex.join(words)
