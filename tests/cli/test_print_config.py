"""The tool that prints a config."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from runnerkit.cli.print_config import main
from runnerkit.config import Config

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cfg(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('base.py').write_text("model = dict(type='Net', depth=1)\n")
    Path('cfg.py').write_text("_base_ = 'base.py'\nlr = 0.1\n")


def test_prints_what_reads_back(cfg, capsys):
    assert main(['cfg.py', '--cfg-options', 'model.depth=3', 'name=a b']) == 0
    out, err = capsys.readouterr()
    assert Config.fromstring(out, '.py')._cfg_dict == {'model': {'type': 'Net', 'depth': 3}, 'lr': 0.1, 'name': 'a b'}
    assert err == ''
    assert main(['cfg.py']) == 0
    assert capsys.readouterr().out == Config.fromfile('cfg.py').pretty_text


def test_styles(cfg, capsys):
    assert main(['cfg.py', '--style', 'facebook']) == 0
    assert Config.fromstring(capsys.readouterr().out, '.py').lr == 0.1


@pytest.mark.parametrize(
    ('args', 'code', 'message'),
    [
        (['.'], 2, r'is a folder, not a config file; it holds bad.py, bad.yaml, base.py, cfg.py$'),
        (['nope.py'], 2, 'no such config file: nope.py'),
        (['cfg.py', '--style', 'nope'], 2, "style 'nope' is not known"),
        (['cfg.py', '--cfg-options', 'lr.x=1'], 2, 'cannot inherit from base'),
        (['bad.py'], 2, r'bad.py:1: division by zero'),
        (['bad.yaml'], 2, 'bad.yaml:2: invalid YAML: while parsing a flow sequence'),
    ],
)
def test_failures_are_one_line(cfg, capsys, args, code, message):
    Path('bad.py').write_text('a = 1 / 0\n')
    Path('bad.yaml').write_text('a: [1\n')
    assert main(args) == code
    out, err = capsys.readouterr()
    assert out == ''
    assert len(err.splitlines()) == 1
    assert re.search(message, err)


def test_wrong_usage_exits_2(cfg, capsys):
    for args in ([], ['cfg.py', '--nope'], ['cfg.py', '--cfg-options', 'a=[1']):
        with pytest.raises(SystemExit) as caught:
            main(args)
        assert caught.value.code == 2


def test_the_script(cfg):
    script = ROOT / 'tools' / 'print_config.py'
    done = subprocess.run(
        [sys.executable, script, 'cfg.py'], capture_output=True, text=True, env={'PYTHONPATH': str(ROOT)}
    )
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout == "model = dict(type='Net', depth=1)\nlr = 0.1\n"
    done = subprocess.run(
        [sys.executable, script, 'no.py'], capture_output=True, text=True, env={'PYTHONPATH': str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr.startswith('error: no such config file: no.py')


def test_keys_that_nobody_reads_are_told(tmp_path, capsys):
    (tmp_path / 'cfg.py').write_text("runner = dict(type='EpochBasedRunner', max_epochs=1)\nvariable = 2\n")
    assert main([str(tmp_path / 'cfg.py'), '--cfg-options', 'runner.max_epoch=1']) == 0
    printed = capsys.readouterr()
    assert 'max_epoch=1' in printed.out
    assert 'warning: runner.max_epoch (--cfg-options): unknown key' in printed.err
    assert 'variable' not in printed.err
