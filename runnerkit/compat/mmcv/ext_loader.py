"""MMCV's loader of its compiled ops (``mmcv.utils.ext_loader``). ``mmcv.ops`` can be imported even if none were
compiled, because many models never call them, or only for predictions."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from runnerkit.utils.exceptions import WrongValue


def load_ext(name: str, funcs: Iterable[str]) -> ModuleType:
    """Load the compiled module ``mmcv.<name>``.

    Args:
        name: the module's name, such as ``'_ext'``.
        funcs: the functions that it must have.

    Returns:
        The module. If mmcv was installed without ops, a module whose functions raise an error when they are called.

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
    """Whether the module ``mmcv.<name>`` exists."""
    try:
        return find_spec(f'mmcv.{name}') is not None
    except ModuleNotFoundError:  # not even an mmcv
        return False


class MissingOps(ModuleType):
    """A module in the place of ops that were not compiled; calling one raises an error."""

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
