"""The exit codes of all commands."""

import ast
import re
from pathlib import Path

import pytest

from runnerkit.utils.exit_codes import MEANINGS

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table_of_the_code():
    page = (ROOT / 'docs/reference/commands.md').read_text().partition('## Exit codes')[2].partition('## ')[0]
    rows = re.findall(r'^\| (\d+) \| (.+) \|$', page, flags=re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == MEANINGS


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
