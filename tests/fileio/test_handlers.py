"""Formats: what each can hold, and adding one."""

from __future__ import annotations

import io

import numpy as np
import pytest
import yaml

from runnerkit.config import ConfigDict
from runnerkit.fileio import BaseFileHandler, JsonHandler, PickleHandler, YamlHandler, dump, load, register_handler
from runnerkit.fileio.handlers import file_handlers, handler_for


def test_json_takes_what_json_has_no_word_for():
    values = {'a': {1}, 'b': range(2), 'c': np.float32(0.5), 'd': np.arange(2), 'e': frozenset()}
    assert JsonHandler().dump_to_str(values) == '{"a": [1], "b": [0, 1], "c": 0.5, "d": [0, 1], "e": []}'
    assert JsonHandler().dump_to_str([1], indent=1) == '[\n 1\n]'
    with pytest.raises(TypeError, match="<class 'object'> is unsupported for json dump"):
        JsonHandler().dump_to_str(object())


def test_yaml_is_safe_unless_told_otherwise(tmp_path):
    file = tmp_path / 'bad.yaml'
    file.write_text('!!python/object/apply:os.getcwd []')
    with pytest.raises(yaml.constructor.ConstructorError):
        load(file)
    assert load(file, Loader=yaml.UnsafeLoader)
    assert YamlHandler().dump_to_str(ConfigDict(a={'b': 1})) == 'a:\n  b: 1\n'
    tuples = {'a': (1, ('b', [2])), (3, 4): 5}
    text = YamlHandler().dump_to_str(tuples)
    assert '!!python/tuple' in text
    assert load(io.StringIO(text), 'yaml') == tuples == yaml.load(text, yaml.UnsafeLoader)
    assert YamlHandler().dump_to_str({'a': (1,)}, Dumper=yaml.Dumper) == 'a: !!python/tuple\n- 1\n'


def test_pickle():
    data = PickleHandler().dump_to_str({1: (2,)})
    assert data[:2] == b'\x80\x02'
    assert PickleHandler().load_from_fileobj(io.BytesIO(data)) == {1: (2,)}
    assert PickleHandler.str_like is False
    assert PickleHandler().dump_to_str(1, protocol=4)[:2] == b'\x80\x04'


def test_registering_a_handler(tmp_path):
    @register_handler(['words', 'wd'], separator=';')
    class WordsHandler(BaseFileHandler):
        def __init__(self, separator):
            self.separator = separator

        def load_from_fileobj(self, file):
            return file.read().split(self.separator)

        def dump_to_fileobj(self, obj, file):
            file.write(self.dump_to_str(obj))

        def dump_to_str(self, obj):
            return self.separator.join(obj)

    try:
        dump(['a', 'b'], tmp_path / 'x.words')
        assert (tmp_path / 'x.words').read_text() == 'a;b'
        assert load(tmp_path / 'x.words') == ['a', 'b']
        assert dump(['c'], file_format='wd') == 'c'
    finally:
        for name in ('words', 'wd'):
            del file_handlers[name]


def test_wrong_handlers():
    with pytest.raises(TypeError, match='must be a subclass of BaseFileHandler'):
        register_handler('x')(dict)
    with pytest.raises(TypeError, match='file_formats must be a str or a list of str'):
        register_handler([1])
    with pytest.raises(TypeError, match=r"Unsupported format: 'jsn'; did you mean 'json'\? There are json, yaml"):
        handler_for('jsn')
    with pytest.raises(TypeError, match='Unsupported format: .zip.; There are json'):
        handler_for('zip')


def test_yaml_writes_numbers_and_arrays_of_numpy_as_plain_ones_and_refuses_objects():
    assert dump({'a': np.float64(0.5), 'b': [np.int64(3)], 'c': np.eye(2)}, file_format='yaml') == (
        'a: 0.5\nb:\n- 3\nc:\n- - 1.0\n  - 0.0\n- - 0.0\n  - 1.0\n'
    )
    with pytest.raises(yaml.representer.RepresenterError):
        dump({'a': object()}, file_format='yaml')
