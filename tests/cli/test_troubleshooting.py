"""Errors name the entry of the page that explains them, and the page has each entry."""

import re
from pathlib import Path

import pytest

from runnerkit.cli.main import main
from runnerkit.cli.troubleshooting import ENTRIES, PAGE, section_about

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding='utf-8')
#: The sections of the page by their anchors.
SECTIONS = {
    title.lower().replace('`', '').replace(' ', '-'): text
    for title, _, text in (section.partition('\n') for section in TEXT.split('\n## ')[1:])
}
PACKAGE = '\n'.join(path.read_text(encoding='utf-8') for path in (ROOT / 'runnerkit').rglob('*.py'))


def messages(heading):
    """The messages at the head of a section, each with where it comes from, if that is not this package."""
    return re.findall(r'^- `(.*)`(?: \(from (\w+)\))?$', SECTIONS[heading], flags=re.MULTILINE)


def test_each_entry_is_a_section_whose_messages_lead_there():
    assert ENTRIES.keys() <= SECTIONS.keys()
    for heading in ENTRIES:
        assert messages(heading)
        for message, _ in messages(heading):
            assert section_about(message) == f'{PAGE}#{heading}'


@pytest.mark.parametrize('heading', [heading for heading in SECTIONS if messages(heading)])
def test_the_messages_are_those_of_the_code(heading):
    code = re.sub(r"""['"]\s*\n\s*f?['"]""", '', PACKAGE)  # texts over several lines in one piece
    for message, source in messages(heading):
        for part in filter(None, (part.strip(' :') for part in message.split('…'))):
            assert source or part in code, part


def test_an_error_names_its_entry_and_ends_with_the_message(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'wrong.py').write_text("model = dict(type='Nothing')\ndata = optimizer = runner = dict(type='x')\n")
    assert main(['train', 'wrong.py']) == 2
    place, error, *_ = capsys.readouterr().err.splitlines()
    assert place == f'help: {PAGE}#unknown-key'
    assert error.startswith('error: ')


def test_other_messages_have_none():
    assert section_about('an error of your code') is None
