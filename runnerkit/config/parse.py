"""Reading a config file and its bases."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import os
import re
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from filecmp import cmp
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

from runnerkit.config.config_dict import MAX_DEPTH, TOO_DEEP, ConfigDict, as_config, check_depth
from runnerkit.config.merge import merge
from runnerkit.config.origin import DataLines, Place, SourceLines
from runnerkit.fileio.paths import shown
from runnerkit.utils.exceptions import raise_with_context
from runnerkit.utils.suggest import suggestion
from runnerkit.utils.user_files import name_of_file

#: The path, or paths, of the config files that this one is based on, relative to its own folder.
BASE_KEY = '_base_'
#: A dict with ``expected``, the config to use instead of this one, and ``reference``, where this is explained.
DEPRECATION_KEY = '_deprecation_'

#: How many files may stand behind each other in ``_base_``.
MAX_BASES = 50

#: File extensions of configs.
EXTENSIONS = ('.py', '.json', '.yaml', '.yml')

_FILE_VARIABLE = re.compile(r'\{\{\s*(fileDirname|fileBasename|fileBasenameNoExtension|fileExtname)\s*\}\}')
#: A reference to a value of the bases.
BASE_REFERENCE = re.compile(r'\{\{\s*_base_\.([\w.]+)\s*\}\}')
_JSON_STRING_OR_REFERENCE = re.compile(r'"(?:[^"\\]|\\.)*"|' + BASE_REFERENCE.pattern)
#: A placeholder for a reference until the bases are read: a random name that no config contains.
_MARK_PREFIX = f'__base_{os.urandom(8).hex()}_'
_MARK = re.compile(_MARK_PREFIX + r'(\d+)__')

#: ``my_data.py:Table``. Drives (``C:\\``) and URLs have a colon before.
_IN_FILE = re.compile(r'([^:{}\n]+\.py):[A-Za-z_]\w*(?:\.\w+)*')

#: The sections with names of files alone, and their endings.
_ALONE = {'custom_imports': '.py', 'flow': '.py'}


class ConfigDeprecationWarning(FutureWarning, DeprecationWarning):
    """A config file has been replaced by another. MMCV 1.x versions use either of the two base classes here."""


class Bases(NamedTuple):
    """The merged content of the files in ``_base_``, and their texts."""

    config: ConfigDict
    texts: list[str]


def read_config(
    filename: str | os.PathLike[str], use_predefined_variables: bool = True, chain: tuple[str, ...] = ()
) -> tuple[ConfigDict, str]:
    """Read a config file and merge it into its bases."""
    path = os.path.abspath(os.path.expanduser(filename))
    if path in chain:
        raise ValueError(f'{BASE_KEY} is circular: {" -> ".join((*chain[chain.index(path) :], path))}')
    if len(chain) > MAX_BASES:
        raise ValueError(f'{chain[0]} has a chain of more than {MAX_BASES} files in {BASE_KEY}: write fewer of them')
    if os.path.isdir(path):
        names = sorted(name for name in os.listdir(path) if os.path.splitext(name)[1] in EXTENSIONS)
        holds = f'; it holds {", ".join(names[:5])}{", …" * (len(names) > 5)}' if names else ''
        raise IsADirectoryError(f'{path} is a folder, not a config file{holds}')
    if not os.path.isfile(path):
        folder, name = os.path.split(path)
        named_by = f'; {chain[-1]} names it as its base' if chain else ''
        hint = suggestion(name, os.listdir(folder)) if os.path.isdir(folder) else ''
        raise FileNotFoundError(f'file "{path}" does not exist{named_by}{hint}')
    check_type(path)
    try:
        with open(path, encoding='utf-8-sig') as file:  # editors of Windows begin files with a mark
            text = file.read()
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b'\n') + 1
        raise ValueError(f'{path}:{line}: not UTF-8: {error}') from None
    return read_text(text, path, use_predefined_variables, chain)


def check_type(path: str) -> str:
    """The extension of a config file."""
    extension = os.path.splitext(path)[1]
    if extension not in EXTENSIONS:
        raise OSError(f'Only py/yml/yaml/json type are supported now! {path!r} is none of them')
    return extension


def read_text(
    text: str, path: str, use_predefined_variables: bool = True, chain: tuple[str, ...] = ()
) -> tuple[ConfigDict, str]:
    """`read_config` for a text; ``path`` is the absolute path of its file, which need not exist."""
    extension = check_type(path)
    source = fill_in_file_variables(text, path) if use_predefined_variables else text

    def read_bases(names: Any) -> Bases:
        return _read_bases(names, path, use_predefined_variables, (*chain, path))

    own, bases = (_read_python if extension == '.py' else _read_data)(source, path, read_bases)
    if use_predefined_variables and os.path.isfile(path):
        resolve_relative_files(own, os.path.dirname(path))
    _warn_of_deprecation(own.pop(DEPRECATION_KEY, None), path)
    return merge(own, bases.config), '\n'.join([*bases.texts, f'{path}\n{text}'])


def fill_in_file_variables(text: str, path: str) -> str:
    """``text`` with ``{{ fileDirname }}`` and the other file variables replaced for the absolute ``path``.

    They stand in strings, so quotes and the like in the path are escaped, except in YAML, whose strings may have any
    quotes or none.
    """
    folder, name = os.path.split(path)
    stem, extension = os.path.splitext(name)
    values = {
        'fileDirname': folder.replace(os.sep, '/'),
        'fileBasename': name,
        'fileBasenameNoExtension': stem,
        'fileExtname': extension,
    }
    escaped = _ESCAPED.get(extension, str)
    return _FILE_VARIABLE.sub(lambda found: escaped(values[found[1]]), text)


#: How a text is written in a string, whatever its quotes, by the extension of the config.
_ESCAPED: dict[str, Callable[[str], str]] = {
    '.py': lambda text: re.sub(r'[\\\'"\n\r]', lambda found: f'\\x{ord(found[0]):02x}', text),
    '.json': lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
}


def resolve_relative_files(values: Any, folder: str, ends: str | tuple[str, ...] = ()) -> Any:
    """``values`` with the absolute paths of code files that lie in ``folder``, in the place of their relative ones.

    A relative path without a file in ``folder`` stays as it is: it is relative to the working directory.
    """
    if isinstance(values, str):
        found = _IN_FILE.fullmatch(values)
        file = found[1] if found else values if values.endswith(ends or '\n') else None
        return values if file is None else _path_in_folder(file, folder) + values[len(file) :]
    if isinstance(values, dict):
        for key, value in values.items():
            if isinstance(value, str | dict | list | tuple):
                is_config = key == 'config' and isinstance(value, str)
                alone = ('.py', '.yaml', '.yml', '.json') if is_config else _ALONE.get(key, ends)
                dict.__setitem__(values, key, resolve_relative_files(value, folder, alone))
    elif type(values) in (list, tuple):
        return type(values)([resolve_relative_files(each, folder, ends) for each in values])
    return values


def _path_in_folder(file: str, folder: str) -> str:
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


def _warn_of_deprecation(notice: Any, path: str) -> None:
    if notice is None:
        return
    message = f'The config file {path} will be deprecated in the future.'
    if 'expected' in notice:
        message += f' Please use {notice["expected"]} instead.'
    if 'reference' in notice:
        message += f' More information can be found at {notice["reference"]}'
    # By default Python shows a DeprecationWarning only if it comes from ``__main__``.
    warnings.warn_explicit(message, ConfigDeprecationWarning, path, 1, module='__main__')


def _read_bases(names: Any, path: str, use_predefined_variables: bool, chain: tuple[str, ...]) -> Bases:
    names = [names] if isinstance(names, str) else names
    if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise TypeError(f'{BASE_KEY} in {path} must be the name of a config file or a list of names, but is {names!r}')
    together, texts = ConfigDict(), []
    for name in names:
        base, text = read_config(os.path.join(os.path.dirname(path), name), use_predefined_variables, chain)
        twice = together.keys() & base.keys()
        if twice:
            raise KeyError(
                f'Duplicate key is not allowed among bases. Duplicate keys: {sorted(twice)}, of which {name!r} is '
                f'the second base of {path} to have them'
            )
        together = merge(base, together) if together else base
        texts.append(text)
    return Bases(together, texts)


def _read_data(source: str, path: str, read_bases: Callable[[Any], Bases]) -> tuple[ConfigDict, Bases]:
    from runnerkit.fileio import yaml_format  # slow to import, and most configs are Python

    references: list[str] = []
    try:
        if path.endswith('.json'):
            marked = _mark_json(source, references)
            values = json.loads(marked, object_pairs_hook=_without_repeats)
        else:
            marked = _mark(source, references)
            check_yaml(marked)
            values = yaml_format.load(marked)
        check_depth(values)
    except RecursionError:
        raise ValueError(f'{path}: {TOO_DEEP}') from None
    except json.JSONDecodeError as error:
        message = f'{Place(path)}:{error.lineno}: invalid JSON: {error.msg}'
        raise json.JSONDecodeError(message, error.doc, error.pos) from None
    except (ValueError, yaml_format.YAMLError) as error:
        raise yaml_format.with_place(error, str(Place(path))) from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise TypeError(f'{path} must hold a dict at its top level, but holds {type(values)}')
    bases = read_bases(values.pop(BASE_KEY, []))
    filled = _fill_in(values, lambda index: look_up(references[index], bases.config, path))
    return as_config(filled, Place(path, DataLines(marked))), bases


def check_yaml(source: str) -> None:
    """Check that a YAML text is within `MAX_DEPTH` and has no key twice, before anything is built."""
    import yaml

    from runnerkit.fileio.yaml_format import YamlLoader

    # For each open collection, two that take turns at each node: a mapping's keys so far, and None where a value
    # follows, or a sequence's item.
    open_: list[list[set[str] | None]] = [[None, None]]
    for event in yaml.parse(source, YamlLoader):
        if isinstance(event, yaml.NodeEvent):
            keys, other = open_[-1]
            if keys is not None and isinstance(event, yaml.ScalarEvent) and event.value != '<<':
                if event.value in keys:
                    line = event.start_mark.line + 1 if event.start_mark else '?'
                    raise ValueError(f'duplicate key {event.value!r} in line {line}')
                keys.add(event.value)
            open_[-1] = [other, keys]
        if isinstance(event, yaml.CollectionStartEvent):
            open_.append([set(), None] if isinstance(event, yaml.MappingStartEvent) else [None, None])
            if len(open_) > MAX_DEPTH + 1:
                raise ValueError(TOO_DEEP)
        elif isinstance(event, yaml.CollectionEndEvent):
            open_.pop()


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of the ``pairs`` of a JSON object."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f'duplicate key {next(name for name in names if names.count(name) > 1)!r}')
    return found


def _read_python(source: str, path: str, read_bases: Callable[[Any], Bases]) -> tuple[ConfigDict, Bases]:
    """Execute a Python config, with references to its bases filled in."""
    scope: dict[str, Any] = {'__name__': name_of_file(Path(path)), '__file__': path}
    references: list[str] = []
    program = _mark(source, references)
    if references:
        bases = _execute_over_bases(program, references, path, read_bases, scope)
    else:
        _execute(program, path, scope)
        bases = read_bases(scope.pop(BASE_KEY, []))
    values = {key: value for key, value in scope.items() if _belongs_to_config(key, value)}
    return as_config(values, Place(path, SourceLines(program))), bases


def _execute_over_bases(
    program: str, references: list[str], path: str, read_bases: Callable[[Any], Bases], scope: dict[str, Any]
) -> Bases:
    """Execute a config that refers to its bases. If it computes `_base_`, that part is executed first."""
    with _syntax_errors(path):
        tree = ast.parse(program, path)
    start = max((index for index, statement in enumerate(tree.body, 1) if _assigns_base(statement)), default=0)
    names = _written_names(tree.body[:start])
    before = tree.body[:start] if names is None else [node for node in tree.body[:start] if _assigns_base(node)]

    def too_early(index: int) -> Any:
        raise ValueError(
            f'{path}: {{{{ {BASE_KEY}.{references[index]} }}}} is used before {BASE_KEY} is known; '
            f'write {BASE_KEY} first'
        )

    with _syntax_errors(path):
        for node in before:
            _FillIn(too_early).visit(node)
    if names is None:
        _execute(ast.Module(tree.body[:start], []), path, scope)
        tree.body = tree.body[start:]
        names = scope.pop(BASE_KEY, [])
    bases = read_bases(names)
    filler = _FillIn(lambda index: look_up(references[index], bases.config, path))
    with _syntax_errors(path):
        tree = filler.visit(tree)
    scope.update(filler.names)
    _execute(tree, path, scope)
    scope.pop(BASE_KEY, None)
    return bases


def _assigns_base(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id == BASE_KEY
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return any(name.id == BASE_KEY and isinstance(name.ctx, ast.Store) for name in names)


def _written_names(body: list[ast.stmt]) -> Any | None:
    """The value of `_base_` if it is assigned once, as a literal; None if it has to be computed."""
    statements = [statement for statement in body if _assigns_base(statement)]
    if len(statements) != 1 or not isinstance(statements[0], ast.Assign):
        return None
    try:
        return ast.literal_eval(statements[0].value)
    except ValueError:
        return None


def _execute(program: str | ast.Module, path: str, scope: dict[str, Any]) -> None:
    with _syntax_errors(path):
        code = compile(program, path, 'exec', dont_inherit=True)
    try:
        exec(code, scope)
    except Exception as error:
        line = max(
            (line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == path), default=None
        )
        raise_with_context(error, f'{path}:{line}: ')


@contextmanager
def _syntax_errors(path: str) -> Iterator[None]:
    try:
        yield
    except SyntaxError as error:
        message = f'There are syntax errors in config file {path}: {error.msg}'
        text = error.text and _MARK.sub(f'{{{{ {BASE_KEY} }}}}', error.text)
        raise SyntaxError(message, (error.filename, error.lineno, error.offset, text)) from None
    except (RecursionError, MemoryError):  # MemoryError: the parser's stack is exhausted, not the memory
        raise ValueError(f'{path}: an expression is nested too deeply for Python to compile; {TOO_DEEP}') from None


def _belongs_to_config(key: Any, value: Any) -> bool:
    """Whether a variable of an executed config file is part of the config, and not a helper."""
    is_private = isinstance(key, str) and key.startswith('__')
    if is_private or isinstance(value, types.ModuleType) or inspect.isroutine(value):
        return False
    # A class under its own name was imported or defined as a helper; `from __future__` leaves a _Feature.
    return not (inspect.isclass(value) and value.__name__ == key) and type(value).__module__ != '__future__'


def _mark(source: str, references: list[str]) -> str:
    """Replace each ``{{ _base_.key }}`` by a placeholder and record its key; the rest is ordinary Python or YAML."""

    def mark(found: re.Match[str]) -> str:
        references.append(found[1])
        return f'{_MARK_PREFIX}{len(references) - 1}__'

    return BASE_REFERENCE.sub(mark, source)


def _mark_json(source: str, references: list[str]) -> str:
    """`_mark` for JSON: placeholders outside strings are quoted."""

    def mark(found: re.Match[str]) -> str:
        marked = _mark(found[0], references)
        return marked if marked.startswith('"') else f'"{marked}"'

    return _JSON_STRING_OR_REFERENCE.sub(mark, source)


def look_up(reference: str, base: dict[str, Any], path: str) -> Any:
    """The value of ``reference``, used in the file ``path``, in its bases."""
    value: Any = base
    for key in reference.split('.'):
        if isinstance(value, list | tuple) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            hint = suggestion(key, value) if isinstance(value, dict) else ''
            raise KeyError(f'{{{{ {BASE_KEY}.{reference} }}}} in {path}: its bases have no {key!r} there{hint}')
    return value


def _fill_in(value: Any, value_of: Callable[[int], Any]) -> Any:
    """``value`` with placeholders replaced by the values of the bases; inside a longer string, by their text."""
    if isinstance(value, str):
        whole = _MARK.fullmatch(value)
        return value_of(int(whole[1])) if whole else _MARK.sub(lambda mark: str(value_of(int(mark[1]))), value)
    if isinstance(value, dict):
        return {_fill_in(key, value_of): _fill_in(item, value_of) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_fill_in(item, value_of) for item in value)
    return value


class _FillIn(ast.NodeTransformer):
    """`_fill_in` for a program. Placeholders become variables; those inside longer strings are replaced by text.

    Attributes:
        names: the values of these variables.
    """

    def __init__(self, value_of: Callable[[int], Any]) -> None:
        self.names: dict[str, Any] = {}
        self._value_of = value_of

    def visit_Name(self, node: ast.Name) -> ast.expr:
        mark = _MARK.fullmatch(node.id)
        if mark:
            self.names[node.id] = copy.deepcopy(self._value_of(int(mark[1])))
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str) or not _MARK.search(node.value):
            return node
        if _MARK.fullmatch(node.value):
            return self.visit_Name(ast.copy_location(ast.Name(node.value, ast.Load()), node))
        return ast.copy_location(ast.Constant(_fill_in(node.value, self._value_of)), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        # The literal parts of an f-string must stay strings.
        for part in node.values:
            if isinstance(part, ast.Constant):
                part.value = _MARK.sub(lambda mark: str(self._value_of(int(mark[1]))), str(part.value))
            else:
                self.visit(part)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        # A string on its own is a comment.
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)  # type: ignore[return-value]
