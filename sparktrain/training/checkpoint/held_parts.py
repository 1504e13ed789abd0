"""What one member keeps in memory of a state that members hold in parts: its own part, and copies of others.

Each copy goes from the shared memory of one member to that of another one, by a thread beside the next steps.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sparktrain.base.formatting import size
from sparktrain.errors import CheckpointError, RingError
from sparktrain.state.gangs.memory_parts import Layout, PartCopy, copies, numbered
from sparktrain.training.checkpoint.tensor_files import HELD, Array, held_files
from sparktrain.training.checkpoint.training_state import (
    State,
    StatePart,
    capture,
    framework_states,
    is_split,
    state_module,
)

PASS_S = 60.0
"""How long a part may take from one member to another one; a member that is lost ends its connections before."""
_NAME = "parts"


@dataclass(frozen=True)
class HeldParts:
    """The parts of one member."""

    ring: Any
    layout: Layout
    copies: Sequence[PartCopy]
    """Of all members."""

    @property
    def own(self) -> int:
        """The part of this member."""
        return self.layout[int(self.ring.rank)]

    def captured(
        self,
        parts: Sequence[Any],
        place: tuple[int, int | None, int | None],
        spare: Mapping[str, Array],
        members: Sequence[Mapping[str, Array]],
    ) -> State:
        """A copy of all that this member holds of `parts`; `place` and `members` are those of `MemorySaver.take`."""
        step, epoch, batch = place
        process = capture(None, step, epoch=epoch, batch=batch, members=members)
        module = state_module(parts, _NAME)
        entries, tensors, slices = module.captured_held(parts, spare, self.own)
        tensors = module.with_members(tensors, framework_states(members))
        part = StatePart(self.own, tuple(slices))
        return State(step, tensors | process.tensors, {**process.document, **entries, HELD: True}, part)

    def exchange(self, folder: Path) -> tuple[int, ...]:
        """Send the files of this member's part in `folder` to its neighbours, and add those that it keeps for others.

        Returns the parts in `folder`: its own alone where a neighbour is lost. Any thread may call it; the neighbours
        do so after the same step. Blocks. Raises CheckpointError without enough shared memory, OSError.
        """
        received = self._received()
        try:
            self._exchange(folder, received)
        except RingError:
            # What is there is of an earlier step, or not whole.
            for path in (path for copy in received for path in held_files(folder, copy.part)):
                path.unlink(missing_ok=True)
            return (self.own,)
        return self.own, *(copy.part for copy in received)

    def _exchange(self, folder: Path, received: Sequence[PartCopy]) -> None:
        sent = [copy for copy in self.copies if copy.source == self.ring.rank]
        own_files = [np.memmap(path, np.uint8, "r+") for path in held_files(folder, self.own)]
        own_sizes = np.array([len(content) for content in own_files], "int64")
        sizes = [np.zeros_like(own_sizes) for _ in received]
        self.ring.pass_on(
            [(copy.target, own_sizes) for copy in sent],
            [(copy.source, counts) for copy, counts in zip(received, sizes, strict=True)],
            PASS_S,
        )
        kept_files = [
            (copy.source, _mapped(path, int(count)))
            for copy, counts in zip(received, sizes, strict=True)
            for path, count in zip(held_files(folder, copy.part), counts, strict=True)
        ]
        self.ring.pass_on([(copy.target, content) for copy in sent for content in own_files], kept_files, PASS_S)

    def _received(self) -> list[PartCopy]:
        return [copy for copy in self.copies if copy.target == self.ring.rank]


def held_parts(ring: Any, parts: Sequence[Any]) -> HeldParts | None:
    """Who holds which part of `parts`; None where each member holds all of them.

    All members call it, with a ring that passes arrays on if they do not; blocks until they do. Raises RingError.
    """
    if not is_split(parts):
        return None
    digest = state_module(parts, _NAME).held_digest(parts)
    digests = ring.allgather_array(np.array([digest], "int64"), name=_NAME).tolist()
    layout = numbered(digests)
    return HeldParts(ring, layout, copies(layout, [place.host for place in ring.formation.places]))


def _mapped(path: Path, count: int) -> Array:
    """The memory of the file, which has `count` bytes then: that of an earlier copy where it fits."""
    if path.exists() and path.stat().st_size == count:
        return np.memmap(path, np.uint8, "r+")
    stats = os.statvfs(path.parent)
    # A write beyond what shared memory has ends the process by SIGBUS, and not by an error.
    if count > (free := stats.f_bavail * stats.f_frsize):
        raise CheckpointError(
            f"a copy of another member's part needs {size(count)} of shared memory, and {path.parent} has {size(free)}"
        )
    return np.memmap(path, np.uint8, "w+", shape=(count,))
