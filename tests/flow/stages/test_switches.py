"""The switches of a config: what they set, that wrong values are refused, and that a run can be resumed with each."""

import pytest
import torch

from runnerkit.config import Config, PreflightError
from runnerkit.data import prefetch
from runnerkit.flow import Context, Flow, Instance, Network, Options
from runnerkit.flow.preflight import check_switches
from runnerkit.flow.stages.defaults import compile_options
from runnerkit.flow.stages.loading import build_loaders

CONVOLUTIONS = [
    {'type': 'Unflatten', 'dim': 1, 'unflattened_size': (1, 2, 2)},
    {'type': 'Conv2d', 'in_channels': 1, 'out_channels': 3, 'kernel_size': 2, 'padding': 1},
    {'type': 'BatchNorm2d', 'num_features': 3},
    {'type': 'ReLU'},
    {'type': 'Dropout', 'p': 0.3},
    {'type': 'Conv2d', 'in_channels': 3, 'out_channels': 2, 'kernel_size': 2},
    {'type': 'Flatten'},
    {'type': 'Linear', 'in_features': 8, 'out_features': 1},
]
LINEAR = [
    {'type': 'Linear', 'in_features': 4, 'out_features': 8},
    {'type': 'BatchNorm1d', 'num_features': 8},
    {'type': 'ReLU'},
    {'type': 'Dropout', 'p': 0.3},
    {'type': 'Linear', 'in_features': 8, 'out_features': 1},
]
MODEL = {'type': 'Supervised', 'model': CONVOLUTIONS, 'loss': {'type': 'MSELoss'}}


@pytest.fixture(autouse=True)
def backends_as_they_were():
    cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    yield
    cuda.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = before
    torch.compiler.reset()


@pytest.mark.parametrize(
    'cfg, message',
    [
        ({'channels_last': 'yes'}, "channels_last: must be True or False, but got 'yes'"),
        ({'cudnn_benchmark': 1}, 'cudnn_benchmark: must be True or False, but got 1'),
        ({'tf32': 'high'}, "tf32: must be True or False, but got 'high'"),
        ({'prefetch': 2}, 'prefetch: must be True or False, but got 2'),
        ({'num_threads': 'all'}, "num_threads: must be a whole number of at least 1, but got 'all'"),
        ({'compile': 'inductor'}, "compile must be True, False or a dict such as .* but got 'inductor'"),
        ({'compile': {'fullgraph': 'no'}}, "compile: fullgraph must be True or False, but got 'no'"),
        ({'amp': 'fp8'}, "amp: must be 'bf16' or 'fp16', but got 'fp8'"),
        ({'amp': True}, 'amp: must be'),
        ({'fp16': 16}, 'fp16: must be a dict such as'),
    ],
)
def test_wrong_values(cfg, message):
    with pytest.raises(PreflightError, match=message):
        check_switches(Config(cfg))


def test_what_other_commands_do_not_read_is_not_looked_at():
    check_switches(Config({'optimizer': {'type': 'SGD', 'lr': 'high'}, 'evaluation': {'interval': 0}}))


@pytest.mark.parametrize(
    'value, options', [(None, None), (False, None), (True, {}), ({}, {}), ({'mode': 'default'}, {'mode': 'default'})]
)
def test_what_compile_says(value, options):
    cfg = Config({'compile': value})
    check_switches(cfg)
    assert compile_options(cfg) == options


@pytest.mark.filterwarnings('error')
def test_tf32_holds_for_products_and_convolutions_and_can_be_asked_for():
    for allowed in (True, False):
        Instance(None).set_backends(Context(Config({'tf32': allowed})))
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cudnn.allow_tf32 is allowed
        assert torch.get_float32_matmul_precision() == ('high' if allowed else 'highest')  # torch.compile asks, too


@pytest.mark.parametrize('before', [True, False])
@pytest.mark.parametrize('value', [True, False, None])
def test_backends_are_switched_on_and_off_or_left_alone(before, value):
    Instance(None).set_backends(Context(Config({'tf32': before})))
    torch.backends.cudnn.benchmark = before
    Instance(None).set_backends(Context(Config({'tf32': value, 'cudnn_benchmark': value})))
    Instance(None).set_backends(Context(Config({'cudnn_benchmark': True}), Options(deterministic=True)))
    expected = before if value is None else value
    assert torch.backends.cudnn.allow_tf32 is torch.backends.cuda.matmul.allow_tf32 is expected
    assert torch.backends.cudnn.benchmark is expected


def data(**settings):
    return {'samples_per_gpu': 4, 'train': {'type': 'support.Noisy', 'length': 18}, **settings}


def test_loaders_of_a_gpu_prefetch_from_pinned_memory():
    gpu = torch.device('cuda', 0)
    for cfg, device, expected in (
        ({'prefetch': True}, gpu, (True, gpu)),
        ({'prefetch': True}, torch.device('cpu'), (False, None)),
        ({'prefetch': False}, gpu, (False, None)),
        ({}, gpu, (False, None)),
    ):
        (loader,) = build_loaders(Context(Config(cfg), device=device), data(), 'train').values()
        assert (loader.pin_memory, loader.prefetch_to) == expected
    context = Context(Config({'prefetch': True}), device=gpu)
    (loader,) = build_loaders(context, data(pin_memory=False), 'train').values()
    assert (loader.pin_memory, loader.prefetch_to) == (False, gpu)


def test_where_prefetching_has_no_effect_it_is_said(caplog):
    caplog.set_level('INFO')
    Instance(None).set_backends(Context(Config({'prefetch': True})))
    assert 'prefetch=True has no effect on the device cpu' in caplog.text
    context = Context(Config({'prefetch': True}), device=torch.device('cuda', 0))
    build_loaders(context, data(seeded=False), 'train')
    assert 'prefetch=True has no effect on data.train, which has seeded=False' in caplog.text


def test_the_layout_is_that_of_the_weights_before_the_optimizer_sees_them():
    context = Context(Config({'model': MODEL, 'channels_last': True, 'optimizer': {'type': 'SGD', 'lr': 0.1}}))
    Network(None).build_model(context)
    Network(None).build_optimizer(context)
    weights = [each for group in context.optimizer.param_groups for each in group['params'] if each.dim() == 4]
    assert len(weights) == 2
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in weights)
    # Batches may stay as they are: what the first convolution gives has the layout of its weights.
    inner = context.model.model
    assert inner[1](torch.rand(4, 1, 2, 2)).is_contiguous(memory_format=torch.channels_last)


class OnTheCpu:
    """Copies that go nowhere."""

    def start(self, batch):
        return batch

    def finish(self, started):
        return started


def train(work_dir, switches, resume_from=None):
    """Two epochs of five iterations, the last of which has a batch of two; what the last checkpoint holds."""
    cfg = {
        'model': MODEL,
        'data': data(val={'type': 'support.Noisy', 'length': 6}),
        'optimizer': {'type': 'SGD', 'lr': 0.1, 'momentum': 0.9},
        'optimizer_config': {'grad_clip': {'max_norm': 1.0}},
        'lr_config': {'policy': 'step', 'step': [1]},
        'runner': {'type': 'EpochBasedRunner', 'max_epochs': 2},
        'checkpoint_config': {'interval': 4, 'by_epoch': False},
        'evaluation': {'interval': 1},
        'log_config': {'interval': 2, 'hooks': [{'type': 'TextLoggerHook'}]},
        'custom_hooks': [{'type': 'EMAHook', 'momentum': 0.1}],
        'timer_config': None,  # no two runs take the same time
        'seed': 3,
        **switches,
    }
    options = Options(work_dir=str(work_dir), device='cpu', resume_from=resume_from and str(resume_from))
    torch.compiler.reset()  # what a new process begins with
    context = Flow(Config(cfg), options).run()
    assert context.outcome.kind == 'completed'
    return torch.load(work_dir / 'iter_10.pth')


def tensors(state):
    """All tensors of a nested state by their place in it."""
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    found = {'': state} if isinstance(state, torch.Tensor) else {}
    for key, value in items:
        found.update({f'{key}.{place}': each for place, each in tensors(value).items()})
    return found


def test_threads_are_those_of_the_config_and_compared_at_the_resume(tmp_path, caplog):
    before = torch.get_num_threads()
    with pytest.raises(PreflightError, match='num_threads: must be a whole number of at least 1, but got 0'):
        check_switches(Config({'num_threads': 0}))
    with caplog.at_level('INFO'):
        saved = train(tmp_path / 'first', {'num_threads': before + 1})
    assert saved['runnerkit']['conditions']['threads'] == before + 1
    assert f'device cpu with {before + 1} threads' in caplog.text
    assert torch.get_num_threads() == before
    train(tmp_path / 'same', {'num_threads': before + 1}, tmp_path / 'first' / 'iter_4.pth')
    assert 'num_threads in the config sets' not in caplog.text
    train(tmp_path / 'other', {'num_threads': before}, tmp_path / 'first' / 'iter_4.pth')
    (line,) = [line for line in caplog.text.splitlines() if line.startswith('threads')]
    assert line.split()[1:3] == [str(before + 1), str(before)]


CASES = {
    'channels_last': {'channels_last': True},
    'compile': {'compile': {'backend': 'aot_eager'}},
    'compile of parts': {'compile': {'backend': 'aot_eager', 'modules': ['model.1', 'model.7']}},
    # Each kernel takes a C++ compiler a second: few of them, and without vectors, which take it longer.
    'compile by inductor': {
        'compile': {'options': {'cpp.simdlen': 1}},
        'model': {**MODEL, 'model': LINEAR},
        'data': data(),
        'evaluation': None,
    },
    'amp': {'amp': 'bf16'},
    'prefetch': {'prefetch': True, 'data': data(train_dataloader={'prefetch_to': 'cuda'}), 'evaluation': None},
    'backends': {'tf32': True, 'cudnn_benchmark': True},
    'all': {
        'channels_last': True,
        'compile': {'backend': 'eager'},
        'amp': 'bf16',
        'tf32': False,
        'data': data(train_dataloader={'prefetch_to': 'cuda'}),
        'evaluation': None,
    },
}


@pytest.mark.parametrize(
    'name',  # 'all' compiles as well
    [
        pytest.param(name, marks=pytest.mark.thorough) if 'inductor' in name or name.startswith('compile') else name
        for name in CASES
    ],
)
def test_a_resumed_run_is_the_undisturbed_one_with_each_switch(name, tmp_path, monkeypatch):
    """Weights, averages, momentum and everything else, with their strides; names are those of a plain run."""
    monkeypatch.setattr(prefetch, 'side_stream', lambda device: OnTheCpu())
    whole = train(tmp_path / 'whole', CASES[name])
    layers = CASES[name].get('model', MODEL)['model']
    plain = {each for n, layer in enumerate(layers) for each in names(n, layer['type'])}
    assert {key for key in whole['state_dict'] if not key.startswith('ema_')} == plain
    expected = tensors([whole['state_dict'], whole['optimizer'], whole['runnerkit']['ranks']])
    # What comes next is the one batch of another size: it is the first that is compiled now.
    resumed = train(tmp_path / 'resumed', CASES[name], tmp_path / 'whole' / 'iter_4.pth')
    found = tensors([resumed['state_dict'], resumed['optimizer'], resumed['runnerkit']['ranks']])
    assert found.keys() == expected.keys()
    for place, each in expected.items():
        assert torch.equal(found[place], each), place
        assert found[place].stride() == each.stride(), place
    if 'channels_last' in CASES[name]:
        moments = [each for place, each in expected.items() if 'momentum_buffer' in place and each.dim() == 4]
        assert len(moments) == 2
        assert all(each.is_contiguous(memory_format=torch.channels_last) for each in moments)


def names(n, layer):
    if layer in ('Unflatten', 'Flatten', 'ReLU', 'Dropout'):
        return []
    of_norm = ['running_mean', 'running_var', 'num_batches_tracked'] if layer.startswith('BatchNorm') else []
    return [f'model.{n}.{each}' for each in ['weight', 'bias', *of_norm]]


@pytest.mark.parametrize(
    'name',
    [
        'channels_last',
        # The names of compiled models are in the test above.
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ('compile', 'compile of parts')),
    ],
)
def test_a_checkpoint_goes_on_in_a_run_without_the_switch_and_back(name, tmp_path):
    train(tmp_path / 'plain', {})
    train(tmp_path / 'with', CASES[name])
    for folder, switches in (('plain', CASES[name]), ('with', {})):
        state = train(tmp_path / f'from_{folder}', switches, tmp_path / folder / 'iter_4.pth')
        assert torch.load(tmp_path / 'plain' / 'iter_10.pth')['state_dict'].keys() == state['state_dict'].keys()


def test_only_weights_of_four_dimensions_get_the_layout():
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3), torch.nn.Conv3d(3, 3, 3))
    Network(None).build_model(Context(Config({'model': model, 'channels_last': True})))
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[1].weight.is_contiguous()
