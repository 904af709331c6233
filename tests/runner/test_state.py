"""What a new runner knows."""

import pytest
from support import Tiny, loader, tiny_runner

from runnerkit.runner import EpochBasedRunner


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


def test_the_loaders_of_the_workflow():
    runner, loaders = tiny_runner(max_epochs=1), [loader(8), loader(4)]
    runner.optimizer = None
    assert runner.loaders == []
    runner.run(loaders, [('val', 1), ('val', 1)])
    assert [each is given for each, given in zip(runner.loaders, loaders, strict=True)] == [True, True]
