"""Make one file of a sharded checkpoint, and back; see ``python tools/convert_checkpoint.py --help``."""

from runnerkit.cli.convert import main

raise SystemExit(main(prog='tools/convert_checkpoint.py'))
