"""``runnerkit verify WORK_DIR``: does this work dir reproduce here?"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict

from runnerkit.cli.arguments import flag
from runnerkit.cli.errors import wrong_usage
from runnerkit.cli.parser import command
from runnerkit.cli.replay import REPLAYING, ranks
from runnerkit.utils.exit_codes import DIFFERENT
from runnerkit.utils.logging import print_out


@command(
    'runnerkit verify',
    'Replay a run from one kept checkpoint to the next, and compare all that both files hold. The exit code is 0 '
    f'if they are equal, {DIFFERENT} if not.',
    *REPLAYING,
    flag('--all', 'from the beginning of the run, through all kept checkpoints (default: between the two newest ones)'),
    flag('--json', 'print the result as JSON'),
)
def main(args: Namespace) -> int:
    """Verify."""
    from runnerkit.distributed import get_dist_info
    from runnerkit.flow.moment.verify import verify

    with wrong_usage(FileNotFoundError), ranks(args.launcher, args.work_dir):
        found = verify(args.work_dir, args.all, trust=args.trust, device=args.device)
        is_first = get_dist_info()[0] == 0
    lines = [f'Perhaps not exact: {text}' for text in found.doubts] + [f'Note: {text}' for text in found.discarded]
    for each in found.stretches:
        what = 'equal' if each.is_equal else f'DIFFERENT: {each.difference}'
        lines.append(f'iterations {each.begin} to {each.end}, {each.checkpoint} ({each.compared}): {what}')
    lines.append(f'{args.work_dir} {"reproduces here" if found.is_equal else "does not reproduce here"}')
    if is_first:
        print_out(json.dumps(asdict(found), indent=1) if args.json else '\n'.join(lines))
    return 0 if found.is_equal else DIFFERENT
