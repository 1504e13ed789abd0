"""Where the time of a case goes, stage by stage, and how far it is from what the machine allows.

    make profile CASE=trial        an empty trial on a warm pool, in a process that is forked from TensorFlow and Keras
    make profile CASE=search_cv    a fit of 50 ms of `search_cv` on a warm pool
    make profile CASE=torch_step   a step of DDP in a gang of two, beside torchrun
    make profile CASE=shuffle      a row of `to_tf`, in order and shuffled
    make profile CASE=recovery     from the kill of a member with 1 GB of state to the next step

The stages of the first two are the spans of sparktrain, without those inside of them. What a process spends outside of
spans is a row of its own: event loops and gRPC in the driver and its agents, the page tables of forks and exits in the
kernel. The stages of a step are those of torch's own profiler, those of a row the functions of the feed
(`benchmarks.shuffle_budget`), and those of a recovery moments that its members note (`benchmarks.recovery`).
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import psutil

import sparktrain as st
from benchmarks.bare_forks import bare_fork_ms
from benchmarks.burning import FIT_S
from benchmarks.machine import show
from benchmarks.short_functions import empty
from benchmarks.shuffle_budget import show_shuffle
from sparktrain.base.spans import FOLDER_KEY, read_spans

SLOTS = 2
TRIALS = 128
FITS = 64
STEPS = 100
KILLS, STATE_MB = 3, 1024
"""Of the recovery."""
OPERATIONS = 12
"""Rows of the table of a step."""
STAGES = {
    "pack": "driver",
    "plan": "driver",
    "tick": "driver",
    "journal": "driver",
    "fsync": "driver",
    "message": "driver, agents, members",
    "folders": "agents",
    "fork": "zygotes",
    "reap": "zygotes",
    "rehearsal": "members",
    "set up": "members",
    "load": "members",
    "join": "members",
    "user code": "members",
    "result": "members",
}
"""The spans of a trial, in the order of its path, and the processes that have them."""
PROCESSES = ("driver", "agents", "zygotes", "members")


class Sweep(NamedTuple):
    """A sweep that is profiled."""

    unit: str
    units: int
    """Of a call."""
    opened: Callable[[], Iterator[Callable[[], object]]]
    """A context with the call."""
    floor: str
    floor_ms: Callable[[], float]
    """What the machine allows."""


def trials() -> Iterator[Callable[[], object]]:
    """Empty trials on a warm pool."""
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as folder,
        st.pool(st.local(slots=SLOTS), preload=["tensorflow", "keras"]) as pool,
    ):
        yield lambda: pool.sweep(
            empty, {"trial": list(range(TRIALS))}, metric="pid", mode="max", dir=folder, progress=False
        )


def fits() -> Iterator[Callable[[], object]]:
    """The fits of `benchmarks.sklearn_search`, on a warm pool."""
    from benchmarks.sklearn_search import Search

    search = Search()
    data = search.data
    with (
        TemporaryDirectory(prefix="sparktrain-benchmark-") as folder,
        st.pool(st.local(slots=SLOTS), preload=["numpy"]) as pool,
    ):
        yield lambda: search.ours(pool, folder, data)


SWEEPS = {
    "trial": Sweep(
        "trial",
        TRIALS,
        trials,
        "a fork and an exit of such a process, and nothing else",
        lambda: bare_fork_ms(["tensorflow", "keras"], SLOTS),
    ),
    "search_cv": Sweep(
        "fit", FITS, fits, f"{1000 * FIT_S:.0f} ms of work on {SLOTS} cores", lambda: 1000 * FIT_S / SLOTS
    ),
}


def processor_s() -> Counter[str]:
    """Processor seconds so far of this process and those below it, by what they are."""
    spent: Counter[str] = Counter()
    mine = psutil.Process()
    for process in (mine, *mine.children(recursive=True)):
        times = process.cpu_times()
        own_s = times.user + times.system
        name = process.name()
        if process == mine:
            spent["driver"] += own_s
        elif name == "zygote":
            spent["zygotes"] += own_s
            spent["members"] += times.children_user + times.children_system
        elif name.startswith("sparktrain-agen"):
            spent["agents"] += own_s
        else:
            spent["members"] += own_s
    return spent


def show_sweep(case: Sweep, folder: Path) -> None:
    """Print where the processor time of a unit goes: one call warms up, and one counts."""
    with contextmanager(case.opened)() as call:
        call()
        for file in folder.iterdir():
            file.unlink()
        before = processor_s()
        started_at = time.perf_counter()
        call()
        wall_ms = 1000 * (time.perf_counter() - started_at) / case.units
        spent = processor_s()
        spent.subtract(before)
        spans = read_spans(folder)
    stage_ms: Counter[str] = Counter()
    for entry in spans:
        stage_ms[entry.stage] += entry.cpu_ns / 1e6 / case.units
    process_ms = {process: 1000 * spent[process] / case.units for process in PROCESSES}
    whole_ms = sum(process_ms.values())
    times = [(owner, stage, stage_ms[stage]) for stage, owner in STAGES.items()]
    for process, own_ms in process_ms.items():
        inside_ms = sum(stage_ms[stage] for stage, owner in STAGES.items() if owner == process)
        times.append((process, "outside of these", own_ms - inside_ms))
    rows = [
        (*names, f"{unit_ms:.2f} ms", f"{100 * unit_ms / whole_ms:.1f} %")
        for *names, unit_ms in (*times, ("all", "all", whole_ms))
    ]
    floor_ms = case.floor_ms()
    rows.append(("", f"from the call to its end, over {case.units}", f"{wall_ms:.2f} ms", ""))
    rows.append(("", f"floor: {case.floor}", f"{floor_ms:.2f} ms", f"{wall_ms / floor_ms:.2f} of it"))
    show(f"Processor time of a {case.unit}", ("process", "stage", f"a {case.unit}", "share"), rows)


def show_torch_step() -> None:
    """Print the time of torch's operations in a step, of the first member, in a gang of sparktrain and of torchrun."""
    from benchmarks.torch_step import OURS, RIVAL, operations_ms, step_ms

    with TemporaryDirectory(prefix="sparktrain-benchmark-") as folder:
        steps = {name: step_ms(name, STEPS, Path(folder)) for name in (RIVAL, OURS)}
        operations = {name: operations_ms(name, STEPS, Path(folder)) for name in (RIVAL, OURS)}
    names = sorted({*operations[OURS], *operations[RIVAL]}, key=lambda name: -operations[RIVAL].get(name, 0.0))

    def row(name: str, times: dict[str, float]) -> tuple[str, str, str, str]:
        ours, rival = times.get(OURS, 0.0), times.get(RIVAL, 0.0)
        return name, f"{ours:.2f} ms", f"{rival:.2f} ms", f"{ours - rival:+.2f} ms"

    rows = [row(name, {of: times.get(name, 0.0) for of, times in operations.items()}) for name in names[:OPERATIONS]]
    rows.append(row("median step, without the profiler", steps))
    show("A step of DDP with 32 MiB", ("operation", OURS, RIVAL, "more"), rows)


def show_recovery() -> None:
    """Print the stages of a recovery, which `recoveries` shows, and how long each takes."""
    from benchmarks.recovery import recoveries, row

    with TemporaryDirectory(prefix="sparktrain-benchmark-") as runs:
        seconds = recoveries(st.local(slots=SLOTS), "horovod", runs, KILLS, mb=STATE_MB)
    name = f"from SIGKILL of one of two members with {STATE_MB} MB to the next step"
    show("A recovery", ("", "median", "all"), [row(name, seconds)])


SINGLE_CASES = {"torch_step": show_torch_step, "shuffle": show_shuffle, "recovery": show_recovery}
"""Those that need no spans."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=[*SWEEPS, *SINGLE_CASES])
    case = parser.parse_args().case
    if case in SINGLE_CASES:
        SINGLE_CASES[case]()
    elif folder := os.environ.get(FOLDER_KEY):
        show_sweep(SWEEPS[case], Path(folder))
    else:
        with TemporaryDirectory(prefix="sparktrain-spans-") as folder:  # spans are on from the import of sparktrain on
            command = [sys.executable, "-m", "benchmarks.time_budget", case]
            sys.exit(subprocess.run(command, env=os.environ | {FOLDER_KEY: folder}, check=False).returncode)


if __name__ == "__main__":
    main()
