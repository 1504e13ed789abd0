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
_NOTHING = (-1, -1)
"""In place of the sizes of a part's files: the member has none."""


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

    def exchange(self, folder: Path | None) -> tuple[int, ...]:
        """Send the files of this member's part in `folder` to its neighbours, and add those that it keeps for others.

        Returns the parts in `folder`: its own alone where a neighbour is lost or sends nothing. Without a folder this
        member has no copy, and the others wait for none. Any thread may call it; all members do so after the same step.
        Blocks. Raises CheckpointError without enough shared memory, OSError.
        """
        received = [copy for copy in self.copies if copy.target == self.ring.rank]
        try:
            copies_here = self._exchange(folder, received)
        except RingError:
            copies_here = []
        if folder is not None:
            # What is there of others is of an earlier step, or not whole.
            for copy in received:
                for path in held_files(folder, copy.part) if copy not in copies_here else ():
                    path.unlink(missing_ok=True)
        return self.own, *(copy.part for copy in copies_here)

    def _exchange(self, folder: Path | None, received: Sequence[PartCopy]) -> list[PartCopy]:
        """The copies of others that have come to `folder`. Raises as `exchange`, and RingError."""
        sent = [copy for copy in self.copies if copy.source == self.ring.rank]
        paths = [] if folder is None else held_files(folder, self.own)
        own_files = [np.memmap(path, np.uint8, "r+") for path in paths]
        sizes = np.array([len(content) for content in own_files] or _NOTHING, "int64")
        offers = [np.zeros_like(sizes) for _ in received]
        self.ring.pass_on(
            [(copy.target, sizes) for copy in sent],
            [(copy.source, offer) for copy, offer in zip(received, offers, strict=True)],
            PASS_S,
        )
        rooms, problem = _rooms(folder, dict(zip(received, offers, strict=True)))
        # A member without room answers too: the sender would wait for it as long as for a slow one.
        answers = [np.zeros(1, "int64") for _ in sent]
        self.ring.pass_on(
            [(copy.source, np.array([copy in rooms], "int64")) for copy in received],
            [(copy.target, answer) for copy, answer in zip(sent, answers, strict=True)],
            PASS_S,
        )
        targets = [copy.target for copy, answer in zip(sent, answers, strict=True) if answer[0]]
        self.ring.pass_on(
            [(target, content) for target in targets for content in own_files],
            [(copy.source, file) for copy, files in rooms.items() for file in files],
            PASS_S,
        )
        if problem is not None:
            raise problem
        return [*rooms]


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


def _rooms(
    folder: Path | None, offers: Mapping[PartCopy, Array]
) -> tuple[dict[PartCopy, list[Array]], CheckpointError | None]:
    """The memory of each copy of the sizes `offers`, and why one has none."""
    rooms: dict[PartCopy, list[Array]] = {}
    problem: CheckpointError | None = None
    for copy, offer in offers.items():
        if folder is not None and offer.min() >= 0:
            paths = held_files(folder, copy.part)
            try:
                rooms[copy] = [_mapped(path, int(count)) for path, count in zip(paths, offer, strict=True)]
            except CheckpointError as error:
                problem = error
    return rooms, problem


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
