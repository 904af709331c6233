"""The steps before the training of an experiment."""

import argparse
import os

import pytest
import torch
from experiments import Line, config, started, trained
from forks import Fork
from support import weights

from runnerkit.checkpoint import save_checkpoint
from runnerkit.config import Config
from runnerkit.flow.experiment_setup import TRAINING, ExperimentSetup, as_config
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
    assert Line().config.training == TRAINING == as_config(None).training
    assert TRAINING == {'max_iteration': 900000, 'valid_interval': 1000, 'save_interval': 10000}


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


def test_a_run_that_does_not_go_on_moves_the_earlier_one_aside(tmp_path, caplog):
    caplog.set_level('INFO')
    first = trained(Line, tmp_path, max_iteration=4)
    again = Line(config(max_iteration=4), {'output': tmp_path})
    again.setup()
    again.run()
    moved = tmp_path / 'earlier' / first.timestamp
    assert {path.name for path in moved.iterdir()} >= {'iter_4.pth', f'{first.timestamp}.log'}
    assert (tmp_path / f'{again.timestamp}.log').exists()
    assert 'resume_or_load goes on with a run' in caplog.text
    again.run()  # nothing is left to do
    assert (tmp_path / 'iter_4.pth').exists()


def holds(folder):
    made = Line(config(), {'output': folder})
    made.setup()


def test_two_runs_do_not_share_a_folder(tmp_path):
    made = started(Line, tmp_path / 'run')
    other = Fork(holds, tmp_path / 'run', folder=tmp_path)
    assert other.code() == 1
    assert 'another run uses this work dir' in other.said()
    made.close()
    made.close()
    assert Fork(holds, tmp_path / 'run', folder=tmp_path).code() == 0


def test_a_second_experiment_does_not_write_to_the_first_ones_log_twice(tmp_path):
    trained(Line, tmp_path / 'one', max_iteration=2)
    trained(Line, tmp_path / 'two', max_iteration=2)
    log = next((tmp_path / 'two').glob('*.log')).read_text()
    assert log.count('Iter [1/2]') == 1
    assert get_logger('runnerkit').handlers


def test_the_seed_decides_and_weights_do_not_depend_on_the_data(tmp_path):
    class Draws(Line):
        def setup_dataloader(self):
            torch.randn(100)
            super().setup_dataloader()

    one, other = started(Line, tmp_path / 'a', seed=3), started(Draws, tmp_path / 'b', seed=3)
    assert one.seed == 3
    assert torch.equal(weights(one.model), weights(other.model))
    assert not torch.equal(weights(one.model), weights(started(Line, tmp_path / 'c').model))


def test_wrong_configs_and_a_second_setup(tmp_path, caplog):
    with pytest.raises(TypeError, match=r'config must be a Config, a dict or None.*Experiment\(config, args\)'):
        Line(torch.nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r'training must be a dict such as dict\(max_iteration=1000\), but got 5'):
        Line({'training': 5})
    with pytest.raises(ValueError, match=r'training\.valid_interval must be a whole number of at least 1, but got 0'):
        Line(config(valid_interval=0))
    with pytest.raises(TypeError, match=r'training\.max_iteration must be a whole number'):
        Line(config(max_iteration='12'))
    with pytest.raises(ValueError, match='seed must be'):
        Line(config(seed=-1))
    made = started(Line, tmp_path, max_iteration=2)
    with pytest.raises(RuntimeError, match=r'Line\.setup has been called before'):
        made.setup()
    caplog.set_level('INFO')
    other = Line({**config(), 'training': {'valid_intervall': 3}}, {'output': tmp_path / 'other'})
    other.setup()
    assert 'training.valid_intervall of the config is read by nobody but you: is it valid_interval?' in caplog.text


def test_devices(monkeypatch):
    made = Line(config(), {'device': 'cpu'})
    made.set_device()
    assert made.device == torch.device('cpu')
    made = Line(config(), {'device': 'gpu'})
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no GPU here for the device 'cuda'"):
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
