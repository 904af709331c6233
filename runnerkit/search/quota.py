"""Quotas: how large a network of a search may be, as a text, checked before it is trained.

::

    Quota('params < 1e6 and 1e6 < flops < 5e7').why_not(model, sample)  # None, or why the model is refused
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from runnerkit.utils.exceptions import one_line
from runnerkit.utils.suggest import suggestion

if TYPE_CHECKING:  # torch is imported when a model is counted
    import torch
    from torch import nn

    from runnerkit.config import Config

#: What a quota can restrict: numbers of parameters, and of floating-point operations of one call of ``forward``.
COUNTED = ('params', 'flops')

#: A model whose ``forward`` takes a sample, as a separate term.
VALID = 'model_valid'

#: What is not known before a model is trained or deployed, and where it is measured.
LATER = {
    **dict.fromkeys(
        ('latency', 'host_latency', 'device_latency'), 'make it an objective, which a BenchmarkPipeStep measures'
    ),
    **dict.fromkeys(('accuracy', 'affinity'), 'it is not known before the training; make it an objective'),
}

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    '<': operator.lt,
    '<=': operator.le,
    '>': operator.gt,
    '>=': operator.ge,
}
_TURNED = {'<': '>', '<=': '>=', '>': '<', '>=': '<='}

_NUMBER = r'[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?'
_NAME = r'[A-Za-z_]\w*'
_OPERATOR = '<=|>=|<|>'
_ONE = re.compile(rf'({_NAME})\s*({_OPERATOR})\s*({_NUMBER})')
_TWO = re.compile(rf'({_NUMBER})\s*({_OPERATOR})\s*({_NAME})(?:\s*({_OPERATOR})\s*({_NUMBER}))?')
_IN = re.compile(rf'({_NAME})\s+in\s*\[\s*({_NUMBER})\s*,\s*({_NUMBER})\s*\]')

_EXAMPLES = "'params < 1e6', '1e5 < params < 1e6', 'params in [1e5, 1e6]' and 'model_valid', joined by 'and'"


class Limit(NamedTuple):
    """One bound: ``name operator number``.

    Attributes:
        name: one of `COUNTED`.
        operator: ``'<'``, ``'<='``, ``'>'`` or ``'>='``.
        number: in the quota's unit.
    """

    name: str
    operator: str
    number: float

    def __str__(self) -> str:
        return f'{self.name} {self.operator} {self.number:.15g}'


class Quota:
    """Bounds of a network, from a text: ``params < 1e6 and flops in [1e6, 5e7]``.

    A term is a comparison of ``params`` or ``flops`` with a number, an interval (``1e5 < params < 1e6``; with both ends
    ``params in [1e5, 1e6]``), or ``model_valid``: ``forward`` takes a sample. They are joined by ``and``. A model that
    does not take the sample is refused, too, if its ``flops`` are to be counted.

    Args:
        text: the quota.
        units: what numbers mean where it is not 1: Vega counts ``dict(flops=1e6, params=1e3)``.

    Raises:
        TypeError: it is not a text.
        KeyError: a term is unknown.
        ValueError: it is no quota, or one that no model meets.
    """

    def __init__(self, text: str, units: Mapping[str, float] | None = None) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a quota must be a text such as 'params < 1e6', but got {text!r}")
        self.text, self.units = text, dict(units or {})
        self.limits: list[Limit] = []
        self.model_valid = False
        for term in re.split(r'\s+and\s+', text.strip()):
            if term == VALID:
                self.model_valid = True
            else:
                self.limits += _limits(term.strip(), text)
        self._refuse_contradictions()

    def __repr__(self) -> str:
        return f'Quota({self.text!r})'

    @property
    def needs_sample(self) -> bool:
        """Whether a sample is needed, because ``forward`` has to be called."""
        return self.model_valid or any(limit.name == 'flops' for limit in self.limits)

    def why_not(self, model: nn.Module, sample: Any = None) -> str | None:
        """Return why the quota refuses a model, with what was counted; None if it does not.

        Args:
            model: the model; it is not changed, but lazy parameters get their shapes.
            sample: a batch of one sample, for `runnerkit.flow.look.summary.forward_summary`. Not needed where only
                ``params`` are restricted, and none are lazy.

        Raises:
            TypeError: there is no sample, but one is needed.
        """
        from runnerkit.flow.look.summary import forward_summary, is_shaped, parameters_of

        if self.needs_sample or not is_shaped(model):
            if sample is None:
                raise TypeError(f'the quota {self.text!r} needs a sample, to call the model with: pass a batch of one')
            try:
                whole = forward_summary(model, sample).whole
            except Exception as error:
                return f'the {type(model).__name__} does not take a sample: {type(error).__name__}: {one_line(error)}'
            found = {'params': whole.parameters, 'flops': whole.flops}
        else:
            found = {'params': parameters_of(model)}
        broken = []
        for name, sign, number in self.limits:
            bound = number * self.units.get(name, 1)
            if not _COMPARE[sign](found[name], bound):
                broken.append(f'{name} {found[name]:,} is not {sign} {bound:,.12g}')
        return ' and '.join(broken) or None

    def why_not_config(self, cfg: Config, split: str = 'train') -> str | None:
        """Return why the quota refuses the model of a config; None if it does not. A model that cannot be built is
        refused.

        Args:
            cfg: a config; its data are read if a sample is needed.
            split: where the sample is from.
        """
        from torch import device

        from runnerkit.flow.look.summary import is_shaped
        from runnerkit.nn import build_model
        from runnerkit.utils.seed import preserved_rng

        with preserved_rng():
            try:
                model = build_model(cfg['model'])
            except Exception as error:
                return f'the model cannot be built: {type(error).__name__}: {one_line(error)}'
            sample = batch_of(cfg, split, 1, device('cpu')) if self.needs_sample or not is_shaped(model) else None
            return self.why_not(model, sample)

    def _refuse_contradictions(self) -> None:
        for limit in self.limits:
            for other in (*self.limits, Limit(limit.name, '>=', 0.0)):
                if limit.name != other.name or limit.operator[0] != '<' or other.operator[0] != '>':
                    continue
                is_point = limit.operator == '<=' and other.operator == '>='
                if limit.number < other.number or (limit.number == other.number and not is_point):
                    raise ValueError(f'no model meets the quota {self.text!r}: {other} and {limit} exclude each other')


def _limits(term: str, text: str) -> list[Limit]:
    if found := _ONE.fullmatch(term):
        return [Limit(_known(found[1], text), found[2], float(found[3]))]
    if found := _TWO.fullmatch(term):
        low, first, name, second, high = found.groups()
        limits = [Limit(_known(name, text), _TURNED[first], float(low))]
        if second is not None:
            if first[0] != second[0]:
                raise ValueError(f'{term!r} in the quota {text!r} is no interval: both signs must point the same way')
            limits.append(Limit(name, second, float(high)))
        return limits
    if found := _IN.fullmatch(term):
        name = _known(found[1], text)
        return [Limit(name, '>=', float(found[2])), Limit(name, '<=', float(found[3]))]
    if re.fullmatch(_NAME, term):
        if term in COUNTED:
            raise ValueError(f'{term!r} in the quota {text!r} is compared with nothing: write {term} < 1e6')
        _known(term, text)
    raise ValueError(f'{term!r} in the quota {text!r} is no term: there are {_EXAMPLES}')


def _known(name: str, text: str) -> str:
    if name in COUNTED:
        return name
    terms = (*COUNTED, VALID)
    if name in LATER:
        raise KeyError(f'the quota {text!r} cannot restrict {name}: {LATER[name]}')
    if name == VALID:
        raise ValueError(f'{VALID} in the quota {text!r} is compared with a number, but is a term by itself')
    raise KeyError(f'the quota {text!r} has an unknown term {name!r}{suggestion(name, terms)} (there are '
                   f'{", ".join(terms)})')  # fmt: skip


def counted(cfg: Config) -> dict[str, float]:
    """``params`` of the model of a config, and ``flops`` of one sample, by the summary's counter."""
    import torch

    from runnerkit.flow.look.summary import forward_summary
    from runnerkit.nn import build_model
    from runnerkit.utils.seed import preserved_rng

    with preserved_rng():
        whole = forward_summary(build_model(cfg['model']), batch_of(cfg, 'train', 1, torch.device('cpu'))).whole
    return {'params': float(whole.parameters), 'flops': float(whole.flops)}


def batch_of(cfg: Config, split: str, size: int, device: torch.device) -> Any:
    """The first ``size`` samples of a split, collated."""
    from runnerkit.flow.use.predict import loader_of, on_device

    loader = loader_of(cfg, split, batch_size=size)
    data = loader.dataset
    is_indexed = hasattr(data, '__getitem__')
    samples = [data[index] for index in range(min(size, len(data)))] if is_indexed else list(islice(data, size))
    return on_device(loader.collate_fn(samples), device)
