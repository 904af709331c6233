"""``runnerkit publish work_dirs/lenet models/lenet.pth``: write a checkpoint to hand on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.errors import UsageError, check_writable, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out

#: `runnerkit.flow.use.publish.EXTENSIONS`, which needs torch.
EXTENSIONS = ('.pth', '.pt')


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
    if os.path.splitext(args.out)[1] not in ('', *EXTENSIONS):
        raise UsageError(
            f'OUT {args.out}: a checkpoint is published as {" or ".join(EXTENSIONS)}; other formats: '
            f'runnerkit export … --out {os.path.basename(args.out)}'
        )
    check_writable('OUT', args.out)
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.flow.use.publish import publish

    with trusted_pickles() if args.trust_pickles else nullcontext():
        path = publish(args.source, args.out, args.which)
    print_out(f'{path} ({os.path.getsize(path):,} bytes)')
    return 0
