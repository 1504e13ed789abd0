"""The Spark job that `benchmarks.kubernetes` runs on both clusters: trials, calls of a gang, losses of its members."""

import json
import os
import socket
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sparktrain as st
from benchmarks.session import idle_agents, quiet
from tests.faults.leaving import leave
from tests.faults.test_draining import agent_of, started
from tests.support.processes import wait_until

AGENTS = 3
WORK_S = 0.05
TRIALS = 60
AGENTS_TIMEOUT_S = 120.0


def work(number: int) -> dict[str, int]:
    """A trial of a known time."""
    time.sleep(WORK_S)
    return {"number": number}


def step(ctx: Any) -> dict[str, float]:
    """The time of the first step of a gang."""
    ctx.allreduce(float(ctx.rank), average=False)
    return {"at": time.time()}


def train(folder: str, ctx: Any) -> dict[str, float]:
    """Train until the member of rank 1 has moved, and note where it is."""
    place = {"pod": socket.gethostname(), "jvm": jvm_above(os.getpid())}
    path = Path(folder, f"place-{ctx.rank}-{os.getpid()}.json")
    path.write_text(json.dumps(place))
    return leave(folder, ctx)


def jvm_above(pid: int) -> int:
    """The executor's process, above that of a member; 0 where it is none."""
    while pid > 1:
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        pid = int(fields.split()[1])
        if pid and Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            return pid
    return 0


def trial_ms(pool: st.Pool, runs: str) -> float:
    """What a trial takes beyond its work."""
    start = time.time()
    pool.sweep(work, {"number": list(range(TRIALS))}, metric="number", mode="max", **quiet(runs))
    return 1000 * ((time.time() - start) * AGENTS / TRIALS - WORK_S)


def first_step_s(pool: st.Pool, runs: str) -> float:
    """From a call to the first step of two members."""
    start = time.time()
    return pool.run(step, workers=2, backend="horovod", **quiet(runs)).metrics["at"] - start


def loss(pool: st.Pool, folder: Path, kind: str) -> dict[str, float]:
    """Seconds from the loss of a member to the next step of all, and steps that were repeated or lost."""
    folder.mkdir()
    folder.chmod(0o777)
    wait_until(lambda: len(idle_agents(pool)) == AGENTS, AGENTS_TIMEOUT_S, f"{AGENTS} agents wait for a gang")

    def strike() -> None:
        started(folder)
        [place] = folder.glob("place-1-*.json")
        request = {"kind": kind, "slot": agent_of(pool, 0, 1).slot, **json.loads(place.read_text())}
        hidden = folder / ".strike"
        hidden.write_text(json.dumps(request))
        hidden.rename(folder / "strike")

    options: dict[str, Any] = {"dir": str(folder / "runs"), "name": "run", "progress": False}
    thread = threading.Thread(target=strike)
    thread.start()
    result = pool.run(train, {"folder": str(folder)}, workers=2, backend="horovod", **options)
    thread.join()
    [restart] = result.restarts
    struck_at = float((folder / "struck").read_text())
    lines = [line for path in folder.glob("0-*-0.jsonl") for line in path.read_text().splitlines()]
    steps = sorted(json.loads(line) for line in lines)
    # With a step each 20 ms, the longest pause of the chief is that of the loss.
    pauses = [(later[0] - earlier[0], later[0]) for earlier, later in pairwise(steps) if later[0] > struck_at]
    repeated = len(steps) - len({number for _, number in steps})
    return {"s": max(pauses)[1] - struck_at, "repeated": repeated, "healed": float(bool(restart.healed))}


def main() -> None:
    """Write what `rounds` rounds have measured."""
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    found: dict[str, list[float]] = {"trial_ms": [], "first_step_s": []}
    losses: dict[str, list[dict[str, float]]] = {"notice": [], "kill": []}
    with st.pool(spark, agents=AGENTS, preload=["tensorflow", "keras", "horovod.tensorflow"]) as pool:
        trial_ms(pool, str(folder / "runs"))  # not measured: the first call of all
        first_step_s(pool, str(folder / "runs"))
        for _ in range(rounds):
            found["trial_ms"].append(trial_ms(pool, str(folder / "runs")))
            found["first_step_s"].append(first_step_s(pool, str(folder / "runs")))
        for number in range(rounds):
            for kind, measured in losses.items():
                measured.append(loss(pool, folder / f"{kind}-{number}", kind))
    (folder / "measured.json").write_text(json.dumps({**found, **losses}))
    spark.stop()


if __name__ == "__main__":
    main()
