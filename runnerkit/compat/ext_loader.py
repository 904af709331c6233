"""MMCV's way to its compiled ops (``mmcv.utils.ext_loader``), with which ``mmcv.ops`` imports also where none were
compiled: many models never call one of them, or only when they predict."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from runnerkit.utils.exceptions import WrongValue


def load_ext(name: str, funcs: Iterable[str]) -> ModuleType:
    """The compiled module ``mmcv.<name>``.

    Args:
        name: of the module, such as ``'_ext'``.
        funcs: what it must have.

    Returns:
        The module; where mmcv was installed without ops one whose functions say so when they are called.

    Raises:
        WrongValue: it lacks one of ``funcs``.
    """
    if not is_there(name):
        return MissingOps(name)
    module = import_module(f'mmcv.{name}')
    lacking = [func for func in funcs if not hasattr(module, func)]
    if lacking:
        raise WrongValue(
            f'{module.__name__} lacks {", ".join(lacking)}: it was compiled from another version of mmcv than the '
            f'Python files that use it; install mmcv again'
        )
    return module


def check_ops_exist() -> bool:
    """Whether the installed mmcv has compiled ops."""
    return is_there('_ext')


def is_there(name: str) -> bool:
    """Whether there is a module ``mmcv.<name>``."""
    try:
        return find_spec(f'mmcv.{name}') is not None
    except ModuleNotFoundError:  # not even an mmcv
        return False


class MissingOps(ModuleType):
    """Stands for ops that were not compiled: each of them refuses to be called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            raise ModuleNotFoundError(
                f'{name} is a compiled op, and the installed mmcv has none (no module mmcv.{self.__name__}): '
                f'install mmcv-full==1.7.2 (see docs/mmcv.md), or use a model that does without',
                name=f'mmcv.{self.__name__}',
            )

        return refuse
