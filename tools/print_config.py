"""Print a config; see ``python tools/print_config.py --help``."""

from runnerkit.cli.print_config import main

raise SystemExit(main(prog='tools/print_config.py'))
