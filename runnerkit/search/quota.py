"""Quotas: how large a network of a search may be, as a text that is checked before a trial begins.

::

    Quota('params < 1e6 and 1e6 < flops < 5e7').why_not(model, sample)  # None, or why the model is refused
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

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

_COMPARE = {'<': operator.lt, '<=': operator.le, '>': operator.gt, '>=': operator.ge}
_TURNED = {'<': '>', '<=': '>=', '>': '<', '>=': '<='}
_NUMBER = r'([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)'

#: ``params``, with a number before it, after it, or both; or with an interval.
_TERM = re.compile(
    rf'(?:{_NUMBER}\s*(<=?|>=?)\s*)?([A-Za-z_]\w*)(?:\s*(<=?|>=?)\s*{_NUMBER}|\s+in\s*\[\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\])?'
)


class Quota:
    """Bounds of a network, from a text: ``params < 1e6 and flops in [1e6, 5e7]``.

    A term is a comparison of ``params`` or ``flops`` with a number, an interval (``1e5 < params < 1e6``; with both ends
    ``params in [1e5, 1e6]``), or ``model_valid``: ``forward`` takes a sample. They are joined by ``and``. A model that
    does not take the sample is refused, too, if its ``flops`` are to be counted.

    Args:
        text: the quota.
        units: what numbers mean where it is not 1: Vega counts ``dict(flops=1e6, params=1e3)``.

    Attributes:
        limits: name, sign and number of each bound; numbers in the quota's units.
        model_valid: whether that is a term.

    Raises:
        TypeError: it is not a text.
        KeyError: a term is unknown.
        ValueError: it is no quota.
    """

    def __init__(self, text: str, units: Mapping[str, float] | None = None) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a quota must be a text such as 'params < 1e6', but got {text!r}")
        self.text, self.units = text, dict(units or {})
        self.limits: list[tuple[str, str, float]] = []
        self.model_valid = False
        for term in re.split(r'\s+and\s+', text.strip()):
            self._add(term.strip())

    def _add(self, term: str) -> None:
        parts = _TERM.fullmatch(term)
        given: Sequence[Any] = parts.groups() if parts else [None] * 7
        number, turned, name, sign, bound, lowest, highest = given
        if name is not None and name not in (*COUNTED, VALID):
            raise KeyError(
                f'the quota {self.text!r} has an unknown term {name!r}{suggestion(name, (*COUNTED, VALID))} (there are '
                f'{", ".join((*COUNTED, VALID))}; what is measured later, such as the latency, can be an objective)'
            )
        if term == VALID:
            self.model_valid = True
            return
        limits = [(_TURNED[turned], number)] if turned else []
        limits += [(sign, bound)] if sign else []
        limits += [('>=', lowest), ('<=', highest)] if lowest else []
        if not limits or name == VALID:
            raise ValueError(
                f"{term!r} in the quota {self.text!r} is no term: there are 'params < 1e6', '1e5 < params < 1e6', "
                f"'params in [1e5, 1e6]' and 'model_valid', joined by 'and'"
            )
        self.limits += [(name, sign, float(number)) for sign, number in limits]

    def __repr__(self) -> str:
        return f'Quota({self.text!r})'

    @property
    def needs_sample(self) -> bool:
        """Whether a sample is needed, because ``forward`` has to be called."""
        return self.model_valid or any(name == 'flops' for name, _, _ in self.limits)

    def why_not(self, model: nn.Module, sample: Any = None) -> str | None:
        """Return why the quota refuses a model, with what was counted; None if it does not.

        Args:
            model: the model; it is not changed, but lazy parameters get their shapes.
            sample: a batch of one sample, for `runnerkit.flow.look.summary.forward_summary`. Not needed where only
                ``params`` are restricted, and none are lazy.

        Raises:
            TypeError: there is no sample, but one is needed.
        """
        from runnerkit.flow.look.summary import count_parameters, forward_summary, is_shaped

        if self.needs_sample or not is_shaped(model):
            if sample is None:
                raise TypeError(f'the quota {self.text!r} needs a sample, to call the model with: pass a batch of one')
            try:
                whole = forward_summary(model, sample).whole
            except Exception as error:
                return f'the {type(model).__name__} does not take a sample: {type(error).__name__}: {one_line(error)}'
            found = {'params': whole.parameters, 'flops': whole.flops}
        else:
            found = {'params': count_parameters(model)}
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
            sample = first_batch(cfg, split, 1, device('cpu')) if self.needs_sample or not is_shaped(model) else None
            return self.why_not(model, sample)


def counted(cfg: Config) -> dict[str, float]:
    """``params`` of the model of a config, and ``flops`` of one sample, by the summary's counter."""
    import torch

    from runnerkit.flow.look.summary import forward_summary
    from runnerkit.nn import build_model
    from runnerkit.utils.seed import preserved_rng

    with preserved_rng():
        whole = forward_summary(build_model(cfg['model']), first_batch(cfg, 'train', 1, torch.device('cpu'))).whole
    return {'params': float(whole.parameters), 'flops': float(whole.flops)}


def first_batch(cfg: Config, split: str, size: int, device: torch.device) -> Any:
    """The first ``size`` samples of a split, collated."""
    from runnerkit.flow.use.predict import loader_of, on_device

    loader = loader_of(cfg, split, batch_size=size)
    data = loader.dataset
    is_indexed = hasattr(data, '__getitem__')
    samples = [data[index] for index in range(min(size, len(data)))] if is_indexed else list(islice(data, size))
    return on_device(loader.collate_fn(samples), device)
