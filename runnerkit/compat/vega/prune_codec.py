"""Which channels of a network are kept, as a binary code and as the description of the network."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runnerkit.search.algorithm import CODECS, Codec
from runnerkit.utils.exceptions import WrongKey, WrongType, WrongValue

#: The widths of the whole network in a description, and the kept channels of each.
PARTS = {'base_chn_node': 'chn_node', 'base_chn': 'chn'}


@CODECS.register_module()
class PruneCodec(Codec):
    """One bit for each channel of a network: 1 keeps it.

    The description that the space has, or one of its modules, gives the network's widths: ``base_chn_node``, those of
    the layers that several blocks share, and ``base_chn``, those inside blocks. The code has the bits of the former
    first. The description that `decode` returns has the numbers of the kept channels besides, a list for each layer:
    ``chn_node=[[0, 2, 3], …]`` and ``chn``. A layer of which a code would keep nothing keeps its first channel.

    Args:
        space: a `runnerkit.search.SearchSpace`, a section like its, or the description of a single network.
    """

    def __init__(self, space: Any = None) -> None:
        super().__init__(space)
        self.base = _description(space)
        self.widths = _widths(_pruned_part(self.base))

    @property
    def length(self) -> int:
        """Bits of a code."""
        return sum(width for widths in self.widths.values() for width in widths)

    def encode(self, desc: Mapping[str, Any]) -> tuple[int, ...]:
        """The code of a description; one without ``chn_node`` and ``chn`` keeps everything.

        Raises:
            TypeError: it does not list the channels of each layer.
            ValueError: it lists one that the layer does not have.
        """
        part, code = _pruned_part(desc), []
        for name, widths in self.widths.items():
            kept = part.get(PARTS[name])
            if kept is None:
                kept = [range(width) for width in widths]
            if not _is_list(kept) or len(kept) != len(widths) or not all(map(_is_list, kept)):
                raise WrongType(f'{PARTS[name]} must list the kept channels of {len(widths)} layers, but got {kept!r}')
            for width, channels in zip(widths, kept, strict=True):
                if not set(channels) <= set(range(width)):
                    raise WrongValue(f'a layer of {width} channels cannot keep {list(channels)!r}')
                code += [int(channel in channels) for channel in range(width)]
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
        for name, widths in self.widths.items():
            part[PARTS[name]] = [_kept(bits, width) for width in widths]
        return desc


def _kept(bits: Iterator[int], width: int) -> list[int]:
    return [channel for channel in range(width) if next(bits)] or [0]


def _description(space: Any) -> dict[str, Any]:
    from runnerkit.compat.vega.networks import SearchSpace  # imports torch

    if isinstance(space, Mapping) and 'modules' in space:
        space = SearchSpace(space)
    if hasattr(space, 'describe'):
        space = space.describe()
    if not isinstance(space, Mapping):
        raise WrongType(
            'search_space must describe the network to prune, with modules or a type, and nothing else to choose, '
            f'but got a {type(space).__name__}'
        )
    return _plain(space)


def _plain(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _plain(value) if isinstance(value, Mapping) else copy.deepcopy(value) for key, value in section.items()
    }


def _pruned_part(desc: Mapping[str, Any]) -> Any:
    """The description itself, or its first module, that has widths."""
    for part in (desc, *(desc.get(name) for name in desc.get('modules', ()))):
        if isinstance(part, Mapping) and any(name in part for name in PARTS):
            return part
    raise WrongKey(
        'the description of the network to prune needs base_chn and base_chn_node, the widths of its layers; it has '
        f'{", ".join(map(str, desc)) or "nothing"}'
    )


def _widths(part: Mapping[str, Any]) -> dict[str, list[int]]:
    found = {name: part.get(name, []) for name in PARTS}
    for name, widths in found.items():
        if not _is_list(widths) or not all(isinstance(each, int) and each > 0 for each in widths):
            raise WrongType(f'{name} must be a list of widths, such as [16, 16, 32], but got {widths!r}')
    return {name: list(widths) for name, widths in found.items()}


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, range))
