"""Convert a sharded checkpoint to one file, and back; see ``python tools/convert_checkpoint.py --help``."""

from runnerkit.cli.checkpoints import convert_main as main

raise SystemExit(main(prog='tools/convert_checkpoint.py'))
