"""Importing what a config names."""

from __future__ import annotations

import collections
import os.path

import pytest

from runnerkit.utils.imports import UnknownObject, import_modules_from_strings, import_object, obj_from_dict


def test_modules():
    assert import_modules_from_strings('os.path') is os.path
    assert import_modules_from_strings(['os.path', 'collections']) == [os.path, collections]
    assert import_modules_from_strings(('collections',)) == [collections]
    assert import_modules_from_strings([]) is None
    assert import_modules_from_strings(None) is None


def test_modules_that_fail(tmp_path, monkeypatch):
    with pytest.raises(ImportError, match="Failed to import _no_such: No module named '_no_such'") as caught:
        import_modules_from_strings(['os', '_no_such'])
    assert caught.value.name == '_no_such'
    for names, modules in ((['os', '_no_such'], [os, None]), ('_no_such', None)):
        with pytest.warns(UserWarning, match='_no_such failed to import and is ignored') as warned:
            assert import_modules_from_strings(names, allow_failed_imports=True) == modules
        assert [each.filename for each in warned] == [__file__]
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
            "there is no file 'nope.py', neither in the working directory .* nor in the folder of a config file",
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


def test_objects_from_dicts():
    info = {'type': 'OrderedDict', 'a': 1}
    assert obj_from_dict(info, collections, {'a': 0, 'b': 2}) == {'a': 1, 'b': 2}
    assert info == {'type': 'OrderedDict', 'a': 1}
    assert obj_from_dict({'type': dict, 'a': 1}) == {'a': 1}
    assert type(obj_from_dict({'type': 'collections.Counter'})) is collections.Counter


@pytest.mark.parametrize(
    ('args', 'error', 'message'),
    [
        (({'a': 1}, collections), AssertionError, 'info must have a type'),
        (([], collections), AssertionError, 'info must be a dict'),
        (({'type': 'Counter'}, collections, []), AssertionError, 'default_args must be a dict or None'),
        (({'type': 5},), TypeError, "type must be a str or valid type, but got <class 'int'>"),
        (({'type': 'nope'}, collections), AttributeError, "has no attribute 'nope'"),
    ],
)
def test_dicts_that_make_no_object(args, error, message):
    with pytest.raises(error, match=message):
        obj_from_dict(*args)
