"""The process of `sparktrain check`: `python -m sparktrain.testing PARENT_PID DESCRIPTOR`, a request on stdin."""

import os
import signal
import sys

import msgspec

from sparktrain.base import deferred_wrappers, process_tree
from sparktrain.base.decoding import from_json
from sparktrain.testing.function_check import CheckReport, CheckRequest, FunctionCheck


def main() -> None:
    """Run the check that stdin requests, and write the report to the descriptor."""
    parent, descriptor = map(int, sys.argv[1:])
    process_tree.die_with_parent(signal.SIGKILL, parent)
    deferred_wrappers.defer()
    request = from_json(sys.stdin.buffer.read(), CheckRequest)
    sys.argv[:] = ["sparktrain"]

    def write(report: CheckReport) -> None:
        with os.fdopen(descriptor, "wb") as pipe:
            pipe.write(msgspec.json.encode(report))

    FunctionCheck(request, write).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # in spite of threads and exit handlers that the function has left


if __name__ == "__main__":
    main()
