"""What the documents say exists, exists: ids of the seed, paths, tests, and the files in their commands."""

import ast
import os
import re
import shlex
import subprocess
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest
from test_words import PATTERN

from runnerkit.cli.main import COMMANDS, command_named, main

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    'README.md',
    'README.zh-CN.md',
    'CONTRIBUTING.md',
    'CHANGELOG.md',
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / 'docs').rglob('*.md')),
]

#: How many statements, additions and weaknesses each seed has, by page.
IDS = {
    'docs/dev/seeds.md': ('M', {'S': 14, 'A': 39, 'W': 15}),
    'docs/dev/seeds_paddlerec.md': ('P', {'S': 14, 'A': 16, 'W': 9}),
    'docs/dev/seeds_parakeet.md': ('K', {'S': 12, 'A': 13, 'W': 6}),
    'docs/dev/seeds_vega.md': ('V', {'S': 23, 'A': 23, 'W': 10}),
    'docs/dev/seeds_paddle.md': ('O', {'S': 12, 'A': 6, 'W': 4}),
}

#: A path begins with one of the repository's own folders; a file may also be called by its name alone.
FOLDERS = ('runnerkit', 'tests', 'tools', 'configs', 'docs', 'benchmarks', 'requirements')
PATH = re.compile(rf'(?<![\w./-])(?:{"|".join(FOLDERS)})/[\w./*-]*(?<![.])')
BLOCK = re.compile(r'^( *)```(\w*)\n(.*?)^\1```', flags=re.DOTALL | re.MULTILINE)
NAME = re.compile(r'[A-Za-z_.][\w.-]*\.(?:py|md|toml|yaml|txt)|Makefile|LICENSE')


def read(page):
    path = ROOT / page
    if not path.is_file():
        pytest.fail(f'{page} is missing')
    return path.read_text(encoding='utf-8')


def rows(page):
    """The tables' rows, as lists of their cells; heads and rulers left out."""
    for line in read(page).splitlines():
        if line.startswith('|') and not line.startswith(('| id', '|---')):
            yield [cell.strip() for cell in line[1:-1].split('|')]


@cache
def names_of_tests(path):
    tree = ast.parse((ROOT / path).read_text(encoding='utf-8'))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith('test')}


def quoted(text):
    """What stands in backticks, code blocks aside."""
    return re.findall(r'`([^`\n]+)`', BLOCK.sub('', text))


def quoted_on_pages():
    """Each page with each of its texts in backticks."""
    return [(page, text) for page in PAGES for text in quoted(read(page))]


def blocks(text, languages):
    """The code of each fenced block in one of ``languages``."""
    return [dedent(code) for _, language, code in BLOCK.findall(text) if language in languages]


# --- the table of the seed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize('page', IDS)
def test_every_id_of_the_seed_stands_there_once_and_in_order(page):
    system, last = IDS[page]
    expected = [f'{system}-{kind}{n}' for kind in last for n in range(1, last[kind] + 1)]
    assert [row[0] for row in rows(page)] == expected


@pytest.mark.parametrize('page', IDS)
def test_every_row_is_shown_by_a_test_or_gives_a_reason(page):
    for row in rows(page):
        assert len(row) == 4, row
        assert '::test_' in row[3] or row[3].startswith(('later: ', 'declined: ')), row


def test_what_comes_later_is_one_of_the_known_parts():
    text = ''.join(map(read, IDS))
    parts = set(re.findall(r'later: ((?:the MMCV )?\w+(?: resume)?)', text))
    assert parts <= {'the MMCV surface', 'exact resume', 'speed'}


def test_every_test_named_exists():
    for page, name in quoted_on_pages():
        if '::' in name:
            path, test = name.split('::')
            assert (ROOT / path).is_file(), f'{page} names {path}'
            assert test in names_of_tests(path), f'{page} names {name}'


# --- paths -----------------------------------------------------------------------------------------------------------


def test_every_path_in_backticks_exists():
    known = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob('*')}
    known |= {path.name for path in ROOT.iterdir()}
    for page, text in quoted_on_pages():
        for path in PATH.findall(text):
            assert is_an_example(path) or list(ROOT.glob(path.rstrip('/'))), f'{page} names {path}'
        if NAME.fullmatch(text):
            assert is_an_example(text) or text in known, f'{page} names {text}'


def is_an_example(path):
    """A name that stands for the reader's own file."""
    return Path(path).name.startswith('my') or path in ('cfg.py', 'config.py')


def test_links_to_files_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r'\]\(([^)#\s]+)(?:#[^)]*)?\)', read(page)):
            if '://' not in target:
                assert ((ROOT / page).parent / target).exists(), f'{page} links to {target}'


def test_every_page_is_once_in_the_list_of_pages():
    listed = re.findall(r'\]\(([\w/]+\.md)\)', read('docs/README.md'))
    listed += [f'gallery/{name}' for name in re.findall(r'\]\((\w+\.md)\)', read('docs/gallery/README.md'))]
    pages = [page.removeprefix('docs/') for page in PAGES if page.startswith('docs/') and page != 'docs/README.md']
    assert sorted(listed) == sorted(pages)  # and none twice


# --- code ------------------------------------------------------------------------------------------------------------


def test_each_folder_of_the_package_has_a_row():
    folders = {f'`runnerkit/{path.parent.name}/`' for path in (ROOT / 'runnerkit').glob('*/__init__.py')}
    assert len(folders) > 10
    assert folders - {cell for row in rows('docs/dev/engine.md') for cell in row} == set()


@pytest.mark.parametrize(
    'page', ['README.md', 'CONTRIBUTING.md', 'docs/dev/testing.md', 'docs/terminal.md', 'docs/resuming.md']
)
def test_commands_name_files_and_targets_that_exist(page):
    makefile = (ROOT / 'Makefile').read_text(encoding='utf-8')
    for code in blocks(read(page), ('bash', 'sh', 'console', '')):
        for path in PATH.findall(code):
            assert is_an_example(path) or (ROOT / path).exists(), f'{page} runs {path}'
        for target in re.findall(r'^\$? ?make ([a-z-]+)', code, flags=re.MULTILINE):
            assert re.search(rf'^{target}:', makefile, flags=re.MULTILINE), f'{page}: make {target}'


@pytest.mark.parametrize('page', ['README.md', 'docs/dev/engine.md', 'docs/growing.md'])
def test_python_blocks_are_python_and_import_what_is_there(page):
    for code in blocks(read(page), ('python', 'py')):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or '').split('.')[0] == 'runnerkit':
                module = import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def typed(code):
    """The commands of this package in a shell block: (name, arguments)."""
    for line in code.replace('\\\n', ' ').splitlines():
        lexer = shlex.shlex(line.strip().removeprefix('$ '), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = [word if set(word) - set('();<>|&') else None for word in lexer]  # None: the end of a command
        for i, word in enumerate(words[:-1]):
            end = (words[i:] + [None]).index(None) + i
            if word == 'runnerkit':
                yield words[i + 1], words[i + 2 : end]
            elif word is not None and re.fullmatch(r'tools/\w+\.py', word):
                yield Path(word).stem.replace('_', '-'), words[i + 1 : end]


def test_every_command_line_of_the_pages_is_understood(capsys):
    """Most pages are run only by `make test-all`; their commands and flags are at least ones that exist."""
    seen = set()
    for page in PAGES:
        for code in blocks(read(page), ('bash', 'sh', 'console')):
            for name, arguments in typed(code):
                if name is None or name not in COMMANDS:  # tools/reference.py
                    continue
                seen.add(name)
                try:
                    command_named(name).parser().parse_args(arguments)
                except SystemExit:
                    pytest.fail(f'{page}: {name} {arguments}: {capsys.readouterr().err}')
    assert seen >= {'train', 'test', 'predict', 'search', 'export', 'profile'}


def test_make_help_lists_every_target():
    makefile = (ROOT / 'Makefile').read_text(encoding='utf-8')
    targets = re.search(r'^\.PHONY: (.*)$', makefile, flags=re.MULTILINE)[1].split()
    own = {name: value for name, value in os.environ.items() if name not in ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}
    for command in (['make', 'help'], ['make']):
        printed = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=True).stdout
        listed = [re.fullmatch(r'make ([a-z-]+) +(\S.*)', line) for line in printed.splitlines()]
        assert [line[1] for line in listed] == targets


def test_wrong_flags_are_answered_as_the_page_shows(capsys):
    (block,) = (code for code in blocks(read('docs/terminal.md'), ('text',)) if code.startswith('$ '))
    lines = block.splitlines()
    for command, answer in zip(lines[::2], lines[1::2], strict=True):
        with suppress(SystemExit):  # the parser's
            assert main(command.removeprefix('$ runnerkit ').split()) == 2
        assert capsys.readouterr().err.splitlines()[-1] == answer


# --- words -----------------------------------------------------------------------------------------------------------

#: The pages whose sentences follow the rules for words: all but the changelog, two that are mostly tables, and
#: the seeds.
NOT_PLAIN = ('CHANGELOG.md', 'docs/hooks.md', 'docs/config_keys.md')
PLAIN_PAGES = [page for page in PAGES if page not in NOT_PLAIN and not page.startswith('docs/dev/seeds')]


def check_words(text):
    """No unwanted phrase (`test_words`), and no sentence of more than 40 words."""
    for sentence in re.split(r'(?<=[.!?])\s+|\n\s*(?:\n|(?=- ))', text):
        words = re.sub(r'\]\([^)]*\)', '', sentence).split()
        assert len(words) <= 40, ' '.join(words)
        assert not PATTERN.search(sentence), ' '.join(words)


@pytest.mark.parametrize('page', PLAIN_PAGES)
def test_pages_are_in_plain_words(page):
    text = BLOCK.sub('\n', read(page))
    check_words(re.sub(r'^(?:\s*\||#).*$', '\n', text, flags=re.MULTILINE))


@pytest.mark.parametrize('command', COMMANDS)
def test_helps_are_in_plain_words(command):
    parser = command_named(command).parser()
    for text in (COMMANDS[command][1], parser.description, *(argument.help for argument in parser.arguments)):
        check_words(text or '')


def test_terms_are_explained_in_one_place_and_in_few_words():
    terms = re.findall(r'^- \*\*([^*]+)\*\*: (.*)$', read('docs/glossary.md'), flags=re.MULTILINE)
    assert len(terms) == len({term for term, _ in terms}) > 40
    for term, meaning in terms:
        assert all(len(sentence.split()) <= 25 for sentence in re.split(r'(?<=[.:])\s+', meaning)), term
