"""Drivers without Spark, for tests to kill: `python -m tests.support.local_driver MODULE:FUNCTION FOLDER`.

`tests.support.mortal` has their trials, and the same drivers on Spark.
"""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import sparktrain as st
from tests.support import drill
from tests.support.mortal import NAME, call, marked
from tests.support.processes import wait_until

START_TIMEOUT_S = 60.0


def sweep(folder: Path) -> Any:
    """Short trials, two at a time; FOLDER/trials has their number."""
    space: dict[str, list[Any]] = {"x": list(range(int((folder / "trials").read_text()))), "folder": [str(folder)]}
    result = st.sweep(
        marked, space, metric="y", mode="max", spark=st.local(slots=2), dir=str(folder / "runs"), name=NAME,
        progress=False, preload=[],
    )  # fmt: skip
    return trials_of(result)


SEVERAL = {NAME: range(8), "other": range(100, 108)}
"""Runs of `several`, and the trials of each."""


def several(folder: Path) -> Any:
    """Two sweeps at the same time, on one pool."""
    with st.pool(st.local(slots=2), preload=[]) as pool:
        return _at_once(lambda name: _sweep_of(pool.sweep, name, folder))


def several_on_a_session(folder: Path) -> Any:
    """Two sweeps at the same time, on one session."""
    machine = st.local(slots=2)
    return _at_once(lambda name: _sweep_of(partial(st.sweep, spark=machine), name, folder))


def several_in_turn(folder: Path) -> Any:
    """The same sweeps, one after the other on one pool."""
    with st.pool(st.local(slots=2), preload=[]) as pool:
        return {name: _sweep_of(pool.sweep, name, folder) for name in SEVERAL}


def _sweep_of(sweep_on: Callable[..., Any], name: str, folder: Path) -> Any:
    space = {"x": list(SEVERAL[name]), "folder": [str(folder)]}
    options: dict[str, Any] = {"metric": "y", "mode": "max", "dir": str(folder / "runs"), "progress": False}
    return trials_of(sweep_on(marked, space, name=name, **options))


def _at_once(call_of: Callable[[str], Any]) -> dict[str, Any]:
    with ThreadPoolExecutor(len(SEVERAL)) as threads:
        return dict(zip(SEVERAL, threads.map(call_of, SEVERAL), strict=True))


def resume(folder: Path) -> Any:
    """Resume the run in FOLDER by its directory."""
    return trials_of(st.resume(str(folder / "runs" / NAME), spark=st.local(slots=2), progress=False))


def gang(folder: Path) -> Any:
    """A drill of two members without retries: the death of a driver costs none."""
    params = {"folder": str(folder), "strikes": []}
    result = st.run(
        drill.train, params, workers=2, backend="none", preload=["numpy"], max_retries=0, spark=st.local(slots=2),
        dir=str(folder / "runs"), name=NAME, progress=False,
    )  # fmt: skip
    return {"metrics": result.metrics, "restarts": [[each.cause, each.resumed_from_step] for each in result.restarts]}


def pooled(folder: Path) -> Any:
    """Two sweeps and a gang on one pool: the zygotes of each sweep, the result of the gang, and modules of Spark."""
    agents = []
    with st.pool(st.local(slots=2), preload=[]) as pool:
        assert pool.agents == 2
        for name in ("first", "second"):
            space: dict[str, list[Any]] = {"x": [1, 2, 3, 4], "folder": [str(folder / f"zygotes-{name}")]}
            result = pool.sweep(
                parent, space, metric="zygote", mode="max", dir=str(folder / "runs"), name=name,
                progress=False,
            )  # fmt: skip
            agents.append(sorted({each.metrics["zygote"] for each in result.trials}))
        run = pool.run(
            together, {"folder": str(folder)}, workers=2, backend="none", dir=str(folder / "runs"), progress=False
        )
    return [agents, run.metrics, [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]]


def parent(x: int, folder: str) -> dict[str, int]:
    """The zygote that forked this member, once both agents have had a trial."""
    zygotes = Path(folder)
    (zygotes / str(os.getppid())).mkdir(parents=True, exist_ok=True)
    wait_until(lambda: len(list(zygotes.iterdir())) == 2, START_TIMEOUT_S, "a trial of the other agent")
    return {"zygote": os.getppid()}


def together(folder: str, ctx: Any) -> dict[str, float]:
    """A member that waits for the other one to start."""
    Path(folder, f"rank-{ctx.rank}").touch()
    wait_until(Path(folder, f"rank-{1 - ctx.rank}").exists, START_TIMEOUT_S, "the other member")
    return {"size": ctx.size}


def trials_of(result: Any) -> list[list[Any]]:
    """What tests compare of each trial."""
    return [
        [each.params["x"], each.status, each.metrics, each.generations, [restart.cause for restart in each.restarts]]
        for each in result.trials
    ]


if __name__ == "__main__":
    call(sys.argv[1], Path(sys.argv[2]))
