"""What users add to a run has a name of its own, in the order of time, and names its user."""

import getpass
import secrets


def new_name(wall: float) -> str:
    """A name for what is added at `wall`, in seconds since 1970: no two processes get the same one.

    Names sort by time. A call takes longer than a microsecond, so that those of one process keep their order.
    """
    return f"{int(wall * 1e6):016d}-{secrets.token_hex(4)}"


def current_user() -> str:
    """The name of the user of this process; empty where the system knows none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        return ""
