"""``runnerkit convert``, ``publish``: write a checkpoint in another form; nothing is executed."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from runnerkit.cli.arguments import argument
from runnerkit.cli.errors import check_writable
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.utils.logging import print_out

_TOLD = {
    'file': 'one file, with all that resuming needs',
    'folder': 'a sharded checkpoint, with all that resuming needs',
    'weights': 'the weights alone',
}


@command_line(
    'runnerkit convert',
    'Convert a sharded checkpoint to one file, or a file to a sharded checkpoint. Nothing is executed; the whole '
    'checkpoint must fit in memory.',
    argument('source', metavar='IN', help='a checkpoint (a folder or a file), or a work dir'),
    argument(
        'out',
        metavar='OUT',
        help='name.pth: a file from a sharded checkpoint, a folder from a file; name.safetensors: only the weights',
    ),
    argument('--which', default='latest'),
    '--trust-pickles',
    one_process=True,
)
def convert_main(args: Namespace) -> None:
    """Convert."""
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.checkpoint.convert import check_converted_path, convert_checkpoint

    with wrong_usage(ValueError, FileExistsError, of='OUT '):
        check_converted_path(Path(args.out))
    check_writable('OUT', args.out)
    with trusted_pickles(args.trust_pickles):
        path, kind = convert_checkpoint(args.source, args.out, best=args.which == 'best')
    print_out(f'{path}: {_TOLD[kind]}')


@command_line(
    'runnerkit publish',
    'Write a checkpoint with only its weights, config and classes, and its hash in the name. Nothing is executed.',
    argument('source', metavar='IN', help='a checkpoint or a work dir'),
    argument('out', metavar='OUT', help='name.pth, which becomes name-<8 digits of its SHA-256>.pth'),
    *('--which', '--trust-pickles'),
)
def publish_main(args: Namespace) -> None:
    """Publish."""
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.flow.use.publish import check_published_path, publish

    check_writable('OUT', args.out)
    with wrong_usage(ValueError):
        check_published_path(args.out)
    with trusted_pickles(args.trust_pickles):
        path = publish(args.source, args.out, args.which)
    print_out(f'{path} ({os.path.getsize(path):,} bytes)')
