"""What submodules compute, made readable: outputs and gradients, when, at which cost, and what it must not change."""

import gc
import sys
import weakref
from typing import NamedTuple

import pytest
import torch
from support import Tiny, loader, tiny_runner, weights
from torch import Tensor, nn

from runnerkit.flow import Experiment
from runnerkit.hooks import CaptureHook, CheckpointHook, Hook, OptimizerHook
from runnerkit.nn.compiled import compile_model
from runnerkit.parallel import MMDataParallel, MMDistributedDataParallel, unwrap

FIRST, NORM, HEAD = 'body.0', 'body.1', 'head'


class Look(Hook):
    """Calls ``look(runner)`` after each training iteration, behind the other hooks."""

    def __init__(self, look):
        self.after_train_iter = look


def trained(hook, look=None, model=None, kind='epoch', optimizer_hook=None, val=None, **limits):
    """A runner that has trained with ``hook``."""
    runner = tiny_runner(kind, model, **(limits or {'max_iters': 6}))
    runner.register_hook(OptimizerHook() if optimizer_hook is None else optimizer_hook, 40)
    for each in hook if isinstance(hook, list) else [hook]:
        runner.register_hook(each)
    if look is not None:
        runner.register_hook(Look(look), 'LOW')
    runner.run([loader(12), *([] if val is None else [val])], [('train', 1), *([] if val is None else [('val', 1)])])
    return runner


def listeners(model):
    return sum(len(module._forward_hooks) for module in model.modules())


class Plain(nn.Module):
    """Without random numbers, so that its gradients can be computed again."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.body(x))

    def train_step(self, data, optimizer, **kwargs):
        loss = nn.functional.mse_loss(self(data[0]), data[1])
        return {'loss': loss, 'log_vars': {'loss': loss}, 'num_samples': len(data[0])}


WRAPPERS = {
    'none': lambda model: model,
    'DataParallel': lambda model: MMDataParallel(model, device_ids=[-1]),
    'compiled in place': lambda model: compile_model(model, backend='eager') or model,
    'compiled': lambda model: torch.compile(model, backend='eager'),
    'a compiled part': lambda model: setattr(model, 'body', torch.compile(model.body, backend='eager')) or model,
}


@pytest.mark.parametrize('wrapper', WRAPPERS)
def test_outputs_and_gradients_are_those_of_the_step(wrapper):
    torch.manual_seed(0)
    model = Plain()
    hook, seen = CaptureHook(['body', 'body.0', HEAD]), []

    class Before(Hook):
        def before_train_iter(self, runner):
            inner = unwrap(runner.model)
            x, y = runner.data_batch
            first = unwrap(inner.body)[0](x)
            body = first.tanh()
            out = inner.head(body)
            loss = nn.functional.mse_loss(out, y)
            seen.append((first, body, out, *torch.autograd.grad(loss, [first, body, out])))

    def look(runner):
        first, body, out, first_grad, body_grad, out_grad = seen[-1]
        assert torch.equal(hook.captured['body.0'].output, first)
        assert torch.equal(hook.captured['body'].output, body)
        assert torch.equal(hook.captured[HEAD].output, out)
        assert torch.equal(hook.captured['body.0'].grad, first_grad)
        assert torch.equal(hook.captured['body'].grad, body_grad)
        assert torch.equal(hook.captured[HEAD].grad, out_grad)
        assert not hook.captured[HEAD].output.requires_grad
        assert hook.captured[HEAD].iter == runner.iter

    trained([Before(), hook], look, WRAPPERS[wrapper](model))
    assert len(seen) == 6


def test_of_several_calls_output_and_gradient_are_those_of_the_last():
    class Twice(Plain):
        def forward(self, x):
            self.outs = [self.head(self.body(x)), self.head(self.body(2 * x))]
            return 3 * self.outs[0] + self.outs[1]

    def look(runner):
        assert torch.equal(hook.captured[HEAD].output, runner.model.outs[1])
        (grad,) = torch.autograd.grad(runner.outputs['loss'], runner.model.outs[1])
        assert torch.equal(hook.captured[HEAD].grad, grad)

    class Keeps(OptimizerHook):
        def after_train_iter(self, runner):
            runner.outputs['loss'].backward(retain_graph=True)

    hook = CaptureHook([HEAD])
    trained(hook, look, Twice(), optimizer_hook=Keeps(), max_iters=1)


def test_compiled_code_runs_in_all_other_iterations():
    ran = []

    def backend(graph, example_inputs):
        ran.append('compiled')

        def run(*args):
            ran.append('run')
            return graph.forward(*args)

        return run

    model, hook = Plain(), CaptureHook([HEAD], interval=3)
    compile_model(model, backend=backend)
    trained(hook, model=model)
    assert ran == ['compiled', 'run', 'run', 'run', 'run']
    assert hook.captured[HEAD].iter == 5


def test_bits_of_the_training_do_not_change():
    def losses(*hooks):
        runner = trained(list(hooks))
        return weights(runner.model), runner.model.losses

    hook = CaptureHook([FIRST, NORM, HEAD], log=['mean', 'std', 'norm', 'max', 'zeros'])
    (plain, expected), (captured, found) = losses(), losses(hook)
    assert torch.equal(plain, captured)
    assert found == expected


def test_only_the_captured_iterations_are_listened_to():
    heard, counts = [], []
    hook = CaptureHook([HEAD], interval=4)

    class Count(Hook):
        def before_train_iter(self, runner):
            counts.append(listeners(runner.model))

        def after_forward(self, runner):
            assert listeners(runner.model) == 0

    def look(runner):
        assert listeners(runner.model) == 0
        heard.append(hook.captured[HEAD].iter if hook.captured else None)

    runner = trained([hook, Count()], look, max_iters=10)
    assert counts == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    assert heard == [None] * 3 + [3] * 4 + [7] * 3  # what was captured stays until the next time
    assert hook.captured[HEAD].iter == 7
    assert listeners(runner.model) == 0


def test_an_iteration_that_is_not_captured_costs_three_calls():
    calls, file = [], sys.modules[CaptureHook.__module__].__file__
    hook = CaptureHook([HEAD], interval=100, log=['mean'])

    def count(frame, event, arg):
        if event == 'call' and frame.f_code.co_filename == file:
            calls.append(frame.f_code.co_name)

    class Count(Hook):
        def before_run(self, runner):
            sys.setprofile(count)

        def after_run(self, runner):
            sys.setprofile(before)

    before = sys.getprofile()
    trained([hook, Count()], max_iters=4)
    assert calls[:12] == ['before_train_iter', 'after_forward', 'after_train_iter'] * 4


def test_an_iteration_that_was_left_to_go_back_leaves_no_listener(tmp_path):
    class GoesBack(Hook):
        def after_forward(self, runner):  # before the hook that captures
            if runner.iter == 2 and not self.done:
                self.done = True
                runner.roll_back(runner.last_checkpoint())

        done = False

    counts, hook = [], CaptureHook([HEAD], interval=3)
    runner = tiny_runner(max_iters=4, work_dir=tmp_path)
    for each in (OptimizerHook(), GoesBack(), hook, CheckpointHook(1, by_epoch=False)):
        runner.register_hook(each)
    runner.register_hook(Look(lambda runner: counts.append((runner.iter, listeners(runner.model)))))
    runner.run([loader(12)], [('train', 1)])
    assert counts == [(i, 0) for i in (0, 1, 2, 3)]
    assert hook.captured[HEAD].iter == 2


def test_values_of_the_last_captured_iteration_alone_are_kept():
    hook, references = CaptureHook([NORM]), []

    class Behind(Hook):
        def before_train_iter(self, runner):  # before the model computes new ones
            gc.collect()
            assert [reference() is None for reference in references] == [True] * runner.iter

    def look(runner):
        captured = hook.captured[NORM]
        assert captured.output.grad_fn is None
        assert captured.grad.grad_fn is None
        references.append(weakref.ref(captured.output))

    trained([hook, Behind()], look)
    assert len(references) == 6


class Pair(NamedTuple):
    """Two outputs."""

    left: Tensor
    right: Tensor


class Several(nn.Module):
    """Returns tensors in everything that a forward may return, and changes one of them in place afterwards."""

    def __init__(self):
        super().__init__()
        self.part = Part()

    def train_step(self, data, optimizer):
        self.found = self.part(data[0])
        loss = self.found['pair'].left.relu_().mean() + self.found['list'][0].sum()
        return {'loss': loss, 'num_samples': 4}


class Part(nn.Module):
    """See `Several`."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        other = object()
        return {'pair': Pair(y * 2, y.detach()), 'list': [y + 1, 3, 'text', other], 'none': None}


def test_what_a_module_returns_keeps_its_form_and_its_values():
    hook = CaptureHook('part', log='norm')

    def look(runner):
        output, grad = hook.captured['part'].output, hook.captured['part'].grad
        assert isinstance(output['pair'], Pair)
        assert output['list'][1:] == [3, 'text', None]
        assert output['none'] is None
        assert output['pair'].left.min() < 0 <= runner.model.found['pair'].left.min()  # in place, after it was captured
        assert torch.allclose(output['pair'].left, 2 * output['pair'].right)
        assert grad['pair'].right is None
        assert torch.equal(grad['pair'].left, (output['pair'].left > 0) / 16.0)
        assert torch.equal(grad['list'][0], torch.ones(4, 4))
        names = [name for name in runner.log_buffer.val_history if name.startswith('part')]
        assert names == [f'part[{i}]' + kind for i, kind in
                         ((0, '.output_norm'), (0, '.grad_norm'), (1, '.output_norm'), (2, '.output_norm'),
                          (2, '.grad_norm'))]  # fmt: skip

    trained(hook, look, Several(), max_iters=2)


def test_statistics_are_logged():
    hook, seen = CaptureHook([FIRST, HEAD], log=['mean', 'std', 'norm', 'max', 'zeros']), []

    def look(runner):
        captured = hook.captured[HEAD]
        seen.append(captured.output.norm())
        logged = {name: float(values[-1]) for name, values in runner.log_buffer.val_history.items()}
        for kind, value in (('output', captured.output), ('grad', captured.grad)):
            assert logged[f'head.{kind}_mean'] == pytest.approx(float(value.mean()))
            assert logged[f'head.{kind}_std'] == pytest.approx(float(value.std(correction=0)))
            assert logged[f'head.{kind}_norm'] == pytest.approx(float(value.norm()))
            assert logged[f'head.{kind}_max'] == pytest.approx(float(value.abs().max()))
            assert logged[f'head.{kind}_zeros'] == 0
        assert runner.log_buffer.n_history['head.output_norm'][-1] == 4
        if runner.iter == 2:
            runner.log_buffer.average()
            assert runner.log_buffer.output['head.output_norm'] == pytest.approx(float(sum(seen) / 3))

    trained(hook, look)


def test_an_experiment_that_updates_by_hand():
    class Fit(Experiment):
        def setup_dataloader(self):
            self.train_loader = self.valid_loader = loader(8)

        def setup_model(self):
            self.model = Plain()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

        def train_batch(self):
            x, y = self.read_batch()
            self.out = self.model(x)
            self.out.retain_grad()
            loss = nn.functional.mse_loss(self.out, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return {'loss': loss}

        def valid(self):
            return {'mean': torch.cat([self.model(x) for x, _ in self.valid_loader]).mean()}

    hook, seen = CaptureHook([HEAD]), []

    def look(runner):
        seen.append(hook.captured[HEAD].grad)
        assert torch.equal(seen[-1], runner.out.grad)

    experiment = Fit({'training': {'max_iteration': 3, 'valid_interval': 3}}, {})
    experiment.setup_dataloader()
    experiment.setup_model()
    experiment.register_hook(hook)
    experiment.register_hook(Look(look))
    experiment.run()
    assert len(seen) == 3
    assert hook.captured[HEAD].grad is not None
    experiment.valid()
    assert listeners(experiment.model) == 0


def test_a_module_that_is_not_called_is_told_once(caplog):
    class Idle(Tiny):
        def __init__(self):
            super().__init__()
            self.idle = nn.Linear(1, 1)

    hook = CaptureHook(['idle', HEAD])
    trained(hook, model=Idle())
    told = [record.getMessage() for record in caplog.records if 'not called' in record.getMessage()]
    assert len(told) == 1
    assert 'CaptureHook: idle: not called in iteration 1' in told[0]
    assert set(hook.captured) == {HEAD}


@pytest.mark.parametrize(
    'arguments, text',
    [
        ({'modules': []}, 'name at least one submodule'),
        ({'modules': [3]}, 'modules must be a name or a list of names, but got [3]'),
        ({'modules': 'head', 'log': 'maen'}, "but got 'maen'; did you mean 'mean'?"),
        ({'modules': 'head', 'interval': 0}, 'interval must be'),
    ],
)
def test_wrong_arguments(arguments, text):
    with pytest.raises((TypeError, ValueError)) as error:
        CaptureHook(**arguments)
    assert text in str(error.value)


@pytest.mark.parametrize('name, hint', [('haed', "did you mean 'head'?"), ('xyz', 'its children: body, head')])
def test_a_wrong_name_is_refused_before_the_first_batch(name, hint):
    model = Tiny()
    with pytest.raises(ValueError, match=f'Tiny has no submodule {name!r}; ') as error:
        trained(CaptureHook([name]), model=MMDataParallel(model, device_ids=[-1]))
    assert hint in str(error.value)
    assert model.losses == []


def distributed(rank):
    torch.manual_seed(0)
    found = []
    for hooks in ([], [CaptureHook(['body.0', HEAD], log=['norm'])]):
        torch.manual_seed(0)
        runner = trained(hooks, model=MMDistributedDataParallel(Plain()), max_iters=3)
        found.append(weights(runner.model))
    captured = hooks[0].captured[HEAD]
    return torch.equal(*found), captured.output, captured.grad


def test_on_ranks_outputs_and_gradients_are_their_own(on_ranks):
    (same, output, grad), (_, other, other_grad) = on_ranks(__file__, 'distributed')
    assert same
    assert not torch.equal(output, other)
    assert not torch.equal(grad, other_grad)
