"""The gallery: its pages are those of its numbers, each config has an entry, and a run gives the numbers again."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / 'docs' / 'gallery'


@pytest.fixture(scope='module')
def gallery():
    spec = importlib.util.spec_from_file_location('gallery', ROOT / 'tools' / 'gallery.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results():
    return json.loads((PAGES / 'results.json').read_text())


def test_each_config_has_an_entry(gallery):
    is_config = re.compile(r'^(?:runner|_base_|pipeline)\b', re.MULTILINE)
    files = [path for path in (ROOT / 'configs').rglob('*.*') if path.suffix in ('.py', '.yml', '.yaml')]
    configs = [path.relative_to(ROOT).as_posix() for path in files if is_config.search(path.read_text())]
    assert sorted(entry['config'] for entry in gallery.ENTRIES) == sorted(configs)
    assert all(entry['config'] in ' '.join(entry['commands']) for entry in gallery.ENTRIES)


def test_the_pages_are_those_of_the_numbers(gallery):
    pages = dict(gallery.pages(results()))
    assert sorted(pages) == sorted(path.name for path in PAGES.glob('*.md'))
    for name, text in pages.items():
        assert (PAGES / name).read_text() == text, f'python tools/gallery.py --pages writes {name}'


def test_the_pages_have_the_pictures_and_these_are_small(gallery):
    pictures = [*(PAGES / 'images').glob('*.png')]
    shown = set(re.findall(r'images/\w+\.png', ''.join(text for _, text in gallery.pages(results()))))
    assert {f'images/{path.name}' for path in pictures} == shown
    assert sum(path.stat().st_size for path in pictures) < 2_000_000
    for entry in gallery.ENTRIES:
        assert entry['name'] not in results() or 'curve' not in entry or f'images/{entry["name"]}_curve.png' in shown


def test_what_a_command_prints_and_takes(gallery):
    printed, seconds, cpu_seconds = gallery.run(['sleep 600 &', 'echo loss 3', 'echo loss 4'])
    assert gallery.score(r'loss (\d)', printed) == 4
    assert 0 < cpu_seconds
    assert 0 < seconds
    with pytest.raises(RuntimeError, match='exit code 3'):
        gallery.run(['exit 3', 'echo'])
    with pytest.raises(RuntimeError, match='acc'):
        gallery.score(r'acc (\d)', printed)


def test_shorter_runs_and_missing_ones_are_named(gallery):
    entry = {'name': 'none', 'title': 'T', 'text': 'X.', 'config': 'configs/tabular/wine.py', 'commands': ['a ' * 80]}
    text = gallery.page({**entry, 'shorter': '1 of 2 epochs.'}, None)
    assert 'Not run for this page.' in text
    assert 'train less than the config says: 1 of 2 epochs.' in text
    assert ' \\\n  a a' in text


def test_unknown_entries_are_refused(gallery, monkeypatch, capsys):
    monkeypatch.setattr('sys.argv', ['gallery.py', 'nothing'])
    with pytest.raises(SystemExit):
        gallery.main()
    assert 'no entries: nothing; choose from lenet' in capsys.readouterr().err


@pytest.mark.thorough  # tests/configs trains a part of each; test_docs_walked.py compares the README's scores
@pytest.mark.parametrize('name', ['wine', 'onecycle', 'hela'])
def test_a_run_gives_the_numbers_again(gallery, name, tmp_path, monkeypatch, real_pictures):
    (tmp_path / 'images').mkdir()
    monkeypatch.setattr(gallery, 'PAGES', tmp_path)
    (entry,) = (entry for entry in gallery.ENTRIES if entry['name'] == name)
    assert gallery.record(entry)['scores'] == pytest.approx(results()[name]['scores'], abs=0.01)
    kinds = [kind for kind, key in (('curve', 'curve'), ('card', 'curve'), ('samples', 'picture')) if key in entry]
    assert sorted(path.name for path in (tmp_path / 'images').iterdir()) == sorted(
        f'{name}_{kind}.png' for kind in kinds
    )
