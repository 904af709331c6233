"""Reading and writing objects with `load` and `dump`, by format, from and to paths and URLs."""

from runnerkit.fileio.file_client import BaseStorageBackend, FileClient
from runnerkit.fileio.handlers import BaseFileHandler, JsonHandler, PickleHandler, YamlHandler, register_handler
from runnerkit.fileio.io import dict_from_file, dump, list_from_file, load
from runnerkit.fileio.paths import exists, is_url, join, open_file

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
