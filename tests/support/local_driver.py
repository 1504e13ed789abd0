"""Drivers on this machine alone: `python -m tests.process.local_driver MODULE:FUNCTION FOLDER`.

As `tests.support.mortal`, which has the trials, without a session.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import sparktrain as st
from sparktrain.clock import pause
from tests.support.mortal import NAME, marked


def sweep(folder: Path) -> Any:
    """Trials as many as FOLDER/trials says, two at a time."""
    space: dict[str, list[Any]] = {"x": list(range(int((folder / "trials").read_text()))), "folder": [str(folder)]}
    result = st.sweep(
        marked, space, metric="y", mode="max", spark=st.local(slots=2), dir=str(folder / "runs"), name=NAME,
        progress=False, preload=[],
    )  # fmt: skip
    return told(result)


def resume(folder: Path) -> Any:
    """Whatever there is."""
    return told(st.resume(str(folder / "runs" / NAME), spark=st.local(slots=2), progress=False))


def pooled(folder: Path) -> Any:
    """Two sweeps on one pool, whose agents stay; the agents of each."""
    agents = []
    with st.pool(st.local(slots=2), preload=[]) as pool:
        assert pool.agents == 2
        for name in ("first", "second"):
            result = pool.sweep(
                parent, {"x": [1, 2, 3, 4]}, metric="zygote", mode="max", dir=str(folder / "runs"), name=name,
                progress=False,
            )  # fmt: skip
            agents.append(sorted({each.metrics["zygote"] for each in result.trials}))
        run = pool.run(
            together, {"folder": str(folder)}, workers=2, backend="none", dir=str(folder / "runs"), progress=False
        )
    return [agents, run.metrics, [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]]


def parent(x: int) -> dict[str, int]:
    """The zygote that forked this member."""
    pause(0.2)  # so that both agents have trials
    return {"zygote": os.getppid()}


def together(folder: str, ctx: Any) -> dict[str, float]:
    """A member that waits for the other one."""
    Path(folder, f"rank-{ctx.rank}").touch()
    while not Path(folder, f"rank-{1 - ctx.rank}").exists():
        pause(0.01)
    return {"size": ctx.size}


def told(result: Any) -> list[list[Any]]:
    """Of each trial what a test compares."""
    return [
        [each.params["x"], each.status, each.metrics, each.generations, [restart.cause for restart in each.restarts]]
        for each in result.trials
    ]


def main(what: str, folder: Path) -> None:
    """Be a driver."""
    try:
        returned = globals()[what.partition(":")[2]](folder)
    except BaseException as error:
        print(f"ended by {type(error).__name__}: {error}", flush=True)
        raise
    (folder / "result.json").write_text(json.dumps(returned))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
