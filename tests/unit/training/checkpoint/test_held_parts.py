"""Copies of parts between members: what comes where a member is lost, or has no room."""

import os
import queue
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparktrain.errors import CheckpointError, RingError
from sparktrain.state.gangs.memory_parts import copies
from sparktrain.training.checkpoint import held_parts, tensor_files
from sparktrain.training.checkpoint.held_parts import HeldParts
from sparktrain.training.checkpoint.tensor_files import held_files
from sparktrain.training.checkpoint.tensor_slices import TensorSlice

SOON_S = 20.0
LAYOUT = (0, 1, 2)
ABSENT_S = 0.2
"""What a member waits for one that is lost."""


class Wires:
    """What members have sent to each other."""

    def __init__(self) -> None:
        self.queues: dict[tuple[int, int], queue.Queue[Any]] = defaultdict(queue.Queue)


class Ring:
    """One member of a ring within this process."""

    def __init__(self, wires: Wires, rank: int, wait_s: float) -> None:
        self.rank = rank
        self._wires = wires
        self._wait_s = wait_s

    def pass_on(self, sent: Sequence[tuple[int, Any]], received: Sequence[tuple[int, Any]], timeout_s: float) -> None:
        for target, array in sent:
            self._wires.queues[self.rank, target].put(np.array(array))
        for source, array in received:
            try:
                array[:] = self._wires.queues[source, self.rank].get(timeout=self._wait_s)
            except queue.Empty as error:
                raise RingError(f"rank {source} is lost") from error


def hold(folder: Path, rank: int) -> Path:
    """The folder of a member with its own part."""
    entry = TensorSlice(key=f"w@{rank}.0", name="w", dtype="float32", shape=(3,), start=(rank,), stop=(rank + 1,))
    tensors = {entry.key: np.array([rank], "float32")}
    target = folder / str(rank)
    tensor_files.save_held(target, rank, tensors, [entry], {"held": True})
    return target


def exchanged(folders: Sequence[Path | None], wait_s: float = SOON_S) -> list[Any]:
    """What each member gets from the exchange, or its error; a member without a place in `folders` is lost."""
    wires = Wires()
    planned = copies(LAYOUT, ["a", "b", "c"])
    assert [(copy.source, copy.target) for copy in planned] == [(0, 1), (1, 2), (2, 0)]
    members = [HeldParts(Ring(wires, rank, wait_s), LAYOUT, planned) for rank in range(len(folders))]
    with ThreadPoolExecutor(len(members)) as threads:
        calls = [threads.submit(member.exchange, folder) for member, folder in zip(members, folders, strict=True)]
        return [call.exception() or call.result() for call in calls]


def test_each_member_keeps_the_part_of_its_neighbour(tmp_path: Path) -> None:
    folders = [hold(tmp_path, rank) for rank in range(3)]
    for _ in range(2):  # the second copy in the memory of the first
        assert exchanged(folders) == [(0, 2), (1, 0), (2, 1)]
        for rank, folder in enumerate(folders):
            part = (rank - 1) % 3
            copied = [path.read_bytes() for path in held_files(folder, part)]
            assert copied == [path.read_bytes() for path in held_files(folders[part], part)]


def test_a_member_without_its_own_part_keeps_no_other_waiting(tmp_path: Path) -> None:
    folders = [hold(tmp_path, 0), None, hold(tmp_path, 2)]
    assert exchanged(folders) == [(0, 2), (1,), (2,)]


def test_a_member_without_room_says_so_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [hold(tmp_path, rank) for rank in range(3)]
    real = os.statvfs

    def full(path: Path) -> Any:
        return real(path) if path != folders[1] else os.statvfs_result((1, 1, 0, 0, 0, 0, 0, 0, 0, 0))

    monkeypatch.setattr(held_parts.os, "statvfs", full)
    first, second, third = exchanged(folders)
    assert (first, third) == ((0, 2), (2, 1))
    assert isinstance(second, CheckpointError)
    assert "of shared memory, and" in str(second)


def test_a_copy_of_an_earlier_step_does_not_stay_when_its_source_is_lost(tmp_path: Path) -> None:
    folders = [hold(tmp_path, rank) for rank in range(3)]
    exchanged(folders)
    assert exchanged(folders[:2], ABSENT_S) == [(0,), (1,)]
    assert not any(path.exists() for path in held_files(folders[0], 2))
