"""What YAML can say here, and what it refuses."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml

from runnerkit.config import ConfigDict
from runnerkit.fileio import yaml_format


def test_tuples_stay_tuples_within_any_dict():
    value = ConfigDict(steps=(8, (1, 2)), other=[{'a': ()}])
    text = yaml_format.dump(value)
    assert yaml_format.load(text) == yaml_format.load(io.StringIO(text)) == {'steps': (8, (1, 2)), 'other': [{'a': ()}]}


def test_numbers_and_arrays_of_numpy_are_plain_ones():
    file = io.StringIO()
    yaml_format.dump({'a': np.float64(0.5), 'b': np.arange(2)}, file)
    assert yaml_format.load(file.getvalue()) == {'a': 0.5, 'b': [0, 1]}


def test_no_objects_are_written_and_none_built():
    with pytest.raises(yaml_format.YAMLError):
        yaml_format.dump({'a': object()})
    with pytest.raises(yaml_format.YAMLError):
        yaml_format.load('!!python/object/apply:os.getcwd []')
    assert yaml_format.load('!!python/object/apply:len [[1]]', Loader=yaml.UnsafeLoader) == 1


def test_yaml_is_not_imported_before_it_is_used(tmp_path):
    (tmp_path / 'cfg.py').write_text('a = dict(b=(1, 2))\n')
    (tmp_path / 'cfg.yaml').write_text('a: 1\n')
    code = f"""import sys
from runnerkit.config import Config
from runnerkit.fileio import YamlHandler
Config.fromfile({str(tmp_path / 'cfg.py')!r}).dump({str(tmp_path / 'out.py')!r})
print('yaml' in sys.modules)
print(Config.fromfile({str(tmp_path / 'cfg.yaml')!r}).a, 'yaml' in sys.modules)
"""
    ended = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert ended.stdout.split() == ['False', '1', 'True'], ended.stderr


@pytest.mark.parametrize(
    'text, message',
    [
        ('a: 1\nb: [1, 2\nc: 3\n', r'f.yaml:3: invalid YAML: while parsing a flow .* \(it begins in line 2\)'),
        ('a: *x\n', 'f.yaml:1: invalid YAML: found undefined alias'),
        ('a: !!python/object:os.x 3\n', 'f.yaml:1: invalid YAML: could not determine a constructor for the tag'),
    ],
)
def test_an_error_names_file_and_line(text, message):
    with pytest.raises(yaml.YAMLError) as caught:
        yaml_format.load(text)
    told = yaml_format.with_place(caught.value, 'f.yaml')
    assert type(told) is type(caught.value)
    assert re.match(message, str(told))
    assert 'unicode string' not in str(told)


def test_other_errors_keep_their_message():
    told = yaml_format.with_place(ValueError('too deep'), 'f.yaml')
    assert (type(told), str(told)) == (ValueError, 'f.yaml: too deep')
