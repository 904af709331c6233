"""The tables of other tools' flags: what they name exists."""

import re

import pytest
import torch
from test_docs_blocks import MNIST, text_of

from runnerkit.cli import main
from runnerkit.cli.foreign import COMMANDS, FLAGS, SECTIONS
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import parser
from runnerkit.config.known_keys import TOP
from runnerkit.hooks import HOOKS

OWN = {flag for action in parser().arguments for flag in action.option_strings}
HINTS = [(name, hint) for name, hints in FLAGS.items() for hint in hints]

#: Flags that a hint names and only this tool has; all other hints are shown by train.
TOOLS = {'--out': 'test', '--checkpoint': 'predict', '--shape': 'export'}


def test_each_hint_is_about_a_flag_that_we_lack_and_is_shown_by_some_tool(capsys):
    for name, hint in HINTS:
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
    named = [setting for _, hint in HINTS for setting in re.findall(r'(\w[\w.]*)=', hint)]
    assert {name.split('.')[0] for name in [*named, *SECTIONS.values()] if name != 'KEY'} <= {*TOP}
    hooks = [kind for _, hint in HINTS for kind in re.findall(r'(\w+Hook)\b', hint)]
    assert len(set(hooks)) > 3
    assert all(kind in HOOKS for kind in hooks)


#: Values that other tools' flags have, by the setting; 3 for all others.
VALUES = {
    'optimizer.type': 'AdamW',
    'optimizer.momentum': '0.8',
    'optimizer.betas': '0.8',
    'log_level': 'DEBUG',
    'data.num_workers': '1',
}


def commands(hint):
    """The alternatives of a hint: what each puts behind ``--cfg-options``."""
    for settings in re.findall(r'--cfg-options((?: [\w.]+=[\w.,]+)+)', hint):
        pairs = [setting.rstrip(',').split('=') for setting in settings.split()]
        yield [f'{key}={value.replace("VALUE", VALUES.get(key, "3"))}' for key, value in pairs]


def sections(settings):
    return {setting.partition('=')[0].partition('.')[0] for setting in settings}


@pytest.mark.thorough  # the tests of each hint
@pytest.mark.parametrize('config', ['my_config.py', f'{MNIST}/lenet.py'])
def test_the_settings_that_hints_advise_train_the_config_of_the_readme_and_the_demo(
    config, tmp_path, monkeypatch, capsys
):
    """Each hint has an alternative with which a dry run ends well; those for different sections share a dry run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, 'compile', lambda module, **options: module)  # its backend takes seconds
    (tmp_path / 'configs').symlink_to(MNIST.parent)
    (tmp_path / 'my_config.py').write_text(text_of('README.md', '# my_config.py'))

    def dry_run(settings):
        code = main.main(['train', config, '--dry-run', '--device', 'cpu', '--cfg-options', *settings])
        return code, capsys.readouterr().err

    runs = []
    advice = [list(commands(hint)) for hint in dict.fromkeys(hint for _, hint in HINTS)]
    assert len(list(filter(None, advice))) > 25
    for alternatives in filter(None, advice):
        if len(alternatives) > 1:
            assert any(dry_run(settings)[0] == 0 for settings in alternatives), alternatives
            continue
        run = next((run for run in runs if not sections(run) & sections(alternatives[0])), None)
        if run is None:
            runs.append(run := [])
        run += alternatives[0]
    for settings in runs:
        code, said = dry_run(settings)
        assert code == 0, f'{settings}: {said}'


@pytest.mark.parametrize(
    'word, settings',
    [
        ('batch=16', 'data.batch_size=16'),
        ('max_iters=9', 'runner.max_epochs=None runner.max_iters=9'),
        ('data.batch_size=16', 'data.batch_size=16'),
        ('model=big', 'model=big'),
    ],
)
def test_a_setting_without_its_flag(word, settings, capsys):
    with pytest.raises(SystemExit):
        main.main(['train', 'cfg.py', word])
    assert capsys.readouterr().err.rstrip().endswith(f'to set a key of the config: --cfg-options {settings}')


def test_commands_stand_for_ours():
    assert set(COMMANDS.values()) <= set(main.COMMANDS)
    assert not set(COMMANDS) & set(main.COMMANDS)


def test_every_parser_is_one_of_ours():
    from importlib import import_module

    for command, (module, _) in main.COMMANDS.items():
        parse = import_module(module).parser()
        assert isinstance(parse, Parser)
        assert parse.prog == f'runnerkit {command}'
