"""The tables of other tools' flags: what they name exists."""

import re

import pytest

from runnerkit.cli import main
from runnerkit.cli.foreign import COMMANDS, FLAGS, KEYS, SECTIONS
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import parser
from runnerkit.config.known_keys import TOP
from runnerkit.hooks import HOOKS

OWN = {flag for action in parser().arguments for flag in action.option_strings}
HINTS = [(name, hint) for name, hints in FLAGS.items() for hint in ([hints] if isinstance(hints, str) else hints)]

#: Flags that a hint names and only this tool has; all other hints are shown by train.
TOOLS = {'--out': 'test', '--checkpoint': 'predict', '--shape': 'export'}


@pytest.mark.parametrize('name, hint', HINTS)
def test_a_hint_is_about_a_flag_that_we_lack_and_is_shown_by_some_tool(name, hint, capsys):
    flag = name if name.startswith('-') else f'--{name}'
    assert flag not in OWN
    tool = next((tool for own, tool in TOOLS.items() if hint.startswith(own)), 'train')
    if 'second argument' in hint:
        tool = 'test'
    with pytest.raises(SystemExit):
        main.main([tool, 'cfg.py', flag, '7'])
    use = 'use ' if hint.startswith('--') else ''
    assert capsys.readouterr().err.rstrip().endswith(f': {use}{hint.replace("VALUE", "7")}')


def test_the_settings_that_hints_name_are_those_of_a_config():
    named = [setting for _, hint in HINTS for setting in re.findall(r'(\w[\w.]*)=', hint)] + list(KEYS.values())
    assert {name.split('.')[0] for name in [*named, *SECTIONS.values()] if name != 'KEY'} <= {*TOP}
    hooks = [kind for _, hint in HINTS for kind in re.findall(r'(\w+Hook)\b', hint)]
    assert len(set(hooks)) > 3
    assert all(kind in HOOKS for kind in hooks)


def test_commands_stand_for_ours():
    assert set(COMMANDS.values()) <= set(main.COMMANDS)
    assert not set(COMMANDS) & set(main.COMMANDS)


def test_every_parser_is_one_of_ours():
    from importlib import import_module

    for command, (module, _) in main.COMMANDS.items():
        parse = import_module(module).parser()
        assert isinstance(parse, Parser)
        assert parse.prog == f'runnerkit {command}'
