"""The stages of a run, one after the other."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import weights

from runnerkit.config import Config
from runnerkit.fileio.paths import shown
from runnerkit.flow import (
    Context,
    Flow,
    Instance,
    Network,
    Options,
    Runner,
    RunnerBase,
    Startup,
    StartupBase,
    TerminalBase,
)
from runnerkit.hooks.hook import Outcome

CONFIG = {
    'model': {'type': 'support.Tiny'},
    'data': {'samples_per_gpu': 4, 'train': {'type': 'support.Noisy', 'length': 8}},
    'optimizer': {'type': 'SGD', 'lr': 0.1},
    'runner': {'type': 'EpochBasedRunner', 'max_epochs': 1},
    'seed': 3,
}


def flow(work_dir, stages=None, cfg=CONFIG, **options):
    return Flow(Config(cfg), Options(work_dir=str(work_dir), device='cpu', **options), stages=stages)


def recorded(done):
    """Stages that do what the default ones do, and note it."""

    def noting(stage, method):
        def call(self, context):
            done.append(method)
            getattr(stage, method)(self, context)

        return type(stage.__name__, (stage,), {method: call})

    class Terminal(TerminalBase):
        def terminal(self, context):
            done.append(context.outcome.kind)

    return {
        'instance': noting(Instance, 'instance'),
        'network': noting(Network, 'build_network'),
        'startup': noting(Startup, 'startup'),
        'runner': noting(Runner, 'run'),
        'terminal': Terminal,
    }


def test_five_stages_in_their_order(tmp_path):
    done = []
    flow(tmp_path, recorded(done)).run()
    assert done == ['instance', 'build_network', 'startup', 'run', 'completed']


class Breaks(Exception):
    pass


@pytest.mark.parametrize(
    'slot, method, error, seen',
    [
        ('instance', 'instance', Breaks('boom'), ['failed']),
        ('network', 'build_network', Breaks('boom'), ['instance', 'failed']),
        ('startup', 'startup', KeyboardInterrupt(), ['instance', 'build_network', 'interrupted']),
        ('runner', 'run', Breaks('boom'), ['instance', 'build_network', 'startup', 'failed']),
    ],
)
def test_the_terminal_is_called_once_and_learns_what_failed(tmp_path, slot, method, error, seen):
    done = []
    stages = recorded(done)

    def fails(self, context):
        raise error

    stages[slot] = type('Fails', (stages[slot],), {method: fails})
    failing = flow(tmp_path, stages)
    with pytest.raises(type(error)):
        failing.run()
    assert done == seen
    assert failing.context.outcome == Outcome(seen[-1], error=error)
    flow(tmp_path, recorded([])).run()  # the work dir is not locked any more


@pytest.mark.parametrize('at, outcome', [('before the end', 'stopped'), ('after it', 'interrupted')])
def test_the_terminal_learns_what_the_run_says_of_its_own_end(at, outcome, tmp_path):
    """A run that Ctrl-C has stopped raises KeyboardInterrupt when it is saved."""
    done = []

    class Interrupted(RunnerBase):
        def run(self, context):
            if at == 'before the end':
                context.runner.hooks.listen('before_train_iter', lambda runner: os.kill(os.getpid(), signal.SIGINT))
            context.runner.run(context.loaders, context.workflow)
            raise KeyboardInterrupt

    stopped = flow(tmp_path, {'runner': Interrupted, 'terminal': recorded(done)['terminal']})
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert done == [stopped.context.outcome.kind] == [outcome]


def test_the_first_error_is_told_if_the_terminal_fails_too(tmp_path, caplog):
    class Fails(StartupBase):
        def startup(self, context):
            raise Breaks('first')

    class FailsToo(TerminalBase):
        def terminal(self, context):
            raise Breaks('second')

    with pytest.raises(Breaks, match='first'):
        flow(tmp_path, {'startup': Fails, 'terminal': FailsToo}).run()
    assert 'the terminal stage has also failed: second' in caplog.text
    with pytest.raises(Breaks, match='second'):
        flow(tmp_path, {'terminal': FailsToo}).run()


def test_what_was_opened_is_closed_last(tmp_path):
    closed = []

    class Opens(Instance):
        def instance(self, context):
            context.closing.callback(closed.append, 'closed')

    class Terminal(TerminalBase):
        def terminal(self, context):
            closed.append('terminal')

    flow(tmp_path, {'instance': Opens, 'terminal': Terminal}).run()
    assert closed == ['terminal', 'closed']


def test_a_stage_is_made_right_before_it_is_called(tmp_path):
    class Late(StartupBase):
        def __init__(self, context):
            assert context.model is not None
            assert context.runner is None

    flow(tmp_path, {'startup': Late}).run()


def test_items_of_the_context_go_from_stage_to_stage(tmp_path):
    class Gives(Instance):
        def instance(self, context):
            context['vocabulary'] = 12

    class Takes(TerminalBase):
        def terminal(self, context):
            context['seen'] = context['vocabulary']

    assert flow(tmp_path, {'instance': Gives, 'terminal': Takes}).run()['seen'] == 12


def test_the_guard_is_around_the_training_alone(tmp_path):
    done = []
    stages = recorded(done)

    class Guard:
        def __init__(self, context):
            assert isinstance(context, Context)

        def __enter__(self):
            done.append('enter')

        def __exit__(self, *error):
            done.append('exit')

    Flow(Config(CONFIG), Options(work_dir=str(tmp_path), device='cpu'), stages=stages, guard=Guard).run()
    assert done == ['instance', 'build_network', 'startup', 'enter', 'run', 'exit', 'completed']


def test_a_flow_runs_once(tmp_path):
    """A second run would find the context of the first one."""
    once = flow(tmp_path)
    once.run()
    with pytest.raises(RuntimeError, match='make another one'):
        once.run()
    assert once.context.outcome == Outcome('completed')


@pytest.mark.parametrize(
    'arguments, error, text',
    [
        ({'cfg': CONFIG}, TypeError, r'cfg must be of the class Config, but got .*Config\(dict\)'),
        ({'cfg': 'cfg.py'}, TypeError, r"but got 'cfg.py': give Config.fromfile\(path\)"),
        ({'options': {'work_dir': 'x'}}, TypeError, r'options must be of the class Options.*Options\(work_dir=…\)'),
        ({'stages': {'strtup': Startup}}, KeyError, "unknown stage 'strtup'; did you mean 'startup'"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        Flow(**{'cfg': Config(CONFIG), **arguments})


def test_a_stage_of_another_kind_is_refused(tmp_path):
    with pytest.raises(TypeError, match='made a Startup, which is no RunnerBase'):
        flow(tmp_path, {'runner': lambda context: Startup(context)}).run()


def test_a_startup_that_is_left_out_loads_and_resumes_nothing(tmp_path):
    first = weights(flow(tmp_path).run().model)
    cfg = {**CONFIG, 'flow': {'startup': None, 'terminal': None}, 'auto_resume': True}
    again = flow(tmp_path, cfg=cfg).run()
    assert again.resume_from is None
    assert weights(again.model).equal(first)


def test_an_error_in_a_file_of_the_user_names_file_and_line(tmp_path):
    file = tmp_path / 'failing.py'
    file.write_text(
        'from runnerkit.flow import StartupBase\n\n\nclass Startup(StartupBase):\n'
        '    def startup(self, context):\n        self.helps({})\n\n    def helps(self, given):\n        given["x"]\n'
    )
    with pytest.raises(KeyError) as caught:
        flow(tmp_path, cfg={**CONFIG, 'flow': {'startup': str(file)}}).run()
    assert caught.value.__notes__ == [f"stage 'startup', {shown(file)}:9"]


def test_only_one_thread_runs_at_a_time(tmp_path):
    """Both would draw from the same generators: neither could be repeated."""
    with ThreadPoolExecutor(1) as other:

        class MeetsAnother(StartupBase):
            def startup(self, context):
                flow(tmp_path / 'inside').run()
                with pytest.raises(RuntimeError, match='another thread of this process is training'):
                    other.submit(flow(tmp_path / 'other').run).result()

        class Fails(StartupBase):
            def startup(self, context):
                raise ZeroDivisionError

        flow(tmp_path / 'one', {'startup': MeetsAnother}).run()
        with pytest.raises(ZeroDivisionError):
            other.submit(flow(tmp_path / 'failing', {'startup': Fails}).run).result()
        flow(tmp_path / 'last').run()


def test_a_stage_that_fails_on_one_rank_ends_the_others_when_its_process_is_gone(on_ranks, tmp_path):
    """They meet it at the next thing that all do together; the terminal is called once on each."""
    first, second = on_ranks(__file__, 'fail_on_the_second_rank', str(tmp_path))
    assert second == ['failed', 'only here']
    kind, told = first
    assert kind == 'failed'
    assert told != 'only here'


def fail_on_the_second_rank(rank, work_dir):
    done = []

    class Fails(StartupBase):
        def startup(self, context):
            if rank == 1:
                raise Breaks('only here')

    failing = flow(work_dir, {'startup': Fails, 'terminal': recorded(done)['terminal']})
    try:
        failing.run()
    except Exception as error:
        return [*done, str(error)]
