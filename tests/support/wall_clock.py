"""A wall clock of its own for processes of a test, which differs from the machine's and may jump."""

import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("wall_clock.c")


class WallClock:
    """The clock of all processes that are started with `environment`, and of those below them."""

    def __init__(self, folder: Path) -> None:
        """Compiles its library into `folder`, which a C compiler takes a second for."""
        library, self._file = folder / "wall_clock.so", folder / "wall_clock"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, _SOURCE], check=True, timeout=60)
        self._file.write_bytes(struct.pack("q", 0))
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK_FILE": str(self._file)}

    @property
    def words(self) -> list[str]:
        """The words before a command that starts with `environment`."""
        return ["env", *(f"{name}={value}" for name, value in self.environment.items())]

    def set(self, ahead_s: int) -> None:
        """Let it be so many seconds ahead of the machine's clock from now on; negative: behind."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", ahead_s))
