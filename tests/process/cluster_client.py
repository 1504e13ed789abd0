"""A client of a run with its coordinator beside an agent, in a process of its own: it gets signals.

python -m tests.process.cluster_client FOLDER
"""

import sys
from pathlib import Path

import cloudpickle

import tests
from tests.process.test_cluster_coordinator import held
from tests.support.process_cluster import sweep_in_cluster

if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(tests)
    folder = Path(sys.argv[1])
    sweep_in_cluster(held, {"x": [0, 1], "folder": [str(folder)]}, folder)
