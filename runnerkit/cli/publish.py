"""``runnerkit publish work_dirs/lenet models/lenet.pth``: write a checkpoint to hand on."""

from __future__ import annotations

import os
from argparse import Namespace

from runnerkit.cli.arguments import argument
from runnerkit.cli.errors import check_writable, wrong_usage
from runnerkit.cli.parser import command
from runnerkit.utils.logging import print_out


@command(
    'runnerkit publish',
    'Write a checkpoint with only its weights, config and classes, and its hash in the name. Nothing is executed.',
    argument('source', metavar='IN', help='a checkpoint or a work dir'),
    argument('out', metavar='OUT', help='name.pth, which becomes name-<8 digits of its SHA-256>.pth'),
    *('--which', '--trust-pickles'),
)
def main(args: Namespace) -> None:
    """Publish."""
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.flow.use.publish import check_published_path, publish

    check_writable('OUT', args.out)
    with wrong_usage(ValueError):
        check_published_path(args.out)
    with trusted_pickles(args.trust_pickles):
        path = publish(args.source, args.out, args.which)
    print_out(f'{path} ({os.path.getsize(path):,} bytes)')
