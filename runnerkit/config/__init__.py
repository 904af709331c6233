"""Config files: reading, merging, printing, and changing them from the command line."""

from typing import TYPE_CHECKING

from runnerkit.utils.lazy import lazy_getattr

if TYPE_CHECKING:
    from runnerkit.config.action import DictAction
    from runnerkit.config.config import RESERVED_KEYS, Config, format_config
    from runnerkit.config.config_dict import ConfigDict
    from runnerkit.config.keys import keys_of_other_tools, refuse_unread_keys, unread_keys
    from runnerkit.config.merge import DELETE_KEY
    from runnerkit.config.origin import Finding, PreflightError
    from runnerkit.config.parse import BASE_KEY, DEPRECATION_KEY

__all__ = [
    'BASE_KEY',
    'DELETE_KEY',
    'DEPRECATION_KEY',
    'RESERVED_KEYS',
    'Config',
    'ConfigDict',
    'DictAction',
    'Finding',
    'PreflightError',
    'format_config',
    'keys_of_other_tools',
    'refuse_unread_keys',
    'unread_keys',
]

__getattr__ = lazy_getattr(__name__)
