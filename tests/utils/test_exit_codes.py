"""The exit codes of all commands."""

import ast
import re
from pathlib import Path

import pytest

from runnerkit.utils.exceptions import NonFiniteError
from runnerkit.utils.exit_codes import ENDINGS, MEANINGS, code_of

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table_of_the_code():
    page = (ROOT / 'docs/reference/commands.md').read_text().partition('## Exit codes')[2].partition('## ')[0]
    rows = re.findall(r'^\| (\d+) \| (.+) \|$', page, flags=re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == MEANINGS


def test_the_page_has_the_table_of_endings():
    page = (ROOT / 'docs/reference/commands.md').read_text().partition('| ended by | outcome | exit code |')[2]
    rows = re.findall(r'^\| (\S.*) \| (\w+) \| (.+) \|$', page, flags=re.MULTILINE)
    assert tuple(rows) == ENDINGS


@pytest.mark.parametrize(
    'error, code',
    [
        *(
            (SystemExit(*given), 1)
            for given in ((), (None,), (0,), (256,), (-512,), (False,), ('text',), ([],), (0.0,))
        ),
        *((SystemExit(given), given % 256) for given in (1, True, 2, 255, 257, -1)),
        (KeyboardInterrupt(), 130),
        (NonFiniteError(), 5),
        *((kind(), 1) for kind in (BaseException, GeneratorExit, ValueError, FloatingPointError)),
    ],
)
def test_an_exception_has_its_code(error, code):
    assert code_of(error) == code


@pytest.mark.thorough  # tests/cli/test_main.py has each code
def test_commands_return_codes_by_their_names():
    """But for 0, and for `compat`, whose program runs another one."""
    found = []
    for path in (ROOT / 'runnerkit/cli').glob('*.py'):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef) and each.name in ('main', 'checked'):
                returns = [node.value for node in ast.walk(each) if isinstance(node, ast.Return)]
                numbers = [value.value for value in returns if isinstance(value, ast.Constant)]
                found += [(path.name, number) for number in numbers if number != 0]
    assert found == []
