"""The Spark job of `benchmarks.kubernetes.losses`: sweeps and gangs, while their pods are killed, until that ends it.

It does what the file `phase` names, round after round, and adds what came out of each round to `rounds.jsonl`. The file
`idle` has the addresses of the pods with an idle agent.
"""

import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparktrain as st
from benchmarks.healing_kills import fit, write
from benchmarks.session import idle_agents

AGENTS = 4
TRIALS = 40
WORK_S = 0.3
STEPS = 1500
STEP_S = 0.03
SIZE = 2
LOOK_S = 0.1
PRELOADS: dict[str, list[str]] = {"sweeps": [], "gangs": ["tensorflow", "keras", "horovod.tensorflow"]}


def work(number: int, folder: str) -> dict[str, float]:
    """A trial with an exact result; a line in a file for each run to its end."""
    time.sleep(WORK_S)
    with Path(folder, f"ended-{number}").open("a") as file:
        file.write("ended\n")
    return {"square": float(number**2)}


def train(folder: str, steps: int, step_s: float, ctx: Any) -> None:
    """A fit that notes the process, pod and time of each step, and in the end its digest."""
    notes = Path(folder)
    place = {"pod": socket.gethostname(), "process": f"{socket.gethostname()}-{os.getpid()}-{time.time()}"}

    def note(step: int) -> None:
        time.sleep(step_s)
        write(notes / f"step-{ctx.rank}", json.dumps({**place, "step": step, "at": time.time()}))

    write(notes / f"end-{ctx.rank}", fit(steps, note, ctx))


def swept(pool: st.Pool, folder: Path) -> dict[str, Any]:
    """A sweep, by its results in memory and in its directory."""
    space = {"number": list(range(TRIALS)), "folder": [str(folder)]}
    result = pool.sweep(work, space, metric="square", mode="max", **options(folder))
    counts = {"lost": 0, "wrong": 0, "doubled": 0}
    for found in (result, st.load(f"{folder}/runs/run")):
        results = [(trial.id, dict(trial.metrics)) for trial in found.trials if trial.status == "succeeded"]
        counts["lost"] += TRIALS - len({number for number, _ in results})
        counts["doubled"] += len(results) - len({number for number, _ in results})
        counts["wrong"] += sum(metrics != {"square": float(number**2)} for number, metrics in results)
    ends = [len((folder / f"ended-{number}").read_text().splitlines()) for number in range(TRIALS)]
    restarts = [restart for trial in result.trials for restart in trial.restarts]
    return {**counts, "results": TRIALS, "again": sum(ends) - TRIALS, "restarts": causes(restarts)}


def trained(pool: st.Pool, folder: Path, expected: list[str], step_s: float = STEP_S) -> dict[str, Any]:
    """A gang, by what its members end with."""
    given = {"folder": str(folder), "steps": STEPS, "step_s": step_s}
    counts = {"lost": 0, "wrong": 0, "doubled": 0, "results": 1}
    try:
        result = pool.run(train, given, workers=SIZE, backend="horovod", seed=1, **options(folder))
    except st.SparktrainError as error:
        return {**counts, "lost": 1, "restarts": [], "error": str(error)}
    ends = [(folder / f"end-{rank}").read_text() for rank in range(SIZE)]
    return {**counts, "wrong": int(ends != (expected or ends)), "restarts": causes(result.restarts), "ends": ends}


@contextmanager
def idle_noted(pool: st.Pool, path: Path) -> Iterator[None]:
    """Meanwhile a thread writes where an agent is idle."""
    is_over = threading.Event()

    def note() -> None:
        while not is_over.wait(LOOK_S):
            write(path, " ".join(agent.address for agent in idle_agents(pool)))

    thread = threading.Thread(target=note)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def options(folder: Path) -> dict[str, Any]:
    """Those of each call: its directory is FOLDER/runs/run."""
    return {"dir": str(folder / "runs"), "name": "run", "progress": False}


def causes(restarts: Any) -> list[dict[str, Any]]:
    """What a call reports of its losses."""
    keys = ("cause", "healed", "drained", "steps_lost", "seconds", "loss")
    return [{key: getattr(restart, key) for key in keys} for restart in restarts]


def main() -> None:
    """Rounds of the phase that is asked for, until it is `end`."""
    folder = Path(sys.argv[1])
    logging.basicConfig()
    logging.getLogger("sparktrain").setLevel(logging.INFO)  # the agents that join
    spark = SparkSession.builder.getOrCreate()
    number = 0
    while (phase := (folder / "phase").read_text()) != "end":
        with (
            st.pool(spark, agents=AGENTS, preload=PRELOADS[phase]) as pool,
            idle_noted(pool, folder / "idle"),
        ):
            expected: list[str] = []
            if phase == "gangs":
                expected = trained(pool, made(folder / "undisturbed"), [], 0.0)["ends"]
            while (folder / "phase").read_text() == phase:
                number += 1
                place = made(folder / f"{phase}-{number}")
                write(folder / "round", place.name)
                outcome = swept(pool, place) if phase == "sweeps" else trained(pool, place, expected)
                with (folder / "rounds.jsonl").open("a") as file:
                    print(json.dumps({"phase": phase, **outcome}), file=file)
    spark.stop()


def made(folder: Path) -> Path:
    """A folder that the users of pods may write to."""
    folder.mkdir()
    folder.chmod(0o777)
    return folder


if __name__ == "__main__":
    main()
