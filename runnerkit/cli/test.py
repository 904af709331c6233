"""``tools/test.py cfg.py checkpoint``: evaluate a trained model."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from runnerkit.cli.errors import check_writable, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import add_shared, load_config
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit test') -> Parser:
    """The command line."""
    parse = Parser(prog=prog, description='Evaluate a checkpoint on the test split of a config.')
    add_shared(parse, 'config')
    parse.add_argument('checkpoint', help='the checkpoint, or a work dir: its best checkpoint, else its latest')
    parse.add_argument(
        '--split', default='test', help="which section of the config's data to evaluate on (default: test)"
    )
    parse.add_argument(
        '--allow-partial',
        action='store_true',
        help='evaluate even if some tensors of model or checkpoint have no counterpart (default: refuse)',
    )
    parse.add_argument('--out', metavar='FILE.json', help='also write the scores to this file')
    add_shared(parse, '--cfg-options', '--launcher', '--trust-pickles', '--local-rank', '--gpu-id', '--device')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None, prog: str = 'runnerkit test') -> int:
    """Evaluate; returns the exit code."""
    args = parser(prog).parse_args(argv)
    if args.out:
        check_writable('--out', args.out)
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    cfg = load_config(args.config, args.cfg_options, sections=('model', 'data'))
    from runnerkit.flow.process_state import preserved_process_state

    with preserved_process_state():
        scores = evaluate(cfg, args)
    if scores:
        for name, value in scores.items():
            print_out(f'{args.split} {name}: {value:.4f}')
        if args.out:
            Path(args.out).write_text(json.dumps(scores, indent=2) + '\n', encoding='utf-8')
    return 0


def evaluate(cfg: Any, args: argparse.Namespace) -> dict[str, float]:
    """The scores of the checkpoint, on rank 0; empty on other ranks.

    Raises:
        ValueError: the checkpoint does not fit the model.
    """
    from runnerkit.checkpoint import find_checkpoint, trusted_pickles
    from runnerkit.checkpoint.state_dict import WeightsDoNotFit
    from runnerkit.distributed import shutdown
    from runnerkit.flow import Context, Instance, Network, Options
    from runnerkit.flow.instance import required_section
    from runnerkit.flow.preflight import check_switches
    from runnerkit.runner import build_runner

    check_switches(cfg)
    checkpoint = find_checkpoint(args.checkpoint, best=True)
    context = Context(cfg, Options(launcher=args.launcher, gpu_id=args.gpu_id, device=args.device))
    instance, network = Instance(context), Network(context)
    instance.start_processes(context)
    try:
        instance.set_backends(context)
        loaders = instance.build_loaders(context, required_section(cfg, 'data'), args.split)
        network.build_model(context)
        # This runner never trains: it evaluates with the same method as in training.
        runner = build_runner({'type': 'EpochBasedRunner', 'max_epochs': 0}, {'model': context.model})
        with trusted_pickles() if args.trust_pickles else nullcontext():
            try:
                runner.load_checkpoint(checkpoint, strict=not args.allow_partial)
            except WeightsDoNotFit as error:
                raise ValueError(
                    f'{checkpoint} does not fit the model of {args.config}, so its scores would mean nothing. {error}.'
                    '\nGive the checkpoint of this model, or the config of that one (it lies in the work dir of the '
                    'training). --allow-partial evaluates all the same'
                ) from None
        scores: dict[str, Any] = {}
        for loader in loaders.values():
            scores.update(runner.evaluate(loader, scope=args.split))
    finally:
        shutdown()
    return {name: float(value) for name, value in scores.items()} if context.rank == 0 else {}
