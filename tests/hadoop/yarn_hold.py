"""Training functions that continue until the test ends them, and write their container and process."""

import os
import subprocess
from pathlib import Path

from sparktrain.base.clock import pause

CHUNK_BYTES = 32 * 2**20


def hold(marks, ctx):
    """Each member has a process in a session of its own; one with an `eat` file uses ever more memory."""
    grandchild = subprocess.Popen(["sleep", "600"], start_new_session=True)
    folder, who = Path(marks), f"{ctx.generation}-{ctx.rank}"
    write(folder / who, f"{os.environ['CONTAINER_ID']} {os.getpid()} {grandchild.pid}")
    restored = ctx.checkpoint.restore()
    eaten, step = [], restored.step if restored is not None else 0
    while not (folder / "enough").exists():
        step += 1
        write(folder / "step", str(step))
        if ctx.rank == 0:
            ctx.checkpoint.save(step)
        if (folder / f"eat-{who}").exists():
            eaten.append(b"x" * CHUNK_BYTES)
        pause(0.2)
    return {"y": ctx.size}


def hold_one(x, marks, ctx):
    """Ends at once for x = 0, and holds for any other x."""
    folder = Path(marks, str(x))
    folder.mkdir(exist_ok=True)
    if x == 0:
        write(folder / str(ctx.generation), "")
        return {"y": 0}
    return hold(folder, ctx)


def write(path, content):
    """Write a file, completely or not at all."""
    hidden = path.with_name(f".{path.name}-{os.getpid()}")
    hidden.write_text(content)
    hidden.rename(path)
