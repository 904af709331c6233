"""``runnerkit publish work_dirs/lenet models/lenet.pth``: write a checkpoint to hand on."""

from __future__ import annotations

import os
from collections.abc import Sequence

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.errors import check_writable, usage_checked, wrong_usage
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit publish') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Write a checkpoint with only its weights, config and classes, and its hash in '
        'the name. Nothing is executed.',
    )
    parse.add_argument('source', metavar='IN', help='a checkpoint or a work dir')
    parse.add_argument('out', metavar='OUT', help='name.pth, which becomes name-<8 digits of its SHA-256>.pth')
    add_shared(parse, '--which')
    add_shared(parse, '--trust-pickles')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None, prog: str = 'runnerkit publish') -> int:
    """Publish; returns the exit code."""
    args = parser(prog).parse_args(argv)
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.flow.use.publish import check_published_path, publish

    check_writable('OUT', args.out)
    with wrong_usage(ValueError):
        check_published_path(args.out)
    with trusted_pickles(args.trust_pickles):
        path = publish(args.source, args.out, args.which)
    print_out(f'{path} ({os.path.getsize(path):,} bytes)')
    return 0
