"""The steps in which MMCV reads a config file, for subclasses of `Config` with their own file reading."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

from runnerkit.config.parse import BASE_REFERENCE, fill_in_file_variables, look_up

StrPath = str | os.PathLike[str]


def validate_py_syntax(filename: StrPath) -> None:
    """Raise a SyntaxError that names the file, unless it is valid Python."""
    try:
        ast.parse(Path(filename).read_text(encoding='utf-8'))
    except SyntaxError as error:
        raise SyntaxError(f'There are syntax errors in config file {filename}: {error}') from None


def substitute_predefined_vars(filename: StrPath, temp_config_name: StrPath) -> None:
    """Write the config ``filename`` to ``temp_config_name``, with ``{{ fileDirname }}`` and the like replaced."""
    text = Path(filename).read_text(encoding='utf-8')
    Path(temp_config_name).write_text(fill_in_file_variables(text, os.path.abspath(filename)), encoding='utf-8')


def pre_substitute_base_vars(filename: StrPath, temp_config_name: StrPath) -> dict[str, str]:
    """Write the config ``filename`` to ``temp_config_name``, with each ``{{ _base_.key }}`` replaced by a quoted name.

    Returns:
        The key of each of these names.
    """
    names: dict[str, str] = {}

    def name_of(found: re.Match[str]) -> str:
        name = f'_{found[1]}_{os.urandom(3).hex()}'
        names[name] = found[1]
        return f'"{name}"'

    text = Path(filename).read_text(encoding='utf-8')
    Path(temp_config_name).write_text(BASE_REFERENCE.sub(name_of, text), encoding='utf-8')
    return names


def substitute_base_vars(cfg: Any, base_var_dict: dict[str, str], base_cfg: dict[str, Any]) -> Any:
    """Replace the names of `pre_substitute_base_vars` in ``cfg`` by their values in ``base_cfg``.

    Args:
        cfg: the content of the changed file.
        base_var_dict: the names and their keys.
        base_cfg: the content of the files in ``_base_``.
    """

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return type(value)((key, filled(item)) for key, item in value.items())
        if isinstance(value, list | tuple):
            return type(value)(filled(item) for item in value)
        if isinstance(value, str) and value in base_var_dict:
            return look_up(base_var_dict[value], base_cfg, 'a config')
        return value

    return filled(cfg)
