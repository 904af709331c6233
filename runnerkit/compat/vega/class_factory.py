"""Vega's names for the registries: ``@ClassFactory.register(ClassType.METRIC, alias='accuracy')``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from runnerkit.compat.vega.algorithms import Codec, SearchAlgorithm
from runnerkit.compat.vega.callbacks import CALLBACKS
from runnerkit.compat.vega.config import DATASET
from runnerkit.compat.vega.current import General, running_config, running_pipeline
from runnerkit.compat.vega.metrics import metric_of_function
from runnerkit.compat.vega.networks import SearchSpace, by_keywords
from runnerkit.data import DATASETS
from runnerkit.hooks.torch_scheduler import LR_SCHEDULERS, find_scheduler
from runnerkit.nn import LOSSES, METRICS, MODELS
from runnerkit.optim import OPTIMIZERS
from runnerkit.registry import Registry
from runnerkit.search.algorithm import CODECS, SEARCH_ALGORITHMS
from runnerkit.search.pipe_step import PIPE_STEPS
from runnerkit.utils.exceptions import WrongKey
from runnerkit.utils.suggest import suggestion

_Class = TypeVar('_Class')


#: The registry of each kind of classes.
REGISTRIES: dict[str, Registry] = {
    'network': MODELS,
    'loss': LOSSES,
    'metric': METRICS,
    'optimizer': OPTIMIZERS,
    'lr_scheduler': LR_SCHEDULERS,
    'dataset': DATASETS,
    'callback': CALLBACKS,
    'search_algorithm': SEARCH_ALGORITHMS,
    'codec': CODECS,
    'pipe_step': PIPE_STEPS,
}


class _Kinds(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f'there is no ClassType.{name}: there are {", ".join(vars(self))}')


#: The kinds, as Vega calls them: ``ClassType.NETWORK``, ``ClassType.LR_SCHEDULER`` …
ClassType = _Kinds(**{kind.upper(): kind for kind in REGISTRIES})


class ClassFactory:
    """Registers and finds classes by kind and name."""

    @staticmethod
    def register(type_name: str, alias: str | None = None) -> Callable[[_Class], _Class]:
        """A decorator that registers a class, or for metrics also a function.

        A name that runnerkit itself has registered is replaced. A network whose only parameter is the whole description
        gets it in one dict, as with `NetworkFactory`.

        Args:
            type_name: one of `ClassType`.
            alias: the name; by default that of the class.

        Raises:
            KeyError: there is no such kind, or another class has the name.
        """
        registry = _registry_of(type_name)

        def decorate(found: Any) -> Any:
            module = found
            if registry is METRICS and inspect.isfunction(found):
                module = metric_of_function(found)
            elif registry is MODELS:
                module = by_keywords(found)
            name = alias or found.__name__
            former = registry.module_dict.get(name)
            ours = former is not None and former.__module__.split('.')[0] == 'runnerkit'
            registry.register_module(name, force=ours, module=module)
            return found

        return decorate

    @staticmethod
    def get_cls(type_name: str, t_cls_name: str | None = None) -> Any:
        """Return the class of a kind and name; for a metric that is a function, the function.

        Without a name, it is what the running step or training names. That can be called as the class; it has the
        arguments of the config already.

        Args:
            type_name: one of `ClassType`.
            t_cls_name: the name.

        Raises:
            KeyError: there is none.
            RuntimeError: no name was given, and nothing is running.
            TypeError: no name was given, and a config can name several of this kind.
        """
        registry = _registry_of(type_name)
        if t_cls_name is None:
            return _named_by_config(type_name)
        found = (find_scheduler if registry is LR_SCHEDULERS else registry.get)(t_cls_name)
        if found is None:
            raise WrongKey(
                f'there is no {registry.name} {t_cls_name!r}: import the module that registers it'
                f'{suggestion(t_cls_name, registry.names())}'
            )
        return inspect.unwrap(found) if inspect.isfunction(found) else found


def _registry_of(type_name: str) -> Registry:
    if type_name not in REGISTRIES:
        raise WrongKey(
            f'there is no kind of classes {type_name!r}{suggestion(str(type_name), REGISTRIES)}; there are '
            f'{", ".join(REGISTRIES)}'
        )
    return REGISTRIES[type_name]


def running_dataset(mode: str = 'train', **more: Any) -> Any:
    """Build the data set that the config of the running training or step names.

    Args:
        mode: ``'train'``, ``'val'`` or ``'test'``.
        more: further arguments of its class.
    """
    data = running_config()['data']
    found = data.get(mode) or {**data['train'], 'mode': mode, 'needs_mode': True}
    if found['type'] != DATASET:
        return DATASETS.build({**found, **more})
    return DATASETS.build({**found, 'dataset': {**found['dataset'], **more}})


#: Kinds of classes that build what the running step names, if they are called without a name.
_BY_STEP: dict[str, Any] = {
    'dataset': running_dataset,
    'network': SearchSpace,
    'search_algorithm': SearchAlgorithm,
    'codec': Codec,
}

#: Where a training's config has the only one of a kind, or the first one.
_IN_CONFIG: dict[str, Callable[[Any], Any]] = {
    'loss': lambda cfg: cfg.model.loss,
    'metric': lambda cfg: next(iter(cfg.model.metrics.values())),
    'optimizer': lambda cfg: cfg.optimizer,
    'lr_scheduler': lambda cfg: {**cfg.lr_config, 'type': cfg.lr_config.policy},
}


def _named_by_config(type_name: str) -> Any:
    """What the running step or training names of a kind, with its arguments."""
    if type_name in _BY_STEP:
        return _BY_STEP[type_name]
    if type_name == 'pipe_step':
        return type(running_pipeline().steps[General.step_name])
    if type_name not in _IN_CONFIG:
        raise TypeError(f'get_cls({type_name!r}) needs the name of the class as its second argument')
    part = _IN_CONFIG[type_name](running_config())
    args = {key: part[key] for key in part if key not in ('type', 'policy')}
    return partial(ClassFactory.get_cls(type_name, part['type']), **args)
