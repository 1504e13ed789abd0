"""The cores that this member may use."""

import os


def own_cores() -> int:
    """The cores of this member's slot, as Spark and the local engine set them for native libraries."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdigit() and int(threads) else len(os.sched_getaffinity(0))
