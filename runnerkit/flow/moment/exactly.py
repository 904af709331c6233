"""Where two runs part, to the iteration and to the value: both are replayed, and every step is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from runnerkit.checkpoint import get_state_dict
from runnerkit.distributed import all_gather_objects
from runnerkit.flow.look.dry_run import leaves, shape_of
from runnerkit.flow.moment.diff import Diff, Side, causes_of
from runnerkit.flow.moment.history import History
from runnerkit.flow.moment.replay import travel
from runnerkit.flow.moment.values import furthest
from runnerkit.hooks.fingerprint import states_of
from runnerkit.hooks.hook import Hook
from runnerkit.optim.named import learning_rates
from runnerkit.parallel import named_modules, named_parameters
from runnerkit.parallel.bits import checksum, has_bits
from runnerkit.parallel.dtensors import local_part
from runnerkit.utils.logging import printable
from runnerkit.utils.seed import rng_state

#: What a difference of each kind means, where all kinds before it are equal. The order is that of an iteration.
MEANINGS = {
    'state': 'the update before is equal, but {name} differs at the beginning: a hook, or code outside of the step, '
    'has changed it',
    'drawn': 'the random states of {name} differ at the beginning: a hook of one run has drawn or seeded numbers',
    'samples': 'the samples differ',
    'batch': 'the samples are equal, but their values differ, first {name}',
    'prepared': 'a hook has changed {name} before the step',
    'drawn before the step': 'a hook has drawn or seeded random numbers of {name} before the step',
    'output': 'the batches are equal; the values differ first in the output of {name}',
    'loss': 'the batches and the outputs of all modules are equal, but the loss differs',
    'drawn in the step': 'the loss is equal, but the step has drawn other random numbers of {name}',
    'gradient': 'the batches and the loss are equal; of the gradients, that of {name} differs first',
    'final gradient': 'the backward pass is equal, but the gradient of {name} differs before the update',
    'rate': 'the gradients are equal, but the learning rate differs',
    'update': 'the gradients and the learning rate are equal, but {name} differs after the update',
}

Mark = tuple[str, Any]


class Parting(NamedTuple):
    """Where two runs part.

    Attributes:
        iteration: the number, from 1, of the first iteration that differs; None if none does.
        kind: one of `MEANINGS`.
        name: of the value.
        a, b: the values, if they are short.
        apart: how far they are apart, such as ``2 ulp``; empty if unknown.
    """

    iteration: int | None
    kind: str = ''
    name: str = ''
    a: str = ''
    b: str = ''
    apart: str = ''


class Recorder(Hook):
    """Notes a mark of every value of each iteration, in the order in which they come about.

    Args:
        keeps: whether a tensor's mark is a copy of it, on the CPU, and not its checksum.

    Attributes:
        marks: of the running iteration, by kind and name.
    """

    def __init__(self, keeps: bool = False) -> None:
        self.keeps = keeps
        self.marks: dict[Mark, Any] = {}
        self._counts: Counter[Mark] = Counter()
        self._is_open = False

    def before_run(self, runner: Any) -> None:
        """Listen behind all other hooks, to each module and to each parameter."""
        for point in ('before_train_iter', 'after_forward', 'after_backward', 'after_step'):
            runner.hooks.listen(point, getattr(self, f'_{point}'), is_last=True)
        for name, module in named_modules(runner.model).items():
            module.register_forward_hook(partial(self._output, name or type(module).__name__))
        for name, each in named_parameters(runner.model).items():
            if each.requires_grad and not is_lazy(each):
                each.register_post_accumulate_grad_hook(partial(self._gradient, name))

    def begin(self, runner: Any, samples: Any) -> None:
        """Note the state before an iteration."""
        self.marks, self._counts, self._is_open = {}, Counter(), False
        self._states('state', runner)
        self._draws('drawn')
        self._note('samples', 'samples', str([sample.index for sample in samples or ()]))
        self._note('batch', 'batch', runner.data_batch)

    def _before_train_iter(self, runner: Any) -> None:
        self._is_open = True
        self._states('prepared', runner)
        self._note('prepared', 'batch', runner.data_batch)
        self._draws('drawn before the step')

    def _output(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        if self._is_open and module.training:
            self._note('output', name, output)

    def _after_forward(self, runner: Any) -> None:
        self._note('loss', '', runner.outputs.get('loss'))
        self._draws('drawn in the step')

    def _gradient(self, name: str, parameter: Tensor) -> None:
        if self._is_open:
            self._note('gradient', name, parameter.grad)

    def _after_backward(self, runner: Any) -> None:
        for name, each in named_parameters(runner.model).items():
            self._note('final gradient', name, each.grad)
        self._note('rate', 'learning rate', str(learning_rates(runner.optimizer)))

    def _after_step(self, runner: Any) -> None:
        self._is_open = False
        self._states('update', runner)

    def _states(self, kind: str, runner: Any) -> None:
        for name, value in {**get_state_dict(runner.model), **states_of(runner.optimizer)}.items():
            self._note(kind, name, value)

    def _draws(self, kind: str) -> None:
        for name, state in rng_state().items():
            self._note(kind, name, state)

    def _note(self, kind: str, name: str, value: Any) -> None:
        for place, leaf in leaves(value, name):
            self._counts[kind, place] += 1
            number = self._counts[kind, place]
            key = (kind, place if number == 1 else f'{place} (call {number})')
            if not isinstance(leaf, Tensor) or is_lazy(leaf):
                self.marks[key] = leaf if isinstance(leaf, str) else repr(leaf)
                continue
            part = local_part(leaf)
            sum_of_bits = checksum(part) if has_bits(part) and not self.keeps else None
            self.marks[key] = part.cpu().clone() if self.keeps else (shape_of(part), sum_of_bits)


def exactly(found: Diff, trust: bool = False) -> Diff:
    """Replay both runs of a comparison, and add where they part to it: ``parting`` and ``sentence``.

    The replays begin where the records are last known to be equal, and end where they differ first.
    """
    sides = [Side(path) for path in (found.a, found.b)]
    for side in sides:
        if not side.is_run:
            raise FileNotFoundError(f'--exactly replays runs, and {side.path.name} is a checkpoint: give its work dir')
    histories = [side.history for side in sides]
    shorter = min(history.length or 0 for history in histories)
    end = min(found.first or shorter, shorter)
    begin = max((each for each in found.equal_states if each < end), default=0)
    if (found.first is None and end in found.equal_states) or found.is_shorter:
        return found  # the records say it all
    unlike: list[str] = []
    first = begin
    former = list(traced(histories[0], begin, end, trust, unlike, 'A'))
    parting = Parting(None)
    for other, one in zip(traced(histories[1], begin, end, trust, unlike, 'B'), former, strict=False):
        begin += 1
        if mark := next((mark for mark in {**one, **other} if one.get(mark) != other.get(mark)), None):
            parting = Parting(begin, *mark)
            break
    everywhere = [each for each in all_gather_objects(parting) if each.iteration is not None]
    parting = min(everywhere, key=lambda each: each.iteration or 0, default=parting)
    if parting.iteration is not None:
        place = parting.iteration - 1
        pair = [
            next(traced(each, place, place + 1, trust, [], '', keeps=True)).get(parting[1:3], 'absent')
            for each in histories
        ]
        parting = Parting(*parting[:3], *_apart_in_words(*pair))
    found.parting, found.compared['iterations'] = parting._asdict(), begin - first
    found.sentence = sentence_of(found, parting, end, unlike)
    return found


def traced(
    history: History, begin: int, end: int, trust: bool, unlike: list[str], name: str, keeps: bool = False
) -> Iterator[dict[Mark, Any]]:
    """The marks of each iteration from ``begin`` to ``end``, which a replay trains."""
    cuts = [begin, *(start.begin for start in history.starts if begin < start.begin < end), end]
    for first, last in pairwise(cuts):
        recorder = Recorder(keeps)
        with travel(history, first, trust=trust, hooks=[recorder]) as moment:
            while moment.iter < last and not moment.has_ended:
                samples = moment.samples
                moment.call(partial(recorder.begin, samples=samples))
                moment.step()
                yield recorder.marks
            if not keeps and (lines := moment.differences):
                unlike.append(f'the replay of {name} does not repeat its log: {lines[0]}')


def sentence_of(found: Diff, parting: Parting, end: int, unlike: Sequence[str]) -> str:
    """The one sentence."""
    cause = f': {text}' if (text := causes_of(found)) else ''
    if parting.iteration is None:
        if found.first is None:
            return f'The replays are equal up to iteration {end}, as the records are{cause}.'
        told = f' ({unlike[0]})' if unlike else ''
        return (
            f'The replays are equal up to iteration {end}, where the records differ{told}: no replay repeats the '
            'cause, such as a fault of the machine, a file outside of the work dirs, or an edited record.'
        )
    name = parting.name.partition('[')[0] if 'drawn' in parting.kind else parting.name
    meaning = MEANINGS[parting.kind].format(name=name)
    if parting.kind == 'state' and parting.iteration == 1:
        meaning = f'{parting.name} differs from the beginning on'
    apart = f', by {parting.apart}' if parting.apart and 'drawn' not in parting.kind else ''
    values = f' ({parting.a} in A, {parting.b} in B)' if parting.a and parting.kind in ('samples', 'rate') else ''
    equal = f'equal up to iteration {parting.iteration - 1}; in iteration {parting.iteration}'
    text = f'{equal if parting.iteration > 1 else "in iteration 1"} {meaning}{apart}{values}{cause}.'
    return text[0].upper() + text[1:]


def _apart_in_words(one: Any, other: Any) -> tuple[str, str, str]:
    """Two values by the number that differs most, and how far they are apart."""
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape and one.numel():
        a, b, size = furthest(one, other)
        return repr(a), repr(b), size
    texts = [shape_of(each) if isinstance(each, Tensor) else printable(str(each), 200) for each in (one, other)]
    return texts[0], texts[1], ''
