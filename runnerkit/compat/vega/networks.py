"""Networks of a search: families of them by name, descriptions that are configs, and the models of descriptions.

::

    @NetworkFactory.register(NetTypes.BACKBONE)
    class Tower(nn.Module):
        def __init__(self, widths, num_classes): ...

    model = NetworkDesc(
        dict(modules=['backbone'], backbone=dict(type='Tower', widths=[16, 32], num_classes=10))
    ).to_model()

A description is part of an ordinary config: ``model=dict(type='NetworkDesc', modules=[…], backbone=…)`` where this
module is imported, ``type='runnerkit.compat.vega.networks.build_network'`` anywhere; and a network of a family is the
``type='backbone.Tower'`` of a model.
"""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from torch import nn

from runnerkit.compat.vega.current import running_part
from runnerkit.config import Config, ConfigDict
from runnerkit.config.config_dict import as_config
from runnerkit.nn import MODELS, BaseModule, build_model
from runnerkit.registry import Registry, placed_errors
from runnerkit.utils.suggest import suggestion

_Network = TypeVar('_Network', bound=Callable[..., Any])

#: The only parameter of a constructor that takes the whole description, as Vega's networks do.
DESCRIPTION = ('desc', 'descript', 'net_desc')

#: Keys of a search space that describe no network.
_OF_SPACE = ('type', 'hyperparameters', 'parameters', 'condition', 'conditions', 'forbidden')


class NetTypes(str, Enum):
    """The families of networks."""

    BACKBONE = 'backbone'
    NECK = 'neck'
    HEAD = 'head'
    RPN = 'rpn'
    BLOCK = 'block'
    SUPER_NETWORK = 'super_network'
    CUSTOM = 'custom'


#: The networks of each family by name. What a family does not have is looked up among all models.
FAMILIES = {
    each.value: Registry(each.value, parent=MODELS, scope=each.value, fallback=MODELS.get, fallback_names=MODELS.names)
    for each in NetTypes
}


class Network(BaseModule):
    """A base class for networks, as Vega has one. Any `torch.nn.Module` will do."""


class NetworkFactory:
    """Registers networks in their families, and finds them."""

    @staticmethod
    def register(family: NetTypes | str = NetTypes.CUSTOM, name: str | None = None) -> Callable[[_Network], _Network]:
        """Return a decorator that registers a class or function in a family.

        The keys of a description are its keyword arguments. If its only parameter is called ``desc``, ``descript`` or
        ``net_desc``, it gets all of them in one dict.

        Args:
            family: one of `NetTypes`, or its value.
            name: by default the name of the class.

        Raises:
            KeyError: there is no such family, or it has that name already.
        """
        registry = _networks_of(family)

        def register(network: _Network) -> _Network:
            registry.register_module(name or network.__name__, module=by_keywords(network))
            return network

        return register

    @staticmethod
    def get_network(family: NetTypes | str, name: str) -> Any:
        """Return the class or function that is called ``name`` in a family.

        Raises:
            KeyError: there is no such family, or no such network.
        """
        registry = _networks_of(family)
        found = registry.get(name)
        if found is None:
            raise KeyError(f'there is no {registry.name} {name!r}{suggestion(name, registry.names())}')
        return getattr(found, '__wrapped__', found)


class NetworkDesc:
    """The description of a network: what a search has chosen of a `SearchSpace`.

    Args:
        desc: ``modules``, a list of names, and under each of these names the config of a network; or the config of a
            single one, with a ``type``. A module with the name of a family is looked up there, any other one among all
            models. Instead of ``type``, a module may say ``name``.
    """

    def __init__(self, desc: Mapping[str, Any]) -> None:
        if not isinstance(desc, Mapping):
            raise TypeError(f'a description must be a dict, but got {desc!r}')
        self.desc: ConfigDict = as_config(dict(desc))

    def to_model(self) -> nn.Module:
        """Build the network: that of the only module, or a sequence of those of several, by their names.

        Raises:
            KeyError: a module has no section, or its type is unknown.
            TypeError: a part has another shape.
            ValueError: there are no modules.
        """
        if 'modules' not in self.desc:
            return build_model(self.desc)
        modules = self.desc['modules']
        if not isinstance(modules, list | tuple) or not all(isinstance(each, str) for each in modules):
            raise TypeError(f"modules must be a list of names, such as ['backbone', 'head'], but got {modules!r}")
        if not modules:
            raise ValueError('modules is empty: name at least one')
        if len(set(modules)) < len(modules):
            raise ValueError(f'modules must have different names, but got {list(modules)!r}')
        with placed_errors(self.desc):
            networks = OrderedDict((name, self._network(name)) for name in modules)
        return networks.popitem()[1] if len(networks) == 1 else nn.Sequential(networks)

    def _network(self, module: str) -> nn.Module:
        section: Any = self.desc.get(module)
        if not isinstance(section, Mapping):
            if module in self.desc:
                raise TypeError(f'the module {module} must be a dict with a type, but got {section!r}')
            sections = [key for key in self.desc if key != 'modules']
            raise KeyError(f'the description has no section for its module {module!r}{suggestion(module, sections)}')
        if 'type' not in section and 'name' in section:
            section = copy.copy(section)
            section['type'] = section.pop('name')
        with placed_errors(self.desc, module):
            network = FAMILIES.get(module, MODELS).build(section)
        if not isinstance(network, nn.Module):
            raise TypeError(
                f'the module {module} gives a {type(network).__name__}, but a torch.nn.Module is needed: {section!r}'
            )
        return network


@MODELS.register_module('NetworkDesc')
def build_network(**desc: Any) -> nn.Module:
    """Build the network of a description; see `NetworkDesc`."""
    return NetworkDesc(desc).to_model()


class SearchSpace:
    """The section ``search_space`` of a config: networks, and what is varied of them.

    Args:
        section: a description as for `NetworkDesc`, and a space as for `Space.of`; either may be missing. None: that of
            the running step.
    """

    def __init__(self, section: Mapping[str, Any] | None = None) -> None:
        if section is None:
            section = running_part('search_space')
        if not isinstance(section, Mapping):
            raise TypeError(f'a search space must be a dict, but got {section!r}')
        self._section: ConfigDict = as_config(dict(section)) if not isinstance(section, ConfigDict) else section

    def __repr__(self) -> str:
        return f'SearchSpace({self._section!r})'

    @property
    def search_space(self) -> ConfigDict:
        """The section as it was loaded."""
        return self._section

    def describe(self, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the description of a network, with ``values`` in their places.

        Args:
            values: by dotted key, ``backbone.depth``; ``network.backbone.depth`` means the same, as in Vega.
        """
        cfg = Config({key: copy.deepcopy(part) for key, part in self._section.items() if key not in _OF_SPACE})
        cfg.merge_from_dict({key.removeprefix('network.'): value for key, value in (values or {}).items()})
        return dict(cfg)


def _networks_of(family: NetTypes | str) -> Registry:
    name = family.value if isinstance(family, NetTypes) else family
    if name not in FAMILIES:
        raise KeyError(
            f'there is no family {name!r}{suggestion(str(name), FAMILIES)} (there are {", ".join(FAMILIES)})'
        )
    return FAMILIES[name]


def by_keywords(network: Callable[..., Any]) -> Callable[..., Any]:
    """``network``, to be called with the keys of a description as keyword arguments, also if its only parameter is the
    whole description."""
    try:
        parameters = [*inspect.signature(network).parameters]
    except (TypeError, ValueError):  # some classes in C have no signature
        return network
    if len(parameters) != 1 or parameters[0] not in DESCRIPTION:
        return network

    def build(**description: Any) -> Any:
        return network(as_config(description))

    build.__name__ = build.__qualname__ = getattr(network, '__name__', 'network')
    build.__module__ = network.__module__
    build.__wrapped__ = network  # type: ignore[attr-defined]
    return build
