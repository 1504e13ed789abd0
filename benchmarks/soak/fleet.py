"""What all rounds of a soak share: pools that stay warm over thousands of kills, and daemons of HDFS."""

from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import sparktrain as st
from benchmarks import healing_kills
from benchmarks.session import session
from benchmarks.soak import training
from tests.support.hadoop.clusters import Hdfs

SLOTS = 3
FRAMEWORKS = ["numpy", "tensorflow", "keras", "horovod.tensorflow"]


class Fleet:
    """Each part starts when a round first needs it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self._ends: dict[int, list[str]] = {}
        """By the number of members."""

    @cached_property
    def pool(self) -> st.Pool:
        """Slots of this machine without Spark."""
        return self._stack.enter_context(st.pool(st.local(slots=SLOTS), preload=FRAMEWORKS))

    @cached_property
    def spark_pool(self) -> st.Pool:
        """Two executors of Spark."""
        spark, _ = self._stack.enter_context(session())
        return self._stack.enter_context(st.pool(spark, agents=2, preload=["numpy"]))

    @cached_property
    def hdfs(self) -> Hdfs:
        """A NameNode and a DataNode."""
        return self._stack.enter_context(Hdfs(self._folder / "hdfs", datanodes=1))

    @cached_property
    def undisturbed(self) -> list[Any]:
        """The weights of a ring that loses no member."""
        folder = self._folder / "undisturbed"
        folder.mkdir()
        return training.ring(self.pool, folder, kill_at=None)[1]

    def undisturbed_ends(self, size: int, steps: int) -> list[str]:
        """What each of `size` members of a fit ends with that loses no member."""
        if size not in self._ends:
            folder = self._folder / f"undisturbed-{size}"
            healing_kills.run(self.pool, folder, 0, size, 0, steps)
            self._ends[size] = healing_kills.digests(folder, size)
        return self._ends[size]
