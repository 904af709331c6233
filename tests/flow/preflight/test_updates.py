"""The checks of what updates the weights."""

import pytest
import torch
from plans import plan, said, told
from support import Tiny, tiny_runner

from runnerkit.flow.preflight import Plan
from runnerkit.hooks import HOOKS, Hook, OptimizerHook
from runnerkit.nn import MODELS, build_model
from runnerkit.optim import OPTIMIZER_BUILDERS, OPTIMIZERS
from runnerkit.runner import EpochBasedRunner

TINY = {'model': {'type': 'PlanTiny'}, 'evaluation': None}


@HOOKS.register_module()
class PlanUpdates(Hook):
    def after_train_iter(self, runner):
        runner.outputs['loss'].backward()
        runner.optimizer.step()


@HOOKS.register_module()
class PlanUpdatesByRunner(Hook):
    def after_train_iter(self, runner):
        runner.update(runner.outputs['loss'])


@HOOKS.register_module()
class PlanUpdatesADict(Hook):
    def after_train_iter(self, runner):
        runner.meta.update(a=1)


@HOOKS.register_module()
class PlanThaws(Hook):
    def before_train_epoch(self, runner):
        runner.model.requires_grad_(True)


@HOOKS.register_module()
class PlanUpdatesOne(OptimizerHook):
    def after_train_iter(self, runner):
        runner.optimizer.step()


@MODELS.register_module()
class PlanInner(torch.nn.Module):
    """A model whose part updates the weights."""

    def __init__(self):
        super().__init__()
        self.part = MODELS.get('PlanStepper')()

    def train_step(self, data, optimizer):
        return self.part.train_step(data, optimizer)


@OPTIMIZER_BUILDERS.register_module()
class PlanPartOnly:
    """Leaves the second half of the parameters out; if asked to, all of the model's."""

    def __init__(self, optimizer_cfg, paramwise_cfg=None):
        self.cfg = dict(optimizer_cfg)

    def __call__(self, model):
        parameters, keep = list(model.parameters()), self.cfg.pop('keep')
        if keep == 'none':
            parameters = [torch.nn.Parameter(torch.zeros(1))]
        groups = [{'params': parameters if keep != 'half' else parameters[:2]}]
        if keep == 'empty group':
            groups.append({'params': []})
        return OPTIMIZERS.get(self.cfg.pop('type'))(groups, **self.cfg)


def keeping(keep):
    return {'optimizer': {'type': 'SGD', 'lr': 0.1, 'constructor': 'PlanPartOnly', 'keep': keep}}


NONE = {'optimizer_config': None}

CASES = [
    ('warning', NONE, 'optimizer_config', 'the weights never change', {'optimizer_config': {}}),
    ('warning', NONE, 'optimizer_config', 'Supervised', {'custom_hooks': [{'type': 'PlanUpdates'}]}),
    ('warning', {**NONE, 'custom_hooks': [{'type': 'PlanUpdatesADict'}]}, 'optimizer_config', 'Supervised',
     {'custom_hooks': [{'type': 'PlanUpdatesByRunner'}]}),
    ('warning', {**NONE, 'model': {'type': 'PlanBlind'}, 'evaluation': None}, 'optimizer_config', 'PlanBlind',
     {'model': {'type': 'PlanStepper'}}),
    ('warning', {**NONE, 'model': {'type': 'PlanBlind'}, 'evaluation': None}, 'optimizer_config', 'PlanBlind',
     {'model': {'type': 'PlanInner'}}),
    ('warning', {'custom_hooks': [{'type': 'OptimizerHook'}] * 2, **NONE}, 'custom_hooks[1]', 'updates nothing',
     {'custom_hooks': [{'type': 'PlanUpdatesOne'}] * 2}),
    ('warning', {**NONE, 'amp': 'bf16'}, 'amp', 'no OptimizerHook is registered', {'optimizer_config': {}}),
    ('error', {'model': {'type': 'PlanNoOptimizer'}, 'evaluation': None}, 'model', '(data, optimizer)',
     {'model': {'type': 'PlanBlind'}}),
    ('warning', {'custom_hooks': [{'type': 'OptimizerHook'}]}, 'custom_hooks[0]', 'updates nothing', NONE),
    ('error', {**TINY, 'model.frozen': True}, 'model', 'frozen', {'model.frozen': False}),
    ('warning', {**TINY, 'model.frozen': True, 'custom_hooks': [{'type': 'PlanThaws'}]}, 'model', 'before PlanThaws',
     {'model.frozen': False}),
    ('error', {**TINY, 'model.frozen': True, 'custom_hooks': [{'type': 'FreezeHook', 'patterns': 'x', 'until': 1}]},
     'model', 'frozen', {'model.frozen': False, 'custom_hooks': None}),
    ('error', keeping('none'), 'optimizer', 'no parameter of Sequential', keeping('all')),
    ('warning', keeping('half'), 'optimizer', '2 trainable parameters are in no optimizer', keeping('all')),
    ('warning', keeping('empty group'), 'optimizer', 'group 1 is empty', keeping('all')),
    ('warning', {'optimizer.lr': 0, 'lr_config': None}, 'optimizer.lr', 'is 0', {'optimizer.lr': 0.1}),
]  # fmt: skip


@pytest.mark.parametrize('level, wrong, key, words, right', CASES)
def test_wrong_and_right(level, wrong, key, words, right, tmp_path):
    assert told(plan(tmp_path, wrong), level, key, words), said(plan(tmp_path, wrong))
    assert said(plan(tmp_path, wrong, right)) == []


def test_an_optimizer_over_frozen_parameters_is_told():
    model = Tiny()
    model.body.requires_grad_(False)
    for trained, errors in ((model.body, ['the optimizer holds frozen parameters only']), (model.head, [])):
        runner = tiny_runner(
            model=model, optimizer=lambda _, t=trained: torch.optim.SGD(t.parameters(), 0.1), max_epochs=1
        )
        runner.register_optimizer_hook({})
        found = said(Plan(runner=runner, loaders=[[1]], workflow=[('train', 1)]))
        assert [text.split(':')[0] for (level, _), text in found if level == 'error'] == errors


def test_one_of_several_optimizers_may_wait_for_its_turn():
    model = Tiny()
    model.body.requires_grad_(False)
    optimizers = {name: torch.optim.SGD(getattr(model, name).parameters(), 0.1) for name in ('body', 'head')}
    runner = tiny_runner(model=model, optimizer=lambda _: optimizers, max_epochs=1)
    runner.register_optimizer_hook({})
    (((level, _), text),) = said(Plan(runner=runner, loaders=[[1]], workflow=[('train', 1)]))
    assert level == 'warning'
    assert "the optimizer 'body' holds frozen parameters only" in text


@pytest.mark.parametrize('steps', [False, True])
@pytest.mark.filterwarnings('ignore:batch_processor')
def test_a_batch_processor_may_update(steps):
    def updates(model, data, train_mode):
        model.optimizer.step()

    def only_computes(model, data, train_mode):
        return {}

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    runner = EpochBasedRunner(model, updates if steps else only_computes, optimizer, max_epochs=1)
    found = said(Plan(runner=runner, loaders=[[1]], workflow=[('train', 1)]))
    assert [text for _, text in found if 'never change' in text] == [text for _, text in found]
    assert bool(found) is not steps


def test_a_step_in_a_file_of_the_user_may_update(tmp_path):
    (tmp_path / 'steps.py').write_text(
        'import torch\n\n\nclass Steps(torch.nn.Linear):\n    def train_step(self, data, optimizer):\n'
        '        optimizer.step()\n        return dict(log_vars={}, num_samples=1)\n'
    )
    model = build_model({'type': f'{tmp_path}/steps.py:Steps', 'in_features': 4, 'out_features': 1})
    runner = tiny_runner(model=model, max_epochs=1)
    assert said(Plan(runner=runner, loaders=[[1]], workflow=[('train', 1)])) == []
