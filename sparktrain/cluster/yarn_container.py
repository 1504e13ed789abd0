"""The container of YARN that the driver is in, where it is in one."""

import os
import re

CONTAINER = re.compile(r"container_(?:e\d+_)?(?P<application>\d+_\d+)_(?P<attempt>\d+)_\d+")
"""The id of a container, which has those of its application and of the driver that asked for it."""


def this_attempt() -> tuple[str, int]:
    """The application that this process is in a container of, and how often YARN has started its driver; `("", 0)`
    outside of YARN, which tells it by the environment."""
    found = CONTAINER.fullmatch(os.environ.get("CONTAINER_ID", ""))
    return (found["application"], int(found["attempt"])) if found is not None else ("", 0)
