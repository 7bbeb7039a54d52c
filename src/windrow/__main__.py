"""`python -m windrow`: the command line, where no `windrow` is on the PATH."""

import sys

from windrow.cli.main import main

sys.exit(main())
