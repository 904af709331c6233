"""What both runners share: construction, the step, counting."""

import pytest
import torch
from support import Tiny, loader, tiny_runner
from torch import nn

from runnerkit.hooks import Hook, OptimizerHook
from runnerkit.runner import EpochBasedRunner
from runnerkit.utils.report import report


@pytest.mark.parametrize(
    'arguments, error, text',
    [
        ({'batch_processor': 3, 'model': nn.Linear(1, 1)}, TypeError, 'batch_processor must be callable'),
        ({'batch_processor': print}, RuntimeError, 'cannot be both available'),
        ({'model': nn.Linear(1, 1)}, TypeError, 'Linear has no train_step'),
        ({'optimizer': 'SGD'}, TypeError, 'optimizer must be a torch.optim.Optimizer object or dict or None, but got'),
        ({'optimizer': {'a': 1}}, TypeError, r'optimizer\["a"\] is a'),
        ({'logger': 'x'}, TypeError, 'logger must be a logging.Logger object'),
        ({'meta': 'x'}, TypeError, 'meta must be a dict or None'),
        ({'work_dir': 3}, TypeError, '"work_dir" must be a str'),
        ({'max_epochs': 1, 'max_iters': 1}, ValueError, 'Only one of `max_epochs` or `max_iters`'),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        EpochBasedRunner(**{'model': Tiny(), **arguments})


def test_state_of_a_new_runner(tmp_path):
    meta = {'seed': 1}
    runner = EpochBasedRunner(Tiny(), work_dir=tmp_path / 'a' / 'b', meta=meta, max_epochs=3)
    runner.meta['more'] = 2
    assert meta == {'seed': 1}
    assert (tmp_path / 'a' / 'b').is_dir()
    assert (runner.model_name, runner.rank, runner.world_size, runner.max_epochs, runner.hooks) == ('Tiny', 0, 1, 3, [])
    assert (runner.epoch, runner.iter, runner.inner_iter, runner.mode, runner.outcome) == (0, 0, 0, None, None)
    with pytest.raises(RuntimeError, match='lr and momentum are not available'):
        runner.current_lr()


def test_current_lr_and_momentum():
    model = Tiny()
    sgd = torch.optim.SGD(
        [{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': 0.5}], lr=0.1, momentum=0.9
    )
    adam = torch.optim.Adam(model.head.parameters(), betas=(0.8, 0.99))
    rms = torch.optim.Adagrad(model.parameters(), lr=0.3)
    runner = EpochBasedRunner(model, optimizer=sgd, max_epochs=1)
    assert (runner.current_lr(), runner.current_momentum()) == ([0.1, 0.5], [0.9, 0.9])
    runner = EpochBasedRunner(model, optimizer={'a': adam, 'b': rms}, max_epochs=1)
    assert runner.current_lr() == {'a': [1e-3], 'b': [0.3]}
    assert runner.current_momentum() == {'a': [0.8], 'b': [0]}


@pytest.mark.parametrize(
    'outputs, error, text',
    [
        (3, TypeError, r"Odd's step must return a dict\(loss=…, log_vars=…, num_samples=…\), but it returned 3"),
        ({'log_vars': {}}, KeyError, "returned no 'num_samples'"),
        ({'log_vars': {}, 'num_samples': 1}, KeyError, "returned no 'loss'"),
    ],
)
def test_what_a_step_must_return(outputs, error, text):
    class Odd(Tiny):
        def train_step(self, data, optimizer):
            return outputs

    runner = tiny_runner(model=Odd(), max_epochs=1)
    runner.register_hook(OptimizerHook())
    with pytest.raises(error, match=text):
        runner.run([loader(4)], [('train', 1)])


def test_the_log_buffer_keeps_no_graph():
    runner = tiny_runner(max_epochs=1)
    runner.run([loader(8)], [('train', 1)])
    assert all(not value.requires_grad for value in runner.log_buffer.val_history['loss'])


def test_report_lands_in_the_running_scope():
    class Reports(Tiny):
        def forward(self, x):
            report('size', len(x))
            return super().forward(x)

    found = {}

    class Look(Hook):
        def after_train_epoch(self, runner):
            runner.log_buffer.average()
            found['train'] = runner.log_buffer.output['size']

        def after_val_epoch(self, runner):
            found['val'] = runner.log_buffer.output['size']

    runner = tiny_runner(model=Reports(), max_epochs=1)
    runner.register_hook(Look())
    runner.run([loader(8), loader(6, batch=6)], [('train', 1), ('val', 1)])
    assert found == {'train': 4, 'val': 6}


def test_few_frames_and_calls_lie_between_run_and_the_step():
    import sys

    frames = []

    class Deep(Tiny):
        def train_step(self, data, optimizer):
            frame, names = sys._getframe(1), []
            while frame.f_code.co_name != 'run':
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            frames.append(names)
            return super().train_step(data, optimizer)

    runner = tiny_runner(model=Deep(), max_epochs=1)
    runner.run([loader(4)], [('train', 1)])
    assert frames == [['run_iter', '_train_iter', 'train']]  # at most three


def test_a_call_hook_of_ones_own_sees_every_point():
    seen = []

    class Tells(EpochBasedRunner):
        def call_hook(self, fn_name):
            seen.append(fn_name)
            super().call_hook(fn_name)

    Tells(Tiny(), max_epochs=1).run([loader(4), loader(4)], [('train', 1), ('val', 1)])
    assert [name for name in seen if 'forward' not in name] == [
        'before_run',
        'before_train_epoch',
        'before_train_iter',
        'after_train_iter',
        'after_train_epoch',
        'before_val_epoch',
        'before_val_iter',
        'after_val_iter',
        'after_val_epoch',
        'after_run',
    ]


def test_a_mode_of_the_runner_runs_also_after_the_last_training_and_trains_with_train_step():
    class Warms(EpochBasedRunner):
        calls = ''

        def test(self, data_loader, **kwargs):
            self.calls += 't'

        def warm(self, data_loader, **kwargs):
            self.mode = 'warm'
            self.run_iter(next(iter(data_loader)), train_mode=True)
            self.calls += 'w'

    runner = Warms(Tiny(), max_epochs=2)
    runner.run([loader(4)] * 3, [('train', 1), ('test', 1), ('warm', 1)])
    assert runner.calls == 'twtw'


@pytest.mark.parametrize('limits', [{'max_epochs': 'ten'}, {'max_epochs': 12.0}, {'max_iters': -1}])
def test_limits_are_whole_numbers(limits):
    with pytest.raises(TypeError, match='must be a whole number of at least 0, but got'):
        tiny_runner(**limits)


def test_a_work_dir_is_on_this_machine(tmp_path):
    assert EpochBasedRunner(Tiny(), work_dir=f'file://{tmp_path}/run', max_epochs=1).work_dir == str(tmp_path / 'run')
    with pytest.raises(ValueError, match=r"out_dir='memory://run'"):
        EpochBasedRunner(Tiny(), work_dir='memory://run', max_epochs=1)


@pytest.mark.parametrize(('limit', 'whole'), [(5, 1), (7, 1), (10, 2)])
def test_an_epoch_that_max_iters_ends_with_its_last_batch_is_done(limit, whole):
    runner = tiny_runner(max_iters=limit)
    runner.run([loader(20)], [('train', 1)])
    assert (runner.completed_epochs, runner.progress.epoch_is_open) == (whole, limit == 7)
