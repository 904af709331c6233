"""A run again, up to any moment of it."""

import hashlib
import json
import os
import random
import shutil
from dataclasses import replace

import planted
import pytest
import torch
from moments import BY_ITER, KINDS, Seen, after, quietly, same, train_kind, weights_of, write_project

from runnerkit import replay, train
from runnerkit.data import DATASETS
from runnerkit.flow.moment.diff import diff
from runnerkit.flow.moment.exactly import exactly
from runnerkit.flow.moment.replay import kept_inside, own_names
from runnerkit.flow.moment.verify import verify
from runnerkit.hooks import Hook
from runnerkit.nn import MODELS


def check_moment(work_dir, seen, number):
    """The moment before iteration ``number``, and its step, are those that were seen."""
    with replay(work_dir, number) as moment:
        then = seen[number]
        assert moment.iter == number
        assert same(moment.batch, then['batch'])
        assert same(weights_of(moment.model), then['weights'])
        assert [sample.index for sample in moment.samples] == then['batch']['i'].tolist()
        assert [sample.name for sample in moment.samples] == [f'{i}.png' for i in then['batch']['i'].tolist()]
        torch.rand(3)  # is not missing in the step
        moment.step()
        now = after(moment.run)
        assert same(now['loss'], then['loss'])
        assert same(now['gradients'], then['gradients'])
        assert moment.has_ended or same(weights_of(moment.model), seen[number + 1]['weights'])
        assert moment.differences == []


@pytest.mark.parametrize('kind', ['epochs', 'workers', 'accumulation', 'optimizers', 'evaluation', 'resumed'])
def test_a_moment_is_what_a_hook_has_seen_of_it(trained, kind):
    work_dir, seen = trained(kind)
    check_moment(work_dir, seen, random.Random(kind).randrange(len(seen)))


@pytest.mark.thorough  # test_a_moment_is_what_a_hook_has_seen_of_it: one moment of each kind
@pytest.mark.parametrize('kind', [*KINDS][:-2])
def test_every_moment_is_what_a_hook_has_seen_of_it(trained, kind):
    work_dir, seen = trained(kind)
    for number in seen:
        check_moment(work_dir, seen, number)


def of_ranks(rank, folder, kind, numbers):
    """Train on this rank with the others, and look at some moments again."""
    work_dir, seen = train_kind(kind, folder)
    for number in numbers:
        check_moment(work_dir, seen, number)
    return {number: seen[number]['batch']['i'].tolist() for number in numbers}


@pytest.mark.thorough  # tests/cli/test_verify.py::test_as_many_ranks_as_the_run_had replays on two ranks
@pytest.mark.parametrize('kind', ['ranks', 'sharded'])
def test_two_ranks_are_where_each_of_them_was(on_ranks, tmp_path, kind):
    first, second = on_ranks(__file__, 'of_ranks', tmp_path, kind, [4, 8])
    assert all(not set(first[number]) & set(second[number]) for number in first)
    with pytest.raises(ValueError, match='had 2 ranks.*torchrun --nproc-per-node 2'):
        with replay(tmp_path / 'run', 4):
            pass


# --- what it leaves alone --------------------------------------------------------------------------------------------


def contents(folder):
    files = sorted(path for path in folder.rglob('*'))
    return {
        str(path): path.is_file() and (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns)
        for path in files
    }


def test_nothing_is_written_to_the_work_dir_nor_left_behind(trained, monkeypatch, tmp_path):
    work_dir, _ = trained('evaluation')
    before = contents(work_dir)
    monkeypatch.setenv('TMPDIR', str(tmp_path))
    monkeypatch.setattr('tempfile.tempdir', None)
    with replay(work_dir, 19) as moment:
        moment.step()
        assert tmp_path in moment.folder.parents
    assert contents(work_dir) == before
    assert [*tmp_path.iterdir()] == []


SENDS = """
from pathlib import Path

from runnerkit.hooks import HOOKS, Hook
from runnerkit.hooks.logger.trackers import TrackerHook


@HOOKS.register_module()
class Tells(TrackerHook):
    def __init__(self, file, **options):
        super().__init__(**options)
        self.file = Path(file)
        self._note('made')

    def _note(self, text):
        with self.file.open('a') as file:
            file.write(text + ' ')

    def _open(self, runner):
        self._note('open')

    def _send(self, values, runner):
        self._note('sent')

    def _close(self, runner):
        self._note('close')
"""


def test_hooks_that_send_something_outside_are_left_out_and_change_no_log_line(tmp_path):
    """The tracker averages every 3 iterations, and the text log then logs as well: so it does in the replay."""
    config = write_project(tmp_path)
    (tmp_path / 'sends.py').write_text(SENDS)
    told = tmp_path / 'told.txt'
    options = {
        'log_config.interval': 2,
        'log_config.hooks': [dict(type=f'{tmp_path}/sends.py:Tells', file=str(told), interval=3), 'TextLoggerHook'],
        'checkpoint_config.out_dir': str(tmp_path / 'out'),
    }
    quietly(train, config, tmp_path / 'run', cfg_options=options)
    before, out = told.read_text(), contents(tmp_path / 'out')
    assert 'open sent' in before
    assert out
    with replay(tmp_path / 'run', 19) as moment:
        assert moment.since == 18  # the checkpoint in out_dir
        moment.step()
        assert moment.differences == []
    assert told.read_text() == before
    assert contents(tmp_path / 'out') == out


def test_a_hook_that_only_knows_itself_whether_it_sends_is_left_out(trained):
    class Asks(Hook):
        calls = 0

        def __init__(self, sends):
            self.sends_outside = sends

        def before_run(self, runner):
            Asks.calls += 1

    with replay(trained('epochs')[0], 1, hooks=[Asks(True), Asks(False)]):
        assert Asks.calls == 1


@pytest.mark.parametrize(
    ('config', 'kept'),
    [
        (dict(type='WandbLoggerHook', interval=7, init_kwargs={}), {'interval': 7}),
        (dict(type='ProfilerHook'), None),
        (dict(type='TextLoggerHook', out_dir='s3://bucket', interval=3), {'type': 'TextLoggerHook', 'interval': 3}),
    ],
)
def test_what_a_replay_keeps_of_a_config_of_a_hook(config, kept):
    found = kept_inside(config)
    assert found is None if kept is None else kept.items() <= found.items() and 'out_dir' not in found


# --- several starts --------------------------------------------------------------------------------------------------


def in_a_fork(function):
    """Call ``function`` in a process of its own, which imports other code under the same names."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_each_iteration_is_trained_with_the_config_and_code_of_its_start(tmp_path):
    """Two starts with another learning rate and another loss under the same names; the replay goes through both."""
    config, run = write_project(tmp_path), tmp_path / 'run'
    options = {**BY_ITER, 'checkpoint_config': dict(interval=100)}
    first = Seen(ends_at=6)
    quietly(train, config, run, cfg_options=options, hooks=[first])

    def resume():
        registered = [dict(each.module_dict) for each in (MODELS, DATASETS)]
        for registry, names in zip((MODELS, DATASETS), registered, strict=True):
            registry.module_dict.clear()
            registry.module_dict.update(
                {name: made for name, made in names.items() if name not in ('Net', 'Noise', 'Two')}
            )
        other, second = write_project(tmp_path / 'other'), Seen()
        net = tmp_path / 'other' / 'net.py'
        net.write_text(net.read_text().replace("data['y']) ** 2", "data['y']).abs()"))
        quietly(train, other, run, cfg_options={**options, 'optimizer.lr': 0.2}, hooks=[second], resume=True)
        torch.save(second.at, tmp_path / 'second.pth')

    in_a_fork(resume)
    assert not (run / 'iter_6.pth').exists()  # the second start has removed it, so the replay makes it again
    assert sorted(path.name for path in (run / 'starts').iterdir()) == ['1']
    seen = {**first.at, **torch.load(tmp_path / 'second.pth')}
    for number in (3, 9, 4, 12):
        with replay(run, number) as moment:
            assert moment.since == 0
            assert same(weights_of(moment.model), seen[number]['weights'])
            moment.step()
            assert same(after(moment.run)['loss'], seen[number]['loss'])
            assert moment.differences == []
    assert MODELS.get('Net') is not None


def test_a_change_that_a_resume_has_recorded_is_no_doubt(config, tmp_path):
    planted.train(config, tmp_path / 'run', stop_after=1)
    planted.train(config, tmp_path / 'run', {'optimizer.lr': 0.2}, resume=True)
    for number in (3, 7):
        with replay(tmp_path / 'run', number) as moment:
            assert moment.doubts == []
            assert moment.run.optimizer.param_groups[0]['lr'] == (0.1 if number == 3 else 0.2)
    content = json.loads((tmp_path / 'run' / 'run.json').read_text())
    content['starts'][1]['exactness'] = []  # as of a resume that saw no change
    (tmp_path / 'run' / 'run.json').write_text(json.dumps(content))
    with replay(tmp_path / 'run', 7) as moment:
        assert [text.partition(' the')[0] for text in moment.doubts] == ['Changed since']


BAD = "        x[1] = float('nan') if i == 13 and torch.rand(1) > 0.6 else x[1]\n        return dict(x=x, y"


def test_a_moment_after_a_roll_back_is_that_of_the_pass_that_counts(tmp_path):
    """Iteration 13 is bad: the run finds it after that, goes back to 12 and leaves it out. Then again with 20."""
    config, run, seen = write_project(tmp_path), tmp_path / 'run', Seen()
    net = tmp_path / 'net.py'
    net.write_text(net.read_text().replace('        return dict(x=x, y', BAD))
    options = {
        'custom_hooks': [dict(type='NonFiniteHook', action='rollback', leave_out=True)],
        'checkpoint_config': dict(interval=4, by_epoch=False, max_keep_ckpts=-1),
        'seed': 5,
    }
    with own_names():
        quietly(train, config, run, cfg_options=options, hooks=[seen])
    assert json.loads((run / 'run.json').read_text())['starts'][0]['rolled_back'] == [12, 20]
    for number in (13, 14, 21):
        with replay(run, number) as moment:
            assert same(weights_of(moment.model), seen.at[number]['weights'])
            moment.step()
            assert moment.iter == number + 1
            assert same(weights_of(moment.model), seen.at[number + 1]['weights'])
            assert moment.differences == []
            assert [text.partition(';')[0] for text in moment.discarded] == [
                'start 1 went back to iteration 12',
                'start 1 went back to iteration 20',
            ]


def test_runs_with_other_code_under_the_same_names_are_replayed_in_one_process(trained, tmp_path):
    config = write_project(tmp_path)
    net = tmp_path / 'net.py'
    net.write_text(net.read_text() + '\n# other code\n')

    def train_it():
        with own_names():
            quietly(train, config, tmp_path / 'run', cfg_options={'runner.max_epochs': 1})

    in_a_fork(train_it)
    for run in (trained('epochs')[0], tmp_path / 'run', trained('epochs')[0]):
        with replay(run, 1) as moment:
            assert moment.iter == 1


def test_a_resume_with_the_same_config_keeps_no_second_copy(trained):
    assert not (trained('resumed')[0] / 'starts').exists() or not [*(trained('resumed')[0] / 'starts').iterdir()]


def test_discarded_iterations_are_named(trained):
    with replay(trained('resumed')[0], 11) as moment:
        (text,) = moment.discarded
        assert text.startswith('start 2 may have trained iterations from 10 to 13')


# --- the moment ------------------------------------------------------------------------------------------------------


# The others are thorough: test_a_run_that_resumes_a_saved_moment_ends_as_the_run_did[epochs].
@pytest.mark.parametrize(
    'kind',
    ['epochs', *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ('iterations', 'accumulation'))],
)
def test_a_run_that_resumes_a_saved_moment_ends_as_the_run_did(trained, tmp_path, kind):
    work_dir, seen = trained(kind)
    number = len(seen) - 3
    with replay(work_dir, number) as moment:
        path = moment.save(tmp_path / '{m}.pth')
    assert path == str(tmp_path / '{m}.pth')
    assert torch.load(path, weights_only=True)['meta']['iter'] == number
    again = Seen()
    quietly(train, work_dir / 'cfg.py', tmp_path / 'again', resume=path, hooks=[again])
    assert all(same(again.at[each], seen[each]) for each in range(number, len(seen)))


def test_steps_lead_to_the_end_and_no_further(trained, tmp_path):
    work_dir, seen = trained('epochs')
    with replay(work_dir, 22) as moment:
        moment.step()
        assert (moment.iter, moment.epoch, moment.has_ended) == (23, 3, False)
        outputs = moment.step()
        assert same(outputs['loss'].detach(), seen[23]['loss'][''])
        assert moment.has_ended
        assert moment.iter == 24
        with pytest.raises(EOFError, match='ended after 24'):
            moment.step()
        path = moment.save(tmp_path / 'end.pth')
    assert same(torch.load(path)['state_dict'], torch.load(work_dir / 'epoch_4.pth')['state_dict'])


def test_the_first_line_of_the_log_that_differs_is_named(trained, tmp_path):
    run = shutil.copytree(trained('epochs')[0], tmp_path / 'run', symlinks=True)
    (log,) = run.glob('*.log.json')
    meta, *lines = log.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), 'loss': 7.0})
    log.write_text('\n'.join([meta, *lines[:4]]) + '\n{"mode": "tr')  # and truncated
    with replay(run, 9) as moment:
        assert [(each.step, each.name, each.then) for each in moment.differences] == [(4, 'loss', 7.0)]


# --- refusals --------------------------------------------------------------------------------------------------------


def refused(work_dir, number, error, match, **options):
    with pytest.raises(error, match=match):
        with replay(work_dir, number, **options):
            pass


STREAM = """
from runnerkit.data import DATASETS, SOURCES, Event, Source, Stream, build_dataloader
from runnerkit.flow.stages.network import Network


def note(file, text):
    with open(file, 'a') as opened:
        opened.write(text + ' ')


@SOURCES.register_module()
class Counted(Source):
    def __init__(self, file):
        self.file = file
        note(file, 'made')

    def read(self, after):
        for number in range(0 if after is None else after + 1, 12):
            yield Event(number, [float(number)] * 4)

    def acknowledge(self, offset):
        note(self.file, f'acknowledged-{offset}')


@DATASETS.register_module()
class Own(Stream):
    pass


def decode(payload):
    import torch

    return dict(x=torch.tensor(payload), y=torch.ones(1), i=int(payload[0]))


class Loads(Network):
    def build_data(self, context):
        stream = Stream(Counted(context.cfg.file), decode)
        context.loaders, context.workflow = [build_dataloader(stream, 4, 0)], [('train', 1)]
"""


# A subclass is thorough: test_a_run_over_a_stream_is_refused_before_anything_is_acknowledged[Stream].
@pytest.mark.parametrize('kind', ['Stream', pytest.param('Own', marks=pytest.mark.thorough), 'a loader of its own'])
def test_a_run_over_a_stream_is_refused_before_anything_is_acknowledged(tmp_path, kind):
    config, told = write_project(tmp_path), tmp_path / 'told.txt'
    code = tmp_path / 'streams.py'
    code.write_text(STREAM)
    (tmp_path / 'cfg.py').write_text(config.read_text().replace("net.py']", "net.py', '{{ fileDirname }}/streams.py']"))
    source = dict(type='Counted', file=str(told))
    data = dict(samples_per_gpu=4, workers_per_gpu=0, _delete_=True)
    options = {**BY_ITER, 'runner': dict(type='IterBasedRunner', _delete_=True), 'lr_config': None}
    options['checkpoint_config'] = dict(interval=1)
    if kind == 'a loader of its own':
        options |= {'data': None, 'file': str(told), 'flow': dict(network=f'{code}:Loads')}
    else:
        options['data'] = {**data, 'train': dict(type=kind, source=source, decode=f'{code}:decode')}
    quietly(train, config, tmp_path / 'run', cfg_options=options)
    before = told.read_text()
    assert 'acknowledged-7' in before
    again = shutil.copytree(tmp_path / 'run', tmp_path / 'again', symlinks=True)
    for look in (
        lambda: replay(tmp_path / 'run', 2, trust=True).__enter__(),
        lambda: verify(tmp_path / 'run', trust=True),
        lambda: exactly(replace(diff(tmp_path / 'run', again), equal_states=[]), trust=True),
    ):
        with pytest.raises(ValueError, match='is a stream: its source does not give the same events again'):
            look()
    made = told.read_text().removeprefix(before).split()
    assert made == (['made'] * 3 if kind == 'a loader of its own' else [])


def test_no_run_and_no_iteration(trained, tmp_path):
    refused(tmp_path, 3, FileNotFoundError, 'no work dir of a run')
    refused(tmp_path / 'none', 3, FileNotFoundError, 'no such folder')
    refused(trained('epochs')[0], 24, ValueError, 'has trained 24 iterations, so it may be 0 to 23')


def edited(run, folder, change):
    """A copy of the work dir ``run`` with another ``run.json``: ``change`` changes its list of starts."""
    copy = shutil.copytree(run, folder / 'run', symlinks=True)
    content = json.loads((copy / 'run.json').read_text())
    change(content['starts'])
    (copy / 'run.json').write_text(json.dumps(content))
    return copy


def test_before_the_oldest_checkpoint_of_a_run_that_began_with_one_that_is_gone(trained, tmp_path):
    gone = {'resumed_from': '/gone/epoch_1.pth', 'iterations': 6}
    run = edited(trained('epochs')[0], tmp_path, lambda starts: starts[0].update(gone))
    refused(run, 7, FileNotFoundError, 'oldest intact checkpoint is of iteration 18.*/gone/epoch_1.pth, which is gone')
    with replay(run, 18) as moment:
        assert moment.since == 18


def test_code_that_was_edited_needs_trust_and_a_config_must_be_there(trained, tmp_path):
    run = shutil.copytree(trained('epochs')[0], tmp_path / 'run', symlinks=True)
    with (run / 'code' / 'net.py').open('a') as file:
        file.write('# edited\n')
    refused(run, 3, ValueError, 'add --trust')
    (run / 'cfg.py').unlink()
    refused(run, 3, FileNotFoundError, 'the config of start 1 is not in the work dir')


def test_another_version_is_doubted(trained, tmp_path):
    run = edited(trained('epochs')[0], tmp_path, lambda starts: starts[0]['versions'].update(torch='1.0'))
    with replay(run, 0) as moment:
        assert moment.doubts == [f'the run used torch 1.0, and this is {torch.__version__}']


def test_a_resume_of_a_version_that_kept_no_earlier_start_is_doubted(trained, tmp_path):
    run = shutil.copytree(trained('resumed')[0], tmp_path / 'run', symlinks=True)

    def told(number):
        with replay(run, number) as moment:
            return [text for text in moment.doubts if 'the code of the newest start' in text]

    assert told(0) == []
    shutil.rmtree(run / 'starts')
    assert [text.partition(' with')[0] for text in told(0)] == ['start 1 is replayed']
    assert told(22) == []
