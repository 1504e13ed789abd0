"""Runs a script in a member of a gang, as Python runs it after torchrun. Imports nothing of the command line."""

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from sparktrain.errors import UserError


def run_script(module: str, arguments: Sequence[str], path: str, folder: str) -> None:
    """Run the file of `module` as `__main__`, in `folder` where this host has it.

    `path` is that of the script as the user wrote it; empty for a module that Python runs by `-m`. Blocks until the
    script ends. Raises UserError for another exit code than 0, and what the script raises.
    """
    if os.path.isdir(folder):
        os.chdir(folder)  # a script reads and writes where torchrun was called
    sys.argv[:] = [path, *arguments]
    try:
        if path:
            _run_file(module, path)
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise UserError(f"the script has called sys.exit({end.code!r})") from None


def _run_file(module: str, path: str) -> None:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    names = vars(sys.modules["__main__"])
    # Files beside the script are where it lies, on hosts that have it; its code is what the driver has sent.
    names["__file__"] = os.path.abspath(path) if os.path.exists(path) else spec.origin
    exec(compile(Path(spec.origin).read_bytes(), spec.origin, "exec", dont_inherit=True), names)
