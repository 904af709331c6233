"""The same as ``runnerkit test``; see ``--help``."""

import sys

from runnerkit.cli.test import main

if __name__ == '__main__':
    sys.exit(main(prog='tools/test.py'))
