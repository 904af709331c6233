"""What installed packages offer: names without an import, objects when they are loaded. Hooks by such names are in
tests/hooks/test_hook.py."""

import importlib.metadata
import os
import sys
from unittest.mock import MagicMock

import pytest
from installed import install

from runnerkit.utils.entry_points import EntryPoints

GROUP = 'runnerkit.tests'


def test_names_need_no_import_and_loading_gives_the_object(tmp_path, monkeypatch):
    offered = EntryPoints(GROUP)
    assert offered.names() == []
    assert offered.load('Watch') is None
    install(
        tmp_path,
        monkeypatch,
        'names_pack',
        'class Watch: ...\n',
        GROUP,
        Watch='names_pack:Watch',
        Also='names_pack:Watch',
    )
    assert offered.names() == ['Also', 'Watch']
    assert 'names_pack' not in sys.modules
    assert offered.load('Watch') is sys.modules['names_pack'].Watch
    assert offered.load('Wach') is None


def test_the_metadata_is_read_once_until_a_package_is_installed(tmp_path, monkeypatch):
    reads, read = [], importlib.metadata.entry_points
    monkeypatch.setattr('importlib.metadata.entry_points', lambda: reads.append(1) or read())
    install(tmp_path, monkeypatch, 'first_pack', 'class Watch: ...\n', GROUP, First='first_pack:Watch')
    os.utime(tmp_path, (1, 1))  # long before the next installation
    for _ in range(2):
        assert EntryPoints(GROUP).load('Frist') is None
        assert EntryPoints(f'{GROUP}.more').names() == []
    assert reads == [1]
    install(tmp_path, MagicMock(), 'other_pack', 'class Watch: ...\n', GROUP, Other='other_pack:Watch')
    assert EntryPoints(GROUP).names() == ['First', 'Other']
    assert reads == [1, 1]


def test_another_group_is_another_list(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, 'group_pack', '', GROUP, Watch='group_pack:Watch')
    assert EntryPoints(f'{GROUP}.more').names() == []


@pytest.mark.parametrize('path', ['my_package.Watch', 'my_file.py:Watch', ''])
def test_a_path_reads_no_metadata(monkeypatch, path):
    monkeypatch.setattr('importlib.metadata.entry_points', lambda **kwargs: pytest.fail('metadata was read'))
    assert EntryPoints(GROUP).load(path) is None


def test_what_cannot_be_imported_is_an_error_that_names_the_package(tmp_path, monkeypatch):
    install(
        tmp_path, monkeypatch, 'broken_pack', '', GROUP, NoName='broken_pack:Watch', NoModule='broken_pack.hooks:Watch'
    )
    with pytest.raises(
        ImportError, match="^broken_pack offers NoName as broken_pack:Watch, .* 'Watch'. Mend or reinst"
    ):
        EntryPoints(GROUP).load('NoName')
    with pytest.raises(ImportError, match='^broken_pack offers NoModule as .*not a package'):
        EntryPoints(GROUP).load('NoModule')


def test_two_packages_with_one_name_are_an_error_unless_they_mean_the_same(tmp_path, monkeypatch):
    code = 'class Watch: ...\n'
    for package in ('one_pack', 'other_pack'):
        offers = {'Watch': f'{package}:Watch', 'Same': 'one_pack:Watch'}
        install(tmp_path / package, monkeypatch, package, code, GROUP, **offers)
    with pytest.raises(ImportError, match='several packages: .*one_pack:Watch.*one_pack.*dotted path') as refused:
        EntryPoints(GROUP).load('Watch')
    assert 'other_pack:Watch (other_pack)' in str(refused.value)
    assert EntryPoints(GROUP).load('Same') is sys.modules['one_pack'].Watch
