"""`print_config.py cfg.py`: print a config with its bases and ``--cfg-options`` merged in."""

from __future__ import annotations

from argparse import Namespace

from runnerkit.cli.arguments import argument
from runnerkit.cli.parser import command_line, wrong_usage
from runnerkit.cli.train import read_config_with_options
from runnerkit.config import format_config, unread_keys
from runnerkit.utils.logging import print_err, print_out


@command_line(
    'runnerkit print-config',
    'Print a config, with its bases and the given options merged in.',
    *('config', '--cfg-options'),
    argument('--style', help="format the text in one of yapf's styles: pep8, google, facebook, yapf"),
)
def main(args: Namespace) -> None:
    """Print the config."""
    cfg = read_config_with_options(args.config, args.cfg_options)
    errors = [finding for finding in unread_keys(cfg) if finding.level == 'error']
    with wrong_usage(ValueError):
        text = format_config(cfg, args.style) if args.style else cfg.pretty_text
    for finding in errors:
        print_err(f'warning: {finding}')
    print_out(text.removesuffix('\n'))
