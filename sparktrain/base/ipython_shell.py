"""The shell of IPython in this process, which a notebook and its console have."""

import sys
from typing import Any


def ipython_shell() -> Any | None:
    """The shell; None where there is none. Imports nothing."""
    # Only sys.modules is read: a kernel has imported IPython, and no other process imports it for this. While IPython
    # is being imported, the module is there without its names.
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return find_shell() if find_shell is not None else None
