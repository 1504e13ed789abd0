"""The YARN container of the driver, if it runs in one, and its user."""

import getpass
import os
import re

CONTAINER = re.compile(r"container_(?:e\d+_)?(?P<application>\d+_\d+)_(?P<attempt>\d+)_\d+")
"""The id of a container, which includes those of its application and of the attempt that requested it."""


def this_attempt() -> tuple[str, int]:
    """The application of this process' container, and how many times YARN has started its driver; `("", 0)` outside of
    YARN, which sets the environment variable."""
    match = CONTAINER.fullmatch(os.environ.get("CONTAINER_ID", ""))
    return (match["application"], int(match["attempt"])) if match is not None else ("", 0)


def this_user() -> str:
    """The user of this process: on YARN the one who submitted the application, and not that of the container."""
    try:
        return os.environ.get("SPARK_USER") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        return str(os.getuid())
