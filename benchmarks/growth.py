"""From the last step of a gang that runs smaller to the first one of the larger gang that continues it.

    python -m benchmarks.growth [--rounds 3]

Two agents of this machine; the second one is killed, so that the gang continues with one member, and comes back some
seconds later.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

import sparktrain as st
from benchmarks.machine import at_most, show
from sparktrain.driver.engines import local_batch
from sparktrain.state.gangs import timeouts
from tests.faults.growing import grow

TARGET_S = 2.0
BACK_S = 4.0
"""Until the killed agent is there again."""


def grown(pool: st.Pool, folder: Path, backend: str) -> tuple[float, int]:
    """Seconds between the two steps, and how many steps were lost or repeated."""
    folder.mkdir()
    options = {"backend": backend, "dir": str(folder / "runs"), "progress": False}
    result = pool.run(grow, {"folder": str(folder)}, workers=2, min_workers=1, **options)
    assert [each.paused for each in result.restarts] == [False, True], result.restarts
    before, after = (
        [json.loads(line) for line in (folder / f"{name}-0.jsonl").read_text().splitlines()] for name in (2, 3)
    )
    return after[0][0] - before[-1][0], abs(after[0][1] - before[-1][1] - 1)


def comes_back(restarts: local_batch.Restarts, slot: int, now: float) -> bool:
    """In place of a restart at once."""
    restarts._lives[slot].due = now + BACK_S
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    timeouts.REPLACEMENT_S, timeouts.COOLDOWN_S = 0.0, 2.0
    local_batch.Restarts.lost = comes_back
    rows = []
    preload = ["tensorflow", "keras", "horovod.tensorflow"]
    with tempfile.TemporaryDirectory() as runs, st.pool(st.local(slots=2), preload=preload) as pool:
        for backend in ("horovod", "tensorflow"):
            found = [grown(pool, Path(runs, f"{backend}-{number}"), backend) for number in range(given.rounds)]
            taken, steps = sorted(each for each, _ in found), sum(lost for _, lost in found)
            spread = f"{taken[0]:.2f} to {taken[-1]:.2f} s"
            rows.append((backend, f"{median(taken):.2f} s", spread, str(steps), at_most(median(taken), TARGET_S, " s")))
    show(f"one member to two, {given.rounds} rounds each", ("ring", "median", "all", "steps lost", "target"), rows)


if __name__ == "__main__":
    main()
