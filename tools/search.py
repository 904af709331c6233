"""The same as ``runnerkit search``; see ``--help``."""

import sys

from runnerkit.cli.search import main

if __name__ == '__main__':
    sys.exit(main(prog='tools/search.py'))
