"""Building a model to be sharded, with weights on the first rank only."""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from runnerkit.distributed import all_gather_objects, broadcast_object, from_first_rank, get_dist_info
from runnerkit.flow.stages.wrapping import wrapper_of
from runnerkit.utils.exceptions import one_line

#: An attribute: the module's name in the model, and its own.
Attribute = tuple[str, str]


def build_on_rank_zero(
    build: Callable[[], nn.Module], initialise: Callable[[nn.Module], None], cfg: Any, logger: Any
) -> nn.Module:
    """The model that ``build`` builds; for FSDP2, where the model allows it, with weights on the first rank only.

    The other ranks build it on the meta device, where weights take no memory: `runnerkit.parallel.FSDP2` gives each its
    part. Attributes that hold other tensors, or that ``initialise`` has changed, come from the first rank, as does
    whether a parameter requires a gradient; the random generators continue from the first rank's states.

    Args:
        build: builds the model.
        initialise: gives a model its weights; called where weights are needed.
        cfg: the config.
        logger: logs why a model is built whole on all ranks.
    """

    def whole() -> nn.Module:
        model = build()
        initialise(model)
        return model

    def first() -> None:
        built.append(build())
        before = _contents(built[0])
        initialise(built[0])
        after = _contents(built[0])
        wanted.update(each for each in after if each not in before or before[each] != after[each])

    rank, world_size = get_dist_info()
    if wrapper_of(cfg) != 'FSDP2' or world_size == 1:
        return whole()
    built: list[nn.Module] = []
    wanted: set[Attribute] = set()
    from_first_rank(first)  # its error is raised on all ranks
    problem = ''
    if rank > 0:
        try:
            with torch.device('meta'):
                built.append(build())
            wanted.update(on_meta(built[0]))
        except Exception as error:  # of a constructor that needs numbers
            problem = f'{type(error).__name__}: {one_line(error)}'
    answers = all_gather_objects((problem, wanted))
    problem = next((each for each, _ in answers if each), '')
    attributes = sorted({each for _, some in answers for each in some})
    if not problem:
        problem, values, trained = from_first_rank(lambda: (*packed(built[0], attributes), _trained(built[0])))
    if problem:
        logger.info('the model is built whole on every rank, since it cannot be built without weights: %s', problem)
        model = built[0] if rank == 0 else whole()
    else:
        model = built[0]
        if rank > 0:
            unpack(model, values)
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name in trained)
    _follow_first_rank()
    return model


def on_meta(model: nn.Module) -> Iterator[Attribute]:
    """The attributes of modules in ``model`` that hold tensors on the meta device, somewhere within; the model's own
    parameters, buffers and modules aside."""
    known = _known(model)
    return (attribute for attribute, value in _attributes(model) if _pickled(value, known).has_meta)


def packed(model: nn.Module, attributes: list[Attribute]) -> tuple[str, dict[Attribute, bytes]]:
    """The values of these attributes as bytes; before them, why they cannot be packed, or an empty text."""
    parts, known = dict(model.named_modules()), _known(model)
    values: dict[Attribute, bytes] = {}
    for name, key in attributes:
        found = _pickled(vars(parts[name])[key], known)
        if found.content is None:
            place = f'{name}.{key}'.lstrip('.')
            return f'{place} cannot be sent to other ranks ({found.problem})', {}
        values[name, key] = found.content
    return '', values


def unpack(model: nn.Module, values: dict[Attribute, bytes]) -> None:
    """Give modules in ``model`` what `packed` has made of another rank's."""
    parts = dict(model.named_modules())
    named = dict(_named(model))
    for (name, key), value in values.items():
        parts[name].__dict__[key] = _Unpickler(io.BytesIO(value), named).load()


class _Pickler(pickle.Pickler):
    """Leaves out what the model has under a name, and notes tensors on the meta device."""

    def __init__(self, file: io.BytesIO, known: dict[int, str]) -> None:
        super().__init__(file)
        self.known = known
        self.has_meta = False

    def persistent_id(self, obj: Any) -> str | None:
        if not isinstance(obj, (Tensor, nn.Module)):
            return None
        name = self.known.get(id(obj))
        self.has_meta = self.has_meta or (name is None and isinstance(obj, Tensor) and obj.is_meta)
        return name


class _Pickled(NamedTuple):
    """A pickled value, or why it cannot be pickled; and whether it holds tensors on the meta device."""

    content: bytes | None
    problem: str
    has_meta: bool


def _pickled(value: Any, known: dict[int, str]) -> _Pickled:
    file = io.BytesIO()
    pickler = _Pickler(file, known)
    try:
        pickler.dump(value)
    except Exception as error:  # of a function, for example: what was found up to there counts
        return _Pickled(None, f'{type(error).__name__}: {one_line(error)}', pickler.has_meta)
    return _Pickled(file.getvalue(), '', pickler.has_meta)


class _Unpickler(pickle.Unpickler):
    """Puts in what `_Pickler` has left out."""

    def __init__(self, file: io.BytesIO, named: dict[str, Any]) -> None:
        super().__init__(file)
        self.named = named

    def persistent_load(self, pid: str) -> Any:
        return self.named[pid]


def _attributes(model: nn.Module) -> Iterator[tuple[Attribute, Any]]:
    """What the modules in ``model`` hold besides parameters, buffers and modules."""
    for name, part in model.named_modules():
        for key, value in vars(part).items():
            if key not in ('_parameters', '_buffers', '_modules'):
                yield (name, key), value


def _contents(model: nn.Module) -> dict[Attribute, int | None]:
    """A hash of each attribute's value, by which a change is noticed; None for what cannot be packed."""
    known = _known(model)
    found = {attribute: _pickled(value, known).content for attribute, value in _attributes(model)}
    return {attribute: None if content is None else hash(content) for attribute, content in found.items()}


def _trained(model: nn.Module) -> set[str]:
    """The names of the parameters that require a gradient."""
    return {name for name, each in model.named_parameters() if each.requires_grad}


def _named(model: nn.Module) -> Iterator[tuple[str, Any]]:
    for kind, each in (
        ('module', model.named_modules()),
        ('parameter', model.named_parameters()),
        ('buffer', model.named_buffers()),
    ):
        for name, found in each:
            yield f'{kind} {name}', found


def _known(model: nn.Module) -> dict[int, str]:
    return {id(each): name for name, each in _named(model)}


def _follow_first_rank() -> None:
    """Set the random generators of torch, numpy and Python to the first rank's states; all ranks call it together."""
    of_torch, of_numpy, of_python = broadcast_object((torch.get_rng_state(), np.random.get_state(), random.getstate()))
    torch.set_rng_state(of_torch)
    np.random.set_state(of_numpy)
    random.setstate(of_python)
