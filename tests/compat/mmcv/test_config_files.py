"""A subclass of `Config` that reads files by itself, as projects of the MMCV era have it; the results are MMCV's."""

import runpy

import pytest

from runnerkit.config import Config
from runnerkit.config.parse import BASE_KEY


class OwnConfig(Config):
    """Merges bases that have keys in common."""

    @staticmethod
    def read(path, scratch):
        Config._validate_py_syntax(path)
        Config._substitute_predefined_vars(path, scratch)
        names = Config._pre_substitute_base_vars(scratch, scratch)
        values = {key: value for key, value in runpy.run_path(str(scratch)).items() if not key.startswith('__')}
        below = {}
        for base in values.pop(BASE_KEY, []):
            below = Config._merge_a_into_b(OwnConfig.read(path.parent / base, scratch), below)
        return Config._merge_a_into_b(Config._substitute_base_vars(values, names, below), below)


def test_the_steps_together_read_a_config(tmp_path):
    (tmp_path / 'a.py').write_text('model = dict(depth=18, width=1)\nlr = 0.1\n')
    (tmp_path / 'b.py').write_text('model = dict(depth=50)\n')
    (tmp_path / 'c.py').write_text(
        "_base_ = ['a.py', 'b.py']\n"
        'name = "{{ fileBasenameNoExtension }}"\n'
        'rates = [{{ _base_.lr }}, ({{_base_.lr}}, 1)]\n'
        'head = dict(depth={{ _base_.model.depth }}, of={{ _base_.model }})\n'
    )
    values = OwnConfig.read(tmp_path / 'c.py', tmp_path / 'scratch.py')
    assert values == {
        'model': {'depth': 50, 'width': 1},
        'lr': 0.1,
        'name': 'c',
        'rates': [0.1, (0.1, 1)],
        'head': {'depth': 50, 'of': {'depth': 50, 'width': 1}},
    }


def test_each_reference_gets_a_name_of_its_own(tmp_path):
    (tmp_path / 'a.py').write_text('x = {{ _base_.y.z }}\nw = {{ _base_.y.z }}\n')
    names = Config._pre_substitute_base_vars(tmp_path / 'a.py', tmp_path / 'b.py')
    assert list(names.values()) == ['y.z', 'y.z']
    assert (tmp_path / 'b.py').read_text() == 'x = "{}"\nw = "{}"\n'.format(*names)


def test_what_is_wrong_is_told(tmp_path):
    (tmp_path / 'a.py').write_text('x = (\n')
    with pytest.raises(SyntaxError, match='There are syntax errors in config file .*a.py'):
        Config._validate_py_syntax(tmp_path / 'a.py')
    with pytest.raises(KeyError, match="its bases have no 'z' there"):
        Config._substitute_base_vars({'x': 'n'}, {'n': 'y.z'}, {'y': {}})
