"""Buffers of several ranks are averaged after each epoch."""

from support import Tiny, loader, tiny_runner

from runnerkit.hooks import SyncBuffersHook


def buffers_on_rank(rank):
    means = []
    for distributed in (False, True):
        model = Tiny()
        model.body[1].momentum = 0.0  # keeps its statistics
        model.body[1].running_mean.fill_(float(rank))
        runner = tiny_runner(model=model, max_epochs=1)
        runner.register_hook_from_cfg({'type': 'SyncBuffersHook', 'distributed': distributed})
        runner.run([loader(4, dist=False)], [('train', 1)])
        means.append(model.body[1].running_mean[0].item())
    return means


def test_ranks_have_the_mean_of_their_buffers_after_an_epoch_unless_it_is_switched_off(on_ranks):
    assert on_ranks(__file__, 'buffers_on_rank') == [[0.0, 0.5], [1.0, 0.5]]


def test_distributed_by_default():
    assert SyncBuffersHook().distributed
