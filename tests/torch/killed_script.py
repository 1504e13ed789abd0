"""Runs a script as `__main__`, in a member that ends by SIGKILL in its trial: --lr is an option of each such script.

The arguments are a number of saves, the script, and its own arguments. In the first generation of trial 0 the chief
kills itself right after this number of its checkpoints is in the store.
"""

import os
import runpy
import signal
import sys
from typing import Any

import sparktrain
from sparktrain.training.checkpoint.saver import CheckpointSaver

ctx: Any = sparktrain.context()
saves_left = int(sys.argv.pop(1))
save = CheckpointSaver.save


def last_save(self: CheckpointSaver, *arguments: Any, **options: Any) -> None:
    global saves_left
    save(self, *arguments, **options)
    saves_left -= 1
    if not saves_left:
        self.wait()
        os.kill(os.getpid(), signal.SIGKILL)


if ctx.trial == 0 and ctx.generation == 1:
    CheckpointSaver.save = last_save  # type: ignore[method-assign]
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
