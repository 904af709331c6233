"""`Config`: a config file as an object."""

from __future__ import annotations

import copy
import os
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runnerkit.config.action import parse_value
from runnerkit.config.config_dict import ConfigDict, as_config, walk
from runnerkit.config.merge import merge, nested_options
from runnerkit.config.origin import at
from runnerkit.config.parse import BASE_KEY, EXTENSIONS, read_config, read_text, resolve_relative_files
from runnerkit.config.pretty import as_data, format_data, format_values
from runnerkit.fileio import is_url, open_file
from runnerkit.registry import placed_errors
from runnerkit.utils.imports import import_modules_from_strings

#: Top-level keys that a config cannot have, since they are properties of `Config`.
RESERVED_KEYS = ('filename', 'text', 'pretty_text')


class Config:
    """A config whose items are attributes (``cfg.model.depth``), and which knows its file.

    ::

        cfg = Config.fromfile('configs/mnist/lenet.py')
        cfg.merge_from_dict({'optimizer.lr': 0.1})
        print(cfg.pretty_text)

    Args:
        cfg_dict: the values; they are copied.
        cfg_text: the text they were read from; by default that of ``filename``, if given.
        filename: the file they were read from.

    Raises:
        TypeError: ``cfg_dict`` is not a dict.
        KeyError: a key is reserved for a property of this class, begins with two underscores, or is ``_base_``.
    """

    def __init__(
        self,
        cfg_dict: Mapping[str, Any] | None = None,
        cfg_text: str | None = None,
        filename: str | os.PathLike[str] | None = None,
    ) -> None:
        if cfg_dict is None:
            cfg_dict = {}
        if not isinstance(cfg_dict, dict):
            raise TypeError(f'cfg_dict must be a dict, but got {type(cfg_dict)}')
        _refuse_reserved(cfg_dict)
        filename = None if filename is None else os.fspath(filename)
        if cfg_text is None:
            cfg_text = Path(filename).read_text(encoding='utf-8') if filename else ''
        self.__setstate__((as_config(cfg_dict), filename, cfg_text))

    @staticmethod
    def fromfile(
        filename: str | os.PathLike[str], use_predefined_variables: bool = True, import_custom_modules: bool = True
    ) -> Config:
        """Read a config file and merge it into the files in its ``_base_``.

        Code that it names by a relative path (``'my_data.py:Table'``) is in the folder of the file that names it, or
        else in the working directory.

        A Python file is executed. Its variables are the config, except modules, functions, names with two leading
        underscores, and classes under their own names.

        Args:
            filename: a .py, .json, .yaml or .yml file.
            use_predefined_variables: replace ``{{ fileDirname }}``, ``{{ fileBasename }}``,
                ``{{ fileBasenameNoExtension }}`` and ``{{ fileExtname }}``.
            import_custom_modules: import the modules in ``custom_imports``.

        Raises:
            FileNotFoundError: the file, or one of its bases, does not exist.
            IsADirectoryError: it is a folder.
            OSError: its type is not supported.
            ValueError: its bases are circular, it uses one before ``_base_`` is assigned, it is not valid JSON, or a
                relative path leads to two files, from the config and from the working directory.
            KeyError: two bases have a key in common, ``{{ _base_.key }}`` does not exist, or a key is reserved.
            TypeError: the file has a dict where its base has something else.
            SyntaxError: the file is not valid Python.
            ImportError: a custom import fails.
        """
        values, text = read_config(filename, use_predefined_variables)
        if import_custom_modules:
            import_modules_of(values)
        return _config_of(values, text, os.fspath(filename))

    @staticmethod
    def fromstring(cfg_str: str, file_format: str) -> Config:
        """Read a config from a text. Relative paths in it start from the working directory.

        Args:
            cfg_str: the text.
            file_format: '.py', '.json', '.yaml' or '.yml'.
        """
        if file_format not in EXTENSIONS:
            raise OSError(f'Only py/yml/yaml/json type are supported now! file_format is {file_format!r}')
        values, _ = read_text(cfg_str, os.path.abspath(f'<string>{file_format}'))
        import_modules_of(values)
        return _config_of(values, cfg_str)

    @staticmethod
    def auto_argparser(description: str | None = None) -> tuple[ArgumentParser, Config]:
        """The config named by the first argument, and a parser with an option for each of its values."""
        first = ArgumentParser(description=description, add_help=False)
        first.add_argument('config', help='config file path')
        cfg = Config.fromfile(first.parse_known_args()[0].config)
        parser = ArgumentParser(description=description)
        parser.add_argument('config', help='config file path')
        for key, value in walk(cfg._cfg_dict):
            item = value[0] if isinstance(value, list | tuple) and value else value
            kind = parse_value if isinstance(item, bool) or item is None else type(item)
            many = {'nargs': '+'} if isinstance(value, list | tuple) else {}
            if isinstance(item, bool | int | float | str | None):
                parser.add_argument(f'--{key}', type=kind, **many)  # type: ignore[arg-type]
        return parser, cfg

    @property
    def filename(self) -> str | None:
        """The file that the config was read from, as given."""
        return self._filename

    @property
    def text(self) -> str:
        """The texts of the file and its bases, each after its path."""
        return self._text

    @property
    def pretty_text(self) -> str:
        """The config as the text of a Python file without bases."""
        return format_values(self._cfg_dict)

    def dump(self, file: str | os.PathLike[str] | None = None) -> str | None:
        """Write the config to a file in the format of its extension; without a file, return it as text."""
        extension = os.path.splitext(file or self._filename or '.py')[1] or '.py'
        if extension not in EXTENSIONS:
            from runnerkit.fileio import dump

            dump(as_data(self._cfg_dict), file, file_format=extension[1:])
            return None
        text = self.pretty_text if extension == '.py' else format_data(self._cfg_dict, extension[1:])
        if file is None:
            return text
        if not is_url(file):
            os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        with open_file(file, 'w') as opened:
            opened.write(text)
        return None

    def merge_from_dict(self, options: Mapping[str, Any], allow_list_keys: bool = True) -> None:
        """Change values, as ``--cfg-options`` does.

        Args:
            options: values by dotted key, ``{'model.depth': 101, 'data.train.pipeline.0.type': 'LoadImage'}``. New keys
                are added; `runnerkit.config.unread_keys` finds the unknown ones.
            allow_list_keys: let numbers in a key select items of lists and tuples.

        Raises:
            TypeError: a key leads into a value that is not a dict (or list or tuple).
            KeyError: a list has no such item, or a key is reserved.
            ValueError: a relative path leads to two files, from the config and from the working directory.
        """
        tree = nested_options(dict(options))
        _refuse_reserved(tree)
        if self._filename is not None:
            resolve_relative_files(tree, os.path.dirname(os.path.abspath(self._filename)))
        merged = merge(tree, self._cfg_dict, allow_list_keys)
        super().__setattr__('_cfg_dict', merged)

    def __repr__(self) -> str:
        return f'Config (path: {self._filename}): {self._cfg_dict!r}'

    def __len__(self) -> int:
        return len(self._cfg_dict)

    def __iter__(self) -> Iterator[str]:
        return iter(self._cfg_dict)

    def __getattr__(self, name: str) -> Any:
        if name == '_cfg_dict':  # an object that is being copied or unpickled has none yet
            raise AttributeError(name)
        return getattr(self._cfg_dict, name)

    def __getitem__(self, name: str) -> Any:
        return self._cfg_dict[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_reserved({name: value})
        self._cfg_dict[name] = as_config(value)

    def __delattr__(self, name: str) -> None:
        delattr(self._cfg_dict, name)

    def __delitem__(self, name: str) -> None:
        del self._cfg_dict[name]

    def __contains__(self, name: str) -> bool:
        return name in self._cfg_dict

    def __getstate__(self) -> tuple[ConfigDict, str | None, str]:
        return self._cfg_dict, self._filename, self._text

    def __setstate__(self, state: tuple[ConfigDict, str | None, str]) -> None:
        for name, value in zip(('_cfg_dict', '_filename', '_text'), state, strict=True):
            super().__setattr__(name, value)

    def __copy__(self) -> Config:
        other = type(self).__new__(type(self))
        other.__setstate__(self.__getstate__())
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Config:
        other = type(self).__new__(type(self))
        memo[id(self)] = other
        other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return other


def format_config(cfg: Config | dict[str, Any], style: str = 'pep8') -> str:
    """A config's Python text, formatted by yapf; `Config.pretty_text` is faster.

    Args:
        cfg: the config.
        style: one of yapf's styles (pep8, google, facebook, yapf), a style description, or a file with one.

    Raises:
        ValueError: yapf does not know the style.
    """
    # Imported here, because it is slow to import.
    from yapf.yapflib.style import StyleConfigError
    from yapf.yapflib.yapf_api import FormatCode

    try:
        text, _ = FormatCode(format_values(cfg._cfg_dict if isinstance(cfg, Config) else cfg), style_config=style)
    except StyleConfigError as error:
        raise ValueError(
            f'style {style!r} is not known to yapf ({error}); try pep8, google, facebook or yapf'
        ) from error
    return str(text)


def _config_of(values: ConfigDict, text: str, filename: str | None = None) -> Config:
    """A Config that takes over ``values`` without copying them."""
    _refuse_reserved(values)
    cfg = Config.__new__(Config)
    cfg.__setstate__((values, filename, text))
    return cfg


def _refuse_reserved(values: Mapping[Any, Any]) -> None:
    for key in values:
        if key in RESERVED_KEYS:
            raise KeyError(f'{key} is reserved for config file{at(values, key)}; choose another name')
        if key == BASE_KEY:
            raise KeyError(f'{key}{at(values, key)} has an effect in a config file only: write it there')
        if isinstance(key, str) and key.startswith('__'):
            raise KeyError(
                f'{key}{at(values, key)} begins with two underscores, which makes it private to a Python '
                f'config; choose another name'
            )


def import_modules_of(values: Mapping[str, Any]) -> None:
    """Import the modules in ``custom_imports``."""
    wanted = values.get('custom_imports')
    if not wanted:
        return
    if not isinstance(wanted, dict) or set(wanted) - {'imports', 'allow_failed_imports'}:
        where = at(values, 'custom_imports')
        raise TypeError(
            f"custom_imports{where} must be dict(imports=['a.module'], allow_failed_imports=False), but is {wanted!r}"
        )
    with placed_errors(values, 'custom_imports'):
        import_modules_from_strings(**wanted)
