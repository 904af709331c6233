"""Reading and writing objects with `load` and `dump`, by format, from and to paths and URLs.

The names below are imported at their first use: a runner that stays on the disk needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runnerkit.fileio.paths import exists, is_url, join, open_file

if TYPE_CHECKING:
    from runnerkit.fileio.file_client import BaseStorageBackend, FileClient
    from runnerkit.fileio.handlers import BaseFileHandler, JsonHandler, PickleHandler, YamlHandler, register_handler
    from runnerkit.fileio.io import dict_from_file, dump, list_from_file, load

__all__ = [
    'BaseFileHandler',
    'BaseStorageBackend',
    'FileClient',
    'JsonHandler',
    'PickleHandler',
    'YamlHandler',
    'dict_from_file',
    'dump',
    'exists',
    'is_url',
    'join',
    'list_from_file',
    'load',
    'open_file',
    'register_handler',
]

_MODULES = ('file_client', 'handlers', 'io')


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f'{__name__}.{name}')
    for home in ('file_client', 'handlers', 'io') if name in __all__ else ():
        module = import_module(f'{__name__}.{home}')
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
