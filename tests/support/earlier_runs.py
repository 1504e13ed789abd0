"""Runs that sparktrain 86493e81 drove on its local engine.

The driver of `dead` was killed before its run was copied, and the others lived: in `absent` a ring of three continues
with two members, and in `standby` a process waits for a place. Logs, and checkpoints of ended trials, are omitted.
"""

import tarfile
from pathlib import Path

STATES = ("absent", "dead", "paused", "running", "standby")


def unpack(state: str, folder: Path) -> Path:
    """The directory of the run in this state, below `folder`."""
    with tarfile.open(Path(__file__).parents[1] / "earlier_runs" / f"{state}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / state
