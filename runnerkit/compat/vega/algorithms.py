"""Search algorithms and codecs as Vega's users write them: ``__init__(self, search_space=None, **kwargs)``. And the
generator, which asks an algorithm."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from runnerkit.compat.vega.current import General, running_part, running_pipeline, running_section
from runnerkit.compat.vega.networks import NetworkDesc, SearchSpace
from runnerkit.compat.vega.report import ReportClient, ReportRecord
from runnerkit.compat.vega.steps import VegaStep
from runnerkit.config.config_dict import as_config
from runnerkit.search import algorithm as core
from runnerkit.search.algorithm import CODECS, Proposal, as_proposal
from runnerkit.search.optuna_algorithm import made_algorithm
from runnerkit.search.record import Record
from runnerkit.search.space import as_space
from runnerkit.utils.exceptions import WrongKey


class _AnyCodec(type):
    """Calls of `Codec` build the codec that its ``type``, or the running step, names."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Codec:
            return _codec(*args, **kwargs)
        if 'space' in kwargs and 'space' not in inspect.signature(cls.__init__).parameters:  # type: ignore[misc]
            args = (_as_section(kwargs.pop('space')),)
        return super().__call__(*args, **kwargs)


class Codec(core.Codec, metaclass=_AnyCodec):
    """Translates the description of a network to a code, and back: ``Codec(search_space, type='PruneCodec')`` builds
    the codec of that name; without ``type``, it is that of the running step. Subclass it for your own.

    Args:
        search_space: the section of that name.
        **kwargs: not used.

    Attributes:
        search_space: the section of that name.
    """

    def __init__(self, search_space: Any = None, **kwargs: Any) -> None:
        super().__init__(search_space)
        self.search_space = search_space


class _AnyAlgorithm(type):
    """Calls of `SearchAlgorithm` build the algorithm of the running step; a study gets a subclass as it needs it."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is SearchAlgorithm:
            return _algorithm_of_step(*args, **kwargs)
        if not {'space', 'objectives'} <= kwargs.keys() or not _is_vegas(cls):
            return super().__call__(*args, **kwargs)
        own = _constructed(cls, **kwargs)
        return type(cls.__name__, (_InStudy,), {})(own, kwargs['space'])  # messages name the user's class


class SearchAlgorithm(core.SearchAlgorithm, metaclass=_AnyAlgorithm):
    """Proposes trials. Subclass it, implement `search` and `is_completed`, and register it with `ClassFactory`.

    ``search`` returns a number and a network, ``(id, desc)``, or a number and values; None: none yet. ``update`` gets a
    dict that is a record of `ReportRecord.serialize`. A call of this class itself builds the algorithm of the running
    step.

    Args:
        search_space: the section of that name; of hyperparameters, a space to draw from.
        objectives: the scores that count. A study gives them, also to subclasses that pass none.
        seed: as for `objectives`.
        codec: the name of a codec, or a codec.
        **kwargs: further settings in `config`.

    Attributes:
        search_space: the section of that name.
        config: the section ``search_algorithm``, whose items are also attributes.
        codec: the codec; None if the section names none.
        rng: the source of random numbers, which makes a study resumable.
    """

    def __init__(
        self,
        search_space: Any = None,
        objectives: Mapping[str, str] | None = None,
        seed: int = 0,
        codec: Any = None,
        **kwargs: Any,
    ) -> None:
        given: tuple[Any, int, dict[str, Any]] = self.__dict__.pop('_given', (objectives, seed, {}))
        objectives, seed, section = given
        super().__init__(search_space, dict(objectives or {}), seed)
        self.search_space, self.config = search_space, as_config({'codec': codec, **section, **kwargs})
        named = self.config.get('codec')
        self.codec = Codec(search_space, type=named) if isinstance(named, str) else named


class _InStudy(core.SearchAlgorithm):
    """An algorithm in Vega's style, as a study calls it: it keeps the numbers that the algorithm gives its trials."""

    def __init__(self, own: SearchAlgorithm, space: Any) -> None:
        super().__init__(space, own.objectives, own.seed)
        self.own, self.numbers = own, list[Any]()

    def search(self) -> Any:
        found: Any = self.own.search()
        if found is None:
            return None
        is_pair = isinstance(found, tuple) and len(found) == 2
        number, found = found if is_pair else (len(self.numbers), found)
        self.numbers.append(number)
        if isinstance(found, Proposal):
            return found
        found = found.desc if isinstance(found, NetworkDesc) else found
        of_network = isinstance(found, Mapping) and hasattr(self.space, 'describe')
        return Proposal(desc=dict(found)) if of_network else found

    def update(self, record: Record) -> None:
        content = ReportRecord.of(record).serialize()
        content['worker_id'] = self.numbers.pop() if record.number < 0 else self.numbers[record.number]
        self.own.update(content)

    def report(self, number: int, step: int, value: float) -> bool:
        return self.own.report(number, step, value)

    @property
    def is_completed(self) -> bool:
        return bool(self.own.is_completed)


class _AsVegas(SearchAlgorithm):
    """Any other algorithm, as code in Vega's style calls it."""

    def __init__(self, own: core.SearchAlgorithm) -> None:
        super().__init__(own.space, own.objectives, own.seed, own.codec)
        self.own, self.proposed = own, 0

    def search(self) -> Any:
        found = self.own.search()
        if found is None:
            return None
        proposal, self.proposed = as_proposal(found), self.proposed + 1
        return self.proposed - 1, proposal.hps if proposal.desc is None else proposal.desc

    def update(self, record: Any) -> None:
        self.own.update(ReportRecord.parsed(record))

    @property
    def is_completed(self) -> bool:
        return self.own.is_completed


class Generator:
    """Asks a search algorithm what to try, and passes it the results.

    Args:
        search_alg: the algorithm; None: that of the running step.

    Attributes:
        search_space: that of the running step, if the algorithm is.
    """

    search_space: SearchSpace | None = None

    def __init__(self, search_alg: core.SearchAlgorithm | None = None) -> None:
        if search_alg is None:
            self.search_space = SearchSpace()
            search_alg = SearchAlgorithm(self.search_space.search_space)
        self.search_alg: core.SearchAlgorithm = search_alg
        self._next = 0

    @property
    def is_completed(self) -> bool:
        """Whether the search is over."""
        return self.search_alg.is_completed

    def sample(self) -> tuple[Any, Any] | None:
        """A number, and the description of a network, or the values if none is searched. None: nothing yet."""
        found: Any = self.search_alg.search()
        if found is None or isinstance(found, tuple):
            return found
        proposal, self._next = as_proposal(found), self._next + 1
        return self._next - 1, proposal.hps if proposal.desc is None else proposal.desc

    def update(self, step_name: str, worker_id: int) -> None:
        """Pass the algorithm a trial that has ended."""
        record: Any = ReportClient.get_record(step_name, worker_id)
        self.search_alg.update(record.serialize() if isinstance(self.search_alg, SearchAlgorithm) else record)


def _is_vegas(kind: type) -> bool:
    """Whether a class of algorithms is constructed with the search space alone."""
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    inherits = kind.__init__ is SearchAlgorithm.__init__  # type: ignore[misc]
    return inherits or ('search_space' in parameters and 'objectives' not in parameters)


def _as_section(space: Any) -> Any:
    return getattr(space, 'search_space', space)


def _constructed(kind: Any, space: Any, objectives: Mapping[str, str], seed: int = 0, **section: Any) -> Any:
    """An algorithm in Vega's style. Its constructor may pass on nothing of what a study gives."""
    found = kind.__new__(kind)
    found._given = objectives, seed, section
    found.__init__(_as_section(space))
    return found


def _codec(search_space: Any = None, type: str | None = None, **kwargs: Any) -> Any:
    """The codec of a name, by default that of the running step."""
    named = running_part('search_algorithm').get('codec') if type is None else type
    if named is None:
        raise WrongKey("Codec() needs the name of a codec: search_algorithm of the running step has no 'codec'")
    return CODECS.build({'type': named, 'space': search_space, **kwargs})


def _algorithm_of_step(search_space: Any = None, **changes: Any) -> Any:
    """The search algorithm that the running step names."""
    found = running_section()
    step = VegaStep(General.step_name, found, running_pipeline().cfg.get('general') or {})
    given = {**running_part('search_algorithm'), **changes}
    section, objectives = step.algorithm(given)[0], found.get('objectives') or step.objectives(given)
    made = made_algorithm(section, as_space(search_space or running_part('search_space')), objectives, step.seed)
    return made.own if isinstance(made, _InStudy) else _AsVegas(made)
