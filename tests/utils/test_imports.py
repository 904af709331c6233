"""Importing what a config names."""

from __future__ import annotations

import collections
import logging
import os.path

import pytest

from runnerkit.utils.imports import UnknownObject, import_modules_from_strings, import_object


def test_modules():
    assert import_modules_from_strings('os.path') is os.path
    assert import_modules_from_strings(['os.path', 'collections']) == [os.path, collections]
    assert import_modules_from_strings(('collections',)) == [collections]
    assert import_modules_from_strings([]) is None
    assert import_modules_from_strings(None) is None


def test_modules_that_fail(caplog, tmp_path, monkeypatch):
    with pytest.raises(ImportError, match="Failed to import _no_such: No module named '_no_such'") as caught:
        import_modules_from_strings(['os', '_no_such'])
    assert caught.value.name == '_no_such'
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        assert import_modules_from_strings(['os', '_no_such'], allow_failed_imports=True) == [os, None]
        assert import_modules_from_strings('_no_such', allow_failed_imports=True) is None
    assert '_no_such failed to import and is ignored' in caplog.text
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'raises_at_import.py').write_text('1 / 0\n')
    with pytest.raises(ZeroDivisionError):
        import_modules_from_strings('raises_at_import', allow_failed_imports=True)
    with pytest.raises(TypeError, match='custom_imports must be a list but got type'):
        import_modules_from_strings(3)
    with pytest.raises(TypeError, match='3 is of type .* and cannot be imported'):
        import_modules_from_strings(['os', 3])


def test_files_can_be_imported_too(tmp_path):
    (tmp_path / 'parts.py').write_text('value = 3\n')
    assert import_modules_from_strings([f'{tmp_path}/parts.py'])[0].value == 3


def test_objects():
    assert import_object('collections.OrderedDict') is collections.OrderedDict
    assert import_object('collections.OrderedDict.fromkeys') == collections.OrderedDict.fromkeys
    assert import_object('os.path.join') is os.path.join
    assert import_object('json.decoder.JSONDecoder').__name__ == 'JSONDecoder'


@pytest.mark.parametrize(
    ('path', 'error', 'message'),
    [
        ('collections.OrderedDic', UnknownObject, "collections has no 'OrderedDic'; did you mean 'OrderedDict'"),
        ('collections.OrderedDict.nope', UnknownObject, "OrderedDict has no 'nope'$"),
        ('_no_such.pkg.Name', UnknownObject, "there is no module '_no_such'"),
        ('Name', ValueError, 'must be a dotted path to an object'),
        (
            'nope.py:Name',
            FileNotFoundError,
            "there is no file 'nope.py' .looked for from .*fileDirname }}/nope.py:Name",
        ),
    ],
)
def test_paths_that_lead_nowhere(path, error, message):
    with pytest.raises(error, match=message):
        import_object(path)


def test_errors_inside_a_module_come_through(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / 'needs_more.py').write_text('import _no_such_dependency\n')
    with pytest.raises(ModuleNotFoundError, match='_no_such_dependency') as caught:
        import_object('needs_more.Name')
    assert not isinstance(caught.value, UnknownObject)
