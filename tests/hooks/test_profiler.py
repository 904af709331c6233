"""How long the profiler runs, and what becomes of its trace."""

import json

import pytest
from support import Tiny, loader, tiny_runner

from runnerkit.hooks import ProfilerHook


def profiled(kind='epoch', work_dir=None, model=None, limit=None, **options):
    runner = tiny_runner(kind, model=model, work_dir=work_dir, **(limit or {'max_epochs': 3}))
    runner.register_profiler_hook({'activities': ['cpu'], **options})
    assert (type(runner.hooks[0]), runner.hooks[0].priority) == (ProfilerHook, 50)
    runner.run([loader(8)], [('train', 1)])
    return runner


@pytest.mark.parametrize(
    'kind, options, at',
    [
        ('epoch', {'profile_iters': 2}, [(1, 4)]),
        ('epoch', {'profile_iters': 3, 'by_epoch': False}, [(1, 2)]),
        ('iter', {'profile_iters': 3, 'by_epoch': False}, [(1, 2)]),
        ('iter', {'profile_iters': 1}, [(1, 2)]),
        (
            'epoch',
            {'profile_iters': 6, 'by_epoch': False, 'schedule': {'wait': 1, 'warmup': 1, 'active': 1, 'repeat': 2}},
            [(1, 2), (2, 5)],
        ),
    ],
)
def test_the_trace_is_ready_when_the_profile_ends(kind, options, at):
    ends = []
    runner = tiny_runner(kind, **({'max_epochs': 3} if kind == 'epoch' else {'max_iters': 6}))
    hook = ProfilerHook(
        activities=['cpu'], on_trace_ready=lambda p: ends.append((runner.epoch, runner.iter)), **options
    )
    runner.register_hook(hook)
    runner.run([loader(8)], [('train', 1)])
    assert ends == at


@pytest.mark.parametrize('kind, options', [('epoch', {}), ('iter', {}), ('iter', {'by_epoch': False})])
def test_a_resumed_run_is_profiled_from_where_it_begins(tmp_path, kind, options):
    length = {'max_epochs': 4} if kind == 'epoch' else {'max_iters': 8}
    first = tiny_runner(kind, work_dir=tmp_path, **{name: n // 2 for name, n in length.items()})
    first.run([loader(8)], [('train', 1)])
    first.save_checkpoint(str(tmp_path), 'half.pth')
    ends = []
    runner = tiny_runner(kind, **length)
    ready = {'on_trace_ready': lambda profiler: ends.append(runner.completed_iters)}
    runner.register_hook(ProfilerHook(activities=['cpu'], profile_iters=2, **ready, **options))
    runner.resume(str(tmp_path / 'half.pth'))
    runner.run([loader(8)], [('train', 1)])
    assert ends == [6 if options else 8]


@pytest.mark.parametrize('by_epoch', [True, False])
def test_another_rank_than_the_first_trains_without_a_profile(by_epoch):
    runner = tiny_runner('epoch', max_epochs=2)
    runner._rank = 1
    runner.register_hook(ProfilerHook(by_epoch, activities=['cpu']))
    runner.run([loader(8)], [('train', 1)])
    assert (runner.completed_epochs, runner.hooks[0].profiler) == (2, None)


def test_a_trace_for_chrome(tmp_path):
    path = tmp_path / 'trace.json'
    profiled(json_trace_path=str(path))
    names = {event.get('name') for event in json.loads(path.read_text())['traceEvents']}
    assert 'aten::addmm' in names


def test_a_run_that_ends_before_anything_is_recorded_has_no_trace(tmp_path):
    path = tmp_path / 'trace.json'
    schedule = {'wait': 9, 'warmup': 1, 'active': 1}
    assert profiled(json_trace_path=str(path), schedule=schedule).outcome.kind == 'completed'
    assert not path.exists()


def test_a_table_in_the_output(capsys):
    profiled(on_trace_ready={'type': 'log_trace', 'sort_by': 'self_cpu_time_total', 'row_limit': 3})
    out = capsys.readouterr().out
    assert 'Self CPU time total' in out
    assert len([line for line in out.splitlines() if '%' in line and 'CPU %' not in line]) == 3


@pytest.mark.parametrize('given, folder', [({}, 'tf_tracing_logs'), ({'dir_name': 'mine'}, 'mine')])
def test_files_for_tensorboard(tmp_path, given, folder):
    config = {'type': 'tb_trace', **given}
    profiled(work_dir=tmp_path, on_trace_ready=config)
    assert [path.name.endswith('.pt.trace.json') for path in (tmp_path / folder).iterdir()] == [True]
    assert config == {'type': 'tb_trace', **given}


def test_a_run_that_fails_ends_its_profile(tmp_path):
    class Fails(Tiny):
        def train_step(self, data, optimizer):
            if len(self.losses) == 2:
                raise RuntimeError('boom')
            return super().train_step(data, optimizer)

    path = tmp_path / 'trace.json'
    with pytest.raises(RuntimeError, match='boom'):
        profiled(model=Fails(), profile_iters=2, json_trace_path=str(path))
    assert path.exists()


@pytest.mark.parametrize(
    'options, error, text',
    [
        ({'by_epoch': 'no'}, AssertionError, "by_epoch must be True or False, but got 'no'"),
        ({'profile_iters': 0}, ValueError, 'profile_iters must be a whole number of at least 1, but got 0'),
        ({'profile_iters': 4}, ValueError, 'profile_iters should not be greater than 3'),
        ({'activities': 'cpu'}, ValueError, 'activities should be a list'),
        ({'activities': ['gpu']}, ValueError, "activity should be 'cpu' or 'cuda', but got 'gpu'"),
        ({'schedule': 3}, TypeError, 'schedule must be a dict'),
        ({'schedule': {'rest': 1}}, TypeError, 'rest'),
        ({'on_trace_ready': 'log_trace'}, KeyError, r"on_trace_ready: log_trace is not .* dict\(type='log_trace'\)"),
        ({'on_trace_ready': {'type': 'log_tracer'}}, ValueError, "but got 'log_tracer'; did you mean 'log_trace'"),
    ],
)
def test_wrong_options(options, error, text):
    with pytest.raises(error, match=text):
        profiled(**options)
