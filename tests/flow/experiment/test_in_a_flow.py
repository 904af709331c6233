"""Experiments as the runners of flows."""

import pytest
import torch
from experiments import Line, config, trained
from support import weights

import runnerkit
from runnerkit.cli.main import main
from runnerkit.config import Config
from runnerkit.flow import Flow, NetworkBase, Options
from runnerkit.flow.stages.network import build_experiment
from runnerkit.hooks import EarlyStoppingHook

TEXT = """
runner = dict(type='experiments.Line')
training = dict(max_iteration=12, valid_interval=3, save_interval=4, free=1)
free = dict(reads=1)
log_config = dict(interval=1, hooks=[dict(type='TextLoggerHook')])
evaluation = dict(save_best='error', rule='less')
seed = 0
"""

SECTIONS = """
model = dict(type='support.Tiny')
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='support.Noisy'))
optimizer = dict(type='SGD', lr=0.1, momentum=0.9)
"""


@pytest.fixture
def train(tmp_path):
    def go(folder, text=TEXT, *flags):
        (tmp_path / 'cfg.py').write_text(text)
        flags = ['--work-dir', str(tmp_path / folder), '--device', 'cpu', *flags]
        return main(['train', str(tmp_path / 'cfg.py'), *flags])

    return go


def test_it_trains_from_a_config_and_resumes(train, tmp_path, capfd):
    assert train('whole') == 0
    assert train('cut', TEXT, '--cfg-options', 'training.max_iteration=5') == 0
    assert train('cut', TEXT, '--auto-resume') == 0
    whole, cut = (torch.load(tmp_path / name / 'latest.pth') for name in ('whole', 'cut'))
    assert all(map(torch.equal, whole['state_dict'].values(), cut['state_dict'].values()))
    assert list((tmp_path / 'whole').glob('best_error_iter_*.pth'))
    assert (tmp_path / 'whole' / 'iter_4.pth').exists()
    assert 'warnings' not in capfd.readouterr().err  # it reads its own keys


def test_as_alone(train, tmp_path):
    """The same weights as without a flow."""
    assert train('flow') == 0
    alone = trained(Line, tmp_path / 'alone')
    saved = torch.load(tmp_path / 'flow' / 'latest.pth')['state_dict']
    assert torch.equal(torch.cat([value.float().flatten() for value in saved.values()]), weights(alone.model))


def test_sections_of_the_config_come_before_its_own_methods(tmp_path):
    class Given(Line):
        def setup_dataloader(self):
            raise AssertionError

        setup_model = setup_dataloader

    cfg = Config({**Config.fromfile(write(tmp_path, SECTIONS))._cfg_dict})
    cfg.runner = {'type': Given, 'max_iters': 4}
    cfg.evaluation = None
    context = Flow(cfg, Options(work_dir=str(tmp_path / 'run'), device='cpu')).run()
    assert context.runner.iteration == 4
    assert type(context.model).__name__ == 'Tiny'
    assert context.runner.config.training.max_iteration == 4


@pytest.mark.parametrize('loader', [None, [1, 2]])
def test_a_valid_loader_may_be_anything(loader, tmp_path):
    class Own(Line):
        def setup_dataloader(self):
            super().setup_dataloader()
            self.valid_loader = loader

        def valid(self):
            return {'error': 0.5}

    cfg = Config({**config(max_iteration=3), 'runner': {'type': Own}, 'seed': 0})
    context = Flow(cfg, Options(work_dir=str(tmp_path / 'run'), device='cpu')).run()
    assert context.runner.scores['error'].value == 0.5


def test_an_optimizer_needs_a_model_in_the_config(train, capfd):
    assert train('own', TEXT + "optimizer = dict(type='SGD', lr=0.1)") == 2
    assert 'optimizer needs a section model; if it is a custom section, rename it (' in capfd.readouterr().err


def write(folder, text):
    (folder / 'sections.py').write_text(text)
    return str(folder / 'sections.py')


def test_weights_are_loaded_before_it_runs(train, tmp_path):
    assert train('one') == 0
    assert train('two', TEXT, '--load-from', str(tmp_path / 'one' / 'iter_12.pth')) == 0
    first, second = (torch.load(tmp_path / name / 'iter_4.pth')['state_dict'] for name in ('one', 'two'))
    assert not torch.equal(first['head.weight'], second['head.weight'])


def test_a_network_stage_of_ones_own(tmp_path):
    class Network(NetworkBase):
        def build_network(self, context):
            build_experiment(context)
            context['seen'] = context.model is context.runner.model

    cfg = Config.fromfile(write(tmp_path, TEXT))
    options = Options(work_dir=str(tmp_path / 'run'), device='cpu')
    assert Flow(cfg, options, stages={'network': Network}).run()['seen']


def test_a_dry_run_trains_one_batch(train, tmp_path, capfd):
    assert train('dry', TEXT, '--dry-run') == 0
    said = capfd.readouterr()
    assert 'First losses: train 1.' in said.out
    assert not (tmp_path / 'dry').exists()


def test_train_from_python(tmp_path):
    result = runnerkit.train(Config.fromfile(write(tmp_path, TEXT)), tmp_path / 'run', device='cpu')
    assert set(result.scores) == {'error'}
    assert result.best_checkpoint is not None


def test_training_is_for_experiments_only(train, tmp_path, capfd):
    good = SECTIONS + "runner = dict(type='EpochBasedRunner', max_epochs=1)\ntraining = dict(max_iteration=5)\n"
    assert train('other', good) == 0
    assert 'unused: the runner is not an Experiment' in capfd.readouterr().err


class Steps(Line):
    def setup_hooks(self):
        super().setup_hooks()
        self.register_hook(EarlyStoppingHook('error', patience=1, rule='less', min_delta=9.0))

    def setup_checkpointer(self):
        raise AssertionError

    def setup_visualizer(self):
        raise AssertionError


def test_hooks_are_its_own_affair_and_other_steps_are_told(tmp_path, caplog):
    cfg = Config.fromfile(write(tmp_path, TEXT))
    cfg.runner, cfg.custom_hooks = {'type': Steps}, [{'type': 'EMAHook'}]
    context = Flow(cfg, Options(work_dir=str(tmp_path / 'run'), device='cpu')).run()
    assert context.runner.iteration == 6  # the second validation is no better by 9
    assert sum(type(hook).__name__ == 'EMAHook' for hook in context.runner.hooks) == 1
    assert 'these methods of Steps are not called: setup_visualizer, setup_checkpointer. Say it in' in caplog.text
    cfg.custom_hooks = [{'type': 'EMAHok'}]
    with pytest.raises(KeyError, match='EMAHook'):
        Flow(cfg, Options(work_dir=str(tmp_path / 'other'), device='cpu')).run()


def test_a_misspelt_argument_is_told(train, capfd):
    assert train('wrong', TEXT.replace("Line')", "Line', max_iter=3)")) in (1, 2)
    assert 'max_iters' in capfd.readouterr().err
