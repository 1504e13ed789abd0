"""What NodeManagers leave behind: processes of containers, and those that they started in sessions of their own."""

import subprocess
from pathlib import Path

from tests.support.daemons import DaemonError

_END_TIMEOUT_S = 20.0
# A container's processes have the folders of its NodeManager in their environment, wherever they went since. One that
# was just forked may be missed once: nothing is left when nothing was found twice.
_END = """
idle=0
while [ $idle -lt 2 ]; do
    found=$(grep -lsF "LOCAL_DIRS=$0/" /proc/[0-9]*/environ | sed -n 's|^/proc/\\([0-9]*\\)/environ$|\\1|p')
    if [ -n "$found" ]; then kill -9 $found; idle=0; else idle=$((idle + 1)); fi
    sleep 0.1
done
"""
# The daemons end by guards of their own, and start nothing any more a moment later.
_END_WITH_STARTER = f"read -r word || {{ sleep 0.5; {_END}\n}}"


class ContainerGuard:
    """Ends the containers of NodeManagers with local folders below `place`: on request, and when the process that
    started it ends, in whatever way."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Stand by."""
        self._process = subprocess.Popen(
            ["sh", "-c", _END_WITH_STARTER, str(self._place)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end_containers(self) -> None:
        """SIGKILL to all processes of containers. Blocks until none is left. Raises DaemonError when that fails."""
        try:
            subprocess.run(
                ["sh", "-c", _END, str(self._place)], check=True, stderr=subprocess.DEVNULL, timeout=_END_TIMEOUT_S
            )
        except subprocess.SubprocessError as error:
            raise DaemonError(f"containers below {self._place} could not be ended: {error}") from None

    def close(self) -> None:
        """End the containers, and stand by no longer."""
        process, self._process = self._process, None
        if process is not None:
            self.end_containers()
            process.communicate(b"done\n")
