"""A training function that goes on until it is told that it is enough, and tells who it is."""

import os
import subprocess
from pathlib import Path

from sparktrain.clock import pause

CHUNK_BYTES = 32 * 2**20


def hold(marks, ctx):
    """Each member has a process in a session of its own; one that is told to eat uses ever more memory."""
    grandchild = subprocess.Popen(["sleep", "600"], start_new_session=True)
    folder, who = Path(marks), f"{ctx.generation}-{ctx.rank}"
    write(folder / who, f"{os.environ['CONTAINER_ID']} {os.getpid()} {grandchild.pid}")
    eaten, step = [], 0
    while not (folder / "enough").exists():
        step += 1
        write(folder / "step", str(step))
        if (folder / f"eat-{who}").exists():
            eaten.append(b"x" * CHUNK_BYTES)
        pause(0.1)
    return {"y": ctx.size}


def write(path, content):
    """All of it, or nothing."""
    hidden = path.with_name(f".{path.name}-{os.getpid()}")
    hidden.write_text(content)
    hidden.rename(path)
