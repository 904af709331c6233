"""The search tool: what it says, its exit codes, and one clear error for each wrong input."""

import os
import re
import signal
import time

import pytest
import torch

from runnerkit.cli.search import main

SEARCH = """
pipeline = ['nas']
nas = dict(
    pipe_step=dict(type='SearchPipeStep'),
    config='{{ fileDirname }}/cfg.py',
    objectives=dict(error='min'),
    search_space={'optimizer.lr': dict(type='Float', low=1e-3, high=1e-1, log=True)},
    search_algorithm=dict(type='RandomSearch', trials=2),
    overrides={'runner.max_epochs': 1},
)
"""


@pytest.fixture
def search(project, capsys):
    """Run the tool in this process on a config with more lines: (exit code, all it said)."""

    def run(more='', *options):
        (project / 'search.py').write_text(SEARCH + more)
        code = main([str(project / 'search.py'), '--work-dir', str(project / 'work'), *options])
        printed = capsys.readouterr()
        return code, printed.err + printed.out

    return run


def test_a_search(project, search):
    code, said = search()
    assert code == 0
    assert 'nas: 2 trials (2 completed); best:' in said
    assert said.rstrip().endswith(f'Report {project / "work" / "reports.json"}')
    assert 'Trial 1 completed: error ' in said
    code, said = search()
    assert code == 0
    assert 'Trial' not in said
    assert 'Step nas is done already' in said


def test_some_trials_fail(search):
    code, said = search(
        "nas['search_space']['optimizer.momentum'] = [0.9, -1.0]\nnas['search_algorithm']['trials'] = 6\n"
    )
    assert code == 4
    assert re.search(r'done, but trials have failed: nas [\d, ]+; for the reasons, see .*reports.json\n$', said)
    assert 'Invalid momentum value: -1.0' in said


def test_all_trials_fail(project, search):
    code, said = search(
        """
nas['search_space']['optimizer.momentum'] = [-1.0]
pipeline.append('fullytrain')
fullytrain = dict(pipe_step=dict(type='TrainPipeStep'))
"""
    )
    assert code == 1
    assert 'error: nas: none of 2 trials has completed (2 have failed). Trial 0: ' in said
    assert 'Invalid momentum value: -1.0' in said
    assert f'to start over, remove {project / "work" / "nas"}' in said
    assert 'Step fullytrain' not in said
    assert 'Traceback' not in said


def test_a_front_that_is_empty(project, search):
    (project / 'nothing.py').write_text(
        'from runnerkit.search.pipe_step import PipeStep\n\n\n'
        'class Nothing(PipeStep):\n    def do(self):\n        pass\n'
    )
    more = """
pipeline = ['nothing', 'fullytrain']
nothing = dict(pipe_step=dict(type='{{ fileDirname }}/nothing.py:Nothing'))
fullytrain = dict(pipe_step=dict(type='TrainPipeStep'), config='{{ fileDirname }}/cfg.py')
"""
    code, said = search(more)
    assert code == 1
    assert 'error: fullytrain: the step nothing has no completed trial, so there is no model to train' in said
    code, said = search(more.replace("TrainPipeStep'), config='{{ fileDirname }}/cfg.py'", "BenchmarkPipeStep')"))
    assert code == 1
    assert 'error: fullytrain: no trial of nothing has completed, so there is no model to measure' in said


def test_a_quota_that_nobody_meets(search):
    code, said = search("nas['quota'] = 'params < 10'\n")
    assert code == 1
    assert '100 proposals in a row were refused, the last one because params 49 is not < 10' in said
    assert 'Traceback' not in said


def test_a_space_that_forbids_everything(search):
    code, said = search(
        """
nas['search_space'] = dict(
    parameters={'optimizer.momentum': [0.9, 0.5]},
    forbidden=[{'optimizer.momentum': 0.9}, {'optimizer.momentum': 0.5}],
)
"""
    )
    assert code == 2
    assert 'the space forbids everything' in said


@pytest.mark.parametrize(
    'more, told',
    [
        ("nas['objective'] = {}", "nas has no key 'objective'; did you mean 'objectives'?"),
        ("del nas['search_space']", "nas needs the key 'search_space'"),
        ("nas['config'] = '{{ fileDirname }}/cgf.py'", "config: there is no file .*did you mean 'cfg.py'"),
        ("nas['config'] = 3", 'config must be the path of a config file, but got 3'),
        ("nas['objectives'] = dict(error='mim')", "must be 'max' or 'min', but got 'mim'; did you mean 'min'"),
        ("nas['search_space'] = {'optimzer.lr': [1.0]}", "has no 'optimzer'; did you mean 'optimizer'"),
        ("nas['search_algorithm'] = 'TEP'", "no search algorithm 'TEP'"),
        ("nas['search_algorithm'] = 'BossHpo'", 'the search algorithm BossHpo is not built'),
        ("nas['executor'] = 'Lokal'", "did you mean 'Local'"),
        ("nas['quota'] = 'parms < 3'", "unknown term 'parms'; did you mean 'params'"),
        ("nas['overrides'] = {'runner.max_epoch': 3}", 'max_epochs'),
        ("nas['overrides'] = 3", 'overrides must be a dict'),
        ("pipeline = ['nsa']", "no section 'nsa'.*did you mean 'nas'.*search.py:"),
        ("pipeline += ['b']\nb = dict(pipe_step=dict(type='TrainPipeStep'), nums=0)", 'nums must be a whole number'),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='TrainPipeStep'), source='nsa')",
            "b.source is 'nsa', which is no step before it; did you mean 'nas'",
        ),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='TrainPipeStep'), hps={})",
            'config and objectives are needed',
        ),
        ("nas['objectives'] = {}", 'objectives must name at least one score'),
        (
            "nas['executor'] = dict(type='torch.nn.ReLU')",
            'executor must be an Executor, but torch.nn.ReLU gives a ReLU',
        ),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='TrainPipeStep'), load_weights='yes')",
            "load_weights must be True or False, but got 'yes'",
        ),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='TrainPipeStep'), hps=[3], config='x', objectives={})",
            r'hps must be a dict such as .*, or a list of them, but got \[3\]',
        ),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='BenchmarkPipeStep'), split='tset')",
            r"b: split is 'tset', but the config of the step nas has no data.tset.*\(it has train, val",
        ),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='BenchmarkPipeStep'), latency=dict(round=3))",
            "latency has no key 'round'; did you mean 'rounds'",
        ),
        (
            "pipeline += ['b']\nb = dict(pipe_step=dict(type='BenchmarkPipeStep'), source=['nsa'])",
            "which is no step before it; did you mean 'nas'",
        ),
    ],
)
def test_wrong_configs(project, search, more, told):
    code, said = search(f'{more}\n')
    assert code == 2
    assert re.search(told, said), said
    assert 'Traceback' not in said
    assert not (project / 'work').exists()


def test_the_config_of_something_else(search, project):
    for more, told in (
        (
            'del pipeline',
            "the config has no pipeline: write which steps are done, and in which order: pipeline = ['nas']",
        ),
        ('del pipeline, nas\nmodel = optimizer = {}', 'this is the config of one training: runnerkit train'),
        ('del pipeline, nas', "the config has no pipeline, such as pipeline = ['nas', 'fullytrain'], each a section"),
    ):
        code, said = search(f'{more}\n')
        assert (code, told in said) == (2, True), said


@pytest.mark.skipif(torch.cuda.is_available(), reason='there is a GPU')
def test_a_gpu_that_is_not_there(search, project):
    for more, options, told in (
        ('', ['--device', 'cuda'], 'no CUDA device found; use --device cpu'),
        ('', ['--device', 'gpu'], "unknown device 'gpu'; use --device cpu, cuda, cuda:1"),
        ("nas['executor'] = dict(type='Local', devices=[0, 1])", [], 'devices is [0, 1], but no GPU was found'),
    ):
        code, said = search(f'{more}\n', *options)
        assert (code, told in said) == (2, True), said
    assert not (project / 'work').exists()


def test_wrong_places_are_told(search):
    _, said = search("\n\nnas['objective'] = {}\n")
    assert 'search.py:' in said


def test_wrong_flags(search, project, capsys):
    for options, told in (
        (['--worker', '2'], 'unknown flag --worker'),
        (['--workers', '0'], '--workers: must be a whole number of at least 1'),
    ):
        with pytest.raises(SystemExit) as error:
            search('', *options)
        assert error.value.code == 2
        assert told in capsys.readouterr().err
    assert search('', '--work-dir', str(project / 'cfg.py')) == (
        2,
        f'error: --work-dir {project / "cfg.py"} is a file: give a folder\n',
    )
    assert main([str(project / 'serach.py')]) == 2
    assert 'no such config file' in capsys.readouterr().err


@pytest.mark.usefixtures('warm')
def test_options_of_the_command_line(project, search):
    code, said = search('', '--cfg-options', 'nas.search_algorithm.trials=1', '--device', 'cpu', '--workers', '1')
    assert code == 0
    assert 'nas: 1 trial (' in said
    # In a process of its own.
    assert 'Run completed' in (project / 'work' / 'nas' / 'trials' / '0000' / 'output.log').read_text()


@pytest.mark.parametrize('executor', ['Serial', pytest.param('Local', marks=pytest.mark.thorough)])
def test_a_signal_ends_it_and_it_goes_on(project, search, executor):
    more = f"nas['overrides'] = {{}}\nnas['executor'] = dict(type='{executor}')\n"
    (project / 'search.py').write_text(SEARCH + more)
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = main([str(project / 'search.py'), '--work-dir', str(project / 'work')])
        finally:
            os._exit(code)
    saved = project / 'work' / 'nas' / 'trials' / '0000' / 'nas_0000' / 'epoch_1.pth'
    until = time.monotonic() + 200
    while not saved.exists() and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGTERM
    code, said = search(more)
    assert code == 0
    assert 'nas: 2 trials (2 completed)' in said
