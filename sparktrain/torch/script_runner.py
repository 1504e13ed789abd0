"""Runs a script in a member of a gang, as Python runs it after torchrun. Imports nothing of the command line."""

import os
from collections.abc import Sequence

from sparktrain.training import script_run
from sparktrain.training.context import TrainContext


def run_script(module: str, arguments: Sequence[str], path: str, folder: str, ctx: TrainContext) -> dict[str, float]:
    """Run the file of `module` as `__main__`, in `folder` where this host has it: there torchrun was called.

    `path` is that of the script as the user wrote it; empty for a module that Python runs by `-m`. Blocks until the
    script ends, and returns the metrics that it has reported last. Raises UserError for another exit code than 0, and
    what the script raises.
    """
    if os.path.isdir(folder):
        os.chdir(folder)
    script_run.run_script(module, arguments, path)
    return dict(ctx.reported)
