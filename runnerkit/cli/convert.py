"""``runnerkit convert work_dirs/lm/latest.pth lm.pth``: one file of a sharded checkpoint, and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.errors import check_one_process, check_writable, usage_checked, wrong_usage
from runnerkit.cli.parser import Parser
from runnerkit.utils.logging import print_out

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
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.checkpoint.convert import check_converted_path, convert_checkpoint

    with wrong_usage(ValueError, FileExistsError, of='OUT '):
        check_converted_path(Path(args.out))
    check_writable('OUT', args.out)
    with trusted_pickles(args.trust_pickles):
        path, kind = convert_checkpoint(args.source, args.out, best=args.which == 'best')
    print_out(f'{path}: {_TOLD[kind]}')
    return 0
