"""The steps of a gang on three hosts that lose a process, all processes, or their link each minute.

    python -m benchmarks.goodput [--seconds 3600] [--interval 60] [--undisturbed 60] [--seed 0] [--kinds link]

The hosts are network namespaces of this machine, with two workers of Spark on each, and a gang of three on Horovod's
ring. Half of the losses are announced 5 s before, by `sparktrain drain`. A step takes 50 ms, which leaves the machine
idle most of the time. The weights count how often the gang has trained each row. Needs root and the command ip.
"""

import argparse
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import sparktrain as st
from benchmarks.goodput.faults import KINDS, Fault, Striker, members, plan
from benchmarks.goodput.training import STEPS, STOP, train
from benchmarks.machine import at_least, at_most, show
from benchmarks.session import stderr_into
from sparktrain.display.gang_text import restart_lines
from sparktrain.runs.locate import run_in
from tests.faults.standalone import Standalone, standalone
from tests.support.hosts import Network, bridged_hosts
from tests.support.local_spark import spark_session
from tests.support.processes import wait_until

HOSTS = 3
WORKERS = 2
"""Spark's workers on each host, with a slot each."""
STARTS_S = 180.0
ENDS_S = 180.0
TARGET = 0.97


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[Network, Standalone, st.Pool]]:
    """Three hosts, Spark on them, and a pool of all slots."""
    with bridged_hosts(HOSTS) as network:
        hosts = [host for host in network.hosts for _ in range(WORKERS)]
        addresses = [host.address for host in hosts]
        driver = {"spark.driver.host": network.address, "spark.driver.bindAddress": network.address}
        enter = [list(host.enter) for host in hosts]
        with ExitStack() as stack:
            spark = stack.enter_context(standalone(folder, addresses, network.address, enter))
            with stderr_into(folder / "spark.log"):  # the JVM prints the losses of its executors
                session = stack.enter_context(spark_session(spark.url, folder, driver))
            preload = ["tensorflow", "keras", "horovod.tensorflow"]
            yield network, spark, stack.enter_context(st.pool(session, agents=len(hosts), preload=preload))


def steps_between(folder: Path, start: float, end: float) -> int:
    """The steps of the gang in that time: a step that was repeated counts once."""
    steps = set()
    for path in folder.glob(f"*.{STEPS}"):
        for line in path.read_text().splitlines()[1:]:
            note = json.loads(line) if line.endswith("}") else {}
            if start <= note.get("at", 0.0) < end:
                steps.add(note["step"])
    return len(steps)


class Training:
    """A gang that trains while the benchmark measures it."""

    def __init__(self, pool: st.Pool, folder: Path, name: str, max_retries: int) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.results: list[st.RunResult] = []
        self.errors: list[BaseException] = []
        self._options = {"dir": str(folder / "runs"), "name": name, "progress": False, "max_retries": max_retries}
        self._pool = pool
        self._thread = threading.Thread(target=self._train)

    def start(self) -> None:
        """Blocks until all members train. Raises AssertionError when they do not."""
        self._thread.start()
        wait_until(self._trains, STARTS_S, "all members train")

    def _trains(self) -> bool:
        assert not self.errors, self.errors
        return len(members(self.folder)) == HOSTS and steps_between(self.folder, 0.0, time.time()) > 20

    def end(self) -> st.RunResult:
        """The result, after the current epoch."""
        (self.folder / STOP).touch()
        self._thread.join(ENDS_S)
        assert self.results, self.errors or f"the gang has not ended within {ENDS_S:g} s"
        return self.results[0]

    def _train(self) -> None:
        try:
            self.results.append(
                self._pool.run(
                    train, {"folder": str(self.folder)}, workers=HOSTS, backend="horovod", spread=True,
                    start_timeout=STARTS_S,
                    **self._options,
                )
            )  # fmt: skip
        except BaseException as error:
            self.errors.append(error)


def measured(training: Training, seconds: float) -> float:
    """Steps of the gang in a second, over so many."""
    start = time.time()
    threading.Event().wait(seconds)
    return steps_between(training.folder, start, start + seconds) / seconds


def main() -> None:
    """Print what the losses cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time with losses")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between two losses")
    parser.add_argument("--undisturbed", type=float, default=60.0, help="time without losses")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of losses")
    options = parser.parse_args()
    faults = plan(int(options.seconds / options.interval), HOSTS, options.seed, options.kinds)
    with tempfile.TemporaryDirectory() as scratch, cluster(Path(scratch)) as (network, spark, pool):
        folder = Path(scratch)
        calm = Training(pool, folder, "calm", 0)
        calm.start()
        pace = measured(calm, options.undisturbed)
        calm.end()
        training = Training(pool, folder, "disturbed", len(faults))
        training.start()
        striker = Striker(network, spark, WORKERS, run_in(str(folder / "runs" / "disturbed")), training.folder)
        striking = threading.Thread(target=striker.strike_all, args=(faults, options.interval))
        striking.start()
        disturbed = measured(training, options.seconds)
        striker.stop()
        striking.join()
        report(faults, pace, disturbed, training.end())


def report(faults: list[Fault], pace: float, disturbed: float, result: st.RunResult) -> None:
    """Print what followed from each loss, and one table."""
    kinds = Counter(f"{fault.kind}{' announced' if fault.announced else ''}" for fault in faults)
    ends = Counter(
        "healed" if restart.healed else "drained" if restart.drained else "restarted" for restart in result.restarts
    )
    print("\n".join(restart_lines(result.restarts)))
    lost = sum(restart.steps_lost or 0 for restart in result.restarts)
    wrong = result.metrics["rows_lost"] + result.metrics["rows_doubled"]
    seconds = [restart.seconds for restart in result.restarts] or [0.0]
    rows = [
        ("losses", ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())), ""),
        ("what followed", ", ".join(f"{count} {end}" for end, count in sorted(ends.items())), ""),
        ("pause, median and longest", f"{median(seconds):.2f} and {max(seconds):.2f} s", ""),
        ("steps repeated", str(lost), at_most(lost, 0)),
        ("rows lost or doubled", f"{wrong:g} in {result.metrics['epochs']:g} epochs", at_most(wrong, 0)),
        ("steps in a second, undisturbed and disturbed", f"{pace:.2f} and {disturbed:.2f}", ""),
        ("goodput", f"{disturbed / pace:.3f}", at_least(disturbed / pace, TARGET)),
    ]
    show(f"{len(faults)} losses on {HOSTS} hosts", ("", "", "target"), rows)


if __name__ == "__main__":
    main()
