"""Configs that are too deep, or have a key twice, end in an error that names the file."""

import argparse
import json
import sys

import pytest
import yaml

from runnerkit.config import Config, DictAction
from runnerkit.config.config_dict import MAX_DEPTH, check_depth
from runnerkit.config.parse import check_yaml

DEEP = 'nested 100 levels deep'


def nested(levels):
    """That many lists inside each other, as text in any of the formats."""
    return '[' * levels + '1' + ']' * levels


def blocks(levels):
    return ''.join('  ' * i + 'a:\n' for i in range(levels)) + '  ' * levels + '1'


TEXTS = {
    'lists.yaml': f'a: {nested(200_000)}',
    'blocks.yaml': blocks(2000),
    'lists.json': f'{{"a": {nested(200_000)}}}',
    'less.json': f'{{"a": {nested(400)}}}',
    'lists.py': f'a = {nested(150)}',
    'sum.py': f'a = {"+".join(["1"] * 100_000)}',
    'signs.py': f'a = {"-" * 100_000}1',
    'based.py': f'_base_ = []\nb = {"+".join(["1"] * 900)}\na = {{{{ _base_.a }}}}',
    'itself.yaml': 'a: 1\nb: &b [1, *b]',
    'itself.py': 'a = []\na.append(a)',
}


@pytest.fixture
def usual_recursion_limit():
    """Torch's compiler raises the limit for the process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures('usual_recursion_limit')
@pytest.mark.parametrize('name', TEXTS)
def test_values_that_are_too_deep(name, tmp_path):
    path = tmp_path / name
    path.write_text(TEXTS[name])
    # PyYAML has a limit itself from 6.0.4 on.
    with pytest.raises((ValueError, yaml.YAMLError), match=f'{DEEP}|exceeded maximum nesting depth') as refused:
        Config.fromfile(str(path))
    assert str(refused.value).startswith(f'{path}:')


def test_what_python_calls_a_syntax_error_names_the_file(tmp_path):
    path = tmp_path / 'cfg.py'
    path.write_text(f'a = {nested(100_000)}')
    with pytest.raises(SyntaxError, match=f'{path}: too many nested parentheses'):
        Config.fromfile(str(path))


@pytest.mark.parametrize('form', ['a: {}', '{{"a": {}}}', 'a = {}'])
def test_the_limit_itself_is_allowed(form, tmp_path):
    path = tmp_path / {'a: {}': 'cfg.yaml', '{{"a": {}}}': 'cfg.json', 'a = {}': 'cfg.py'}[form]
    path.write_text(form.format(nested(MAX_DEPTH - 1)))  # and the config is a dict
    cfg = Config.fromfile(str(path))
    path.with_name('again.py').write_text(cfg.pretty_text)
    assert Config.fromfile(str(path.with_name('again.py')))._cfg_dict == cfg._cfg_dict
    path.write_text(form.format(nested(MAX_DEPTH)))
    with pytest.raises(ValueError, match=DEEP):
        Config.fromfile(str(path))


def test_aliases_and_large_files_are_allowed():
    check_depth(list(range(100_000)))
    cfg = Config.fromstring('a: &a {x: 1}\nb: [*a, *a]', '.yaml')
    assert cfg.b == [{'x': 1}, {'x': 1}]
    assert cfg.b[0] is not cfg.b[1]


def test_values_given_in_python_and_on_the_command_line(capsys):
    with pytest.raises(ValueError, match=DEEP):
        Config({'a': json.loads(nested(MAX_DEPTH))})
    with pytest.raises(ValueError, match=f'--cfg-options: .*{DEEP}'):
        Config({}).merge_from_dict({'.'.join('a' * 5000): 1})
    parser = argparse.ArgumentParser()
    parser.add_argument('--cfg-options', nargs='+', action=DictAction)
    with pytest.raises(SystemExit):
        parser.parse_args(['--cfg-options', f'a={nested(5000)}'])
    assert DEEP in capsys.readouterr().err
    assert parser.parse_args(['--cfg-options', f'a={nested(MAX_DEPTH)}']).cfg_options['a'] == json.loads(
        nested(MAX_DEPTH)
    )


def test_a_key_twice_in_a_mapping_is_refused(tmp_path):
    for name, text, message in (
        ('a.yaml', 'a: {x: 1}\nb:\n  x: 1\n  y: [x, x]\n  x: 2\n', "a.yaml: duplicate key 'x' in line 5"),
        ('a.json', '{"a": {"x": 1, "x": 2}}', "a.json: duplicate key 'x'"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            Config.fromfile(str(tmp_path / name))


def test_what_only_looks_like_a_key_twice_is_allowed():
    check_yaml('a: &a {x: 1, y: [x, x, {x: x}]}\nb: {<<: *a, x: 2, y: x}\nc: {<<: *a, <<: *a}\n? [p, q]\n: x\nx: a\n')
