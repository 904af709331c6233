"""Compiling in place: what is compiled, what stays as it was, and what is refused."""

import copy
import functools
import pickle

import pytest
import torch
from support import Tiny, tiny_runner, weights
from torch import nn

from runnerkit.hooks import EMAHook
from runnerkit.nn.compiled import check_options, compile_model, uses_cuda_graphs


@pytest.fixture(autouse=True)
def forget_what_was_compiled():
    yield
    torch.compiler.reset()


class Counting:
    """A backend that compiles nothing and counts the operations of every graph it is given."""

    def __init__(self):
        self.graphs = []

    def __call__(self, graph, inputs):
        self.graphs.append(sum(node.op.startswith('call') for node in graph.graph.nodes))
        return graph.forward


def one_step(model, n=4):
    """Outputs of one step, and of one without gradients."""
    data = torch.ones(n, 4), torch.zeros(n, 1)
    loss = model.train_step(data, None)['loss']
    loss.backward()
    with torch.no_grad():
        return loss.detach(), model.val_step(data)['loss']


def test_the_whole_model_is_one_graph_and_keeps_its_class_and_names():
    plain = Tiny()
    model, backend = copy.deepcopy(plain), Counting()
    compile_model(model, backend=backend)
    torch.manual_seed(1)
    found = one_step(model)
    assert backend.graphs == [6, 6]  # with gradients and without; BatchNorm counts its batches
    torch.manual_seed(1)
    assert found == one_step(plain)
    assert type(model) is Tiny
    assert list(model.state_dict()) == list(plain.state_dict())


def test_submodules_of_torch_itself_are_compiled_too():
    """For an nn.Sequential, Module.compile by itself does nothing."""
    model, backend = Tiny(), Counting()
    compile_model(model, modules=['body', 'head'], backend=backend)
    model(torch.ones(2, 4))
    assert sorted(backend.graphs) == [1, 5]


def test_copies_are_whole_models_of_their_own():
    model, backend = Tiny(), Counting()
    compile_model(model, modules=['body', 'head'], backend=backend)
    model.eval()
    model(torch.ones(2, 4))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(torch.ones(2, 4)), model(torch.ones(2, 4)))
        with torch.no_grad():
            twin.head.weight.zero_()
            twin.head.bias.fill_(7.0)
        assert twin(torch.ones(2, 4)).tolist() == [[7.0], [7.0]]
    assert len(backend.graphs) == 2


def test_averages_are_seen_by_what_is_compiled(tmp_path):
    scores = []
    for compiled in (False, True):
        runner = tiny_runner(max_epochs=1)
        if compiled:
            compile_model(runner.model, backend='eager')
        runner.register_training_hooks({'policy': 'fixed'}, {}, custom_hooks_config=[EMAHook(momentum=0.3)])
        data = [(torch.randn(4, 4, generator=GENERATOR.manual_seed(i)), torch.ones(4, 1)) for i in range(5)]
        runner.run([data], [('train', 1)])
        scores.append((weights(runner.model).tolist(), runner.evaluate(data)['loss']))
    assert scores[0] == scores[1]


GENERATOR = torch.Generator()


@pytest.mark.parametrize(
    'options, error, message',
    [
        ({'mod': 'default'}, ValueError, "compile has no key 'mod'; did you mean 'mode'"),
        ({'modules': ['bodi']}, ValueError, "compile: Tiny has no submodule 'bodi'; did you mean 'body'"),
        ({'modules': ['xyz']}, ValueError, "no submodule 'xyz'; its children: body, head"),
        ({'modules': 'body'}, TypeError, "modules must be a list of the names of submodules, .* got 'body'"),
        ({'modules': []}, TypeError, r'modules must be a list of the names of submodules, .* got \[\]'),
        ({'fullgraph': 1}, TypeError, 'compile: fullgraph must be True or False, but got 1'),
        ({'dynamic': 'yes'}, TypeError, "compile: dynamic must be True, False or None, but got 'yes'"),
        ({'mode': 'fast'}, ValueError, 'compile: torch refuses these settings: Unrecognized mode=fast'),
        ({'backend': 'none'}, ValueError, "compile: torch refuses these settings: Invalid backend: 'none'"),
    ],
)
def test_wrong_settings(options, error, message):
    with pytest.raises(error, match=message):
        compile_model(Tiny(), **options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
@pytest.mark.parametrize('modules', [None, ['0', '1']])
def test_recorded_graphs_accumulate_gradients_and_evaluate_like_plain_modules(modules):
    plain = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)).cuda()
    model = copy.deepcopy(plain)
    compile_model(model, modules=modules, mode='reduce-overhead')
    for i in range(6):
        x = torch.full((4, 8), 0.1 * i, device='cuda')
        losses = [each(x).square().mean() for each in (plain, model)]
        for loss in losses:
            loss.backward()
        torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close([each.grad for each in plain.parameters()], [each.grad for each in model.parameters()])
    with torch.no_grad():
        for i in range(6):
            x = torch.full((4, 8), 0.1 * i, device='cuda')
            torch.testing.assert_close(plain(x), model(x))


def test_what_has_no_forward_is_refused():
    class Gan(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([nn.Linear(1, 1)])

    with pytest.raises(ValueError, match=r'Gan has no forward .* compile=dict\(modules=\[…\]\), of parts'):
        compile_model(Gan())
    with pytest.raises(ValueError, match=r"the submodule 'parts' has no forward .*, of parts\.0"):
        compile_model(Gan(), modules=['parts'])


@pytest.mark.parametrize(
    'options, expected',
    [
        ({}, False),
        ({'mode': 'reduce-overhead'}, True),
        ({'mode': 'max-autotune'}, True),
        ({'mode': 'max-autotune-no-cudagraphs'}, False),
        ({'options': {'triton.cudagraphs': True}}, True),
        ({'backend': 'cudagraphs'}, True),
        ({'backend': 'eager'}, False),
    ],
)
def test_what_records_cuda_graphs(options, expected):
    check_options(options)
    assert uses_cuda_graphs(options) is expected


def test_a_batch_begins_once_where_several_modules_are_recorded(monkeypatch):
    marks = []
    monkeypatch.setattr(torch.compiler, 'cudagraph_mark_step_begin', lambda: marks.append(1))
    for options in ({'modules': ['body', 'head']}, {}):
        model = Tiny()
        compile_model(model, mode='reduce-overhead', **options)
        for hook in model._forward_pre_hooks.values():
            hook(model, ())
    assert marks == [1]


def test_a_forward_that_was_wrapped_is_what_is_compiled():
    """`functools.wraps` copies the name of torch's module; the wrapper is the user's all the same."""
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    old = model[0].forward

    @functools.wraps(old)
    def hundredfold(x):
        return old(x) * 100

    model[0].forward = hundredfold
    x = torch.ones(1, 2)
    expected = model(x)
    compile_model(model, modules=['0'], backend='eager')
    assert torch.equal(model(x), expected)
