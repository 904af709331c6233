"""Each change in `mutants.txt` can be made: its line is there, once, and so is the test that finds it."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def entries():
    """The entries of the list: (id, behaviour, file, old text, new text, test)."""
    for line in (ROOT / 'tests' / 'mutants.txt').read_text(encoding='utf-8').splitlines():
        if not line.startswith('#'):
            name, behaviour, file, old, new, test = line.split('\t')
            yield name, behaviour, file, old.replace('\\n', '\n'), new.replace('\\n', '\n'), test


def test_each_entry_has_its_line_and_its_test():
    found = list(entries())
    assert len({name for name, *_ in found}) == len(found) >= 100
    for name, behaviour, file, old, new, test in found:
        assert behaviour, name
        assert old != new, name
        assert (ROOT / file).read_text(encoding='utf-8').count(old) == 1, f'{name}: {file} has not once {old!r}'
        path, function = test.split('[')[0].split('::')
        assert f'def {function}(' in (ROOT / path).read_text(encoding='utf-8'), f'{name}: {test}'
