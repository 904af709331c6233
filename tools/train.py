"""The same as ``runnerkit train``; see ``--help``."""

import sys

from runnerkit.cli.train import main

if __name__ == '__main__':
    sys.exit(main(prog='tools/train.py'))
