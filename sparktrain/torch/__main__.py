"""`python -m sparktrain.torch script.py args` runs a script for torchrun in a gang."""

import sys

from sparktrain.torch import main

sys.exit(main(sys.argv[1:]))
