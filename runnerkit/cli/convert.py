"""``runnerkit convert work_dirs/lm/latest.pth lm.pth``: one file of a sharded checkpoint, and back."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from runnerkit.cli.arguments import argument
from runnerkit.cli.errors import check_writable, wrong_usage
from runnerkit.cli.parser import command
from runnerkit.utils.logging import print_out

_TOLD = {
    'file': 'one file, with all that resuming needs',
    'folder': 'a sharded checkpoint, with all that resuming needs',
    'weights': 'the weights alone',
}


@command(
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
def main(args: Namespace) -> None:
    """Convert."""
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.checkpoint.convert import check_converted_path, convert_checkpoint

    with wrong_usage(ValueError, FileExistsError, of='OUT '):
        check_converted_path(Path(args.out))
    check_writable('OUT', args.out)
    with trusted_pickles(args.trust_pickles):
        path, kind = convert_checkpoint(args.source, args.out, best=args.which == 'best')
    print_out(f'{path}: {_TOLD[kind]}')
