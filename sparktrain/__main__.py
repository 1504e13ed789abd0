"""`python -m sparktrain` is the command `sparktrain`."""

import sys

from sparktrain.cli import main

sys.exit(main())
