"""Evaluating without a training."""

import logging
import shutil
from contextlib import contextmanager

import pytest
import torch
from plans import CONFIG

import runnerkit
from runnerkit.compat.vega.callbacks import Callback
from runnerkit.config import Config
from runnerkit.flow import Context, Flow, Options
from runnerkit.flow.use.scoring import kept_hooks, may_be_kept
from runnerkit.hooks import HOOKS, ClosureHook, EMAHook, Hook

TEST = {'type': 'support.Noisy', 'length': 6}  # its samples are random: the seed matters


class Fixed(torch.utils.data.Dataset):
    """Its samples are not random: those of an entry of the workflow would be others in each epoch."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return (torch.arange(4.0) + index) / 9, torch.tensor([index / 6])


FIXED = {'samples_per_gpu': 4, **dict.fromkeys(('train', 'val', 'test'), {'type': f'{__file__}:Fixed'})}


class Rings(Hook):
    """Changes the model while it is evaluated, by what it has counted in the training."""

    def __init__(self):
        self.count, self.seen = 0, []

    def before_run(self, runner):
        self.seen.append('before_run')

    def after_run(self, runner):
        self.seen.append('after_run')

    def after_train_iter(self, runner):
        self.count += 1

    @contextmanager
    def around_val(self, runner):
        weight = next(runner.model.parameters())
        kept = weight.detach().clone()
        with torch.no_grad():
            weight.mul_(1 + self.count / 100)
        yield
        with torch.no_grad():
            weight.copy_(kept)

    def before_val_iter(self, runner):
        self.seen.append('before_val_iter')

    def after_evaluate(self, runner, scores):
        self.seen.append('after_evaluate')

    def state_dict(self):
        return {'count': self.count}

    def load_state_dict(self, state):
        self.count = state['count']


class Updates(Hook):
    """Of a training, with a point that an evaluation calls, too."""

    def before_run(self, runner):
        runner.optimizer.param_groups  # noqa: B018

    def before_val_epoch(self, runner):
        pass


class UpdatesAndSaysSo(Updates):
    needs_training = True

    def __init__(self, train_loader):
        raise AssertionError('not even built')


class Half(torch.nn.Module):
    """A model in the style of MMCV's: its decorated method runs in fp16 where the flag says so."""

    def __init__(self):
        super().__init__()
        self.layer, self.fp16_enabled = torch.nn.Linear(4, 1), False

    @runnerkit.nn.auto_fp16()
    def predicted(self, x):
        return self.layer(x)

    def train_step(self, data, optimizer, **kwargs):
        loss = (self.predicted(data[0]).float() - data[1]).square().mean()
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}

    val_step = train_step


class Judged(torch.utils.data.Dataset):
    """Scores by itself, as its option says; one of the scores is a text."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {'x': torch.ones(2)}

    def evaluate(self, results, logger=None, metric='plain'):
        return {'mAP': {'plain': 0.25, 'strict': 0.125}[metric], 'mAP_copypaste': '0.1 0.2'}


class Judging(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, return_loss=True):
        return list(self.layer(x))

    def train_step(self, data, optimizer):
        return {'loss': self.layer(data['x']).mean(), 'log_vars': {}, 'num_samples': 1}


def config(**changes):
    data = {**CONFIG['data'], 'val': TEST, 'test': TEST}
    return {**CONFIG, 'data': data, 'evaluation': {'interval': 1}, **changes}


def trained(work_dir, **changes):
    return runnerkit.train(config(**changes), work_dir, seed=3, device='cpu')


@pytest.mark.parametrize(
    'changes',
    [
        {},
        {'amp': 'bf16'},
        {'optimizer_config': {'amp': 'bf16', 'grad_clip': {'max_norm': 1.0}}},
        {'fp16': {'loss_scale': 512.0}},
        {'model': {'type': f'{__file__}:Half'}, 'optimizer_config': {'type': 'Fp16OptimizerHook'}},
        {'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.3}], 'amp': 'bf16'},
        {'custom_hooks': [{'type': f'{__file__}:Rings', 'priority': 'LOW'}]},
        {'evaluation': None, 'workflow': [('train', 1), ('val', 1)], 'amp': 'bf16', 'data': FIXED},
    ],
)
def test_the_scores_are_those_of_the_training_bit_for_bit(changes, tmp_path):
    """By `runnerkit.test`, which is the tool's, and by the stage `Infer`."""
    run = trained(tmp_path / 'run', **changes)
    assert runnerkit.test(run.work_dir, which='latest', device='cpu') == run.scores
    infer = {'network': 'InferNetwork', 'startup': None, 'runner': {'type': 'Infer', 'checkpoints': str(run.work_dir)}}
    cfg = Config.fromfile(str(run.work_dir / 'config.py'))
    cfg.flow = infer
    last = Flow(cfg, Options(work_dir=str(tmp_path / 'infer'), device='cpu')).run()['scores'][-1]
    assert {name: last[name] for name in run.scores} == run.scores


class OfData(Half):
    """Its ``val_step`` takes the data alone, as that of an iteration runner may."""

    def val_step(self, data):
        return self.train_step(data, None)


@pytest.mark.parametrize('runner', [{'type': 'IterBasedRunner', 'max_iters': 4}, CONFIG['runner']])
def test_a_validation_step_of_the_data_alone(runner, tmp_path):
    changes = {'model': {'type': f'{__file__}:OfData'}, 'runner': runner, 'lr_config': None}
    by_iter = runner['type'] == 'IterBasedRunner'
    run = trained(tmp_path, **changes, evaluation={'interval': 4} if by_iter else None)
    scores = runnerkit.test(run.work_dir, which='latest', device='cpu')
    assert scores == run.scores if by_iter else set(scores) == {'loss'}


def test_options_of_the_evaluation_count(tmp_path):
    """Those of a data set's own ``evaluate``; what it gives that is no number is no score."""
    data = {'samples_per_gpu': 1, **dict.fromkeys(('train', 'val', 'test'), {'type': f'{__file__}:Judged'})}
    changes = {'model': {'type': f'{__file__}:Judging'}, 'data': data}
    run = trained(tmp_path, **changes, evaluation={'metric': 'strict', 'save_best': 'mAP'})
    assert runnerkit.test(run.work_dir, device='cpu') == {'mAP': 0.125}


def test_hooks_are_entered_and_left(tmp_path):
    """Val points are called where the training calls them; in its workflow those that fall back, too."""
    run = trained(tmp_path)
    checkpoint = run.work_dir / 'latest.pth'
    for changes, hears in (({}, 2), ({'workflow': [('train', 1), ('val', 1)]}, 2)):
        hook = Rings()
        runnerkit.test(config(custom_hooks=[hook], **changes), checkpoint=checkpoint, device='cpu')
        assert hook.seen == ['before_run', *['before_val_iter'] * hears, 'after_evaluate', 'after_run']
    hook = Rings()
    runnerkit.test(config(evaluation={'hooks': [hook]}), checkpoint=checkpoint, device='cpu')
    assert hook.seen.count('before_val_iter') == 2
    hook = ClosureHook('after_iter', lambda runner: pytest.fail('an evaluation is no iteration of a training'))
    hook.after_forward = lambda runner: None  # so that it is kept
    runnerkit.test(config(custom_hooks=[hook]), checkpoint=checkpoint, device='cpu')


class Draws(Hook):
    """Writes a picture after each evaluation."""

    def after_val_epoch(self, runner):
        with open(f'{runner.work_dir}/picture.txt', 'a') as file:
            file.write(f'{runner.data_batch is not None}\n')


def test_hooks_have_a_folder_to_write_to(tmp_path, caplog):
    """Of their own: what they wrote in the training stays as it is."""
    drawing = {'custom_hooks': [{'type': f'{__file__}:Draws'}]}
    run = trained(tmp_path / 'run', **drawing)
    in_training = (run.work_dir / 'picture.txt').read_text()
    assert in_training == 'False\n' * 3
    for options, folder in (
        ({}, run.work_dir / 'test'),
        ({'split': 'val'}, run.work_dir / 'val'),
        ({'work_dir': tmp_path / 'deep' / 'elsewhere'}, tmp_path / 'deep' / 'elsewhere'),
    ):
        runnerkit.test(run.work_dir, device='cpu', **options)
        assert (folder / 'picture.txt').read_text() == 'False\n'
    assert (run.work_dir / 'picture.txt').read_text() == in_training
    shutil.rmtree(run.work_dir / 'test')
    runnerkit.test(config(custom_hooks=[Rings()]), checkpoint=run.work_dir, device='cpu')  # writes nothing
    runnerkit.test(config(), checkpoint=run.work_dir, device='cpu')
    assert not (run.work_dir / 'test').exists()
    (run.work_dir / 'test').write_text('a file')
    runnerkit.test(config(custom_hooks=[Rings()]), checkpoint=run.work_dir, device='cpu')
    assert 'hooks have no folder to write to (runner.work_dir is None)' in caplog.text
    inner = config(evaluation={'hooks': [Draws()]})
    runnerkit.test(inner, 'test', run.work_dir, device='cpu', work_dir=tmp_path / 'inner')
    assert (tmp_path / 'inner' / 'picture.txt').read_text() == 'False\n'


def test_hooks_of_the_stage_infer_write_to_its_work_dir(tmp_path):
    run = trained(tmp_path / 'run', custom_hooks=[{'type': f'{__file__}:Draws'}])
    cfg = Config.fromfile(str(run.work_dir / 'config.py'))
    stages = {'network': 'InferNetwork', 'startup': None}
    cfg.flow = {**stages, 'runner': {'type': 'Infer', 'checkpoints': str(run.work_dir)}}
    Flow(cfg, Options(work_dir=str(tmp_path / 'infer'), device='cpu')).run()
    assert (tmp_path / 'infer' / 'picture.txt').read_text() == 'False\n' * 3


class Batches(Callback):
    """Makes the batches itself."""

    def make_batch(self, batch):
        return batch


#: The built-in hooks that an evaluation without a training keeps, with arguments, and what it has of them.
KEPT = {
    'EmptyCacheHook': ({}, 'EmptyCacheHook'),
    'ClosureHook': ({'fn_name': 'around_val', 'fn': print}, 'ClosureHook'),
    'OptimizerHook': ({'amp': 'bf16'}, '_Autocast'),
    'GradientCumulativeOptimizerHook': ({'amp': 'bf16'}, '_Autocast'),
    'Fp16OptimizerHook': ({}, '_Fp16Methods'),
    'VegaCallbacks': ({'callbacks': [Batches()]}, 'EvaluationSteps'),
    'GradientCumulativeFp16OptimizerHook': ({}, '_Fp16Methods'),
}


def test_which_of_the_built_in_hooks_an_evaluation_keeps():
    """All others need a training."""
    ours = {name: kind for name, kind in HOOKS.module_dict.items() if kind.__module__.startswith('runnerkit.hooks.')}
    ours['VegaCallbacks'] = HOOKS.get('VegaCallbacks')
    assert {name for name, kind in ours.items() if may_be_kept({'type': kind})} == set(KEPT)
    for name, (arguments, becomes) in KEPT.items():
        assert type(ours[name](**arguments).for_evaluation()).__name__ == becomes
    assert ours['OptimizerHook']().for_evaluation() is None  # without amp, an update is nothing else
    assert ClosureHook('before_train_iter', print).for_evaluation() is None


def test_the_hooks_of_a_config():
    hooks = [
        'TextLoggerHook',
        {'type': f'{__file__}:UpdatesAndSaysSo', 'train_loader': 1},
        {'type': f'{__file__}:Rings', 'priority': 'LOW'},
        EMAHook(),
    ]
    cfg = Config({'amp': 'fp16', 'custom_hooks': hooks})
    context = Context(cfg, hooks=[(Rings(), 'HIGH')])
    found = [(type(hook).__name__, priority) for hook, priority in kept_hooks(context)]
    assert found == [('_Autocast', 'ABOVE_NORMAL'), ('Rings', 'LOW'), ('Rings', 'HIGH')]


def test_a_hook_that_was_an_object_is_told(tmp_path, caplog):
    run = trained(tmp_path, custom_hooks=[Rings()])
    with caplog.at_level(logging.WARNING, 'runnerkit'):
        assert runnerkit.test(run.work_dir, device='cpu') != run.scores
    assert 'which its config cannot hold: it is left out' in caplog.text
    assert runnerkit.test(run.work_dir, device='cpu', cfg_options={'custom_hooks': [Rings()]}) == run.scores


def test_a_hook_that_needs_an_optimizer_and_does_not_say_so(tmp_path):
    run = trained(tmp_path)
    with pytest.raises(AttributeError) as caught:
        runnerkit.test(config(custom_hooks=[Updates()]), checkpoint=run.work_dir / 'latest.pth', device='cpu')
    assert 'needs_training = True' in caught.value.__notes__[-1]


def test_two_ranks_give_the_scores_of_the_training_on_two_ranks(on_ranks, tmp_path):
    (scores, again), (_, nothing) = on_ranks(__file__, 'train_and_test', str(tmp_path))
    assert again == scores
    assert nothing == {}


def train_and_test(rank, work_dir):
    run = runnerkit.train(config(amp='bf16'), work_dir, seed=3, device='cpu')
    return run.scores, runnerkit.test(run.work_dir, which='latest', device='cpu')
