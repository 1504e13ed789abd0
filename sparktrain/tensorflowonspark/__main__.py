"""Runs a program that imports `tensorflowonspark`, as it is: `python -m sparktrain.tensorflowonspark PROGRAM ARGS`."""

import runpy
import sys

from sparktrain.tensorflowonspark.installation import install

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m sparktrain.tensorflowonspark PROGRAM.py [ARGUMENTS]")
    install()
    del sys.argv[0]
    # As `python PROGRAM.py` sets it, for modules beside the program: `python -m` has the current folder there.
    sys.path[0] = sys.argv[0].rpartition("/")[0] or "."
    runpy.run_path(sys.argv[0], run_name="__main__")
