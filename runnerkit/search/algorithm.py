"""What a search algorithm is, for those of the users and for ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runnerkit.registry import Registry
from runnerkit.search.record import Record
from runnerkit.utils.exceptions import WrongType, WrongValue
from runnerkit.utils.lazy import EntryPoints
from runnerkit.utils.numbers import plain_number
from runnerkit.utils.suggest import suggestion

_ALGORITHMS = EntryPoints('runnerkit.search_algorithms')
_CODECS = EntryPoints('runnerkit.codecs')

#: Search algorithms, and codecs, by name; of one that is not registered, the entry points of installed packages are
#: asked.
SEARCH_ALGORITHMS = Registry('search algorithm', fallback=_ALGORITHMS.load, fallback_names=_ALGORITHMS.names)
CODECS = Registry('codec', fallback=_CODECS.load, fallback_names=_CODECS.names)


@dataclass
class Proposal:
    """The next trial, as an algorithm proposes it.

    Attributes:
        hps: values by dotted key of the config.
        desc: a network, as the config of a model; None leaves the config's.
        parent: a checkpoint to start from; None starts from scratch.
        source: the `uid` of the record of an earlier step that it continues.
    """

    hps: dict[str, Any] = field(default_factory=dict)
    desc: dict[str, Any] | None = None
    parent: str | None = None
    source: str | None = None


def as_proposal(drawn: Any) -> Proposal:
    """What a space has drawn, or an algorithm has returned, as a proposal of plain values: those that the record of the
    trial gives back after it was written and read.
    """
    if not isinstance(drawn, (Proposal, Mapping)):
        raise WrongType(
            'search must return values by dotted key of the config, as a dict, or a network as Proposal(desc=…), but '
            f'got {drawn!r}'
        )
    found = drawn if isinstance(drawn, Proposal) else Proposal(hps=dict(drawn))
    return replace(found, hps=plain(found.hps), desc=plain(found.desc))


def is_of(record: Record, proposal: Proposal) -> bool:
    """Whether ``record`` is of a trial of ``proposal``. It is compared because a record's values become config."""
    return (record.hps, record.desc, record.parent) == (proposal.hps, proposal.desc, proposal.parent)


def derived_seed(seed: int, number: int) -> int:
    """The seed of trial ``number`` in a study with ``seed``, below ``2**31``: mixed by `numpy.random.SeedSequence`."""
    import numpy as np

    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0]) % 2**31


def plain(value: Any) -> Any:
    """``value`` with lists for tuples, and Python's numbers for those of numpy, at any depth."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return plain_number(value)


def as_type(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """A name, or a dict of arguments, as a config with ``type``."""
    if isinstance(config, str):
        return {'type': config}
    if not isinstance(config, Mapping) or 'type' not in config:
        raise WrongType(f"this must be a name, or a dict with the key 'type', but got {config!r}")
    return dict(config)


def checked_objectives(objectives: Mapping[str, str]) -> dict[str, str]:
    """The declared objectives."""
    if not isinstance(objectives, Mapping):
        raise WrongType(f"objectives must be a dict such as dict(accuracy='max'), but got {objectives!r}")
    if not objectives:
        raise WrongValue("objectives must name at least one score, such as dict(accuracy='max')")
    for name, rule in objectives.items():
        if rule not in ('max', 'min'):
            hint = suggestion(str(rule), ['max', 'min'])
            raise WrongValue(f"the objective {name!r} must be 'max' or 'min', but got {rule!r}{hint}")
    return dict(objectives)


class SearchAlgorithm:
    """Proposes trials. Subclass it, implement `search` and `is_completed`, and register it in `SEARCH_ALGORITHMS`.

    A resumed study builds a new algorithm and repeats the calls of `search` and `update` in their order. So an
    algorithm draws from ``self.rng`` alone, and keeps all it needs in its attributes.

    Args:
        space: the space to search.
        objectives: the scores that count, each with ``'max'`` or ``'min'``; the first one is reported while a trial
            runs.
        seed: of the study.
        codec: translates descriptions to codes and back, for algorithms that need it: an object, a name of `CODECS`, or
            a dict of its arguments with ``type``.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if callable(cls.__dict__.get('is_completed')):  # which would always be true
            raise WrongType(f'{cls.__name__}.is_completed must be a property: write @property above it')

    def __init__(self, space: Any, objectives: dict[str, str], seed: int = 0, codec: Any = None) -> None:
        import numpy as np

        self.space, self.objectives, self.seed = space, dict(objectives), seed
        if isinstance(codec, (str, Mapping)):
            codec = CODECS.build({'space': space, **({'type': codec} if isinstance(codec, str) else codec)})
        self.codec = codec
        self.rng = np.random.default_rng(seed)

    def search(self) -> Proposal | dict[str, Any] | None:
        """The next trial: a `Proposal`, or only its values. None: none before another trial has ended.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(f'{type(self).__name__} must override search')

    def update(self, record: Record) -> None:
        """Learn from a trial that has ended, with any status. A proposal refused by a quota comes as a failed trial
        with the number -1."""

    def report(self, number: int, step: int, value: float) -> bool:
        """Whether to prune the trial ``number``, whose first objective is ``value`` after ``step`` epochs."""
        return False

    @property
    def is_completed(self) -> bool:
        """Whether the search is over, so that `search` is not called again.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(f'{type(self).__name__} must override is_completed')


class Codec:
    """Translates the description of a network to a code that an algorithm can change, and back. Register subclasses in
    `CODECS`.

    Args:
        space: the space of the search.
    """

    def __init__(self, space: Any = None) -> None:
        self.space = space

    def encode(self, desc: dict[str, Any]) -> Any:
        """The code of a description.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(f'{type(self).__name__} must override encode')

    def decode(self, code: Any) -> dict[str, Any]:
        """The description of a code.

        Raises:
            NotImplementedError: a subclass does not override it.
        """
        raise NotImplementedError(f'{type(self).__name__} must override decode')
