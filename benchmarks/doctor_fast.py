"""A job for `benchmarks.doctor`: runs the checks of a launch several times.

spark-submit doctor_fast.py DIRECTORY FILE    which gets the seconds of each, as JSON
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from sparktrain.driver.agent_sources import OwnAgents
from sparktrain.driver.engines.selection import engine_of
from sparktrain.driver.options import RunOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.search.space import single

ROUNDS = 5


def train():
    return 0.0


def main(directory: str, output: Path) -> None:
    session = SparkSession.builder.getOrCreate()
    took = []
    for number in range(ROUNDS):
        call = compose(train, single({}), RunOptions(workers=1, dir=directory, name=f"run-{number}"))
        started_at = time.perf_counter()
        OwnAgents(engine_of(session)).admit(call)
        took.append(time.perf_counter() - started_at)
    output.write_text(json.dumps(took))
    session.stop()


main(sys.argv[1], Path(sys.argv[2]))
