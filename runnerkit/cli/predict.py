"""``runnerkit predict work_dirs/lenet a.png b.png``: apply a trained model to files, or to a split of its data."""

from __future__ import annotations

from argparse import Namespace

from runnerkit.cli.arguments import argument, count
from runnerkit.cli.errors import check_extension, check_writable
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.cli.train import load_config
from runnerkit.config.parse import EXTENSIONS
from runnerkit.utils.logging import print_out

#: `runnerkit.flow.use.prediction_files.FORMATS`, which needs torch.
FORMATS = ('.json', '.csv', '.npy')


@command_line(
    'runnerkit predict',
    'Apply a trained model to files, or to a split of its data.',
    'source',
    argument('inputs', nargs='+', metavar='INPUT', help='files; or a split of the config, such as test or val/clean'),
    *('--checkpoint', '--which'),
    argument('--batch-size', type=count, metavar='N', help="samples in a batch (default: the split's)"),
    argument(
        '--apply',
        metavar='FUNCTION',
        help='apply argmax, softmax, sigmoid or your function, my_file.py:function, to the output of the model',
    ),
    argument('--out', metavar='FILE', help=f'{", ".join(FORMATS)}: write to this file (default: JSON to stdout)'),
    *('--trust', '--cfg-options', '--trust-pickles', '--device'),
)
def main(args: Namespace) -> None:
    """Predict."""
    if args.out:
        check_extension('--out', args.out, FORMATS, 'predictions are written')
        check_writable('--out', args.out)
    named = args.source
    cfg = load_config(named, args.cfg_options, ('model', 'data')) if named.endswith(EXTENSIONS) else None
    from runnerkit.checkpoint import trusted_pickles
    from runnerkit.data.named import as_class_names
    from runnerkit.flow.use.predict import find_to_predict, function_to_apply, predictions, split_meant
    from runnerkit.flow.use.prediction_files import as_json, write_predictions

    if args.apply and not set('.:') & set(args.apply):  # else it names code, whose errors are its own
        with wrong_usage(ValueError):
            function_to_apply(args.apply)
    with trusted_pickles(args.trust_pickles):
        trained = find_to_predict(
            named if cfg is None else cfg, args.checkpoint, None, args.which, args.trust, args.inputs
        )
        if cfg is None and args.cfg_options:
            trained.cfg.merge_from_dict(args.cfg_options)
        found = predictions(trained, args.inputs, args.device, args.batch_size, args.apply)
    # A file may hold many samples, such as the rows of a table; then they are numbered, as those of a split are.
    by_file = split_meant(trained.cfg, args.inputs) is None and len(found) == len(args.inputs)
    inputs = args.inputs if by_file else range(len(found))
    meta = trained.content.get('meta', {})
    classes = as_class_names(meta.get('CLASSES')) if args.apply in ('argmax', 'softmax') else None
    if args.out:
        write_predictions(args.out, inputs, found, classes)
        print_out(f'{len(found)} prediction{"s" * (len(found) != 1)} in {args.out}, with the weights of {trained.path}')
    else:
        print_out(as_json(inputs, found, classes))
