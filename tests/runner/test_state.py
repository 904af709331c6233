"""What a new runner knows."""

import pytest
from support import Tiny

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
