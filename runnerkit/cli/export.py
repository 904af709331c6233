"""``runnerkit export work_dirs/lenet --out lenet.onnx``: write a trained model for other programs."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace

from runnerkit.cli.arguments import argument, number
from runnerkit.cli.errors import check_extension, check_writable
from runnerkit.cli.parser import command_line
from runnerkit.cli.train import load_config
from runnerkit.config.parse import EXTENSIONS
from runnerkit.utils.ending import UsageError
from runnerkit.utils.logging import print_out

#: `runnerkit.flow.use.export.FORMATS`, which needs torch.
FORMATS = ('.pt2', '.onnx')


def sizes(text: str) -> tuple[int, ...]:
    """The shape of a sample on the command line: ``1,28,28``."""
    words = text.strip('()[]').rstrip(',').split(',')
    if not all(word.strip().isdigit() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(
            f'a shape is whole numbers above 0 with commas, such as 1,28,28 (without the batch), but got {text!r}'
        )
    return tuple(map(int, words))


def free_size(text: str) -> tuple[str, str]:
    """A size of an input on the command line, and its name: ``words.1=length``."""
    key, _, name = text.partition('=')
    if not re.fullmatch(r'\w+\.[1-9]\d*', key):
        raise argparse.ArgumentTypeError(f'a size is an input and a dimension, as words.1=length, but got {text!r}')
    return key, name or key.replace('.', '_')


@command_line(
    'runnerkit export',
    'Write a trained model to a file, load it back, and compare its outputs with those of the model.',
    'source',
    argument('--out', required=True, metavar='FILE', help='the file: .pt2 (torch.export) or .onnx'),
    *('--checkpoint', '--which'),
    argument(
        '--inputs',
        nargs='+',
        metavar='INPUT',
        help='a split or files; the first batch is the example input (default: the first of test, val, train)',
    ),
    argument(
        '--shape',
        nargs='+',
        type=sizes,
        metavar='SIZES',
        help='the shape of a sample of each input, such as 1,28,28; the example input is random',
    ),
    argument(
        '--dynamic',
        nargs='+',
        type=free_size,
        metavar='INPUT.DIM=NAME',
        help='further dynamic sizes besides the batch, such as words.1=length; sizes with the same NAME are equal',
    ),
    argument(
        '--tolerance',
        type=number,
        default=1e-4,
        metavar='X',
        help='the allowed difference of outputs, relative to the largest one (default: 1e-4)',
    ),
    *('--trust', '--cfg-options', '--trust-pickles'),
)
def main(args: Namespace) -> None:
    """Export."""
    if args.inputs and args.shape:
        raise UsageError('--inputs and --shape both set the example input: give one of them')
    check_extension('--out', args.out, FORMATS, 'a model is exported')
    check_writable('--out', args.out)
    named = args.source
    cfg = load_config(named, args.cfg_options, ('model', 'data')) if named.endswith(EXTENSIONS) else None
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.flow.use.export import export

    with trusted_pickles(args.trust_pickles):
        exported = export(
            named if cfg is None else cfg,
            args.out,
            checkpoint=args.checkpoint,
            which=args.which,
            inputs=args.inputs,
            shape=args.shape,
            dynamic=dict(args.dynamic or ()),
            tolerance=args.tolerance,
            trust=args.trust,
            cfg_options=args.cfg_options if cfg is None else None,
        )
    print_out(str(exported))
