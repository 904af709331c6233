"""`make bench` in miniature: what it measures must be the same training everywhere; no time is looked at."""

import importlib
import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from support import ROOT
from torch.testing import assert_close

SIZES = {'epochs': 2, 'length': 100, 'warmup': 25}  # with clock readings every 50 iterations
OWN = [('plain', 'epoch', False), ('plain', 'iter', False)]
OWN += [('runnerkit', kind, default_like) for kind in ('epoch', 'iter') for default_like in (False, True)]
OWN += [('expert', kind, True) for kind in ('epoch', 'iter')]


def script(name):
    """A module of benchmarks/, by its name there."""
    return importlib.import_module(name)


@pytest.fixture(autouse=True, scope='module')
def benchmarks():
    """Its scripts find their own folders, as they do when they are started."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / 'benchmarks'))
        patch.setattr(script('speed.worker'), 'STRETCH', 50)
        yield
    torch.set_num_threads(threads)


def run(engine, kind, default_like=False, *, folder, reference, **options):
    worker = script('speed.worker')
    task = {'folder': str(folder), 'reference': reference, 'default_like': default_like, **SIZES} | options
    return worker.main(worker.Task(engine, kind, **task))


@pytest.fixture(scope='module')
def references(tmp_path_factory, benchmarks):
    """The files of weights that the minimal and the default-like job must end with, by ``default_like``."""
    folder = tmp_path_factory.mktemp('references')
    paths = {default_like: str(folder / f'{default_like}.pt') for default_like in (False, True)}
    run('plain', 'epoch', folder=folder, reference=paths[False], writes_reference=True)
    run('plain', 'reference', True, folder=folder, reference=paths[True], writes_reference=True)
    return paths


@pytest.fixture
def train(tmp_path, references):
    """Trains the tiny job in this process."""

    def train(engine, kind, default_like=False, **options):
        folder = tmp_path / f'{engine} {kind} {default_like}'
        folder.mkdir(exist_ok=True)
        return run(engine, kind, default_like, **{'folder': folder, 'reference': references[default_like], **options})

    return train


@pytest.mark.parametrize('engine, kind, default_like', [*OWN, ('expert', 'epoch', False), ('expert', 'iter', False)])
def test_each_loop_ends_with_the_same_weights(train, engine, kind, default_like):
    result = train(engine, kind, default_like)
    assert result['difference'] == 0
    assert {'cpu_us', 'wall_us', 'epoch_end_ms', 'import_cpu_s', 'startup_cpu_s', 'memory_mib'} <= result.keys()


def test_another_training_is_told_by_its_weights(train):
    assert train('runnerkit', 'epoch', reference=None)['difference'] == 0
    assert train('runnerkit', 'epoch', epochs=3)['difference'] > 1e-6


def test_the_default_like_run_has_written_a_log_and_checkpoints(train, tmp_path):
    train('runnerkit', 'epoch', True)
    folder = tmp_path / 'runnerkit epoch True'
    assert (folder / 'epoch_2.pth').exists()
    assert (folder / 'run.log').read_text().count('loss:') == 200 / 50


@pytest.mark.parametrize('kind', ['epoch', 'iter'])
def test_the_expert_writes_the_lines_and_checkpoints_of_runnerkit(train, tmp_path, kind):
    ours, theirs = (written(train, tmp_path, engine, kind) for engine in ('runnerkit', 'expert'))
    assert theirs.lines == ours.lines
    assert len(ours.lines) == 200 / 50 + 2
    assert theirs.names == ours.names
    for mine, other in zip(ours.values, theirs.values, strict=True):
        assert mine.keys() == other.keys()
        assert mine.pop('loss') == pytest.approx(other.pop('loss'), rel=1e-12)
        for time in ('time', 'data_time', 'timestamp'):
            assert mine.pop(time) > 0 < other.pop(time)
        assert mine == other
    for mine, other in zip(ours.checkpoints, theirs.checkpoints, strict=True):
        assert (other['epoch'], other['iter']) == (mine['meta']['iter'] / 100, mine['meta']['iter'])
        del mine['optimizer']['param_groups'][0]['initial_lr']  # which a schedule needs that is added later
        for key in ('state_dict', 'optimizer'):
            assert_close(other[key], mine[key], rtol=0, atol=0)
        assert_close(other['rng']['torch'], mine['runnerkit']['ranks'][0]['rng']['torch'])


def written(train, tmp_path, engine, kind):
    """What a default-like training has left: lines of text, without what depends on time; those of JSON; files."""
    train(engine, kind, True)
    folder = tmp_path / f'{engine} {kind} True'
    lines = re.findall(r'(?:Epoch|Iter) \[.*|Saving checkpoint .*', (folder / 'run.log').read_text())
    (log,) = folder.glob('*.json')
    paths = sorted(folder.glob('*.pth'))
    return SimpleNamespace(
        lines=[re.sub(r'(eta|time): [\d:.]+', r'\1: …', line) for line in lines],
        values=[json.loads(line) for line in log.read_text().splitlines()],
        names=[(path.name, path.resolve().name) for path in paths],
        checkpoints=[torch.load(path, weights_only=False) for path in paths],
    )


def test_calls_of_python_functions_are_counted_without_the_clocks_own(train, monkeypatch):
    monkeypatch.delitem(sys.modules, 'torch.fx.experimental.symbolic_shapes', raising=False)  # as in a new process
    by_hand, minimal, full = (
        train(*each, calls=True)['calls'] for each in (('plain', 'epoch'), ('runnerkit', 'epoch'), OWN[3])
    )
    assert by_hand == train('plain', 'epoch', calls=True)['calls']
    assert 50 < minimal < full
    assert full < by_hand  # torch's own around zero_grad and step are more than all of ours


def test_what_ends_with_other_weights_or_is_not_installed_is_not_measured(monkeypatch, tmp_path):
    bench = script('bench')
    lab = bench.Bench(tmp_path, tmp_path, {'tiny': SIZES})
    entry = bench.Entry('mmcv', 'epoch', False)
    with pytest.raises(bench.Failed, match='make bench has not tried'):
        lab.train(entry)
    (tmp_path / 'mmcv').mkdir()
    (tmp_path / 'mmcv' / 'install.log').write_text('Collecting mmcv\nERROR: No matching distribution\nmore\n')
    train = lab.train
    monkeypatch.setattr(lab, 'train', lambda each, **options: {} if each.engine == 'plain' else train(each, **options))
    counted, failed = bench.prepare(lab, [entry])
    assert counted == {}
    assert {each: str(error) for each, error in failed.items()} == {
        entry: 'not installed: ERROR: No matching distribution'
    }
    with pytest.raises(bench.Failed, match='differ by 1.0e-03'):
        bench.checked({'difference': 1e-3})
    with pytest.raises(bench.Failed, match='differ by nan'):
        bench.checked({'difference': float('nan')})


TALKER = """
import json, sys
for _ in range(int(sys.argv[1])):
    print('turn', flush=True)
    if not sys.stdin.readline():
        sys.exit('nobody there')
if sys.argv[2] == 'dies':
    raise ValueError('it hurts')
open(sys.argv[2], 'a').write('done')
print(json.dumps({'difference': 0, 'told': sys.argv[1]}))
"""


def talker(bench, *arguments, patience=60):
    return bench.Process([sys.executable, '-c', TALKER, *map(str, arguments)], {}, patience)


def test_a_process_waits_for_its_turns_and_ends_with_its_result(tmp_path):
    bench = script('bench')
    with talker(bench, 2, tmp_path / 'end') as process:
        assert process.read() is None
        assert not (tmp_path / 'end').exists()
        process.go_on()
        assert process.read() is None
        process.go_on()
        assert process.read() == {'difference': 0, 'told': '2'}
    for said in ('noise\\nturn', ''):
        command = [sys.executable, '-c', f'print({said!r})' if said else '']
        with bench.Process(command, {}) as process, pytest.raises(bench.Failed, match='instead of a result'):
            process.read()
    with talker(bench, 0, 'dies') as process, pytest.raises(bench.Failed, match=r'^ValueError: it hurts$'):
        process.read()
    lingers = "import time; print('{}', flush=True); time.sleep(600)"
    with bench.Process([sys.executable, '-c', lingers], {}, patience=1) as process:
        with pytest.raises(bench.Failed, match='prints nothing for 0 minutes'):
            process.read()


@pytest.mark.thorough  # the other tests of this file
def test_what_engines_print_goes_nowhere_near_the_result():
    prints = 'import os; from speed.worker import own_output; output = own_output()\n'
    prints += "print('noise', flush=True); os.system('echo more noise'); print('{}', file=output)"
    bench = script('bench')
    environment = {'PYTHONPATH': str(ROOT / 'benchmarks'), 'PATH': bench.os.environ['PATH']}
    with bench.Process([sys.executable, '-c', prints], environment) as process:
        assert process.read() == {}


#: Seconds; ratios and differences are within a round.
FIRST_STEPS = {'plain, cpu': [3.0, 2.0], 'plain, wall': [3.0, 2.0]}
FIRST_STEPS |= {'runnerkit, cpu': [3.05, 2.05], 'runnerkit, wall': [3.5, 2.5]}


def test_first_steps_alternate_and_the_first_round_does_not_count(monkeypatch, tmp_path):
    bench, started = script('bench'), []

    def train(lab, entry, **options):
        started.append(entry.engine)
        return {'startup_cpu_s': len(started), 'startup_wall_s': 10 * len(started)}

    monkeypatch.setattr(bench.Bench, 'train', train)
    spent = bench.first_steps(bench.Bench(tmp_path, tmp_path, {}), 2)
    assert started == ['runnerkit', 'plain', 'plain', 'runnerkit', 'runnerkit', 'plain']
    assert spent == {
        'plain, cpu': [3, 6],
        'plain, wall': [30, 60],
        'runnerkit, cpu': [4, 5],
        'runnerkit, wall': [40, 50],
    }


@pytest.mark.thorough  # test_each_round_has_every_entry_once_and_the_plain_loops_twice
def test_trainings_take_turns_one_at_a_time(monkeypatch, tmp_path):
    """Real ones: who has the turn is told by what their processes say, and what they take by their own clocks."""
    bench = script('bench')
    sizes, reference = {'epochs': 2, 'length': 200, 'warmup': 50}, str(tmp_path / 'tiny_True.pt')
    lab = bench.Bench(tmp_path, tmp_path, {'tiny': sizes})
    plain, ours = bench.Entry('plain', 'epoch', False), bench.Entry('runnerkit', 'epoch', True)
    missing = bench.Entry('mmcv', 'epoch', False)
    lab.train(plain, writes_reference=True)
    run(
        'plain',
        'reference',
        True,
        folder=tmp_path,
        reference=reference,
        writes_reference=True,
        **sizes | {'warmup': 75},
    )
    said = []
    read = bench.Process.read

    def listen(process):
        said.append(id(process))
        return read(process)

    monkeypatch.setattr(bench.Process, 'read', listen)
    ended = dict(lab.take_turns([plain, ours, missing], bench.random.Random(0)))
    assert str(ended.pop(missing)) == 'not installed: make bench has not tried to'
    assert {entry: result['difference'] for entry, result in ended.items()} == {plain: 0, ours: 0}
    first, second = set(said)
    assert said.count(first) == said.count(second) == 4  # at the ticks 50, 150 and 250, and at the end
    assert {tuple(sorted(said[i : i + 2])) for i in range(0, 8, 2)} == {tuple(sorted([first, second]))}


def test_what_a_pause_takes_is_not_counted(monkeypatch):
    job = script('engines.job')
    now = [0.0]
    monkeypatch.setattr(job.time, 'process_time', lambda: now[0])
    monkeypatch.setattr(job.time, 'perf_counter', lambda: 2 * now[0])

    def pause():
        now[0] += 100

    clock = job.Clock([3, 5], pause=pause)
    for _ in range(6):
        now[0] += 1
        clock.tick()
    assert clock.times == [(2, 2.0, 4.0), (3, 3.0, 6.0), (5, 5.0, 10.0)]
    assert clock.now() == (6.0, 12.0)


def test_each_round_has_every_entry_once_and_the_plain_loops_twice(monkeypatch, tmp_path):
    bench = script('bench')
    lab = bench.Bench(tmp_path, tmp_path, {'tiny': {}})
    entries = [bench.Entry(*each) for each in OWN]
    broken = entries[2]

    def take_turns(chosen, order):
        return [(entry, bench.Failed('it broke') if entry == broken else {'of': entry}) for entry in chosen]

    monkeypatch.setattr(lab, 'take_turns', take_turns)
    failed = {}
    *_, taken = bench.measure(lab, entries, 3, failed)
    assert failed == {broken: 'in round 1: it broke'}
    assert taken == {
        entry: [[{'of': entry}] * (2 if entry.engine == 'plain' else 1)] * 3 for entry in entries if entry != broken
    }


def test_a_run_that_is_cut_off_leaves_the_report_of_all_that_it_has_measured(train, monkeypatch, tmp_path):
    bench = script('bench')
    result, turns = train('plain', 'epoch'), iter(range(3))

    def take_turns(chosen, order):
        if next(turns) == 2:
            raise KeyboardInterrupt
        return [(entry, result) for entry in chosen]

    lab = bench.Bench(tmp_path, tmp_path, {'tiny': {}, 'digits': {}})
    monkeypatch.setattr(lab, 'take_turns', take_turns)
    monkeypatch.setattr(bench, 'prepare', lambda lab, entries: ({}, {}))
    monkeypatch.setattr(bench, 'SCRATCH', tmp_path / 'scratch')
    monkeypatch.setattr(sys, 'argv', ['bench.py', '--engines', 'expert', 'runnerkit', '--out', str(tmp_path)])
    sizes = {'tiny': {'length': 1000}, 'digits': {'epochs': 6}}
    with pytest.raises(KeyboardInterrupt):
        bench.compare(lab, bench.arguments(), sizes)
    results = json.loads((tmp_path / 'scratch' / 'results.json').read_text())
    assert [len(entry['rounds']) for entry in results['entries']] == [1] * 11
    text = (tmp_path / 'RESULTS.md').read_text()
    assert '1 of 5 rounds' in text
    assert '| tiny job, default-like, iter: at most 1.00 of the expert loop | 1.000 | yes |' in text
    assert '- closer look `clipping`: not measured yet' in text
    assert not list(tmp_path.rglob('*.tmp'))


def test_a_report_of_nothing_yet_says_so():
    entry = {'engine': 'plain', 'kind': 'epoch', 'default_like': False, 'failed': None, 'counted': None, 'rounds': []}
    results = {
        'machine': script('bench').machine.describe(ROOT),
        'quick': False,
        'wanted_rounds': 3,
        'minutes': 1.0,
        'sizes': {'digits': {'epochs': 1}, 'tiny': {'length': 1000}},
        'entries': [{**entry, 'job': 'tiny'}, {**entry, 'job': 'digits'}],
        'rows': {},
        'missing': {'loops': 'not measured yet'},
    }
    text = script('speed.report').report(results)
    assert text.count('Not measured yet.') == 4
    assert '0 of 3 rounds' in text
    assert '- plain loop, epoch, minimal, digits job: not measured yet' in text


@pytest.mark.thorough  # test_calls_of_python_functions_are_counted_without_the_clocks_own
def test_calls_can_be_counted_without_measuring_time(train, monkeypatch, capsys):
    bench = script('bench')
    monkeypatch.setattr(
        bench.Bench,
        'train',
        lambda lab, entry, **options: train(entry.engine, entry.kind, entry.default_like, **options),
    )
    monkeypatch.setattr(sys, 'argv', ['bench.py', '--calls'])
    bench.main()
    said = re.findall(r'^(runnerkit, .*): ([\d.]+)$', capsys.readouterr().out, re.MULTILINE)
    assert [way for way, _ in said] == [
        f'runnerkit, {kind}, {title}' for kind in ('epoch', 'iter') for title in ('minimal', 'default-like')
    ]
    assert all(float(calls) > 50 for _, calls in said)


@pytest.mark.thorough  # test_each_round_has_every_entry_once_and_the_plain_loops_twice
def test_the_report_has_a_table_for_everything_and_says_what_held(train, tmp_path):
    bench, rows = script('bench'), script('speed.rows')
    options = rows.Options(str(tmp_path), rounds=1, warmup=2, measured=10, long=4000)
    entries = []
    for engine, kind, default_like in OWN:
        turn = [train(engine, kind, default_like)] * (2 if engine == 'plain' else 1)
        for job in ('tiny', 'digits'):
            what = {'engine': engine, 'kind': kind, 'default_like': default_like, 'job': job}
            entries.append({**what, 'failed': None, 'counted': {'calls': 160.0}, 'rounds': [turn]})
    missing = {'engine': 'mmcv', 'kind': 'epoch', 'default_like': True, 'job': 'tiny'}
    entries.append({**missing, 'failed': 'not installed: ERROR: none', 'counted': None, 'rounds': []})
    results = {
        'machine': bench.machine.describe(ROOT),
        'quick': True,
        'wanted_rounds': 1,
        'minutes': 1.0,
        'sizes': {'digits': {'epochs': 1}, 'tiny': {'length': 1000}},
        'entries': entries,
        'rows': {name: row(options) for name, row in rows.ROWS.items()} | {'first_step': FIRST_STEPS},
        'missing': {},
    }
    text = bench.report(results)
    assert re.findall('^#+ (.*)', text, re.MULTILINE) == [
        'What the engine costs',
        'What was promised, and what this run shows',
        'The tiny job, minimal',
        'The tiny job, default-like',
        'Start-up and memory',
        'The small real job',
        'Closer: runnerkit against the plain loop',
        'Both loops',
        'The end of an epoch',
        'From 1 to 200 modules',
        'A log event',
        'AdamW with the fused line',
        'Clipping',
        'Seeded loading',
        '4,000 iterations',
        'The first step',
        'Not covered',
    ]
    assert '- MMCV, epoch, default-like, tiny job: not installed: ERROR: none' in text
    assert text.count('| yes |') + text.count('| **no** |') >= 20
    for promise in (
        'default-like, epoch: at most 1.00 of the expert loop',
        'minimal, iter: at most 1.00 of the plain loop',
    ):
        assert f'| tiny job, {promise} |' in text
    assert set(bench.ROWS) == {*rows.ROWS, 'first_step'}
    assert '| start-up, minimal, epoch, cpu, over the plain script: at most 0.1 s | 0.050 s | yes |' in text
    assert '| start-up, minimal, epoch, wall, over the plain script: at most 0.1 s | 0.500 s | **no** |' in text
    assert str(ROOT) not in text


@pytest.mark.parametrize('took, quiet', [((300, 310), True), ((300, 400), False)])
def test_the_report_says_if_the_machine_was_not_quiet(took, quiet):
    entry = {'engine': 'plain', 'kind': 'epoch', 'job': 'tiny', 'rounds': [[{'cpu_us': each} for each in took]]}
    digits = {**entry, 'job': 'digits', 'rounds': [[{'training_cpu_s': 1.0}]]}
    said = script('speed.report').disturbed([entry, digits])
    assert (said == '') is quiet
    assert quiet or 'took 300 to 400 µs' in said


@pytest.mark.thorough  # test_the_resnet_is_the_usual_one
def test_the_gpu_part_runs_all_its_code_on_the_cpu_too(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['gpu.py', '--device', 'cpu', '--smoke'])
    torch.set_num_threads(1)
    script('gpu').main()
    said = capsys.readouterr().out
    assert '| resume after SIGKILL | has none | the same bits |' in said
    assert said.count('\n| ResNet: ') == 7
    assert said.count('\n| small kernels: ') == 10
    assert 'runnerkit / plain' in said
    assert 'fails' not in said


def test_the_gpu_part_begins_nothing_when_its_time_is_up_and_survives_a_row_that_fails(monkeypatch, capsys):
    gpu = script('gpu')

    def fails():
        raise RuntimeError('no kernel\nof that')

    rows = [('good', lambda: {'plain loop': [2.0], 'runnerkit': [1.0]}), ('bad', fails)]
    monkeypatch.setattr(gpu, 'LOOPS', {'plain loop': gpu.by_hand, 'runnerkit': gpu.by_runner})
    monkeypatch.setattr(gpu, 'resumed', lambda device: {'plain loop': 'has none', 'runnerkit': 'the same bits'})
    monkeypatch.setattr(gpu, 'measurements', lambda *_: rows)
    for minutes, expected in (
        ('1', ['| good | 2.00 | 1.00 | 0.500 |', '| bad | fails: RuntimeError: no kernel |  |  |']),
        ('0', ['| good | no time left |  |  |', '| bad | no time left |  |  |']),
    ):
        monkeypatch.setattr(sys, 'argv', ['gpu.py', '--device', 'cpu', '--smoke', '--minutes', minutes])
        gpu.main()
        assert capsys.readouterr().out.splitlines()[-2:] == expected


def test_without_a_gpu_the_gpu_part_says_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['gpu.py'])
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    script('gpu').main()
    assert capsys.readouterr().out == 'no GPU: nothing is measured\n'


def test_the_resnet_is_the_usual_one():
    model = script('gpu').resnet()
    classes = 2048 * 10 + 10
    assert sum(parameter.numel() for parameter in model.parameters()) - classes == 25_557_032 - (2048 * 1000 + 1000)


def test_the_time_of_a_command_goes_to_the_phase_that_takes_it(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / 'benchmarks' / 'whole'))
    phases, now = script('phases'), [1.0]
    monkeypatch.setattr(phases.time, 'process_time', lambda: now[0])

    def take(seconds):
        now[0] += seconds

    def run_out(seconds):
        take(seconds)
        raise StopIteration

    meter = phases.Meter()
    take(2)
    meter.within('imports', take)(4)
    for _ in range(2):
        meter.fetching(take)(8)
        take(16)
        meter.backward(take)(32)
        take(64)
    meter.within('saves', take)(128)
    take(256)
    with torch.no_grad():  # of an evaluation that is not one of the known functions
        meter.fetching(take)(512)
    with pytest.raises(StopIteration):
        meter.within('evaluation', meter.fetching(run_out))(1024)
    take(2048)
    meter.within('imports', take)(4096)  # what draws
    take(8192)
    meter.write(tmp_path / 'phases.json')
    spent = {'imports': 4101, 'set-up': 2, 'data': 16, 'step': 96, 'update': 896, 'evaluation': 1024, 'saves': 128}
    assert json.loads((tmp_path / 'phases.json').read_text()) == {**spent, 'end': 10240}


PHASES = ('imports', 'set-up', 'data', 'step', 'update', 'evaluation', 'saves', 'end')


def test_a_command_that_fails_or_is_not_installed_is_left_out_and_named(tmp_path, capsys):
    whole = script('whole')
    (tmp_path / 'good.py').write_text('def main():\n    sum(range(10**6))\n')
    (tmp_path / 'bad.py').write_text('def main():\n    raise ValueError(1)\n')
    ways = {name: ('', [str(tmp_path / f'{name}.py')]) for name in ('good', 'bad')} | {'gone': ('peer', [])}
    seen, failed = whole.measured('any', ways, 2, tmp_path)
    rounds = seen.pop('good')
    assert len(rounds) == 2
    assert all(0 < each['imports'] <= each['cpu'] == pytest.approx(sum(each[key] for key in PHASES)) for each in rounds)
    assert (seen, failed) == ({}, {'bad': 'ValueError: 1', 'gone': 'not installed'})


def test_the_table_of_a_job_takes_the_place_of_its_last_one(tmp_path):
    whole, path = script('whole'), tmp_path / 'RESULTS.md'
    path.write_text('# Costs\n\n## The tiny job\n\nfast\n\n## Not covered\n\nmuch\n')
    for job, cpu in (('lenet', 1.0), ('deepfm', 2.0), ('lenet', 3.0)):
        way = {'cpu': cpu, 'wall': 1.0, 'step': 0.25}
        seen, failed = {'by hand': [way], 'by config': [{**way, 'cpu': 6.0}]}, {'peer': 'ill'}
        whole.put(path, job, whole.table(job, seen, failed, whole.machine.describe(ROOT)))
    text = path.read_text()
    assert re.findall('^#+ (.*)', text, re.MULTILINE) == [
        *('Costs', 'The tiny job', 'Whole commands', 'Command: lenet', 'Command: deepfm', 'Not covered')
    ]
    assert '| **by config** | 2.000 (2.000 to 2.000) | 6.00 (6.00 to 6.00) | 1.00 (1.00 to 1.00) | 0.25 |' in text
    assert text.count('- peer is left out: ill') == 2
    assert text.endswith('ill\n\n## Not covered\n\nmuch\n')
