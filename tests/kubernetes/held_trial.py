"""Trials that note their starts, and last while a file exists."""

import os
import time
from pathlib import Path


def held(x, folder, ctx):
    """A result that is exact. The second trial lasts while FOLDER/hold exists."""
    Path(folder, f"start-{x}-{os.environ['HOSTNAME']}").touch()
    step = 0
    while x == 1 and Path(folder, "hold").exists():
        step += 1
        ctx.report(step, y=0.0)
        time.sleep(0.05)
    return {"y": float(x)}
