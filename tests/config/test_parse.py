"""Reading config files: bases, reserved variables, references, and what is wrong with a file."""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from pathlib import Path

import pytest
import yaml

from runnerkit.config import Config
from runnerkit.config.parse import ConfigDeprecationWarning


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding='utf-8')
        return path

    return write


def read(name, **kwargs):
    return Config.fromfile(name, **kwargs)._cfg_dict.to_dict()


@pytest.mark.parametrize(
    'name', ["Ann's runs", 'the "best"', 'it\'s "üñï" {{ fileDirname }}', 'two\nlines', 'back\\slash']
)
def test_a_folder_may_have_any_name(write, name, tmp_path):
    folder = str(tmp_path / name)
    write(f'{name}/a.py', 'a = \'{{ fileDirname }}/x\'\nb = ["{{ fileDirname }}"]')
    write(f'{name}/b.json', '{"a": "{{ fileDirname }}/x", "b": ["{{ fileDirname }}"]}')
    assert read(f'{name}/a.py') == read(f'{name}/b.json') == {'a': f'{folder}/x', 'b': [folder]}


def test_bases_in_three_formats_and_folders(write):
    write('bases/a.py', 'a = 1\nmodel = dict(depth=1, width=2)\n')
    write('bases/deep/b.yaml', 'b: {x: 1}\n')
    write('bases/c.json', '{"_base_": "deep/b.yaml", "c": [1, null]}')
    write('cfg.py', "_base_ = ['bases/a.py', './bases/c.json']\nmodel = dict(depth=5)\n")
    assert read('cfg.py') == {'a': 1, 'model': {'depth': 5, 'width': 2}, 'b': {'x': 1}, 'c': [1, None]}
    write('tuple.py', "_base_ = ('bases/a.py',)\n")
    assert read('tuple.py') == {'a': 1, 'model': {'depth': 1, 'width': 2}}
    write('absolute.py', f'_base_ = {str(Path("bases/a.py").resolve())!r}\n')
    assert read('absolute.py')['a'] == 1


@pytest.mark.parametrize(('name', 'text'), [('c.py', 'a = 1'), ('c.json', '{"a": 1}'), ('c.yaml', 'a: 1')])
def test_the_mark_at_the_beginning_of_a_file_of_windows_is_no_part_of_it(write, name, text):
    write(name, '\ufeff' + text)
    assert read(name) == {'a': 1}


def test_the_text_holds_all_files(write):
    base, cfg = write('base.py', 'a = 1\n'), write('cfg.py', "_base_ = 'base.py'\nb = 2\n")
    assert Config.fromfile('cfg.py').text == f"{base}\na = 1\n\n{cfg}\n_base_ = 'base.py'\nb = 2\n"


def test_what_a_python_file_leaves_behind(write):
    write('helper.py', 'class Tool: pass\nVALUES = [1]\n')
    write(
        'cfg.py',
        """\
from __future__ import annotations
import os, sys
from functools import partial
from math import sqrt
def double(x): return 2 * x
class Own: pass
_hidden = 3
__secret = 4
__dunder__ = 5
a = double(2)
b = [i for i in range(3)]
kind = Own
step = dict(type=Own, call=sqrt)
here = __file__
""",
    )
    values = read('cfg.py')
    assert list(values) == ['_hidden', 'a', 'b', 'kind', 'step', 'here']
    assert values['_hidden'] == 3
    assert values['a'] == 4
    assert values['kind'].__name__ == 'Own'
    assert values['step']['call'](4) == 2
    assert values['here'] == str(Path('cfg.py').resolve())


def test_a_python_file_is_compiled_as_it_is(write):
    write('cfg.py', "class C:\n    a: int\nplain = C.__annotations__['a'] is int\n")
    assert read('cfg.py') == {'plain': True}


def test_a_python_file_leaves_no_traces(write):
    write('cfg.py', 'import json\na = 1\n')
    before, path = set(sys.modules), list(sys.path)
    Config.fromfile('cfg.py')
    assert set(sys.modules) == before
    assert sys.path == path
    assert [file.name for file in Path().iterdir()] == ['cfg.py']


def test_reserved_variables(write):
    cfg = write(
        'sub/cfg.v2.py',
        "a='{{ fileDirname }}/x'\nb='{{fileBasename}}'\nc='{{ fileBasenameNoExtension }}'\n"
        "d='{{fileExtname }}'\ne='{{ other }}'\n",
    )
    assert read(cfg) == {'a': f'{cfg.parent}/x', 'b': 'cfg.v2.py', 'c': 'cfg.v2', 'd': '.py', 'e': '{{ other }}'}
    assert read(cfg, use_predefined_variables=False)['a'] == '{{ fileDirname }}/x'
    write('base.yaml', 'dir: "{{ fileDirname }}"\n')
    write('sub/child.py', "_base_ = '../base.yaml'\n")
    assert read('sub/child.py') == {'dir': str(Path.cwd())}


BASE = "a = 1\nname = 'net'\nb = dict(x=1, z=dict(q=1))\nl = [dict(t=1), 2]\n"


def test_references_to_bases_in_python(write):
    write('base.py', BASE)
    write(
        'cfg.py',
        """\
_base_ = 'base.py'
whole = {{ _base_.b.z }}
quoted = '{{ _base_.b.z }}'
sum = {{ _base_.a }} + 1
mixed = 'pre-{{_base_.name}}-post'
formatted_text = f'{1}-{{ _base_.name }}'
inside = dict(k={{ _base_.b }}, n=[{{_base_.a}}, {{ _base_.l }}])
item = {{ _base_.l.0.t }}
spread = dict(**{{ _base_.b }}, y=2)
b = dict(x={{ _base_.a }} + 4)
""",
    )
    values = read('cfg.py')
    assert values['whole'] == values['quoted'] == {'q': 1}
    assert values['sum'] == 2
    assert values['mixed'] == 'pre-net-post'
    assert values['formatted_text'] == '1-net'
    assert values['inside'] == {'k': {'x': 1, 'z': {'q': 1}}, 'n': [1, [{'t': 1}, 2]]}
    assert values['item'] == 1
    assert values['spread'] == {'x': 1, 'z': {'q': 1}, 'y': 2}
    assert values['b'] == {'x': 5, 'z': {'q': 1}}


def test_references_do_not_share(write):
    write('base.py', BASE)
    write('cfg.py', "_base_ = 'base.py'\nu = {{ _base_.b }}\nv = {{ _base_.b }}\nu['x'] = 7\n")
    values = read('cfg.py')
    assert values['u']['x'] == 7
    assert values['v'] == values['b'] == {'x': 1, 'z': {'q': 1}}
    write('cfg.yaml', '_base_: base.py\nu: {{ _base_.b }}\nv: {{ _base_.b }}\n')
    cfg = Config.fromfile('cfg.yaml')
    cfg.u.x = 7
    assert cfg.v.x == cfg.b.x == 1


def test_references_to_bases_in_data_files(write):
    write('base.py', BASE)
    write(
        'cfg.yaml',
        "_base_: base.py\nr: {{ _base_.b.x }}\ns: '{{ _base_.b.z }}'\nt: pre {{ _base_.name }}\nu: [{{ _base_.l }}]\n",
    )
    own = {'r': 1, 's': {'q': 1}, 't': 'pre net', 'u': [[{'t': 1}, 2]]}
    assert {key: read('cfg.yaml')[key] for key in own} == own
    write(
        'cfg.json',
        '{"_base_": "base.py", "r": {{ _base_.b.x }}, "s": "{{ _base_.b.z }}", '
        r'"t": "a\" {{_base_.name}}", "{{ _base_.name }}": 1}',
    )
    own = {'r': 1, 's': {'q': 1}, 't': 'a" net', 'net': 1}
    assert {key: read('cfg.json')[key] for key in own} == own


def test_a_reference_that_is_only_mentioned_is_not_looked_up(write):
    write('base.py', BASE)
    write(
        'cfg.py',
        """'''like {{ _base_.nope }}'''\n_base_ = 'base.py'\n# {{ _base_.nothing }}\n"""
        'r = {{ _base_.a }}  # {{ _base_.b.c }}\n',
    )
    assert read('cfg.py')['r'] == 1
    write('cfg.yaml', '_base_: base.py\n# {{ _base_.nothing }}\nr: {{ _base_.a }}\n')
    assert read('cfg.yaml')['r'] == 1
    write('alone.py', 'a = 1  # {{ _base_.nothing }}\n')
    assert read('alone.py') == {'a': 1}


def test_a_reference_above_the_base(write):
    write('base.py', BASE)
    write('cfg.py', "r = {{ _base_.a }}\ns = '{{ _base_.name }}'\n_base_ = ['base.py']\nt = len(_base_)\n")
    assert {key: read('cfg.py')[key] for key in 'rst'} == {'r': 1, 's': 'net', 't': 1}
    for text in (
        "r = {{ _base_.a }}\n_base_ = 'ba' + 'se.py'\n",
        "r = '{{ _base_.a }}'\nif r:\n    _base_ = 'base.py'\n",
        "_base_ = '{{ _base_.a }}.py'\n",
        "_base_ = f'{ {{ _base_.a }} }.py'\n",
    ):
        write('cfg.py', text)
        with pytest.raises(ValueError, match=r'cfg.py: {{ _base_.a }} is used before _base_ is known; write _base_'):
            read('cfg.py')
    write('cfg.py', "_base_ = 'base.py'\n_base_ = [_base_, 'other.py']\nr = {{ _base_.z }}\n")
    write('other.py', 'z = 3\n')
    assert read('cfg.py')['r'] == 3


def test_a_text_that_looks_like_a_reference_of_ours(write):
    write('base.py', BASE)
    text = '__base_0__ __base_1__'
    write('cfg.json', json.dumps({'a': text, 'b': '__base_0__'}))
    assert read('cfg.json') == {'a': text, 'b': '__base_0__'}
    write('cfg.yaml', f'_base_: base.py\na: {text}\nb: __base_0__\nr: {{{{ _base_.a }}}}\n')
    assert [read('cfg.yaml')[key] for key in 'abr'] == [text, '__base_0__', 1]
    write('cfg.py', f"_base_ = 'base.py'\na = '{text}'\nb = '__base_0__'\nr = {{{{ _base_.a }}}}\n")
    assert [read('cfg.py')[key] for key in 'abr'] == [text, '__base_0__', 1]


def test_tuples_in_yaml(write):
    write('base.py', BASE)
    write(
        'cfg.yaml',
        '_base_: base.py\nsize: !!python/tuple\n- 1\n- !!python/tuple [a, {b: !!python/tuple []}]\n'
        'filled: !!python/tuple [{{ _base_.a }}]\n',
    )
    cfg = Config.fromfile('cfg.yaml')
    assert cfg.size == (1, ('a', {'b': ()}))
    assert cfg.filled == (1,)
    assert cfg.size[1][1].b == ()
    cfg.dump('again.yaml')
    assert read('again.yaml') == cfg._cfg_dict


def test_keys_that_are_no_strings(write):
    write('cfg.yaml', '1: x\nnull: {2: y}\n')
    assert read('cfg.yaml') == {1: 'x', None: {2: 'y'}}


def test_a_folder(write):
    write('sub/one.py', '')
    with pytest.raises(IsADirectoryError, match=r'sub is a folder, not a config file; it holds one.py$'):
        Config.fromfile('sub')
    for name in ('two.json', 'three.yaml', 'four.yml', 'five.py', 'six.py', 'notes.txt'):
        write(f'sub/{name}', '')
    with pytest.raises(IsADirectoryError, match=r'it holds five.py, four.yml, one.py, six.py, three.yaml, …$'):
        Config.fromfile('sub')
    write('empty/sub/x.txt', '')
    with pytest.raises(IsADirectoryError, match='not a config file$'):
        Config.fromfile('empty')


def test_a_computed_base(write):
    write('base.py', BASE)
    write('cfg.py', "which = 'base'\n_base_ = f'{which}.py'\nr = {{ _base_.a }}\n")
    assert read('cfg.py')['r'] == 1
    write('branch.py', "if True:\n    _base_ = 'base.py'\nr = {{ _base_.a }}\n")
    assert read('branch.py')['r'] == 1


def test_deprecation(write):
    write('old.py', "_deprecation_ = dict(expected='new.py', reference='the docs')\na = 1\n")
    write('bare.py', '_deprecation_ = dict()\n')
    write('child.py', "_base_ = 'old.py'\n")
    with pytest.warns(
        FutureWarning, match=r'^The config file .*old.py will be deprecated in the future. Please use new.py'
    ):
        assert read('child.py') == {'a': 1}
    with pytest.warns(FutureWarning, match='future.$'):
        assert read('bare.py') == {}


def test_a_deprecation_is_of_both_kinds_and_shown_by_default(write):
    path = write('old.py', '_deprecation_ = dict()\n')
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()  # what Python begins with, where a DeprecationWarning is concerned
        warnings.filterwarnings('ignore', category=DeprecationWarning)
        warnings.filterwarnings('default', category=DeprecationWarning, module='__main__')
        read('old.py')
    assert [(each.filename, each.category) for each in shown] == [(str(path), ConfigDeprecationWarning)]
    assert issubclass(ConfigDeprecationWarning, FutureWarning)
    assert issubclass(ConfigDeprecationWarning, DeprecationWarning)


def test_a_file_of_another_type_is_refused_unread(write):
    path = write('photo.jpg', '')
    path.write_bytes(b'\xff\xd8\xff')
    with pytest.raises(OSError, match='Only py/yml/yaml/json type are supported now!.*photo.jpg'):
        read('photo.jpg')


@pytest.mark.parametrize(
    ('text', 'error', 'message'),
    [
        ("_base_ = 'nope.py'", FileNotFoundError, 'file ".*nope.py" does not exist; .*cfg.py names it as its base'),
        ('_base_ = 3', TypeError, '_base_ in .*cfg.py must be the name of a config file or a list of names, but is 3'),
        (
            "_base_ = ['one.py', 'two.py']",
            KeyError,
            r"Duplicate key is not allowed among bases. Duplicate keys: \['a'\]",
        ),
        ("_base_ = 'circle.py'", ValueError, r'_base_ is circular: \S*cfg.py -> \S*circle.py -> \S*cfg.py$'),
        (
            "_base_ = 'one.py'\nr = {{ _base_.ab }}",
            KeyError,
            "{{ _base_.ab }} in .*cfg.py: its bases have no 'ab' there",
        ),
        ("_base_ = 'one.py'\nr = {{ _base_.depht }}", KeyError, "did you mean 'depth'"),
        ("_base_ = 'one.py'\nr = {{ _base_.a.b }}", KeyError, "have no 'b' there"),
        ("_base_ = 'one.py'\na = dict(b=1)", TypeError, 'cannot inherit from base'),
        ('a = 1\nb = (2\n', SyntaxError, r'There are syntax errors in config file .*cfg.py: .*\(cfg.py, line 2\)'),
        ('a = 1\nreturn a\n', SyntaxError, r'There are syntax errors in config file .*outside function'),
        ("_base_ = 'one.py'\nb = (2\n", SyntaxError, r'There are syntax errors .*line 2'),
        ('a = 1\nb = a / 0\n', ZeroDivisionError, r'cfg.py:2: division by zero'),
        ('def f():\n    raise KeyError("x")\nf()\n', KeyError, 'cfg.py:3: KeyError: .*x'),
        ('import nonexistent_module\n', ModuleNotFoundError, r"cfg.py:1: No module named 'nonexistent_module'"),
        ('filename = 1', KeyError, r'filename is reserved for config file \(cfg.py:1\)'),
        ('text = 1', KeyError, 'text is reserved for config file'),
    ],
)
def test_wrong_files(write, text, error, message):
    write('one.py', 'a = 1\ndepth = 2\n')
    write('two.py', 'a = 2\n')
    write('circle.py', "_base_ = 'cfg.py'\n")
    write('cfg.py', text)
    with pytest.raises(error, match=message):
        Config.fromfile('cfg.py')


def test_a_chain_of_bases_has_a_limit(write):
    for number in range(400):
        write(f'c{number}.py', f"_base_ = 'c{number + 1}.py'\nk{number} = 1\n")
    write('c400.py', 'k = 1\n')
    with pytest.raises(ValueError, match=r'c0.py has a chain of more than 50 files in _base_: write fewer of them'):
        Config.fromfile('c0.py')
    assert len(Config.fromfile('c350.py')) == 51


def test_a_syntax_error_beside_a_reference(write):
    text = "_base_ = 'base.py'\na = {{ _base_.a }} 3\n"
    write('cfg.py', text)
    for read_it in (lambda: Config.fromfile('cfg.py'), lambda: Config.fromstring(text, '.py')):
        with pytest.raises(SyntaxError) as caught:
            read_it()
        assert caught.value.lineno == 2
        assert caught.value.text.startswith('a = {{ _base_')


def test_a_traceback_shows_the_config_itself(write):
    write('cfg.py', '# a comment\n\nvalue = [][0]\n')
    try:
        Config.fromfile('cfg.py')
    except IndexError:
        shown = traceback.format_exc()
    assert 'cfg.py", line 3' in shown
    assert 'value = [][0]' in shown


def test_wrong_data_files(write):
    write('list.yaml', '- 1\n')
    write('bad.yaml', 'a: [1\n')
    write('bad.json', '{"a": }')
    write('empty.yaml', '')
    write('cfg.toml', '')
    with pytest.raises(TypeError, match='must hold a dict at its top level'):
        Config.fromfile('list.yaml')
    with pytest.raises(yaml.YAMLError, match='^bad.yaml:2: invalid YAML: while parsing') as caught:
        Config.fromfile('bad.yaml')
    assert 'unicode string' not in str(caught.value)
    with pytest.raises(json.JSONDecodeError, match='^bad.json:1: invalid JSON: Expecting value: line 1'):
        Config.fromfile('bad.json')
    with pytest.raises(OSError, match='Only py/yml/yaml/json type are supported now'):
        Config.fromfile('cfg.toml')
    with pytest.raises(FileNotFoundError, match='file ".*nope.py" does not exist$'):
        Config.fromfile('nope.py')
    assert read('empty.yaml') == {}


def test_a_missing_file_is_met_with_the_nearest(write):
    write('sub/lenet.py', '')
    write('cfg.py', "_base_ = 'sub/lennet.py'")
    with pytest.raises(
        FileNotFoundError, match="does not exist; .*cfg.py names it as its base; did you mean 'lenet.py'"
    ):
        Config.fromfile('cfg.py')
    with pytest.raises(FileNotFoundError, match='no/lenet.py" does not exist$'):
        Config.fromfile('no/lenet.py')
