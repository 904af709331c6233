"""``runnerkit convert work_dirs/lm/latest.pth lm.pth``: one file of a sharded checkpoint, and back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.errors import UsageError, check_one_process, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out

#: Those of `runnerkit.checkpoint.convert`, which needs torch.
EXTENSIONS = ('.pth', '.pt', '.safetensors')

_TOLD = {
    'file': 'one file, with all that resuming needs',
    'folder': 'a sharded checkpoint, with all that resuming needs',
    'weights': 'the weights alone',
}


def parser(prog: str = 'runnerkit convert') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Convert a sharded checkpoint to one file, or a file to a sharded checkpoint. Nothing is executed; '
        'the whole checkpoint must fit in memory.',
    )
    parse.add_argument('source', metavar='IN', help='a checkpoint (a folder or a file), or a work dir')
    parse.add_argument(
        'out',
        metavar='OUT',
        help='name.pth: a file from a sharded checkpoint, a folder from a file; name.safetensors: only the weights',
    )
    add_shared(parse, '--which', default='latest')
    add_shared(parse, '--trust-pickles')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None, prog: str = 'runnerkit convert') -> int:
    """Convert; returns the exit code."""
    args = parser(prog).parse_args(argv)
    check_one_process(prog)
    folder = os.path.dirname(args.out) or '.'
    if os.path.splitext(args.out)[1] not in EXTENSIONS:
        raise UsageError(
            f'OUT {args.out}: a checkpoint is converted to name.pth (all that resuming needs: a file of a folder, and '
            'a folder of a file) or name.safetensors (the weights alone); other formats: runnerkit export … --out '
            f'{os.path.basename(args.out)}'
        )
    if not os.path.isdir(folder):
        raise UsageError(f'OUT {args.out}: no such folder: {folder}')
    if os.path.lexists(args.out):
        raise UsageError(f'OUT {args.out} exists: delete it, or give another name')
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.checkpoint.convert import convert_checkpoint

    with trusted_pickles() if args.trust_pickles else nullcontext():
        path, kind = convert_checkpoint(args.source, args.out, best=args.which == 'best')
    print_out(f'{path}: {_TOLD[kind]}')
    return 0
