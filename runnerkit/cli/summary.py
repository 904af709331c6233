"""``runnerkit summary cfg.py``: show the parameters, operations and shapes of a model."""

from __future__ import annotations

from collections.abc import Sequence

from runnerkit.cli.arguments import add_shared
from runnerkit.cli.errors import check_one_process, usage_checked
from runnerkit.cli.parser import Parser
from runnerkit.cli.train import guarded, load_config
from runnerkit.utils.logging import print_out


def parser(prog: str = 'runnerkit summary') -> Parser:
    """The command line."""
    parse = Parser(
        prog=prog,
        description='Build the model of a config, take one training step with its first batch, and show parameters, '
        'floating-point operations, and the output of each top-level module. Nothing is kept.',
    )
    add_shared(parse, 'config', '--cfg-options', '--device')
    return parse


@usage_checked
def main(argv: Sequence[str] | None = None) -> int:
    """Print the summary; returns the exit code, as ``runnerkit train`` does."""
    args = parser().parse_args(argv)
    check_one_process('runnerkit summary')
    cfg = load_config(args.config, args.cfg_options)
    # Imported here, so that a wrong flag or a missing config is reported without waiting for torch.
    from runnerkit.flow import Flow, Options
    from runnerkit.flow.look.summary import Summarize

    stages = {'startup': None, 'runner': Summarize}
    context = Flow(cfg, Options(device=args.device, dry_run=True), stages=stages, guard=guarded).run()
    print_out(str(context['summary']) if 'summary' in context else 'the workflow does not train: nothing is measured')
    return 0
