"""The same as ``runnerkit test``; ``--help`` tells what it takes."""

import sys

from runnerkit.cli.test import main

if __name__ == '__main__':
    sys.exit(main())
