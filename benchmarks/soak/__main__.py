"""A long run of sweeps and gangs that lose processes, disks, stores, clocks and drivers: nothing runs twice or is lost.

    make soak [ARGS="--seconds 600 --seed 7 --only gang driver"]

A round is a sweep or a gang with faults, all drawn from the seed; benchmarks/soak/rounds.py has the kinds. After each
round its results are checked, that no process is left of it, and that what the driver, its agents, shared memory and
temporary files hold does not grow. The first wrong round ends the command with its number: the same seed repeats it.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import sparktrain as st
from benchmarks.machine import show
from benchmarks.soak import fleet, rounds
from benchmarks.soak.tally import ENDS_S, MARK, MOST_GROWTH, Tally, check, strays
from tests.support.processes import wait_until


@contextmanager
def named(number: int, kind: str, seed: int) -> Iterator[None]:
    """Name the round of an error."""
    try:
        yield
    except Exception as error:
        print(f"round {number} ({kind}) is wrong: {error}\nrepeat it: make soak ARGS='--seed {seed}'", file=sys.stderr)
        raise


def soak(seconds: float, seed: int, kinds: list[str], folder: Path) -> Tally:
    """Rounds for so long."""
    rng, tally, until, number = random.Random(seed), Tally(), time.monotonic() + seconds, 0
    own, weights = folder / "tmp", [rounds.KINDS[kind][1] for kind in kinds]
    with ExitStack() as stack:
        there = fleet.Fleet(stack, folder)
        while time.monotonic() < until:
            number += 1
            # The first rounds are one of each kind: what is there after them is what later ones are compared with.
            [kind] = kinds[number - 1 : number] or rng.choices(kinds, weights)
            started_at, chosen = time.monotonic(), random.Random(rng.randrange(2**32))
            with named(number, kind, seed):
                with TemporaryDirectory(prefix=f"{number}-", dir=folder) as place:
                    rounds.KINDS[kind][0](rounds.Round(there, Path(place), chosen, tally))
                check_end(kind)
                tally.rounds[kind] += 1
                tally.hold(own)
            done = f"{tally.kills.total()} kills, {tally.trials} trials, {tally.restarts} restarts"
            print(f"round {number}: {kind}, {time.monotonic() - started_at:.1f} s; {done}", flush=True)
    return tally


def check_end(kind: str) -> None:
    """Nothing of a round is left running outside of this process."""
    with suppress(AssertionError):
        wait_until(lambda: not strays(), ENDS_S, "")
    left = [f"{' '.join(each.cmdline())[:100]} (pid {each.pid})" for each in strays()]
    check(not left, f"processes are left of {kind} after {ENDS_S:g} s: {left}")


def alone() -> None:
    """Continue in a mount namespace with shared memory of its own, so that no other process's counts."""
    if MARK not in os.environ:
        os.environ[MARK] = str(os.getpid())  # a new program keeps the pid
        mounted = 'mount -t tmpfs soak /dev/shm && exec "$0" "$@"'
        os.execvp(
            "unshare",
            ["unshare", "--mount", "sh", "-c", mounted, sys.executable, "-m", "benchmarks.soak", *sys.argv[1:]],
        )


def main() -> None:
    """Print a line for each round, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=rounds.KINDS, default=list(rounds.KINDS), help="kinds of rounds")
    given = parser.parse_args()
    alone()
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    with TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        tally = soak(given.seconds, given.seed, given.only, folder)
    rows = [
        ("rounds", _counts(tally.rounds)),
        ("kills", f"{tally.kills.total()}: {_counts(tally.kills)}"),
        ("other faults", _counts(tally.faults)),
        ("trials with their one result", f"{tally.trials}"),
        ("restarts of gangs and trials; in which the others kept their processes", f"{tally.restarts}; {tally.healed}"),
        ("wrong, lost or repeated results; processes left", "0; 0"),
        *((f"{each}, early and late", f"{tally.early(each):.0f}, {tally.late(each):.0f}") for each in MOST_GROWTH),
    ]
    show(f"soak of {given.seconds:g} s, seed {given.seed}, sparktrain {st.__version__}", ("", ""), rows)


def _counts(counted: "dict[str, int]") -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counted.items()))


if __name__ == "__main__":
    main()
