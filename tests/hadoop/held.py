"""Members on YARN that train until a test ends them (`yarn_hold.py`), and the processes that each of them has."""

from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.hadoop.following import Followed, wait_running
from tests.support.processes import Sighted, kill, wait_until

GONE_S = 20.0
ENDS_S = 240.0
"""From the word that it is enough to the end of the run, on a busy machine."""
GANG = ("", 0), ("", 1)
"""Of each member: the folder that it writes to, and its rank."""


class Held:
    """Two members that train until it is enough, and their processes, those in sessions of their own too."""

    def __init__(self, submitted: Followed, marks: Path, members: Sequence[tuple[str, int]] = GANG) -> None:
        self._submitted = submitted
        self._marks = marks
        self._members = members
        self._generation = 0
        self._seen: list[Sighted] = []

    def wait_training(self, timeout_s: float) -> None:
        """The next generation trains; of the one before, no process is left."""
        self._generation += 1
        paths = [self._marks / folder / f"{self._generation}-{rank}" for folder, rank in self._members]
        trains = f"generation {self._generation} trains"
        wait_running(self._submitted, lambda: all(map(Path.exists, paths)), timeout_s, trains)
        for before in self._seen:
            before.wait_gone(GONE_S)
        marks = [path.read_text().split() for path in paths]
        self.containers = [container for container, *_ in marks]
        self._pids = [int(pid) for _, pid, _ in marks]
        self._seen.append(Sighted(int(pid) for _, *pids in marks for pid in pids))
        self.wait_steps()

    def wait_steps(self, steps: int = 5) -> None:
        """All members, or the gang, make as many more, without a loss."""
        paths = {self._marks / folder / "step" for folder, _ in self._members}
        before = {path: int(path.read_text()) if path.exists() else 0 for path in paths}

        def made() -> bool:
            return all(path.exists() and int(path.read_text()) > before[path] + steps for path in paths)

        wait_until(made, GONE_S, "members make steps")
        assert len(self._seen[-1].alive()) == 4

    def kill_agent(self, member: int) -> None:
        """SIGKILL to the Python process of Spark's that the member's agent is in."""
        zygote = psutil.Process(self._pids[member]).parent()
        assert zygote is not None
        agent = zygote.parent()
        assert agent is not None
        assert "pyspark" in " ".join(agent.cmdline())
        kill(agent.pid)

    def eat(self, rank: int) -> None:
        (self._marks / f"eat-{self._generation}-{rank}").touch()

    def finish(self) -> None:
        """It is enough: the run succeeds, and no process is left."""
        for folder, _ in self._members:
            (self._marks / folder / "enough").touch()
        assert self._submitted.wait(ENDS_S) == 0, self._submitted.output
        self._seen[-1].wait_gone(GONE_S)
