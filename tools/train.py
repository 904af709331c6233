"""The same as ``runnerkit train``; ``--help`` tells what it takes."""

import sys

from runnerkit.cli.train import main

if __name__ == '__main__':
    sys.exit(main())
