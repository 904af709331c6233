"""``python -m runnerkit`` is the console script."""

import sys

from runnerkit.cli.main import main

sys.exit(main())
