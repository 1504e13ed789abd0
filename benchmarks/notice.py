"""What an announced loss costs a gang: from its last step with a member on a drained agent to the next one.

    python -m benchmarks.notice [--rounds 3]

Three agents of this machine, and a gang of two on Horovod's ring. The agent of rank 1 is drained while it trains, so
that this member moves to the third one, and rank 0 keeps its process.
"""

import argparse
import json
import tempfile
import threading
import time
from itertools import pairwise
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
    """Seconds of the pause, seconds from the request to the first step after it, and steps lost or repeated.

    All by the chief, which keeps its process; the member that moves makes its first step elsewhere at the same time.
    """
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
    [restart] = result.restarts
    assert (restart.drained, restart.healed) == (True, True), restart
    steps = [json.loads(line) for line in (folder / "0-1-0.jsonl").read_text().splitlines()]
    before, after = next(pair for pair in pairwise(steps) if pair[0][1] == restart.resumed_from_step)
    lost = sum(later[1] != earlier[1] + 1 for earlier, later in pairwise(steps))
    return after[0] - before[0], after[0] - requested[0], lost


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
