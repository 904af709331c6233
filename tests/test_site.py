"""The site: its navigation has every page, its reference every public name, and it builds without a broken link."""

import re
import shutil
import subprocess
import sys

import pytest
import yaml
from browsers import browser  # noqa: F401 - a fixture
from test_docs import PAGES, ROOT, read

import runnerkit


class Loader(yaml.SafeLoader):
    """Reads names of Python objects as texts."""


Loader.add_multi_constructor('tag:yaml.org,2002:python/', lambda loader, suffix, node: suffix)
SETTINGS = yaml.load((ROOT / 'mkdocs.yml').read_text(encoding='utf-8'), Loader)


def pages_in(nav):
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from pages_in(value)


def test_every_page_is_in_the_navigation_once():
    pages = [page.removeprefix('docs/') for page in PAGES if page.startswith('docs/')]
    assert sorted(pages_in(SETTINGS['nav'])) == sorted(pages)


def test_every_public_name_is_in_the_reference_once():
    names = re.findall(r'^::: runnerkit\.(\w+)$', read('docs/reference/api.md'), flags=re.MULTILINE)
    others = {'__version__', 'DATASETS', 'HOOKS', 'MODELS'}  # registries: their entries are in the two generated pages
    assert sorted(names) == sorted({*runnerkit.__all__} - others)


@pytest.mark.parametrize('words, left', [('loss', [0, 2]), ('LOSS stops', [2]), ('', [0, 1, 2]), ('nothing', [])])
def test_the_box_above_a_table_leaves_the_rows_with_its_words(browser, tmp_path, words, left):  # noqa: F811
    rows = ''.join(f'<tr><td>{row}</td></tr>' for row in ('<b>Loss</b>Hook', 'Saves', 'Stops when the loss jumps'))
    table = f'<h2 id="all-hooks">All</h2><p></p><table><tbody>{rows}</tbody></table><table><tbody></tbody></table>'
    page = tmp_path / 'page.html'
    page.write_text(f'<body><svg></svg>{table}<script>{read("docs/assets/site.js")}</script></body>')
    act = f"""
        document.dispatchEvent(new Event('DOMContentLoaded'));
        const box = document.querySelector('#all-hooks + input');
        box.value = '{words}';
        box.dispatchEvent(new Event('input'));
        result = [...document.querySelectorAll('tr')].flatMap((row, i) => row.hidden ? [] : [i]);
    """
    assert browser(page, act)[1] == left


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    """A folder with the built site."""
    folder = tmp_path_factory.mktemp('site')
    shutil.copytree(ROOT / 'docs', folder / 'docs')
    shutil.copy(ROOT / 'mkdocs.yml', folder)  # the site is written beside the file that a link leads to
    for name in ('runnerkit', 'benchmarks', 'CHANGELOG.md'):
        (folder / name).symlink_to(ROOT / name)
    zensical = shutil.which('zensical', path=f'{sys.prefix}/bin')
    done = subprocess.run([zensical, 'build', '--clean', '--strict'], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / 'site'


@pytest.mark.thorough  # the other tests of this file; test_docs.py follows the links
def test_the_site_has_every_page_and_a_search(site):
    for page in pages_in(SETTINGS['nav']):
        name = page.replace('README.md', 'index.md').replace('.md', '.html')
        assert (site / name).is_file(), page
    assert 'build_dataloader' in (site / 'search.json').read_text(encoding='utf-8')


@pytest.mark.thorough
def test_the_reference_shows_signatures_and_arguments(site):
    text = (site / 'reference' / 'api.html').read_text(encoding='utf-8')
    assert 'id="runnerkit.train"' in text
    assert 'what to do if an earlier run has used the work dir' in text


@pytest.mark.thorough
def test_pages_load_nothing_from_other_hosts(site):
    loads = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]+"')
    for page in site.rglob('*.html'):
        assert loads.findall(page.read_text(encoding='utf-8')) == [], page
