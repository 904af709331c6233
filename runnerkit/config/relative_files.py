"""Files that a config names relative to its own place: ``'my_data.py:Table'`` is in a file in the config's folder."""

from __future__ import annotations

import os
import re
from filecmp import cmp
from typing import Any

from runnerkit.fileio.paths import shown

#: ``my_data.py:Table``. Drives (``C:\\``) and URLs have a colon before.
_IN_FILE = re.compile(r'([^:{}\n]+\.py):[A-Za-z_]\w*(?:\.\w+)*')

#: The sections with names of files alone, and their endings.
_ALONE = {'custom_imports': '.py', 'flow': '.py'}


def resolve_relative_files(values: Any, folder: str, ends: str | tuple[str, ...] = ()) -> Any:
    """``values`` with the absolute paths of code files that lie in ``folder``, in the place of their relative ones.

    A relative path without a file in ``folder`` stays as it is: it is relative to the working directory.

    Args:
        values: the values that stand in one file. Dicts and lists are changed in place.
        folder: the absolute path of the folder of that file.
        ends: the endings of strings that are paths without a name in the file.

    Raises:
        ValueError: the folder and the working directory have different files of that path.
    """
    if isinstance(values, str):
        found = _IN_FILE.fullmatch(values)
        file = found[1] if found else values if values.endswith(ends or '\n') else None
        return values if file is None else _path_of(file, folder) + values[len(file) :]
    if isinstance(values, dict):
        for key, value in values.items():
            if isinstance(value, str | dict | list | tuple):
                is_config = key == 'config' and isinstance(value, str)
                alone = ('.py', '.yaml', '.yml', '.json') if is_config else _ALONE.get(key, ends)
                dict.__setitem__(values, key, resolve_relative_files(value, folder, alone))
    elif type(values) in (list, tuple):
        return type(values)([resolve_relative_files(each, folder, ends) for each in values])
    return values


def _path_of(file: str, folder: str) -> str:
    candidate = os.path.normpath(os.path.join(folder, file))
    if os.path.isabs(file) or file.startswith('~') or not os.path.isfile(candidate):
        return file
    if os.path.isfile(file) and not os.path.samefile(file, candidate) and not cmp(file, candidate, shallow=False):
        raise ValueError(
            f'{file!r} is ambiguous: {shown(candidate)}, in the folder of the config, and {os.path.abspath(file)}, in '
            f"the working directory, differ. Write '{{{{ fileDirname }}}}/{file}' for the first, or the second one's "
            'absolute path'
        )
    return candidate.replace('\\', '/')
