"""Checks that the weights, optimizer states and losses of a run are finite."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from runnerkit.checkpoint import get_state_dict
from runnerkit.checkpoint.finite import AT_START, NON_FINITE, describe_counts, why_not_finite
from runnerkit.checkpoint.store import finite_beside
from runnerkit.distributed import all_gather_objects, reduce_extremes
from runnerkit.optim.finite import find_non_finite
from runnerkit.optim.named import named_optimizers
from runnerkit.parallel.dtensors import is_sharded


class Finiteness:
    """Checks for NaN and infinite values when a checkpoint is saved and when a run ends, never in between.

    Args:
        runner: the run's runner.

    Attributes:
        exempt: the names of buffers and frozen parameters, such as masks, that were not finite when first seen: when
            the run began, or at the first checkpoint after a module created them.
        last: on rank 0, the newest finite checkpoint that is written.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.exempt: set[str] = set()
        self.last: str | None = None
        self._seen: set[str] = set()

    def begin(self) -> None:
        """Note tensors that are not finite on purpose, unless the resumed run noted them; all ranks call it."""
        self._note(_weights(self._runner))
        if is_sharded(self._runner.model):
            self.exempt.update(*all_gather_objects(sorted(self.exempt)))

    def _note(self, weights: Mapping[str, Tensor]) -> None:
        new = {name: each for name, each in weights.items() if name not in self._seen}
        self._seen.update(new)
        self.exempt.update(find_non_finite({name: each for name, each in new.items() if not each.requires_grad}))

    def resume(self, loaded: Mapping[str, Any], checkpoint: str) -> None:
        """Restore the notes of the run that saved ``checkpoint``, a file with the content ``loaded``."""
        if NON_FINITE in loaded['meta']:
            self.exempt, self._seen = set(loaded['meta'].get(AT_START, ())), set(loaded['state_dict'])
        self.last = checkpoint if why_not_finite(loaded) is None else finite_beside(checkpoint)

    def note_saved(self, checkpoint: str) -> None:
        """``checkpoint`` is written, and its values are finite."""
        self.last = checkpoint

    def look(self, alone: bool = False) -> dict[str, str]:
        """Look for NaN and infinite values in weights, optimizer states and the training losses since the last
        checkpoint. Losses do not count if a loss scaler or a hook skips updates with bad gradients.

        Waits for the device. All ranks call it and get the same answer; with ``alone``, one rank checks itself.

        Returns:
            Descriptions by kind (``weights``, ``optimizer``, ``loss``); empty if everything is finite.
        """
        runner, weights = self._runner, _weights(self._runner)
        self._note(weights)
        states = dict(_states(runner, weights))
        checked = {('weights', name): each for name, each in weights.items() if name not in self.exempt}
        bad = find_non_finite({**checked, **{('optimizer', name): each for name, each in states.items()}})
        found = {}
        for kind in ('weights', 'optimizer'):
            if of_kind := {name: count for (which, name), count in bad.items() if which == kind}:
                found[kind] = describe_counts(of_kind)
        skips = any(update.scaler for update in runner.updater.updates.values())
        skips = skips or any(getattr(hook, 'skips_updates', False) for hook in runner.hooks)
        if not skips and not runner.train_log.losses_are_finite():
            found['loss'] = 'a training loss since the last checkpoint'
        if not alone and reduce_extremes(len(found))[1]:
            for each in reversed(all_gather_objects(found)):  # the first rank's description of a kind wins
                found = {**found, **each}
        return found

    def facts(self, found: Mapping[str, str]) -> dict[str, Any]:
        """Entries of a checkpoint's meta: what `look` found, and what was not finite at the start."""
        return {NON_FINITE: dict(found), **({AT_START: sorted(self.exempt)} if self.exempt else {})}

    def advice(self, found: Mapping[str, str]) -> str:
        """The notice at the end of a run whose weights are not finite."""
        last = self.last
        if last is None:
            remedy = 'There is no finite checkpoint: start over with a smaller learning rate'
        else:
            remedy = f'Continue from the newest finite checkpoint, {last}, with a smaller learning rate: '
            remedy += _command(self._runner, last)
        return (
            f'THE RUN HAS DIVERGED: NaN or infinite values in {found["weights"]}. Checkpoints with such values are '
            f'never the best one and replace no finite one. {remedy} (or clip gradients, '
            'optimizer_config.grad_clip.max_norm; NonFiniteHook finds the first bad batch).'
        )


def _weights(runner: Any) -> dict[str, Tensor]:
    """Parameters and buffers by their names in a checkpoint."""
    if not isinstance(runner.model, nn.Module):
        return {}
    held = get_state_dict(runner.model, keep_vars=True)
    return {name: each for name, each in held.items() if isinstance(each, Tensor)}


def _states(runner: Any, weights: Mapping[str, Tensor]) -> Iterable[tuple[str, Tensor]]:
    """Optimizer states with a value per element of a parameter, like momenta. A shared one has its first name."""
    names = {id(each): name for name, each in reversed([*weights.items()])}
    for optimizer in named_optimizers(runner.optimizer).values():
        for parameter, state in optimizer.state.items():
            for key, value in state.items() if isinstance(state, dict) else ():
                # Scalars may be infinite until they have counted something.
                if isinstance(value, Tensor) and (value.dim() or value.shape == parameter.shape):
                    yield f'{key} of {names.get(id(parameter), "a parameter")}', value


def _command(runner: Any, checkpoint: str) -> str:
    config = os.path.join(runner.work_dir or '', str(runner.meta.get('exp_name', '')))
    if not os.path.isfile(config):
        return f'runner.resume({checkpoint!r})'
    words = ['runnerkit', 'train', config, '--work-dir', str(runner.work_dir), '--resume-from', checkpoint]
    samples, base = runner.lr_scaled_for or (1, runner.world_size)
    scale = runner.world_size * samples / base
    rates = {name: each.defaults.get('lr') for name, each in named_optimizers(runner.optimizer).items()}
    lower = [
        f'optimizer{name and "." + name}.lr={float(rate) / scale / 10:.3g}'
        for name, rate in rates.items()
        if isinstance(rate, (int, float, Tensor))
    ]
    words += ['--cfg-options', *lower] if lower else []
    return shlex.join(words)
