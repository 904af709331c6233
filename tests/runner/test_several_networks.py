"""Several networks in one run: modes and losses by optimizer against plain loops, over two ranks, and resumed in the
middle."""

import logging
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch import nn
from two_networks import NAMES, Points, flat, gan, plain_losses, plain_modes, sgd

from runnerkit.data import build_dataloader
from runnerkit.distributed import get_dist_info
from runnerkit.hooks import CheckpointHook, Hook, OptimizerHook
from runnerkit.parallel import MMDistributedDataParallel
from runnerkit.runner import EpochBasedRunner, IterBasedRunner

MODES = [('dis', 2), ('gen', 1)]
#: How each case trains: its workflow, and the options of the OptimizerHook.
CASES = {
    'modes': (MODES, {}),
    'losses': ([('train', 1)], {}),
    'accumulated': (MODES, dict(cumulative_iters=2, grad_clip=dict(max_norm=0.5))),
}


def loaders(workflow, batch_size=8):
    """A loader for each entry, on its own data; with several ranks, each has its share of the batch."""
    world_size = get_dist_info()[1]
    options = dict(samples_per_gpu=batch_size // world_size, workers_per_gpu=0, dist=world_size > 1)
    return [build_dataloader(Points(24 + 16 * i), seed=i, **options) for i in range(len(workflow))]


def train(case, folder, iters=10, kind=IterBasedRunner, dies_after=None, model=None, seed=0):
    workflow, options = CASES[case]
    model = model or gan(seed)
    optimizer = sgd(model)
    if get_dist_info()[1] > 1:
        model = MMDistributedDataParallel(model)
    runner = kind(model, optimizer=optimizer, work_dir=folder, max_iters=iters)
    runner.register_hook(OptimizerHook(**options))
    runner.register_hook(CheckpointHook(interval=1, by_epoch=False, max_keep_ckpts=3))
    if dies_after is not None:
        runner.register_hook(_dying(dies_after))
    latest = Path(folder) / 'latest.pth'
    if latest.exists():
        runner.resume(str(latest))
    try:
        runner.run(loaders(workflow), workflow)
    except KeyboardInterrupt:
        pass
    return runner


def _dying(after):
    class DiesThen(Hook):
        def before_train_iter(self, runner):
            if runner.completed_iters == after:
                raise KeyboardInterrupt

    return DiesThen()


def state(runner):
    momenta = [s['momentum_buffer'].flatten() for o in runner.optimizer.values() for s in o.state.values()]
    return torch.cat([flat(runner.model), *momenta])


# --- in one process --------------------------------------------------------------------------------------------------


def test_losses_by_optimizer_are_those_of_a_plain_loop(tmp_path):
    model = gan()
    (loader,) = loaders([1])
    plain_losses(model, sgd(model), [data for epoch in range(4) for data in _epoch(loader, epoch)][:10])
    assert torch.equal(flat(train('losses', tmp_path).model), flat(model))


def test_modes_train_the_networks_of_their_names_on_their_own_data(tmp_path):
    model = gan()
    by_mode = dict(zip(NAMES[::-1], loaders(MODES), strict=True))
    streams = {mode: iter([data for epoch in range(9) for data in _epoch(by_mode[mode], epoch)]) for mode in NAMES}
    order = (['dis'] * 2 + ['gen']) * 4
    plain_modes(model, sgd(model), [(mode, next(streams[mode])) for mode in order[:10]])
    assert torch.equal(flat(train('modes', tmp_path).model), flat(model))


def _epoch(loader, epoch):
    loader.sampler.set_epoch(epoch)
    return list(loader)


@pytest.mark.parametrize('kind', [IterBasedRunner, EpochBasedRunner])
@pytest.mark.parametrize('case', CASES)
def test_a_resume_in_the_middle_is_exact(case, kind, tmp_path):
    """In the middle of an entry, of an epoch, and of a cycle of accumulation."""
    whole = train(case, tmp_path / 'whole', kind=kind)
    train(case, tmp_path / 'cut', kind=kind, dies_after=4)
    resumed = train(case, tmp_path / 'cut', kind=kind, seed=5)
    assert resumed.iter == whole.iter == 10
    assert torch.equal(state(resumed), state(whole))


def test_a_resume_in_the_middle_of_cycles_has_nothing_to_tell(tmp_path, caplog):
    """Each optimizer waits for its own second loss; at the resume, none of the updates has been made yet."""
    train('accumulated', tmp_path, dies_after=3)
    caplog.clear()
    train('accumulated', tmp_path, dies_after=99)
    assert 'Changed since the checkpoint was saved' not in caplog.text
    assert 'WEIGHTS HAVE NOT CHANGED' not in caplog.text


def test_how_gradients_are_averaged_is_chosen_for_each_run(tmp_path):
    """Also for a run inside another one, of the same model."""
    seen = []

    class Child(Hook):
        def after_train_iter(self, runner):
            if runner.iter == 0:
                seen.append(runner.model.averages_each_backward)
                model = runner.model
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                child = IterBasedRunner(model, optimizer=optimizer, max_iters=1)
                child.register_hook(Look())
                child.run(loaders([1]), [('train', 1)])
                seen.append(runner.model.averages_each_backward)

    class Look(Hook):
        def before_run(self, runner):
            seen.append(runner.model.averages_each_backward)

    for optimizer, workflow in ((sgd, [('train', 1)]), (lambda m: torch.optim.SGD(m.parameters(), lr=0.1), MODES)):
        model = gan()
        model.averages_each_backward = False
        runner = IterBasedRunner(model, optimizer=optimizer(model), max_iters=2)
        runner.register_hook(Child())
        runner.run(loaders(workflow), workflow)
        assert (seen, model.averages_each_backward) == ([True, False, True], False)
        seen.clear()


# --- over two ranks --------------------------------------------------------------------------------------------------


def on_two(rank, folder):
    found = {}
    for case in CASES:
        whole = train(case, f'{folder}/{case}/whole')
        train(case, f'{folder}/{case}/cut', dies_after=4)
        found[case] = state(whole), state(train(case, f'{folder}/{case}/cut', seed=5))
    found['sent'] = sent(rank)
    found['warnings'] = warnings_with_plain_ddp()
    return found


def warnings_with_plain_ddp():
    """What a run with torch's own wrapper warns of, and whether one of our wrappers for some ranks averages."""
    model, logger, said = gan(), logging.getLogger('plain'), []
    logger.addFilter(lambda record: said.append(record.getMessage()) if record.levelno >= logging.WARNING else None)
    wrapper = nn.parallel.DistributedDataParallel(model)
    runner = IterBasedRunner(wrapper, optimizer=sgd(model), logger=logger, max_iters=0)
    runner.run(loaders([1]), [('train', 1)])
    groups = [dist.new_group([each]) for each in range(2)]
    ours = MMDistributedDataParallel(gan(), process_group=groups[dist.get_rank()])
    ours.averages_each_backward = True
    return said, ours.averages_each_backward


def sent(rank):
    """How many numbers each mode's backward pass sends to the other rank."""
    model = MMDistributedDataParallel(gan())
    model.averages_each_backward = True
    runner = IterBasedRunner(model, optimizer=sgd(model.module), max_iters=1)
    data, found, real = next(iter(loaders([1])[0])), {}, dist.all_reduce
    for mode in NAMES:
        sizes = []
        dist.all_reduce = lambda flat, *args: (sizes.append(flat.numel()), real(flat, *args))
        runner.update(getattr(model, f'{mode}_step')(data, None)['loss'], mode)
        dist.all_reduce = real
        found[mode] = sizes, sum(each.numel() for each in getattr(model.module, mode).parameters())
    return found


@pytest.fixture(scope='module')
def results(on_ranks, tmp_path_factory):
    return on_ranks(__file__, 'on_two', str(tmp_path_factory.mktemp('ranks')))


@pytest.mark.parametrize('case', CASES)
def test_two_ranks_are_one_process_with_the_joined_batch(case, results, tmp_path):
    (whole, resumed), (other, _) = (result[case] for result in results)
    assert torch.equal(whole, other)
    assert torch.equal(whole, resumed)
    alone = state(train(case, tmp_path))
    assert torch.allclose(whole, alone, atol=1e-6)
    assert not torch.allclose(flat(gan()), alone[: len(flat(gan()))], atol=1e-2)


def test_torchs_own_wrapper_is_warned_of(results):
    said, averages = results[0]['warnings']
    assert [text for text in said if 'wrap the model in MMDistributedDataParallel' in text]
    assert not averages


def test_a_mode_sends_the_gradients_of_its_own_network_only(results):
    for mode in NAMES:
        sizes, parameters = results[0]['sent'][mode]
        assert sizes == [parameters]
