"""Plain words in docstrings, comments, messages and pages: phrases that readers stumbled over stay out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: Unwanted phrases, each with what to write in its place.
UNWANTED = {
    r'(?:is|are|be|was|were|been) told': 'is logged, warned, raised, refused',
    r'nobody|whoever|somebody|anybody': 'unknown, unused; or name the actor',
    r"of (?:its|your|their|one's) own|of yours": 'its, your, custom, separate',
    r'hears?|heard': 'gets, receives, is called',
    r'stands': 'is, means, represents',
    r'goes on': 'continues, resumes',
    r'bears': 'has',
    r'beside': 'next to, in addition to',
    r'anew': 'again, from scratch',
    r'likewise|all the same': 'the same, nevertheless',
    r'too(?=[.:;])': 'also, before the verb',
}
PATTERN = re.compile(r'\b(?:' + '|'.join(UNWANTED) + r')(?!\w)', re.IGNORECASE)


def texts():
    """The files that people read: code that is installed or shown, and pages."""
    for folder, pattern in (('runnerkit', '*.py'), ('configs', '*.py'), ('tools', '*.py'), ('benchmarks', '*.py')):
        yield from sorted((ROOT / folder).rglob(pattern))
    yield from (path for path in sorted((ROOT / 'docs').rglob('*.md')) if not path.name.startswith('seeds'))
    yield from (ROOT / name for name in ('README.md', 'CONTRIBUTING.md'))


def unwanted_in(path):
    name = path.relative_to(ROOT).as_posix()
    for line in path.read_text(encoding='utf-8').splitlines():
        if found := PATTERN.search(line):
            yield f'{name}: {found[0]!r} in: {line.strip()}'


@pytest.mark.parametrize('room', sorted({path.relative_to(ROOT).parts[0] for path in texts()}))
def test_unwanted_phrases_stay_out(room):
    found = [line for path in texts() if path.relative_to(ROOT).parts[0] == room for line in unwanted_in(path)]
    assert found == [], f'write {UNWANTED}'


@pytest.mark.parametrize('line', ['the error is told', 'Nobody reads it', 'it works, too.', 'x stands for y'])
def test_the_search_finds_them(line):
    assert PATTERN.search(line)


@pytest.mark.parametrize('line', ['standard', 'too large', 'beside_it', 'heartbeat'])
def test_other_words_are_free(line):
    assert not PATTERN.search(line)
