"""What `runnerkit.fit` trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from runnerkit.nn.supervised import Supervised
from runnerkit.utils.exceptions import WrongType, WrongValue


class Pairs(Supervised):
    """`Supervised` for batches ``(x, y)``, whose loss ``loss(net(x), y)`` is one number."""

    def _step(self, data: Any) -> tuple[dict[str, Any], Any, Any]:
        if not isinstance(data, list | tuple) or len(data) != 2:
            what = f'a {type(data).__name__}' + (f' of {len(data)}' if isinstance(data, list | tuple) else '')
            raise WrongType(
                f'fit trains on batches (x, y), but this one is {what}: let the loader give pairs, or name the fields, '
                "runnerkit.train(dict(model=dict(type='Supervised', model=net, inputs=…, targets=…, loss=…), …))"
            )
        return super()._step(data)

    @staticmethod
    def _total(result: Any) -> tuple[Tensor, dict[str, Tensor]]:
        for term in result.values() if isinstance(result, Mapping) else [result]:
            if isinstance(term, Tensor) and term.numel() != 1:
                raise WrongValue(
                    f'the loss must return one number, but its result has the shape {tuple(term.shape)}: take its '
                    "mean, reduction='mean' of torch's losses"
                )
        return Supervised._total(result)
