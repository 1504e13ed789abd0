"""What an announced loss costs a gang: from its last step on a drained agent to the first one elsewhere.

    python -m benchmarks.notice [--rounds 3]

Three agents of this machine, and a gang of two on Horovod's ring. The agent of rank 1 is drained while it trains, so
that the gang continues on the third one.
"""

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from sparktrain.runs.additions.drain_requests import drain
from sparktrain.runs.locate import run_in
from tests.faults.leaving import leave
from tests.faults.test_draining import agent_of, started

TARGET_S = 0.5


def moved(pool: st.Pool, folder: Path) -> tuple[float, float, int]:
    """Seconds of the pause, seconds from the request to the first step elsewhere, and steps lost or repeated."""
    folder.mkdir()
    requested: list[float] = []

    def request() -> None:
        started(folder)
        requested.append(time.time())
        drain(run_in(str(folder / "runs" / "run")), None, agent_of(pool, 0, 1).slot)

    thread = threading.Thread(target=request)
    thread.start()
    options = {"dir": str(folder / "runs"), "name": "run", "progress": False}
    result = pool.run(leave, {"folder": str(folder)}, workers=2, backend="horovod", max_retries=0, **options)
    thread.join()
    assert [restart.drained for restart in result.restarts] == [True], result.restarts
    before, after = (
        [json.loads(line) for line in (folder / f"0-{number}-0.jsonl").read_text().splitlines()] for number in (1, 2)
    )
    first = after[0][0]
    return first - before[-1][0], first - requested[0], abs(int(after[0][1] - before[-1][1] - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    preload = ["tensorflow", "keras", "horovod.tensorflow"]
    with tempfile.TemporaryDirectory() as runs, st.pool(st.local(slots=3), preload=preload) as pool:
        moves = [moved(pool, Path(runs, f"round-{number}")) for number in range(rounds)]
    pauses = sorted(pause for pause, _, _ in moves)
    notices = sorted(notice for _, notice, _ in moves)
    steps = sum(lost for _, _, lost in moves)
    spread = f"{pauses[0]:.2f} to {pauses[-1]:.2f} s"
    row = (f"{median(pauses):.2f} s", spread, f"{median(notices):.2f} s", str(steps))
    heads = ("pause, median", "all", "from the request", "steps lost", "target")
    show(f"a drained agent, {rounds} rounds", heads, [(*row, at_most(median(pauses), TARGET_S, " s"))])


if __name__ == "__main__":
    main()
