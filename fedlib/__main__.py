"""python -m fedlib: see fedlib.cli.main."""

import sys

from .cli.main import main

sys.exit(main())
