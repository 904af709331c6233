"""Everything that goes by a parameter's name, for every kind of name that a parameter can have."""

from pathlib import Path

import pytest
import torch
from support import At, Tiny, loader, tiny_runner
from torch import nn

from runnerkit import load_model
from runnerkit.checkpoint import ema_name, get_state_dict, load_checkpoint
from runnerkit.checkpoint.convert import convert_checkpoint
from runnerkit.checkpoint.loader import load_safetensors
from runnerkit.flow.moment.diff import diff
from runnerkit.flow.moment.exactly import Recorder
from runnerkit.flow.use.publish import publish
from runnerkit.hooks import CheckpointHook, EMAHook, FreezeHook, Hook, OptimizerHook
from runnerkit.hooks.fingerprint import fingerprint
from runnerkit.nn import MODELS
from runnerkit.optim import build_optimizer
from runnerkit.parallel import FSDP2, MMDistributedDataParallel, unwrap
from runnerkit.parallel.dtensors import all_of


class Net(Tiny):
    """Layers of one size, so that they can be shared.

    Args:
        kind: of the names, one of `KINDS`.
    """

    def __init__(self, kind='plain'):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
        self.second = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)
        for change in kind.split(', '):
            CHANGES[change](self)

    def forward(self, x):
        return self.head(self.second(self.body(x)))


def share_a_weight(net):
    net.second.weight = net.body[0].weight


def share_a_module(net):
    net.second = net.body[0]


def share_a_block(net):
    net.second = net.body


def alias(net):
    net.again = nn.ParameterList([net.second.weight, net.head.bias])


def compile_a_part(net):
    net.body = torch.compile(net.body, backend='eager')


def compile_a_layer(net):
    net.body[0] = torch.compile(net.body[0], backend='eager')


def wrap_a_part(net):
    net.body = nn.DataParallel(net.body)


def weight_norm(net):
    net.second = nn.utils.parametrizations.weight_norm(net.second)


def old_weight_norm(net):
    net.second = nn.utils.weight_norm(net.second)


def parametrize(net):
    nn.utils.parametrizations.orthogonal(net.second)


def be_lazy(net):
    net.second = nn.LazyLinear(4)


CHANGES = {
    'plain': lambda net: None,
    'shared parameter': share_a_weight,
    'shared module': share_a_module,
    'shared block': share_a_block,
    'alias in a list': alias,
    'compiled part': compile_a_part,
    'compiled layer': compile_a_layer,
    'wrapped part': wrap_a_part,
    'weight_norm': weight_norm,
    'old weight_norm': old_weight_norm,
    'parametrized': parametrize,
    'lazy': be_lazy,
    'compiled': lambda net: None,  # by `built`, as a whole
}

#: Each kind, and how its names are without a wrapper.
KINDS = {
    'plain': 'plain',
    'shared parameter': 'shared parameter',
    'shared module': 'shared module',
    'shared block': 'shared block',
    'alias in a list': 'alias in a list',
    'compiled part': 'plain',
    'compiled layer': 'plain',
    'compiled': 'plain',
    'wrapped part': 'plain',
    'shared parameter, compiled part': 'shared parameter',
    'compiled layer, compiled part': 'plain',
    'compiled part, shared block': 'shared block',
    'weight_norm': 'weight_norm',
    'old weight_norm': 'old weight_norm',
    'parametrized': 'parametrized',
    'parametrized, compiled': 'parametrized',
    'lazy': 'lazy',
}
SHARED = [kind for kind in KINDS if 'shared' in kind or 'alias' in kind]
WRAPPED = [kind for kind, without in KINDS.items() if kind != without]

pytestmark = pytest.mark.filterwarnings('ignore:.*weight_norm.*is deprecated', 'ignore:.* is duplicate')


@pytest.fixture(scope='module', autouse=True)
def known_to_configs():
    MODELS.register_module(name='NetOfTheTable', module=Net)
    yield
    MODELS.module_dict.pop('NetOfTheTable')
    torch.compiler.reset()


def built(kind):
    torch.manual_seed(3)
    net = Net(kind)
    return torch.compile(net, backend='eager') if kind.endswith('compiled') else net


def ema(**options):
    return EMAHook(momentum=0.3, warm_up=1, **options)


def train(folder, kind, *hooks, epochs=2, resume=None, save=True, wrap=None):
    """Train epochs with momentum; a checkpoint after each."""
    model = built(kind) if wrap is None else wrap(built(kind))
    runner = tiny_runner(model=model, work_dir=folder, max_epochs=epochs)
    runner.register_hook(OptimizerHook(), 'ABOVE_NORMAL')
    for hook in hooks:
        runner.register_hook(hook)
    if save:
        runner.register_hook(CheckpointHook(interval=1, create_symlink=False), 'LOW')
    if resume is not None:
        runner.resume(str(resume))
    runner.run([loader(20)], [('train', 1)])
    return runner


def differences(path, other):
    """The names of what differs in weights, averages and optimizer states of two files."""
    found = []
    for key in ('state_dict', 'optimizer'):
        one, two = (torch.load(each, weights_only=True)[key] for each in (path, other))
        one, two = (each['state'] if key == 'optimizer' else each for each in (one, two))
        found += sorted(map(str, one.keys() ^ two.keys()))
        found += [name for name in one.keys() & two.keys() if not same(one[name], two[name])]
    return found


def same(one, two):
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
    """The folder of two epochs with averages of a kind; trained once."""
    known = {}

    def folder_of(kind):
        if kind not in known:
            known[kind] = tmp_path_factory.mktemp('undisturbed')
            train(known[kind], kind, ema())
        return known[kind]

    return folder_of


# --- stop and resume -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', KINDS)
def test_a_resumed_run_equals_the_undisturbed_one(kind, undisturbed, tmp_path):
    folder = undisturbed(kind)
    first, last = folder / 'epoch_1.pth', folder / 'epoch_2.pth'
    assert differences(first, last)
    train(tmp_path / 'resumed', kind, ema(), resume=first)
    assert differences(tmp_path / 'resumed' / 'epoch_2.pth', last) == []
    train(tmp_path / 'by the hook', kind, ema(resume_from=str(first)))
    assert differences(tmp_path / 'by the hook' / 'epoch_2.pth', last) == []


@pytest.mark.parametrize('kind', SHARED[:1] + WRAPPED[:1])
def test_a_run_that_goes_back_equals_the_undisturbed_one(kind, undisturbed, tmp_path):
    went = []

    def back(runner):
        if not went:
            went.append(runner.iter)
            runner.roll_back(str(tmp_path / 'epoch_1.pth'))

    train(tmp_path, kind, ema(), At(8, back))
    assert went == [8]
    assert differences(tmp_path / 'epoch_2.pth', undisturbed(kind) / 'epoch_2.pth') == []


@pytest.mark.parametrize('kind', WRAPPED)
def test_a_run_continues_in_the_other_kind_of_model(kind, undisturbed, tmp_path):
    without = KINDS[kind]
    one, other = undisturbed(kind), undisturbed(without)
    assert differences(one / 'epoch_2.pth', other / 'epoch_2.pth') == []
    for begun, goes_on in ((one, without), (other, kind)):
        train(tmp_path / goes_on, goes_on, ema(), resume=begun / 'epoch_1.pth')
        assert differences(tmp_path / goes_on / 'epoch_2.pth', other / 'epoch_2.pth') == []


@pytest.mark.parametrize('kind', KINDS)
def test_names_are_those_of_the_model_without_wrappers(kind, undisturbed):
    state = torch.load(undisturbed(kind) / 'epoch_2.pth', weights_only=True)['state_dict']
    plain = built(KINDS[kind])
    twins = [ema_name(name) for name, _ in plain.named_parameters()]
    assert sorted(state) == sorted([*plain.state_dict(), *twins])


# --- averages come and go --------------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', KINDS)
def test_without_the_hook_training_continues_from_the_raw_weights(kind, undisturbed, tmp_path):
    first = undisturbed(kind) / 'epoch_1.pth'
    runner = tiny_runner(model=built(kind), max_epochs=2)
    runner.resume(str(first))
    saved = torch.load(first, weights_only=True)['state_dict']
    found = get_state_dict(runner.model)
    for name, each in unwrap(built(KINDS[kind])).named_parameters():
        assert torch.equal(found[name], saved[ema_name(name)]), name
    train(tmp_path / 'never', kind)
    train(tmp_path / 'gone', kind, resume=first)
    assert differences(tmp_path / 'gone' / 'epoch_2.pth', tmp_path / 'never' / 'epoch_2.pth') == []


@pytest.mark.parametrize('kind', KINDS)
def test_averages_begin_at_a_file_that_has_none(kind, tmp_path):
    train(tmp_path, kind, epochs=1)
    runner = tiny_runner(model=built(kind), max_epochs=2)
    runner.register_hook(ema())
    runner.resume(str(tmp_path / 'epoch_1.pth'))
    found = get_state_dict(runner.model)
    saved = torch.load(tmp_path / 'epoch_1.pth', weights_only=True)['state_dict']
    assert {name: torch.equal(found[name], each) for name, each in saved.items()} == dict.fromkeys(saved, True)
    for name, _ in unwrap(built(KINDS[kind])).named_parameters():
        assert torch.equal(found[ema_name(name)], saved[name])


@pytest.mark.parametrize('kind', ['compiled part', 'compiled layer, compiled part', 'wrapped part'])
def test_files_with_the_names_of_wrappers_are_read(kind, undisturbed, tmp_path):
    """Averages were called `ema_body__orig_mod_0_weight` at first; MMCV's other names have the prefix as well."""
    begun = undisturbed('plain')
    raw = dict(built(kind).named_parameters())
    names = {ema_name(clean): ema_name(name) for clean, name in zip(dict(built('plain').named_parameters()), raw)}
    content = torch.load(begun / 'epoch_1.pth', weights_only=False)
    old = {names.get(name, name): each for name, each in content['state_dict'].items()}
    assert len(old.keys() - content['state_dict'].keys()) >= 2
    content['state_dict'] = old
    torch.save(content, tmp_path / 'old.pth')
    train(tmp_path / 'never', 'plain')
    for goes_on in ('plain', kind):
        folder = tmp_path / goes_on
        train(folder / 'with', goes_on, ema(), resume=tmp_path / 'old.pth')
        assert differences(folder / 'with' / 'epoch_2.pth', begun / 'epoch_2.pth') == []
        train(folder / 'without', goes_on, resume=tmp_path / 'old.pth')
        assert differences(folder / 'without' / 'epoch_2.pth', tmp_path / 'never' / 'epoch_2.pth') == []
    plain = list(built('plain').state_dict())
    assert list(torch.load(publish(tmp_path / 'old.pth', tmp_path / 'out.pth'))['state_dict']) == plain
    weights, _ = convert_checkpoint(tmp_path / 'old.pth', tmp_path / 'out.safetensors')
    assert sorted(load_safetensors(weights)) == sorted(plain)


@pytest.mark.parametrize('kind', SHARED)
def test_mmcvs_averages_reach_every_name(kind, undisturbed, tmp_path):
    """MMCV's files have the raw weights under the model's names, and the averages under the others."""
    content = torch.load(undisturbed(kind) / 'epoch_1.pth', weights_only=False)
    state = content['state_dict']
    model = built(KINDS[kind])
    firsts = {id(each): name for name, each in model.named_parameters()}
    expected = dict(state)
    for name, each in model.named_parameters(remove_duplicate=False):
        twin = ema_name(firsts[id(each)])
        state[name] = expected[twin]
    for name in firsts.values():
        state[ema_name(name)] = expected[name]
    meta = {key: value for key, value in content['meta'].items() if key != 'runnerkit_version'}
    torch.save({'meta': meta, 'state_dict': state, 'optimizer': content['optimizer']}, tmp_path / 'mmcv.pth')
    resumed = tiny_runner(model=built(kind), max_epochs=2)
    resumed.register_hook(ema())
    resumed.resume(str(tmp_path / 'mmcv.pth'))
    found = get_state_dict(resumed.model)
    assert [name for name, each in state.items() if not torch.equal(found[name], each)] == []
    plain = tiny_runner(model=built(kind), max_epochs=2)
    plain.resume(str(tmp_path / 'mmcv.pth'))
    found = get_state_dict(plain.model)
    assert [name for name in found if not torch.equal(found[name], state[name])] == []
    config = dict(model=dict(type='NetOfTheTable', kind=KINDS[kind]))
    for each in (tmp_path / 'mmcv.pth', publish(tmp_path / 'mmcv.pth', tmp_path / 'out.pth')):
        found = load_model(each, config).state_dict()
        assert [name for name in found if not torch.equal(found[name], expected[name])] == []


# --- other things that go by name ------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', KINDS)
def test_weights_are_published_and_loaded(kind, undisturbed, tmp_path):
    last = undisturbed(kind) / 'epoch_2.pth'
    published = publish(last, tmp_path / 'net.pth')
    saved, expected = (torch.load(each, weights_only=True)['state_dict'] for each in (published, last))
    assert list(saved) == list(built(KINDS[kind]).state_dict())
    x = torch.randn(5, 4)
    outputs = []
    for goes_on in {kind, KINDS[kind]}:
        model = load_model(published, dict(model=dict(type='NetOfTheTable', kind=goes_on)))
        found = get_state_dict(model)
        assert [name for name in saved if not torch.equal(found[name], expected[name])] == []
        loaded = built(goes_on).eval()
        load_checkpoint(loaded, last, strict=True)
        outputs += [model(x), loaded(x)]
    assert all(torch.equal(outputs[0], each) for each in outputs)
    assert not torch.equal(outputs[0], built(kind).eval()(x))


@pytest.mark.parametrize(
    ('kind', 'pattern', 'frozen'),
    [
        *((kind, 'body.*', 'body.0.weight') for kind in KINDS if kind != 'lazy'),
        *((kind, 'body.0.weight', 'body.0.weight') for kind in KINDS if kind != 'lazy'),
        ('shared parameter', 'second.weight', 'body.0.weight'),
        ('shared module', 'second.*', 'body.0.bias'),
        ('shared block', 'second.*', 'body.1.running_mean'),
        ('compiled part, shared block', 'second.*', 'body.1.running_mean'),
        ('alias in a list', 'again.*', 'second.weight'),
    ],
)
def test_frozen_parameters_have_the_names_of_the_plain_model(kind, pattern, frozen):
    before = {name: each.clone() for name, each in get_state_dict(built(kind)).items()}
    runner = train(None, kind, FreezeHook([pattern]), epochs=1, save=False)
    after = get_state_dict(runner.model)
    assert torch.equal(before[frozen], after[frozen])
    assert not torch.equal(before['head.weight'], after['head.weight'])
    if pattern == 'body.*':  # the statistics as well
        assert [name for name in after if name.startswith('body.') and not torch.equal(before[name], after[name])] == []


@pytest.mark.parametrize('kind', KINDS)
def test_options_of_parameters_go_by_the_names_of_the_plain_model(kind):
    def groups(kind):
        model = built(kind)
        cfg = dict(type='SGD', lr=0.1, weight_decay=0.1)
        cfg['paramwise_cfg'] = dict(custom_keys={'body.0': dict(lr_mult=0.1)}, norm_decay_mult=0, bypass_duplicate=True)
        return [(each['lr'], each['weight_decay']) for each in build_optimizer(model, cfg).param_groups]

    assert groups(kind) == groups(KINDS[kind])
    assert (0.010000000000000002, 0.1) in groups(kind)


@pytest.mark.parametrize('kind', WRAPPED)
def test_runs_in_the_same_state_have_the_same_fingerprints_and_no_differences(kind, undisturbed):
    one, other = undisturbed(kind), undisturbed(KINDS[kind])
    found = diff(one / 'epoch_2.pth', other / 'epoch_2.pth')
    assert found.is_equal, found.rows
    runners = []
    for each in (kind, KINDS[kind]):
        runner = tiny_runner(model=built(each), max_epochs=2)
        runner.register_hook(ema())
        runner.resume(str(one / 'epoch_2.pth'))
        runners.append(fingerprint(runner)['weights_hash'])
    assert runners[0] == runners[1]


def marks_of(kind):
    """What a comparison to the iteration notes of each iteration of an epoch."""
    recorder, found = Recorder(), []

    class Notes(Hook):
        def before_train_iter(self, runner):
            recorder.begin(runner, None)
            found.append(recorder.marks)

    runner = tiny_runner(model=built(kind), max_epochs=1)
    runner.register_hook(OptimizerHook())
    runner.register_hook(Notes(), 'HIGHEST')
    runner.register_hook(recorder)
    runner.run([loader(20)], [('train', 1)])
    return found


@pytest.mark.parametrize('kind', ['wrapped part', 'compiled'])  # compiled parts take seconds with that many hooks
def test_a_comparison_to_the_iteration_finds_no_difference(kind):
    found = marks_of(kind)
    assert ('gradient', 'body.0.weight') in found[0]
    assert found == marks_of('plain')


@pytest.mark.parametrize('kind', KINDS)
def test_what_is_not_finite_has_the_names_of_the_plain_model(kind, undisturbed, tmp_path):
    runner = tiny_runner(model=built(kind), work_dir=tmp_path, max_epochs=2)
    runner.register_hook(ema())
    runner.resume(str(undisturbed(kind) / 'epoch_1.pth'))
    name, parameter = next(iter(unwrap(runner.model).named_parameters()))
    with torch.no_grad():
        parameter[0, 0] = float('nan')
    path = runner.save(tmp_path)
    found = torch.load(path, weights_only=True)['meta']['non_finite']['weights']
    assert found.startswith(('body.0.weight (1 of 16 values)', 'ema_body_0_weight')), found


# --- lazy modules ----------------------------------------------------------------------------------------------------


def test_averages_of_a_lazy_module_begin_at_its_first_weights():
    seen = []

    class Sees(Hook):
        def after_forward(self, runner):
            seen.append(runner.model.second.weight.detach().clone())

        def after_train_iter(self, runner):
            average.mul_(0.7).add_(runner.model.second.weight, alpha=0.3) if seen[1:] else average.copy_(
                0.7 * seen[0] + 0.3 * runner.model.second.weight
            )

    average = torch.zeros(4, 4)
    runner = train(None, 'lazy', ema(), Sees(), epochs=1, save=False)
    torch.testing.assert_close(runner.model.ema_second_weight, average.detach())
    assert not torch.equal(average, seen[0])


def test_a_lazy_module_that_no_batch_reaches_is_named():
    model = built('plain')
    model.unused = nn.LazyLinear(3, bias=False)
    runner = tiny_runner(model=model, max_epochs=1)
    runner.register_hook(ema())
    with pytest.raises(ValueError, match=r'EMAHook has nothing to average in unused\.weight: .* lazy module'):
        runner.run([loader(20)], [('train', 1)])


def test_a_lazy_module_can_be_frozen():
    seen = []

    class Sees(Hook):
        def after_forward(self, runner):
            seen.append({name: each.clone() for name, each in runner.model.state_dict().items()})

    train(None, 'lazy', FreezeHook(['second.*'], until=1), Sees(), save=False)
    first, frozen, thawed = seen[0], seen[4], seen[-1]
    assert torch.equal(first['second.weight'], frozen['second.weight'])
    assert not torch.equal(first['head.weight'], frozen['head.weight'])
    assert not torch.equal(frozen['second.weight'], thawed['second.weight'])


# --- several processes -----------------------------------------------------------------------------------------------


def state_of(runner):
    """Weights, averages, optimizer states and this rank's own buffers, whole."""
    model = unwrap(runner.model)
    states = {f'{key} {i}': each[key] for i, each in runner.optimizer.state_dict()['state'].items() for key in each}
    return {name: all_of(each).clone() for name, each in {**get_state_dict(model), **states}.items()}


def own_statistics(net):
    return MMDistributedDataParallel(net, broadcast_buffers=False)


#: How it is wrapped; the kind that begins, and the one that goes on.
ON_RANKS = {
    'DDP, shared': (own_statistics, 'shared block', 'shared block'),
    'DDP, compiled': (own_statistics, 'compiled part', 'plain'),
    'DDP, not compiled any more': (own_statistics, 'plain', 'compiled part'),
    'FSDP2, shared': (FSDP2, 'shared parameter', 'shared parameter'),
    'FSDP2, compiled': (FSDP2, 'shared parameter, compiled part', 'shared parameter'),
}


def on_two_ranks(rank, folder):
    found = {}
    for name, (wrap, begins, goes_on) in ON_RANKS.items():
        place = Path(folder) / name
        whole = state_of(train(place / 'whole', begins, ema(), wrap=wrap))
        resumed = train(place / 'resumed', goes_on, ema(), wrap=wrap, resume=place / 'whole' / 'epoch_1.pth')
        found[name] = whole, state_of(resumed)
    return found


@pytest.fixture(scope='module')
def both(on_ranks, tmp_path_factory):
    return on_ranks(__file__, 'on_two_ranks', str(tmp_path_factory.mktemp('ranks')))


@pytest.mark.parametrize('name', ON_RANKS)
def test_runs_on_two_ranks_resume_like_the_undisturbed_ones(name, both):
    for rank in both:
        whole, resumed = rank[name]
        assert whole.keys() == resumed.keys()
        assert [key for key in whole if not torch.equal(whole[key], resumed[key])] == []
    if 'DDP' in name:
        assert not torch.equal(both[0][name][0]['body.1.running_mean'], both[1][name][0]['body.1.running_mean'])
