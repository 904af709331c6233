import pytest
import torch
from support import Recorder, Tiny, loader, tiny_runner, weights
from torch import nn
from torchmetrics import MeanSquaredError

from runnerkit.compat.vega.callbacks import CALLBACKS, Callback, VegaCallbacks
from runnerkit.flow import train
from runnerkit.flow.use.testing import test as score_again
from runnerkit.hooks import EvalHook, OptimizerHook
from runnerkit.nn import Supervised
from runnerkit.parallel import MMDistributedDataParallel

POINTS = {
    'before_epoch',
    'after_epoch',
    'before_train_step',
    'after_train_step',
    'before_valid_step',
    'after_valid_step',
}


class Heard(Callback):
    """Writes down every point, its index, the keys of its logs, and which dict it was."""

    def __init__(self, name='', priority=100, notes=None):
        self.name, self.priority = name, priority
        self.notes = [] if notes is None else notes


def _listener(point):
    def listen(self, *index, logs):
        self.notes.append((self.name, point, index, sorted(logs), id(logs)))

    return listen


for _point in ('init_trainer', 'before_train', 'after_train', 'before_valid', 'after_valid', *sorted(POINTS)):
    setattr(Heard, _point, _listener(_point))


def supervised(metrics=None):
    torch.manual_seed(0)
    return Supervised(nn.Linear(4, 1), nn.MSELoss(), metrics)


def run(callbacks, model=None, epochs=1, validates=True, updates=True, work_dir=None, **config):
    """A run of two batches of eight an epoch, with a validation of one batch of four."""
    runner = tiny_runner(model=supervised() if model is None else model, max_epochs=epochs, work_dir=work_dir)
    if updates:
        hook = OptimizerHook()
        hook.gives_way = True
        runner.register_hook(hook, priority='ABOVE_NORMAL')
    if validates:
        runner.register_hook(EvalHook(loader(4, 4, shuffle=False)), priority='LOW')
    runner.register_hook(VegaCallbacks(callbacks, config), priority='LOW')
    runner.run([loader(16, 8)], [('train', 1)])
    return runner


def test_the_points_of_two_epochs_in_their_order():
    heard = Heard()
    run(heard, epochs=2)
    step = [('before_train_step', 0), ('after_train_step', 0), ('before_train_step', 1), ('after_train_step', 1)]
    valid = ['before_valid', ('before_valid_step', 0), ('after_valid_step', 0), 'after_valid']
    expected = ['init_trainer', 'before_train']
    for epoch in range(2):
        expected += [('before_epoch', epoch), *step, *valid, ('after_epoch', epoch)]
    expected.append('after_train')
    assert [(point, *index) if index else point for _, point, index, _, _ in heard.notes] == expected


def test_one_logs_dict_an_epoch_with_the_seeds_keys():
    heard = Heard()
    run(heard, epochs=2)
    identities = [identity for *_, identity in heard.notes]
    assert len(set(identities[2:12])) == 1  # all points of the first epoch
    assert len(set(identities[12:])) == 1  # of the second one, and after_train
    assert identities[2] != identities[0]
    keys = {point: keys for _, point, _, keys, _ in heard.notes[:12]}
    epoch = ['train_num_batches', 'valid_num_batches']
    outputs = ['log_vars', 'loss', 'num_samples']
    assert keys['before_epoch'] == epoch
    assert keys['before_train_step'] == sorted([*epoch, 'train_batch'])
    assert keys['after_train_step'] == sorted([*epoch, 'train_batch', *outputs])
    assert keys['after_valid_step'] == sorted([*epoch, 'valid_batch', *outputs, 'preds', 'target'])
    assert keys['after_valid'] == keys['after_epoch'] == sorted([*epoch, 'cur_valid_perfs'])


def test_what_a_callback_writes_is_there_until_the_epoch_ends():
    class Writes(Callback):
        def before_epoch(self, epoch, logs):
            logs['mine'] = epoch

        def after_epoch(self, epoch, logs):
            found.append((logs['mine'], logs['cur_valid_perfs']['error'], logs['train_num_batches']))

    found = []
    runner = run(Writes(), supervised({'error': MeanSquaredError()}), epochs=2)
    assert [(mine, batches) for mine, _, batches in found] == [(0, 2), (1, 2)]
    assert found[1][1] == runner.scores['error'].value


def test_low_priorities_come_first_and_equal_ones_as_listed():
    notes = []
    run([Heard('b', 200, notes), Heard('c', 200, notes), Heard('a', 10, notes), Heard('d', 200, notes)])
    assert [name for name, point, *_ in notes if point == 'before_train'] == ['a', 'b', 'c', 'd']
    assert [name for name, point, *_ in notes if point == 'after_train'] == ['a', 'b', 'c', 'd']


def test_callbacks_change_nothing_in_what_is_trained():
    def trained(callbacks):
        runner = tiny_runner(max_epochs=2)
        runner.register_hook(OptimizerHook(), priority='ABOVE_NORMAL')
        if callbacks:
            runner.register_hook(VegaCallbacks(callbacks), priority='LOW')
        runner.run([loader()], [('train', 1)])
        return weights(runner.model)

    assert trained([]).equal(trained([Heard()]))


def test_numbers_of_the_summary_are_scores():
    class Summary(Callback):
        def after_epoch(self, epoch, logs):
            logs['summary_perfs'] = {'latency': epoch + 0.5, 'epoch': epoch, 'note': 'text'}

        def after_train(self, logs):
            logs['summary_perfs']['size'] = torch.tensor(3)

    runner = run(Summary(), epochs=2)
    assert {name: tuple(score) for name, score in runner.scores.items() if name != 'loss'} == {
        'latency': (1.5, 4),
        'size': (3.0, 4),
    }


# --- the trainer -----------------------------------------------------------------------------------------------------


def test_what_a_callback_sees_of_its_trainer():
    class Looks(Callback):
        def before_train(self, logs):
            trainer = self.trainer
            found.update(
                model=trainer.model,
                loss=trainer.loss,
                optimizer=trainer.optimizer,
                epochs=trainer.epochs,
                batches=(trainer.batch_num_train, trainer.batch_num_valid),
                config=(trainer.config.own, trainer.config.calc_params_each_epoch),
                params=self.params,
                sizes=(len(trainer.train_loader.dataset), len(trainer.valid_loader.dataset)),
            )

    found, model = {}, supervised()
    runner = run(Looks(), model, own=3)
    assert found.pop('model') is model.model
    assert found.pop('loss') is model.loss
    assert found.pop('optimizer') is runner.optimizer
    params = {'epochs': 1, 'do_validation': True, 'use_cuda': False, 'is_chief': True}
    assert found == {'epochs': 1, 'batches': (2, 1), 'config': (3, False), 'params': params, 'sizes': (16, 4)}


def test_without_a_validation():
    heard = Heard()
    runner = run(heard, validates=False)
    assert not {'before_valid', 'after_valid'} & {point for _, point, *_ in heard.notes}
    assert heard.notes[2][3] == ['train_num_batches']
    assert (heard.trainer.valid_loader, heard.trainer.batch_num_valid) == (None, 0)
    assert runner.outcome.kind == 'completed'


def test_validation_epochs_of_the_workflow_are_heard_once():
    heard = Heard()
    runner = tiny_runner(model=supervised(), max_epochs=1)
    runner.register_hook(OptimizerHook(), priority='ABOVE_NORMAL')
    runner.register_hook(VegaCallbacks(heard))
    runner.run([loader(16, 8), loader(4, 4)], [('train', 1), ('val', 1)])
    assert [point for _, point, *_ in heard.notes].count('before_valid_step') == 1
    assert heard.trainer.valid_loader.dataset.length == 4


def test_a_model_with_steps_of_its_own_is_the_trainers_model():
    heard, model = Heard(), Tiny()
    run(heard, model)
    assert (heard.trainer.model, heard.trainer.loss) == (model, None)


# --- replaced steps --------------------------------------------------------------------------------------------------


class MakesBatch(Callback):
    def make_batch(self, batch):
        x, y = batch
        return x * 0, y


class Steps(Callback):
    """Does what the default steps do, by itself."""

    def train_step(self, batch):
        input, target = batch
        self.trainer.optimizer.zero_grad()
        output = self.trainer.model(input)
        loss = self.trainer.loss(output, target)
        loss.backward()
        self.trainer.optimizer.step()
        return {'loss': loss.item(), 'train_batch_output': output}

    def valid_step(self, batch):
        input, target = batch
        return {'valid_batch_output': self.trainer.model(input)}


def test_a_batch_made_by_a_callback_is_what_all_see():
    class Sees(Callback):
        def after_train_step(self, batch_index, logs):
            seen.append(logs['train_batch'][0].abs().max().item())

        def after_valid_step(self, batch_index, logs):
            seen.append(logs['valid_batch'][0].abs().max().item())
            assert logs['preds'].unique().numel() == 1  # the bias alone

    seen = []
    run([MakesBatch(), Sees()])
    assert seen == [0.0, 0.0, 0.0]


def test_steps_of_a_callback_train_as_the_default_ones():
    default = run(Heard(), supervised({'error': MeanSquaredError()}), epochs=2)
    own = run(Steps(), supervised({'error': MeanSquaredError()}), epochs=2)
    assert weights(own.model).equal(weights(default.model))
    assert own.scores['error'] == default.scores['error']
    assert own.outputs['log_vars'] == {'loss': own.outputs['loss']}
    assert own.outputs['num_samples'] == 8


def test_a_step_that_leaves_the_update_to_the_run():
    class Loss(Callback):
        def train_step(self, batch):
            return {'loss': self.trainer.loss(self.trainer.model(batch[0]), batch[1])}

    assert weights(run(Loss()).model).equal(weights(run(Heard()).model))


def test_the_default_steps_can_be_called():
    class Twice(Callback):
        def after_train_step(self, batch_index, logs):
            again.append(self.trainer.train_step(logs['train_batch'])['loss'].item())
            again.append(self.trainer.valid_step(self.trainer.make_batch(logs['train_batch']))['loss'].item())

    again = []
    run(Twice())
    assert len(again) == 4
    assert again[0] == again[1]


# --- the run around it -----------------------------------------------------------------------------------------------


def test_a_failure_of_a_callback_ends_the_run_and_after_train_is_not_called():
    class Fails(Heard):
        def after_train_step(self, batch_index, logs):
            raise RuntimeError('no statistics')

    fails = Fails()
    with pytest.raises(RuntimeError, match='no statistics'):
        run(fails)
    assert 'after_train' not in [point for _, point, *_ in fails.notes]


def test_states_of_callbacks_are_saved_and_loaded(tmp_path):
    class Counts(Callback):
        steps = 0

        def after_train_step(self, batch_index, logs):
            self.steps += 1

        def state_dict(self):
            return {'steps': self.steps}

        def load_state_dict(self, state):
            self.steps = state['steps']

    first = run([Counts(), Heard()], work_dir=tmp_path, validates=False)
    first.save_checkpoint(str(tmp_path), 'x.pth')
    counts = Counts()
    runner = tiny_runner(model=supervised(), max_epochs=2)
    runner.register_hook(OptimizerHook(), priority='ABOVE_NORMAL')
    hook = VegaCallbacks([counts, Heard()])
    runner.register_hook(hook, priority='LOW')
    assert hook.state_dict() == {'Counts': {'steps': 0}}
    hook.load_state_dict({'Counts': {'steps': 2}})
    runner.run([loader(16, 8)], [('train', 1)])
    assert counts.steps == 6


def test_callbacks_by_name_and_by_config():
    CALLBACKS.register_module('Heard', module=Heard)
    try:
        hook = VegaCallbacks(['Heard', {'type': 'Heard', 'name': 'second', 'priority': 5}])
    finally:
        del CALLBACKS.module_dict['Heard']
    assert [callback.name for callback in hook.callbacks] == ['second', '']
    assert VegaCallbacks(Heard('one')).callbacks[0].name == 'one'


class OtherSteps(Steps):
    pass


@pytest.mark.parametrize(
    'callbacks, error, text',
    [
        (Recorder(), TypeError, r'must derive from runnerkit.compat.vega.Callback, but got <'),
        ('ModelStatistic', KeyError, 'ModelStatistic is not in the callback registry'),
        (
            'ProgressLogger',
            ValueError,
            'no callback here: log_config in the step says what is logged',
        ),
        ([Steps(), OtherSteps()], ValueError, 'Steps and OtherSteps both supply train_step'),
    ],
)
def test_wrong_callbacks(callbacks, error, text):
    with pytest.raises(error, match=text):
        VegaCallbacks(callbacks)


def test_a_run_that_does_not_fit_is_refused():
    runner = tiny_runner('iter', max_iters=2)
    runner.register_hook(VegaCallbacks(Heard()))
    with pytest.raises(ValueError, match='counts epochs, but the IterBasedRunner does not: use an EpochBasedRunner'):
        runner.run([loader()], [('train', 1)])
    runner = tiny_runner(max_epochs=1)
    runner.register_hook(EvalHook(loader()), priority='LOW')
    runner.register_hook(VegaCallbacks(Heard()))
    with pytest.raises(ValueError, match="before the EvalHook.*priority='LOW'"):
        runner.run([loader()], [('train', 1)])
    runner = tiny_runner(max_epochs=1)
    runner.batch_processor = lambda *args, **kwargs: {}
    runner.register_hook(VegaCallbacks(Heard()))
    with pytest.raises(ValueError, match='takes the place of batch_processor'):
        runner.run([loader()], [('train', 1)])

    class Nothing(Callback):
        def train_step(self, batch):
            return None

    with pytest.raises(TypeError, match='train_step of Nothing must return a dict, but got None'):
        run(Nothing())


# --- an evaluation without a training --------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', ['MakesBatch', 'Steps'])
def test_a_test_scores_as_the_training_did(kind, tmp_path, monkeypatch):
    monkeypatch.setitem(CALLBACKS.module_dict, kind, globals()[kind])
    config = dict(
        model=dict(
            type='Supervised',
            model=dict(type='Linear', in_features=4, out_features=1),
            loss=dict(type='MSELoss'),
            metrics=dict(error=dict(type='MeanSquaredError')),
        ),
        data=dict(batch_size=4, train=dict(type='support.Noisy'), val=dict(type='support.Noisy', length=6)),
        optimizer=dict(type='SGD', lr=0.1),
        runner=dict(type='EpochBasedRunner', max_epochs=1),
        evaluation=dict(interval=1),
        custom_hooks=[dict(type='VegaCallbacks', callbacks=kind, priority='LOW')],
        seed=0,
    )
    trained = train(config, tmp_path, device='cpu').scores
    assert score_again(config, 'val', tmp_path, device='cpu') == trained
    assert score_again({**config, 'custom_hooks': []}, 'val', tmp_path, device='cpu') != trained


def test_callbacks_without_steps_have_no_part_in_an_evaluation():
    assert VegaCallbacks(Heard()).for_evaluation() is None


# --- several processes -----------------------------------------------------------------------------------------------


def steps_on_a_rank(rank):
    hook, model = VegaCallbacks(Steps()), MMDistributedDataParallel(supervised({'error': MeanSquaredError()}))
    runner = tiny_runner(model=model, max_epochs=1)
    runner.register_hook(EvalHook(loader(6, 4, shuffle=False, round_up=False)), priority='LOW')
    runner.register_hook(hook, priority='LOW')
    runner.run([loader(16, 4)], [('train', 1)])
    return weights(model), runner.scores['error'].value, hook.trainer.batch_num_train, hook.trainer.is_chief


def test_steps_of_a_callback_synchronise_their_gradients(on_ranks):
    (first, *one), (second, *other) = on_ranks(__file__, 'steps_on_a_rank')
    assert first.equal(second)
    assert one[0] == other[0]  # the score
    assert (one[1:], other[1:]) == ([2, True], [2, False])
    alone = run(Steps())  # with batches of eight, and MSE's mean over equal shares
    assert torch.allclose(first, weights(alone.model), atol=1e-6)
