"""What stages have in common, and what a config puts in their places."""

from functools import partial

import pytest

from runnerkit.config import Config
from runnerkit.flow import STAGES, Options, Stage, Startup, StartupBase, Terminal
from runnerkit.flow.look.dry_run import DryRun
from runnerkit.flow.stages.stage import SLOTS, definition_place, maker, makers

STARTUP, RUNNER = SLOTS[2], SLOTS[3]

FILE = """from runnerkit.flow import StartupBase


class Startup(StartupBase):
    def startup(self, context):
        pass


class Second(StartupBase):
    def __init__(self, context, path='none'):
        self.path = path


class Misspelt(StartupBase):
    def start_up(self, context):
        pass


class Empty(StartupBase):
    pass


class Plain:
    pass
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / 'stages.py').write_text(f'{FILE}\n# {tmp_path}')  # files with the same content are one module
    return str(tmp_path / 'stages.py')


def made(value):
    return maker(STARTUP, value)(None)


def test_a_file_a_class_in_it_and_arguments(file):
    assert type(made(file)).__name__ == 'Startup'
    assert type(made(f'{file}:Second')).__name__ == 'Second'
    assert made({'type': f'{file}:Second', 'path': 'x'}).path == 'x'


def test_a_class_a_function_a_dotted_path_and_a_registered_name(file):
    @STAGES.register_module()
    class TreeStartup(StartupBase):
        def startup(self, context):
            pass

    try:
        for value in (TreeStartup, TreeStartup.__name__, partial(TreeStartup), {'type': 'TreeStartup'}):
            assert type(made(value)) is TreeStartup
        with pytest.raises(KeyError, match="unknown stage 'TreeStart'; did you mean 'TreeStartup'"):
            made('TreeStart')
    finally:
        STAGES.module_dict.pop('TreeStartup')
    assert type(made('runnerkit.flow.stages.startup.Startup')) is Startup


@pytest.mark.parametrize(
    'name, error, text',
    [
        ('Misspelt', TypeError, "a method 'start_up', which is never called; did you mean 'startup'?"),
        ('Empty', TypeError, r'changes nothing: it overrides no method of StartupBase \(load, startup\)'),
        ('Plain', TypeError, r"Plain \(.*stages.py:23\) cannot be the stage 'startup': it must be a subclass of "),
        ('Missing', ImportError, "has no 'Missing'"),
    ],
)
def test_what_is_no_stage_is_refused(file, name, error, text):
    with pytest.raises(error, match=text):
        made(f'{file}:{name}')


def test_other_values_are_refused():
    with pytest.raises(TypeError, match='flow.startup must name a class, but got 3'):
        made(3)
    with pytest.raises(TypeError, match='Terminal .* cannot be the stage'):
        made(Terminal)
    with pytest.raises(FileNotFoundError, match='there is no file'):
        made('nowhere.py')


def test_a_file_without_its_extension(file):
    with pytest.raises(KeyError, match=r"unknown stage '.*stages' \(a file's name ends with .py\)"):
        made(str(file).removesuffix('.py'))


def test_a_file_that_does_not_import_raises_its_own_error(tmp_path):
    (tmp_path / 'broken.py').write_text('import runnerkit\n1 / 0\n')
    with pytest.raises(ZeroDivisionError) as caught:
        made(str(tmp_path / 'broken.py'))
    assert caught.traceback[-1].path == tmp_path / 'broken.py'
    assert caught.value.__notes__[0].endswith('broken.py:2')


def test_none_leaves_out_what_is_not_needed():
    assert maker(STARTUP, None) is None
    with pytest.raises(TypeError, match='flow.runner is None, but a run cannot do without it'):
        maker(RUNNER, None)


def test_the_default_stages_have_names_and_are_of_their_bases():
    for slot in SLOTS:
        assert STAGES.get(slot.class_name) is slot.default
        assert issubclass(slot.default, slot.base)
        assert issubclass(slot.base, Stage)
        assert callable(getattr(slot.base, slot.method))


def test_given_stages_come_before_those_of_the_config(file):
    found = makers(Config({'flow': {'startup': file, 'terminal': None}}), Options(), {'startup': Startup})
    assert found['startup'] is Startup
    assert found['terminal'] is None
    assert [slot.name for slot in SLOTS if found[slot.name] is slot.default] == [
        'instance',
        'network',
        'startup',
        'runner',
    ]


def test_a_dry_run_has_a_runner_stage_of_its_own(file):
    assert makers(Config({}), Options(dry_run=True), {})['runner'] is DryRun


def test_errors_name_the_line_of_the_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'cfg.py').write_text("x = 1\nflow = dict(startup='Nope')\n")
    with pytest.raises(KeyError, match=r'cfg.py:2'):
        makers(Config.fromfile('cfg.py'), Options(), {})
    with pytest.raises(TypeError, match='flow must be a dict such as'):
        makers(Config({'flow': 'x.py'}), Options(), {})


def test_where_a_stage_comes_from(file):
    assert definition_place(Startup) == 'runnerkit.flow.stages.startup'
    assert definition_place(partial(maker(STARTUP, file), path='x')).endswith('stages.py:4')


@pytest.mark.parametrize(
    'change, text',
    [
        (('def startup(self, context)', 'def startup(self)'), r'startup\(self, context\) fails: too many positional'),
        (
            ('    def startup', '    def __init__(self):\n        pass\n\n    def startup'),
            r'__init__\(self, context\) fails',
        ),
    ],
)
def test_what_cannot_be_called_with_the_context_is_refused_before_the_run(tmp_path, change, text):
    path = tmp_path / 'own.py'
    text_of_file = (
        'from runnerkit.flow import StartupBase\n\n\nclass Startup(StartupBase):\n    def startup(self, context):\n'
    )
    path.write_text((text_of_file + '        pass\n').replace(*change))
    with pytest.raises(TypeError, match=rf'Startup \(.*own.py:4\): {text}'):
        made(str(path))


def test_arguments_that_a_stage_does_not_take_are_refused_before_the_run():
    with pytest.raises(TypeError, match=r"__init__\(self, context, path\) fails: got an unexpected .*'path'"):
        made({'type': 'Startup', 'path': 'x'})
    with pytest.raises(TypeError, match=r"Infer .*: __init__\(self, context\) fails: missing .*'checkpoints'"):
        maker(RUNNER, 'Infer')
