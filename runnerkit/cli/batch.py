"""``runnerkit batch cfg.py --epoch 3 --batch 17``: rebuild one batch of a training and look at it.

`NonFiniteHook` logs these numbers of a batch. They are enough, since its content depends only on seed, epoch and
position.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from runnerkit.cli.arguments import add_shared, count
from runnerkit.cli.errors import UsageError, check_writable, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import load_config
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit batch') -> Parser:
    """The command line."""
    parse = Parser(prog=prog, description='Rebuild one training batch and look for NaN and infinite values.')
    parse.add_argument('config', help='the config in the work dir of the run, which contains the seed')
    parse.add_argument('--epoch', type=count, required=True, help='the number of the epoch in the log, from 1')
    parse.add_argument('--batch', type=count, required=True, help='the number of the batch in that epoch, from 1')
    parse.add_argument('--split', default='train', help='the split: a section of data in the config (default: train)')
    parse.add_argument('--rank', type=int, default=0, help='the rank whose batch to rebuild (default: 0)')
    parse.add_argument('--world-size', type=count, default=1, help='the number of processes of the run (default: 1)')
    add_shared(parse, '--seed', help="the seed of the run (default: the config's)")
    parse.add_argument('--out', metavar='FILE.pth', help='write the batch to this file (torch.save)')
    add_shared(parse, '--cfg-options')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Show the batch; returns the exit code."""
    args = parser().parse_args(argv)
    if not 0 <= args.rank < args.world_size:
        raise UsageError(f'--rank must be one of the {args.world_size} of --world-size, from 0, but got {args.rank}')
    if args.out:
        check_writable('--out', args.out)
    cfg = load_config(args.config, args.cfg_options, sections=('data',))
    if args.seed is not None:
        cfg.seed = args.seed
    if cfg.get('seed') is None:
        raise UsageError(f'{args.config} has no seed: give --seed, the seed in the log of the run')
    import torch

    indices, batch = rebuild(cfg, args)
    print_out(f'epoch {args.epoch}, batch {args.batch}, seed {cfg.seed}, rank {args.rank} of {args.world_size}')
    if indices is not None:
        print_out(f'samples of the data set: {", ".join(map(str, indices))}')
    for name, tensor in tensors_in(batch, 'batch'):
        print_out(f'  {name}: {numbers_of(tensor)}')
    if args.out:
        torch.save(batch, args.out)
    return 0


def rebuild(cfg: Any, args: argparse.Namespace) -> tuple[list[Any] | None, Any]:
    """The indices of the samples (None if unknown), and the batch."""
    from runnerkit.data import epoch_batches, is_cheap_to_enter, set_epoch
    from runnerkit.data.kinds import length_of
    from runnerkit.flow import Context
    from runnerkit.flow.stages.defaults import required_section
    from runnerkit.flow.stages.loading import build_loader
    from runnerkit.utils.seed import preserved_rng, set_random_seed

    data = required_section(cfg, 'data')
    if data.get(args.split) is None:
        splits = ', '.join(name for name in ('train', 'val', 'test') if data.get(name) is not None)
        raise UsageError(f"--split: the config's data has no {args.split!r} section; it has {splits}")
    # A batch does not depend on the number of workers.
    own = {**data.get(f'{args.split}_dataloader', {}), 'ranks': (args.rank, args.world_size), 'workers_per_gpu': 0}
    own.pop('num_workers', None)
    data[f'{args.split}_dataloader'] = own
    context = Context(cfg, rank=args.rank, world_size=args.world_size, seed=cfg.seed)
    set_random_seed(cfg.seed)
    loader = build_loader(context, data, args.split)
    epoch, at = args.epoch - 1, args.batch - 1
    indices = None
    if is_cheap_to_enter(loader) and loader.batch_sampler is not None:
        set_epoch(loader, epoch)
        with preserved_rng():
            indices = next((list(each) for each in islice(loader.batch_sampler, at, None)), None)
    batch = next(epoch_batches(loader, epoch, at), None)
    if batch is None:
        known = length_of(loader)
        told = 'of unknown number' if known is None else known
        raise UsageError(f'--batch {args.batch}: an epoch has fewer batches ({told})')
    if own.get('seeded', data.get('seeded', True)) is False:
        print_out('The loader is not seeded (seeded=False): random transforms of the samples may differ.')
    return indices, batch


def tensors_in(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every tensor in a nested batch, with its place."""
    import torch

    from runnerkit.flow.look.dry_run import leaves

    yield from ((place, leaf) for place, leaf in leaves(value, name) if isinstance(leaf, torch.Tensor))


def numbers_of(tensor: Any) -> str:
    """Shape, dtype and range of a tensor, and which of its samples hold NaN or infinite values."""
    import torch

    from runnerkit.flow.look.dry_run import shape_of

    text = shape_of(tensor)
    if not tensor.numel() or tensor.is_complex():
        return text
    fine = torch.isfinite(tensor)
    values = tensor[fine]
    if values.numel():
        text += f', from {values.min().item():.6g} to {values.max().item():.6g}'
    if bool(fine.all()):
        return text
    text += f', {int(torch.isnan(tensor).sum())} NaN, {int(torch.isinf(tensor).sum())} infinite'
    if tensor.dim():
        samples = (~fine).flatten(1).any(1) if tensor.dim() > 1 else ~fine
        text += f', in number {", ".join(str(i) for i in samples.nonzero().flatten().tolist())} (from 0) of the batch'
    return text
