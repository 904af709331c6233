"""The picture of a terminal shows what a run writes today, and the page about it quotes the picture."""

import html
import os
import re
import runpy
from pathlib import Path

import pytest

from runnerkit.cli.main import main

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / 'docs/images/terminal.svg'


def lines_of_picture(picture):
    """The lines of text in an SVG by rich, from top to bottom."""
    lines = {}
    for y, text in re.findall(r'<text [^>]*\by="([\d.]+)" textLength[^>]*>(.*?)</text>', picture):
        lines[float(y)] = lines.get(float(y), '') + html.unescape(text).replace('\xa0', ' ')
    return [lines[y] for y in sorted(lines)]


def form(line):
    """A line without numbers, white space and places of files."""
    return re.sub(r'log \S*', 'log …', re.sub(r'\d[\d:.,]*(e-\d+)?', '#', ' '.join(line.split())))


@pytest.mark.thorough  # tests/hooks/logger/test_text.py
def test_its_lines_have_the_form_of_todays_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path('configs').symlink_to(ROOT / 'configs')
    command, *shown, bar = lines_of_picture(PICTURE.read_text(encoding='utf-8'))
    assert command.strip() == '$ runnerkit train configs/mnist/lenet.py'
    quick = ['--stop-after', '1', '--cfg-options', 'flow.terminal=None', 'log_config.hooks=[TextLoggerHook]']
    assert main([*command.split()[2:], *quick]) == 0
    written = {form(line.partition(' - INFO - ')[2]) for line in capsys.readouterr().err.splitlines()}
    assert {form(line.partition(' ')[2]) for line in shown} <= written
    parts = (r'epoch 3/12 ', '━+[╺╸]?━+', r'\d+/660', r'[\d:]+', r'loss \S+  lr \S+  accuracy \S+  val loss \S+')
    assert re.fullmatch(' *'.join(parts), bar.strip())


def test_the_page_quotes_it():
    text = (ROOT / 'docs/terminal.md').read_text(encoding='utf-8')
    section = text.partition('## The lines of the log')[2].partition('\n## ')[0]
    quoted = re.findall(r'`((?:Epoch \[1\]|New best)[^`]*)`', section)
    assert len(quoted) == 3
    shown = '\n'.join(' '.join(line.split()) for line in lines_of_picture(PICTURE.read_text(encoding='utf-8')))
    assert all(each in shown for each in quoted)


def test_what_a_terminal_shows_of_a_bar_that_was_drawn_again_and_again():
    made = runpy.run_path(os.fspath(ROOT / 'tools/terminal_picture.py'))
    written = '\x1b[?25lbar 1\r\x1b[2Kbar 2\r\x1b[2K\x1b[33ma line\x1b[0m\r\nbar 2\r\x1b[2Kbar 3'
    lines = made['lines_of'](written)
    assert lines == ['\x1b[33ma line\x1b[0m', 'bar 3']
    assert lines_of_picture(made['picture'](lines))[1:] == ['a line', 'bar 3']
