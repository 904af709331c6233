"""The steps before the training of an experiment."""

import argparse
import logging
import os
import re

import pytest
import torch
from experiments import Line, config, started, trained
from forks import Fork
from support import Noisy, Tiny, weights

from runnerkit.checkpoint import save_checkpoint
from runnerkit.config import Config
from runnerkit.data import build_dataloader
from runnerkit.flow import Experiment
from runnerkit.flow.experiment.setup import (
    TRAINING,
    ExperimentSetup,
    experiment_config,
    problem_of_loader,
)
from runnerkit.flow.experiment.validation import ValidHook
from runnerkit.hooks import CheckpointHook
from runnerkit.hooks.logger import TensorboardLoggerHook, TextLoggerHook
from runnerkit.utils.logging import get_logger

STEPS = """set_device init_parallel setup_output_dir dump_config setup_visualizer setup_logger setup_checkpointer
    setup_dataloader setup_model wrap_model setup_hooks""".split()


def test_the_steps_in_their_order(tmp_path, monkeypatch):
    """As the seed document has them; ``init_parallel`` only where there are several processes."""
    did = []

    class Tells(Line):
        parallel = True

    def told(name):
        step = getattr(Line, name)

        def tell(self):
            did.append(name)
            return None if name == 'init_parallel' else step(self)

        return tell

    for name in STEPS:
        setattr(Tells, name, told(name))
    Tells(config(), {'output': tmp_path}).setup()
    assert did == STEPS
    Tells.parallel = False
    did.clear()
    Tells(config(), {'output': tmp_path / 'other'}).setup()
    assert did == [name for name in STEPS if name != 'init_parallel']


class Counted(Line):
    """Says when it validates, and which hooks there are after the base's setup."""

    def setup_model(self):
        super().setup_model()
        self.validated = []

    def valid(self):
        self.validated.append(self.iteration)
        return super().valid()


def own_setup(*names):
    """A setup of the user's own, which calls these steps."""

    def setup(self):
        for name in names:
            getattr(self, name)()
        self.iteration = self.epoch = 0

    return type('Own', (Counted,), {'setup': setup})


class OwnFirst(Counted):
    def setup(self):
        super().setup()
        self.found = [type(hook).__name__ for hook in self.hooks]


DOCUMENT = [name for name in STEPS[:-2] if name != 'init_parallel']
ORDERS = {
    'the document has none of ours': DOCUMENT,
    'with the first of them': [*DOCUMENT, 'wrap_model'],
    'with the second': [*DOCUMENT, 'setup_hooks'],
    'with both': [*DOCUMENT, 'setup_hooks', 'wrap_model'],
    'in another order': ['setup_model', 'setup_dataloader', 'set_device', 'setup_output_dir', *DOCUMENT[:1:-1][2:]],
}


@pytest.fixture(scope='module')
def as_it_should_be(tmp_path_factory):
    return trained(Counted, tmp_path_factory.mktemp('whole'), seed=5, custom_hooks=[{'type': 'EMAHook'}])


@pytest.mark.parametrize('steps', [*ORDERS.values(), None], ids=[*ORDERS, 'after the base'])
def test_a_setup_of_ones_own_trains_as_the_base(steps, tmp_path, as_it_should_be):
    """Validation, hooks of the config, the seed and a resume, whichever of the last steps it calls."""
    kind = OwnFirst if steps is None else own_setup(*steps)
    options = {'seed': 5, 'custom_hooks': [{'type': 'EMAHook'}]}
    cut = trained(kind, tmp_path, max_iteration=7, **options)
    made = trained(kind, tmp_path, **options)
    assert (cut.validated, made.validated) == ([3, 6], [9, 12])
    assert made.seed == 5
    assert [type(hook) for hook in made.hooks].count(ValidHook) == 1
    assert {type(hook) for hook in made.hooks} == {type(hook) for hook in as_it_should_be.hooks}
    assert torch.equal(weights(made.model), weights(as_it_should_be.model))
    assert steps is not None or 'ValidHook' in made.found


def test_steps_that_are_called_one_by_one_are_completed_by_the_run(tmp_path):
    made = Counted(config(), {'output': tmp_path})
    made.setup_dataloader()
    made.setup_model()
    made.run()
    assert made.validated == [3, 6, 9, 12]


def test_what_lies_in_the_output_folder(tmp_path):
    made = trained(Line, tmp_path, rate=0.5)
    names = {path.name for path in tmp_path.iterdir()}
    stamp = made.timestamp
    checkpoints = {'iter_4.pth', 'iter_8.pth', 'iter_12.pth', 'latest.pth'}
    assert names == {f'{stamp}.log', f'{stamp}.log.json', 'config.yaml', *checkpoints}
    dumped = Config.fromfile(str(tmp_path / 'config.yaml'))
    assert dumped.rate == 0.5
    assert dumped.training == made.config.training
    assert 'Iter(val) [12]' in (tmp_path / f'{stamp}.log').read_text()
    saved = torch.load(tmp_path / 'latest.pth')
    assert saved['meta']['exp_name'] == 'Line'
    assert 'PyTorch' in saved['meta']['env_info']


def test_hooks_by_default_and_from_the_config(tmp_path):
    made = Line({'training': {'max_iteration': 30}}, {'output': tmp_path / 'one'})
    made.setup()
    kinds = {type(hook): hook for hook in made.hooks}
    assert kinds[TensorboardLoggerHook].interval == kinds[TextLoggerHook].interval == 3
    assert kinds[CheckpointHook].interval == 10000
    assert kinds[CheckpointHook].max_keep_ckpts == 3
    custom = {
        'lr_config': {'policy': 'step', 'step': [2], 'by_epoch': False},
        'momentum_config': {'policy': 'step', 'step': [2], 'by_epoch': False},
        'optimizer_config': {'grad_clip': {'max_norm': 1}},
        'custom_hooks': [{'type': 'EMAHook'}],
        'checkpoint_config': {'interval': 7},
    }
    made = started(Line, tmp_path / 'two', **custom)
    names = [type(hook).__name__ for hook in made.hooks]
    assert names == [
        'StepLrUpdaterHook',
        'StepMomentumUpdaterHook',
        'OptimizerHook',
        'CheckpointHook',
        'EMAHook',
        'IterTimerHook',
        'ValidHook',
        'TextLoggerHook',
    ]
    assert next(hook for hook in made.hooks if isinstance(hook, CheckpointHook)).interval == 7


def test_flags_may_be_a_namespace_or_a_dict():
    for args in (argparse.Namespace(output='x', data=None), {'output': 'x', 'data': None}):
        made = Line(config(), args)
        assert made.option('output') == 'x'
        assert made.option('data', 'here') == made.option('nothing', 'here') == 'here'
    assert Line(config()).option('output') is None


def test_resume_or_load(tmp_path, caplog):
    caplog.set_level('INFO')
    whole = trained(Line, tmp_path / 'run')
    newest = started(Line, tmp_path / 'run')
    assert newest.iteration == 12
    newest.close()

    def of(path):
        made = Line(config(), {'output': tmp_path / 'other', 'checkpoint_path': path})
        made.setup()
        made.resume_or_load()
        made.close()
        return made

    assert of(tmp_path / 'run' / 'iter_8.pth').iteration == 8
    save_checkpoint(whole.model, tmp_path / 'weights.pth')
    loaded = of(tmp_path / 'weights.pth')
    assert loaded.iteration == 0
    assert torch.equal(weights(loaded.model), weights(whole.model))
    assert 'are loaded, and nothing else' in caplog.text
    with pytest.raises(FileNotFoundError):
        of(tmp_path / 'none.pth')
    with pytest.raises(RuntimeError, match='Line has no model'):
        Line(config(), {}).resume_or_load()


def test_a_damaged_newest_checkpoint_is_skipped(tmp_path, caplog):
    trained(Line, tmp_path)
    damaged = bytearray((tmp_path / 'iter_12.pth').read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (tmp_path / 'iter_12.pth').write_bytes(damaged)
    made = started(Line, tmp_path)
    made.close()
    assert made.iteration == 8
    assert 'iter_12.pth is skipped' in caplog.text


def test_each_step_may_be_ones_own(tmp_path):
    """None of them needs its base."""
    log = logging.getLogger('of the experiment')
    log.setLevel('INFO')

    class Own(Line):
        def set_device(self):
            self.device = torch.device('cpu')

        def setup_output_dir(self):
            self.work_dir = str(tmp_path)

        def dump_config(self):
            (tmp_path / 'mine.txt').write_text(self.config.pretty_text)

        def setup_visualizer(self):
            self.visualizer = 'mine'

        def setup_logger(self):
            self.logger = log
            log.addHandler(logging.FileHandler(tmp_path / 'mine.log'))

        def setup_checkpointer(self):
            self.register_checkpoint_hook({'interval': 5})

        def wrap_model(self):
            self.wrapped = True

        def setup_hooks(self):
            self.register_valid_hook({'interval': 6})

    made = trained(Own, tmp_path)
    made.close()
    log.handlers.pop().close()
    names = {'mine.txt', 'mine.log', 'iter_5.pth', 'iter_10.pth', 'iter_12.pth', 'latest.pth'}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (made.visualizer, made.wrapped, made.scores['error'].iter) == ('mine', True, 12)
    assert 'Run completed' in (tmp_path / 'mine.log').read_text()


def test_a_run_that_does_not_go_on_moves_the_earlier_one_aside(tmp_path, caplog):
    caplog.set_level('INFO')
    run = tmp_path / 'run'
    first = trained(Line, run, max_iteration=4)
    (run / 'mine.txt').write_text('')
    again = Line(config(max_iteration=4), {'output': run})
    again.setup()
    again.run()
    moved = {path.name for path in (tmp_path / 'run.1').iterdir()}
    assert moved >= {'iter_4.pth', f'{first.timestamp}.log', 'mine.txt'}
    assert (run / f'{again.timestamp}.log').exists()
    assert (run / 'config.yaml').exists()
    assert not (run / 'mine.txt').exists()
    assert 'resume_or_load continues a run' in caplog.text
    again.run()  # nothing is left to do
    assert (run / 'iter_4.pth').exists()
    assert not (tmp_path / 'run.2').exists()


def holds(folder):
    made = Line(config(), {'output': folder})
    made.setup()


def test_two_runs_do_not_share_a_folder(tmp_path):
    made = started(Line, tmp_path / 'run')
    other = Fork(holds, tmp_path / 'run', folder=tmp_path)
    assert other.code() == 1
    assert 'another run is using this work dir' in other.said()
    made.close()
    made.close()
    assert Fork(holds, tmp_path / 'run', folder=tmp_path).code() == 0


def test_experiments_of_one_process_write_to_their_own_logs(tmp_path):
    one, other = (trained(Line, tmp_path / name, max_iteration=2) for name in ('one', 'other'))
    for made in (one, other):
        assert next((tmp_path / made.work_dir).glob('*.log')).read_text().count('Iter [1/2]') == 1
    assert get_logger('runnerkit').handlers
    one.run()
    log = next((tmp_path / 'one').glob('*.log')).read_text()
    assert (log.count('Iter [1/2]'), log.count('Start running')) == (1, 2)


def test_the_seed_decides_and_weights_do_not_depend_on_the_data(tmp_path):
    class Draws(Line):
        def setup_dataloader(self):
            torch.randn(100)
            super().setup_dataloader()

    one, other = started(Line, tmp_path / 'a', seed=3), started(Draws, tmp_path / 'b', seed=3)
    assert one.seed == 3
    assert torch.equal(weights(one.model), weights(other.model))
    assert not torch.equal(weights(one.model), weights(started(Line, tmp_path / 'c').model))


def test_what_looks_wrong_is_told_at_the_setup(tmp_path, caplog):
    made = started(Line, tmp_path, max_iteration=2)
    with pytest.raises(RuntimeError, match=r'Line\.setup has been called before'):
        made.setup()
    caplog.set_level('INFO')
    other = Line({**config(), 'trainig': {'valid_interval': 3}}, {'output': tmp_path / 'other'})
    other.setup()
    assert (
        'trainig of the config is no key of a run, though your class may read it; did you mean training?' in caplog.text
    )
    assert 'no validation' not in caplog.text

    class Misspelt(Line):
        valid = Experiment.valid

        def validate(self):
            return {}

    started(Misspelt, tmp_path / 'misspelt')
    assert "no validation: Misspelt has no method valid; did you mean 'validate'?" in caplog.text

    class Ported(Line):
        def __init__(self, config, args):
            self.config, self.args = config, args

    for call in (Ported.setup, Ported.run, Ported.resume_or_load):
        with pytest.raises(RuntimeError, match=r'Ported\.__init__ must call super\(\)\.__init__\(config, args\)'):
            call(Ported(config(), {}))


def test_the_visualizer_draws_beside_the_curves(tmp_path):
    class Draws(Line):
        def valid(self):
            self.visualizer.add_scalar('mine', 0.5, self.iteration)

    log = {'interval': 1, 'hooks': [{'type': 'TextLoggerHook'}, {'type': 'TensorboardLoggerHook'}]}
    made = started(Draws, tmp_path / 'one', max_iteration=3, log_config=log)
    with pytest.raises(AttributeError, match=r'the visualizer is open while run\(\) runs'):
        made.visualizer  # noqa: B018
    made.run()
    events = b''.join(path.read_bytes() for path in (tmp_path / 'one' / 'tf_logs').iterdir())
    assert b'mine' in events
    assert b'train/loss' in events

    made = started(Draws, tmp_path / 'two')
    with pytest.raises(AttributeError, match='there is no visualizer, since nothing draws curves: pip install'):
        made.run()

    class Own(Draws):
        def setup_visualizer(self):
            self.visualizer, self.drawn = self, []

        def add_scalar(self, *point):
            self.drawn.append(point)

    assert trained(Own, tmp_path / 'three', max_iteration=3).drawn == [('mine', 0.5, 3)]


def test_devices(monkeypatch):
    made = Line(config(), {'device': 'cpu'})
    made.set_device()
    assert made.device == torch.device('cpu')
    made = Line(config(), {'device': 'gpu'})
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match='no CUDA device found'):
            made.set_device()
    assert not made.parallel
    monkeypatch.setenv('WORLD_SIZE', '2')
    assert made.parallel
    monkeypatch.delenv('WORLD_SIZE')
    assert Line(config(), {'nprocs': 3}).parallel


def test_a_folder_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Line(config())
    made.setup_output_dir()
    assert made.work_dir == os.path.join(str(tmp_path), 'work_dirs', 'Line')
    made.close()
    assert issubclass(Line, ExperimentSetup)


# --- checks ---------------------------------------------------------------------------------------------------------


def test_the_config_is_copied_and_filled_in():
    mine = {'training': {'max_iteration': 5}, 'free': {'key': 1}}
    made = Line(mine)
    assert mine == {'training': {'max_iteration': 5}, 'free': {'key': 1}}
    assert made.config.training == {**TRAINING, 'max_iteration': 5}
    assert made.config.free.key == 1
    assert (made.max_iters, made.iteration, made.model) == (5, 0, None)
    own = Config({'training': {'valid_interval': 3}})
    assert Line(own, max_iters=7).config.training == {**TRAINING, 'valid_interval': 3, 'max_iteration': 7}
    assert own.training == {'valid_interval': 3}
    assert Line().config.training == TRAINING == experiment_config(None).training
    assert TRAINING == {'max_iteration': 900000, 'valid_interval': 1000, 'save_interval': 10000}


@pytest.mark.parametrize(
    'given, error, told',
    [
        (torch.nn.Linear(1, 1), TypeError, r'config must be a Config, a dict or None.*Experiment\(config, args\)'),
        ({'training': 5}, TypeError, r'training must be a dict such as dict\(max_iteration=1000\), but got 5'),
        (config(valid_interval=0), ValueError, r'training\.valid_interval must be a whole number of at least 1.*got 0'),
        (config(max_iteration='12'), TypeError, r'training\.max_iteration must be a whole number'),
        (config(seed=-1), ValueError, 'seed must be'),
    ],
)
def test_wrong_configs(given, error, told):
    with pytest.raises(error, match=told):
        experiment_config(given)


def loader():
    return build_dataloader(Noisy(8), 4, 0)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield 1


@pytest.mark.parametrize(
    'make, told',
    [
        (lambda: [loader(), loader()], 'a list of loaders: give a dict, dict(clean=…, noisy=…)'),
        (lambda: Noisy(8), 'the data set Noisy: give a loader, build_dataloader('),
        (lambda: iter(loader()), 'an iterator, which ends after one pass'),
        (lambda: (batch for batch in loader()), 'generator, an iterator'),
        (lambda: 5, '5'),
    ],
)
def test_what_is_no_loader_is_told(make, told):
    class Wrong(Line):
        def setup_dataloader(self):
            self.train_loader = {'one': loader(), 'two': make()}

    assert told in problem_of_loader(make())
    made = Wrong(config(), model=Tiny())
    made.setup_dataloader()
    with pytest.raises(TypeError, match=re.escape("self.train_loader['two'] must be a loader, but got")):
        made.run()
    for right in (loader(), [1, 2], torch.utils.data.DataLoader(Noisy(8)), Stream()):
        assert problem_of_loader(right) is None


def test_an_empty_valid_loader_is_told(tmp_path):
    class Empty(Line):
        def setup_dataloader(self):
            self.train_loader, self.valid_loader = loader(), []

    with pytest.raises(ValueError, match=r'self\.valid_loader is empty: got \[\]\. Set one with batches, or None'):
        Empty(config(), {'output': tmp_path, 'device': 'cpu'}).setup()


def test_a_setup_that_fails_leaves_the_work_dir_to_the_next_one(tmp_path):
    """As in a notebook, where the first object stays."""

    class Wrong(Line):
        def setup_model(self):
            raise ValueError('a slip')

    first = Wrong(config(), {'output': tmp_path, 'device': 'cpu'})
    with pytest.raises(ValueError, match='a slip'):
        first.setup()
    assert started(Line, tmp_path).work_dir == first.work_dir
