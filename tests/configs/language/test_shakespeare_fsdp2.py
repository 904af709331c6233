"""The language model under FSDP2 by config, and the same in plain torch."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

import runnerkit  # noqa: E402
from runnerkit.config import Config  # noqa: E402
from runnerkit.data import build_dataloader  # noqa: E402
from runnerkit.utils.imports import import_object  # noqa: E402

FOLDER = Path(__file__).parents[3] / 'configs/language'
ITERS = 6
QUICK = {
    'model.model': dict(width=32, blocks=2, heads=2, longest=32),
    'data.train.length': 32,
    'runner.max_iters': ITERS,
    'lr_config': None,
    'log_config': dict(interval=1, hooks=[dict(type='TextLoggerHook', by_epoch=False)]),
    'data.val': None,
    'data.test': None,
    'evaluation': None,
    'checkpoint_config': None,
}


def by_config(rank, work_dir):
    """The losses that the log has, means over both ranks."""
    runnerkit.train(FOLDER / 'shakespeare_fsdp2.py', work_dir, device='cpu', cfg_options=QUICK)
    if rank:
        return None
    (log,) = Path(work_dir).glob('*.log.json')
    return [line['loss'] for line in map(json.loads, log.read_text().splitlines()) if line.get('mode') == 'train']


def in_plain_torch(rank):
    """The same with torch alone, but for the batches."""
    from torch.distributed import all_reduce
    from torch.distributed.fsdp import fully_shard

    cfg = Config.fromfile(FOLDER / 'shakespeare_fsdp2.py')
    texts = import_object(f'{FOLDER}/plays.py:Bytes')('train', length=32)
    batches = build_dataloader(texts, samples_per_gpu=8, workers_per_gpu=0, dist=True, shuffle=True, seed=cfg.seed)
    torch.manual_seed(cfg.seed)
    model = import_object(f'{FOLDER}/networks.py:ByteModel')(**QUICK['model.model'])
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.optimizer.lr, weight_decay=cfg.optimizer.weight_decay)
    losses = []
    for _, (text, ahead) in zip(range(ITERS), batches, strict=False):
        loss = torch.nn.functional.cross_entropy(model(text), ahead)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optimizer_config.grad_clip.max_norm)
        optimizer.step()
        mean = loss.detach() / 2
        all_reduce(mean)
        losses.append(float(mean))
    return losses


def both(rank, work_dir):
    return by_config(rank, work_dir), in_plain_torch(rank)


@pytest.mark.thorough  # tests/parallel/test_fsdp.py::test_it_trains_as_one_process_with_the_whole_batch
def test_the_losses_are_those_of_plain_torch(on_ranks, tmp_path):
    by_config, plain = on_ranks(__file__, 'both', str(tmp_path))[0]
    assert len(by_config) == ITERS
    assert by_config == pytest.approx(plain, rel=1e-6)
    assert plain[-1] < plain[0]
