"""A search for the channels that a network keeps: binary codes, and their evolution."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from runnerkit.compat.vega.algorithms import Codec, SearchAlgorithm
from runnerkit.compat.vega.networks import SearchSpace
from runnerkit.search.algorithm import CODECS, SEARCH_ALGORITHMS, Proposal, plain
from runnerkit.search.record import COMPLETED, Record, dominates
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue
from runnerkit.utils.numbers import check_whole_number
from runnerkit.utils.suggest import suggestion

#: The widths of the whole network in a description, and those that are kept, in the order of a code.
PARTS = {'base_chn': 'chn', 'base_chn_node': 'chn_node'}

#: What a policy says, and its defaults. Without a length, it is that of the codec.
POLICY: dict[str, int | None] = {'length': None, 'num_generation': 31, 'num_individual': 32, 'random_samples': 64}

_ATTEMPTS = 100  # to find a code that was not proposed before

Code = tuple[int, ...]


@CODECS.register_module()
class PruneCodec(Codec):
    """One bit for each channel of a network: 1 keeps it.

    The description that the space has, or one of its modules, gives the network's widths: ``base_chn``, those inside
    blocks, and ``base_chn_node``, those of the layers that several blocks share. The code has the bits of the former
    first. `decode` adds what Vega's does: the widths that are kept, ``chn`` and ``chn_node``, the bits of each layer,
    ``chn_mask`` and ``chn_node_mask``, and all bits in one list, ``encoding``. A layer of which a code would keep
    nothing keeps its first channel.

    Args:
        space: a `runnerkit.search.SearchSpace`, a section like its, or the description of a single network.
    """

    def __init__(self, space: Any = None) -> None:
        super().__init__(space)
        self.base = _network_to_prune(space)
        part = _pruned_part(self.base)
        self.widths: dict[str, list[int]] = {}
        for name in PARTS:
            widths = part.get(name, [])
            if not isinstance(widths, list | range) or not all(isinstance(each, int) and each > 0 for each in widths):
                raise WrongType(f'{name} must be a list of widths, such as [16, 16, 32], but got {widths!r}')
            self.widths[name] = [*widths]

    @property
    def length(self) -> int:
        """Bits of a code."""
        return sum(width for widths in self.widths.values() for width in widths)

    def encode(self, desc: Mapping[str, Any]) -> tuple[int, ...]:
        """The code of a description; one without ``chn_mask`` and ``chn_node_mask`` keeps everything.

        Raises:
            TypeError: it has no mask for each layer.
            ValueError: its widths are not those of its masks.
        """
        part, code = _pruned_part(desc), []
        for name, widths in self.widths.items():
            kept = PARTS[name]
            whole = [[1] * width for width in widths]
            masks = part.get(f'{kept}_mask', whole)
            are_lists = isinstance(masks, list | tuple) and all(isinstance(mask, list | tuple) for mask in masks)
            if not are_lists or [*map(len, masks)] != widths:
                raise WrongType(
                    f'{kept}_mask must have a list of zeros and ones for each of the widths {widths}, but got {masks!r}'
                )
            if list(part.get(kept, widths)) != [*map(sum, masks)]:
                raise WrongValue(f'{kept} must be the widths that {kept}_mask keeps, but got {part[kept]!r}')
            code += [bit for mask in masks for bit in mask]
        return tuple(code)

    def decode(self, code: Sequence[int]) -> dict[str, Any]:
        """The description of a code.

        Raises:
            ValueError: the code has another length.
        """
        if len(code) != self.length:
            raise WrongValue(f'a code must have {self.length} bits, one for each channel, but got {len(code)}')
        desc, bits = copy.deepcopy(self.base), iter(code)
        part = _pruned_part(desc)
        encoding: list[int] = []
        for name, widths in self.widths.items():
            masks = [_mask(bits, width) for width in widths]
            part[PARTS[name]] = [*map(sum, masks)]
            part[f'{PARTS[name]}_mask'] = masks
            encoding += chain.from_iterable(masks)
        part['encoding'] = encoding
        return desc


def _mask(bits: Iterator[int], width: int) -> list[int]:
    """The next ``width`` bits; the first one is set if no other one is."""
    mask = [int(next(bits)) for _ in range(width)]
    return mask if any(mask) else [1, *mask[1:]]


def _network_to_prune(space: Any) -> dict[str, Any]:
    if isinstance(space, Mapping) and 'modules' in space:
        space = SearchSpace(space)
    if hasattr(space, 'describe'):
        space = space.describe()
    if not isinstance(space, Mapping):
        raise WrongType(
            'search_space must describe the network to prune, with modules or a type, and nothing else to choose, '
            f'but got a {type(space).__name__}'
        )
    return dict(plain(space))


def _pruned_part(desc: Mapping[str, Any]) -> Any:
    """The description itself, or its first module, that has widths."""
    for part in (desc, *(desc.get(name) for name in desc.get('modules', ()))):
        if isinstance(part, Mapping) and any(name in part for name in PARTS):
            return part
    raise WrongKey(
        'the description of the network to prune needs base_chn and base_chn_node, the widths of its layers; it has '
        f'{", ".join(map(str, desc)) or "nothing"}'
    )


@SEARCH_ALGORITHMS.register_module()
class PruneEA(SearchAlgorithm):
    """Evolution of binary codes towards the Pareto front of the objectives.

    ``random_samples`` codes are random ones: each draws its share of ones first, uniformly, so that small networks
    occur as well as large ones. The other ``num_generation`` times ``num_individual`` are children of two parents. A
    parent is the better one of two random members of the population, the best ``num_individual`` completed trials so
    far, by the order of NSGA-II: a lower front comes first, and within a front the one in the less crowded place. A
    child takes each bit from one of its parents at random, and then each bit flips with the probability of one over the
    length. No code is proposed twice, as far as that is possible.

    Unlike the generations of NSGA-II, no trial waits for all others of its generation: each child is bred from what is
    known then. With one objective the order is that of its scores.

    Deb, Pratap, Agarwal, Meyarivan: A fast and elitist multiobjective genetic algorithm: NSGA-II. IEEE Transactions on
    Evolutionary Computation 6 (2002), 182-197.

    Args:
        space: the section with the network, see the codec.
        objectives: the scores that count, each with ``'max'`` or ``'min'``. A study gives them.
        seed: of the study.
        codec: translates codes to descriptions and back: an object, a name of `CODECS`, or a dict with ``type``; None
            is a `PruneCodec`.
        policy: ``length`` of a code, by default that of the codec; ``num_generation`` (31), ``num_individual`` (32) and
            ``random_samples`` (64).
    """

    def __init__(
        self,
        space: Any,
        objectives: Mapping[str, str] | None = None,
        seed: int = 0,
        codec: Any = None,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            space, objectives, seed, codec or 'PruneCodec', **({} if policy is None else {'policy': policy})
        )
        settings = checked_policy(self.config.get('policy', {}))
        own: int | None = getattr(self.codec, 'length', None)
        length = own if settings['length'] is None else settings['length']
        if length is None or own not in (None, length):
            channels = '' if own is None else f': the network has {own} channels to keep or not'
            raise WrongValue(f'policy.length must be the length of a code, but got {settings["length"]}{channels}')
        self.length: int = length
        self.random_samples, self.size = settings['random_samples'], settings['num_individual']
        self.trials = trials_of(settings)
        self.proposed, self.ended = 0, 0
        self.seen: set[Code] = set()
        self.population: list[tuple[Code, list[float]]] = []  # the best first

    @property
    def is_completed(self) -> bool:
        """Whether all trials are proposed."""
        return self.proposed >= self.trials

    def search(self) -> Proposal | None:
        """A random code, or a child; None while nothing has completed that could be a parent."""
        is_random = self.proposed < self.random_samples
        if not is_random and not self.population:
            if self.ended < self.proposed:
                return None
            is_random = True  # all have failed
        for _ in range(_ATTEMPTS):
            desc = self.codec.decode(self._random() if is_random else self._child())
            code = tuple(self.codec.encode(desc))
            if code not in self.seen:
                break
        self.seen.add(code)
        self.proposed += 1
        return Proposal(desc=desc)

    def update(self, record: Record) -> None:
        """Take a completed trial into the population, if it is among the best. In the place of a refused proposal,
        another one is made."""
        if record.number < 0:
            self.proposed -= 1
            return
        self.ended += 1
        if record.status != COMPLETED or record.rewards is None or record.desc is None:
            return
        individuals = [*self.population, (tuple(self.codec.encode(record.desc)), record.rewards)]
        order = best_first([rewards for _, rewards in individuals])
        self.population = [individuals[index] for index in order[: self.size]]

    def _random(self) -> Code:
        share = self.rng.random()
        return tuple(int(bit) for bit in self.rng.random(self.length) < share)

    def _child(self) -> Code:
        one, other = self._parent(), self._parent()
        mixed = crossed(one, other, (self.rng.random(self.length) < 0.5).tolist())
        return flipped(mixed, (self.rng.random(self.length) < 1 / self.length).tolist())

    def _parent(self) -> Code:
        return self.population[int(self.rng.integers(len(self.population), size=2).min())][0]


def checked_policy(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy with its defaults.

    Raises:
        KeyError: it has a key that is not known.
        TypeError: a value is no whole number.
        ValueError: a value is too small.
    """
    if not isinstance(policy, Mapping):
        raise WrongType(f'policy must be a dict such as dict(num_generation=10), but got {policy!r}')
    for key, value in policy.items():
        if key not in POLICY:
            raise WrongKey(f'policy has no {key!r}{suggestion(str(key), POLICY)} (it has {", ".join(POLICY)})')
        check_whole_number(
            f'policy.{key}', value, at_least=0 if key == 'num_generation' else 1, or_none=POLICY[key] is None
        )
    return {**POLICY, **policy}


def trials_of(policy: Mapping[str, Any]) -> int:
    """How many trials a policy means."""
    settings = checked_policy(policy)
    trials: int = settings['random_samples'] + settings['num_generation'] * settings['num_individual']
    return trials


def best_first(rewards: Sequence[list[float]]) -> list[int]:
    """The order of individuals by NSGA-II.

    Args:
        rewards: of each individual, of which greater is better.

    Returns:
        Their indexes: by front, and within a front the less crowded ones first; equal ones in the order given.
    """
    left, order = list(range(len(rewards))), []
    while left:
        front = [each for each in left if not any(dominates(rewards[other], rewards[each]) for other in left)]
        room = crowding([rewards[index] for index in front])
        order += [front[at] for at in sorted(range(len(front)), key=lambda at: -room[at])]
        left = [index for index in left if index not in front]
    return order


def crowding(rewards: Sequence[list[float]]) -> list[float]:
    """The crowding distance of each member of a front: how far its neighbours are, over all objectives; infinite at the
    ends."""
    distances = [0.0] * len(rewards)
    for objective in zip(*rewards, strict=True):
        order = sorted(range(len(rewards)), key=lambda index: objective[index])
        span = objective[order[-1]] - objective[order[0]]
        distances[order[0]] = distances[order[-1]] = math.inf
        for before, index, after in zip(order, order[1:], order[2:], strict=False):
            if span:
                distances[index] += (objective[after] - objective[before]) / span
    return distances


def crossed(one: Code, other: Code, choose: Sequence[bool]) -> Code:
    """Each bit from ``one`` where ``choose`` is true, else from ``other``."""
    return tuple(a if first else b for a, b, first in zip(one, other, choose, strict=True))


def flipped(code: Code, flip: Sequence[bool]) -> Code:
    """``code`` with the bits changed where ``flip`` is true."""
    return tuple(1 - bit if change else bit for bit, change in zip(code, flip, strict=True))
