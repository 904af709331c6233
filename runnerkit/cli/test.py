"""``runnerkit test WORK_DIR``, ``tools/test.py CONFIG CHECKPOINT``: evaluate a trained model."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

from runnerkit.cli.arguments import argument, flag
from runnerkit.cli.errors import check_writable
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.cli.train import load_config
from runnerkit.config.parse import EXTENSIONS
from runnerkit.utils.logging import print_out

#: The sections of a config that an evaluation reads.
SECTIONS = (
    *('model', 'data', 'evaluation', 'custom_hooks', 'optimizer_config', 'amp', 'fp16', 'workflow'),
    *('seed', 'deterministic'),
)


@command_line(
    'runnerkit test',
    'Evaluate a trained model on the test split of its data.',
    argument('config', help='the config file (.py, .yaml or .json), or a work dir, which contains it'),
    argument(
        'checkpoint',
        nargs='?',
        help='a checkpoint, or a work dir for its best or else latest one (default: the work dir of the config)',
    ),
    argument(
        '--split', default='test', help='the split to evaluate on: a section of data in the config (default: test)'
    ),
    flag(
        '--allow-partial',
        'evaluate even if some tensors of the model or checkpoint do not match (default: refuse)',
    ),
    argument('--out', metavar='FILE.json', help='also write the scores to this file'),
    argument(
        '--work-dir', metavar='DIR', help="where the config's hooks write (default: <folder of the checkpoint>/<split>)"
    ),
    *('--trust', '--cfg-options', '--launcher', '--trust-pickles', '--local-rank', '--gpu-id', '--device'),
)
def main(args: Namespace) -> None:
    """Evaluate."""
    if args.out:
        check_writable('--out', args.out)
    if args.local_rank is not None:
        os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    config, place = args.config, args.checkpoint
    if not config.endswith(EXTENSIONS):
        from runnerkit.flow.use.testing import kept_config

        with wrong_usage(FileNotFoundError, ValueError):
            config, place = str(kept_config(config, args.trust)), place or config
    cfg = load_config(config, args.cfg_options, sections=SECTIONS)
    from runnerkit.checkpoint import find_checkpoint, trusted_pickles
    from runnerkit.flow import Options
    from runnerkit.flow.stages.instance import configured_work_dir
    from runnerkit.flow.use.testing import evaluated

    options = Options(launcher=args.launcher, gpu_id=args.gpu_id, device=args.device)
    with trusted_pickles(args.trust_pickles):
        checkpoint = find_checkpoint(os.fspath(configured_work_dir(cfg)) if place is None else place, best=True)
        scores = evaluated(cfg, options, checkpoint, args.split, args.allow_partial, args.work_dir)
    if scores:
        for name, value in scores.items():
            print_out(f'{args.split} {name}: {value:.4f}')
        if args.out:
            Path(args.out).write_text(json.dumps(scores, indent=2) + '\n', encoding='utf-8')
