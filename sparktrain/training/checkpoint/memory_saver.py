"""Takes snapshots of a member's training in shared memory, where its agent holds them beyond the process.

A copy goes straight into the file of an earlier snapshot, by a shared mapping: one pass over the state, and no new
memory. Two folders take turns, so that one is whole at any time (Wang et al., "Gemini", SOSP 2023, section 4). A thread
copies beside the next step, before its update (Mohan et al., "CheckFreq", FAST 2021, section 4).
What keeps the state as it is until then depends on the framework: see `Framework.state`.
"""

import json
import math
import mmap
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from sparktrain.base.clock import SystemClock, pause, thread_cpu_s
from sparktrain.base.decoding import from_msgpack
from sparktrain.base.formatting import size
from sparktrain.base.threads import spawn
from sparktrain.errors import CheckpointError, SparktrainError
from sparktrain.protocol.pipe_messages import MemoryWritten
from sparktrain.rundir.folder_checksum import folder_checksum
from sparktrain.store.folder_removal import remove
from sparktrain.training.agent_pipe import Wire
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.extras import EXTRA, pack
from sparktrain.training.checkpoint.held_parts import HeldParts
from sparktrain.training.checkpoint.process_generators import generators
from sparktrain.training.checkpoint.tensor_files import ONE_FILE, Array
from sparktrain.training.checkpoint.training_state import State, capture, state_module
from sparktrain.training.notices import notice

_HEADER_BYTES = 8
"""At the start of a safetensors file: the length of the JSON header that follows."""
_CALL = "a memory checkpoint"
"""In messages."""
PART_BYTES = 2**16
"""Parts are padded to a multiple of this: one is mostly a single broadcast, and TensorFlow needs no new graph for a
broadcast of equal length."""
_LENGTH_BYTES = 8
PAUSE_S = 10.0
"""How long a member waits for the end of its gang, once another one is to continue."""
BESIDE_FACTOR = 2.0
"""How much longer a copy takes beside a step, about: both need the memory and the cores."""
FINISH_TIMEOUT_S = 60.0
"""How long a snapshot waits for the checksum of the one before."""


class ChiefPart(msgspec.Struct, frozen=True):
    """What a gang resumes with beside equal variables: random numbers, and what `fit` saves on the chief."""

    generators: dict[str, Any]
    extra: dict[str, Any]
    paths: list[list[str | int]]
    """Of the arrays in `extra`."""
    seeds: dict[str, "PackedArray"]
    """The arrays of the framework's state in which members may differ, such as those of its generators."""
    arrays: "list[PackedArray] | None"
    """The arrays in `extra`; None where they are those of the newest part that had any."""


class PackedArray(msgspec.Struct, frozen=True):
    """An array as bytes."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes

    @classmethod
    def of(cls, array: Array) -> "PackedArray":
        """A copy of `array`."""
        return cls(array.dtype.name, array.shape, np.ascontiguousarray(array).tobytes())

    def array(self) -> Array:
        """The array, read-only."""
        view: Array = np.frombuffer(self.content, tensor_files.dtype_of(self.dtype)).reshape(self.shape)
        return view


@dataclass
class _Slot:
    """One of the folders that take turns."""

    folder: Path
    files: dict[str, Array] = field(default_factory=dict)
    """Shared mappings of its files of tensors, as bytes by name; empty before its first snapshot."""
    arrays: dict[str, Array] = field(default_factory=dict)
    """The tensors in them, as views."""


class MemorySaver:
    """Snapshots of one member. The thread that trains uses it."""

    def __init__(
        self, link: Wire, folder: str, may_grow: bool = False, turns: Callable[[], tuple[int, int]] = lambda: (0, 1)
    ) -> None:
        """`folder` is the member's own one in shared memory; empty where there is none. `may_grow`: of the gang.

        `turns` returns this member's number among those of its host, and how many they are.
        """
        self.may_grow = may_grow
        self.turns = turns
        self._link = link
        self._pause_due = False
        self._slots = [_Slot(Path(folder) / name) for name in ("a", "b")]
        self._finishing: threading.Thread | None = None
        self._arrays: list[Array] | None = None
        """On the chief: the arrays of its newest part."""
        self._sent: list[PackedArray] | None = None
        """The arrays of the newest part that had any."""
        self.able = bool(folder)
        """Whether this member can take snapshots: not after a failure."""
        self.beside_s = 0.0
        """What the newest snapshot took beside training, as seconds of all cores; 0 until both folders have files."""
        self._copy_s = 0.0
        """How long the newest copy took, or would have taken beside a step."""
        self._retains = True
        """Whether training leaves its state as it is while a thread copies."""

    @property
    def busy(self) -> bool:
        """Whether the newest snapshot is not handed over yet: `take` would wait for that."""
        return self._finishing is not None and self._finishing.is_alive()

    @property
    def is_pause_due(self) -> bool:
        """Whether the next snapshot is one that `pause` follows."""
        self._pause_due = self._pause_due or self._link.take_asked()
        return self._pause_due

    def part(self, parts: Sequence[Any], extra: Mapping[str, Any]) -> bytes:
        """The chief's part of a snapshot of `parts`, which all members pass to `take`. Only the chief calls it."""
        packed, leaves = pack(extra)
        arrays = [array for _, array in leaves]
        seeds = state_module(parts, _CALL).of_chief(parts) if parts else {}
        states = {name: PackedArray.of(state) for name, state in seeds.items()}
        old_arrays = self._arrays
        self._arrays = arrays
        is_equal = old_arrays is not None and len(old_arrays) == len(arrays) and all(map(_equal, old_arrays, arrays))
        sent = None if is_equal else [PackedArray.of(array) for array in arrays]
        part = ChiefPart(generators(), packed, [list(path) for path, _ in leaves], states, sent)
        content = msgspec.msgpack.encode(part)
        frame = len(content).to_bytes(_LENGTH_BYTES) + content
        return frame.ljust(part_bytes(frame), b"\0")

    def forget_parts(self) -> None:
        """Have the next part of the chief be complete."""
        self._arrays = None

    def learn(self, part: bytes) -> ChiefPart:
        """The chief's part of a snapshot, which a member learns also where it takes none."""
        chiefs = from_msgpack(part[_LENGTH_BYTES:][: int.from_bytes(part[:_LENGTH_BYTES])], ChiefPart)
        self._sent = self._sent if chiefs.arrays is None else chiefs.arrays
        return chiefs

    def take(
        self,
        parts: Sequence[Any],
        place: tuple[int, int | None, int | None],
        part: bytes,
        members: Sequence[Mapping[str, Array]],
        *,
        paused: bool = False,
        pace_s: float = math.inf,
        held: HeldParts | None = None,
    ) -> None:
        """Have a thread copy the state of `parts` to shared memory, and hand it to the agent.

        `place` is the step, the epoch, and its finished batches; `members` what each has of its own, by rank. `held`
        has the parts of the state that this member keeps; None where it keeps all. Blocks
        for the copy where the framework updates its state in place, or where the copy takes longer than a step of
        `pace_s` seconds; with `paused` until the gang ends for another one, at most 10 s. A failure is a notice, and
        ends the snapshots of this member.
        """
        chiefs = self.learn(part)
        self.settle()
        # A process that has joined during the round got a part that refers to arrays of an earlier one.
        lacks_arrays = chiefs.arrays is None and self._sent is None
        if not self.able or lacks_arrays:
            return
        slot = self._slots[0]
        self._slots.reverse()
        step, epoch, batch = place
        # The update that overtakes a copy makes one more, in new memory: that costs more than the wait.
        beside = self._retains and self._copy_s < pace_s and held is None
        started_s = SystemClock().now()
        if held is None:
            state = capture(
                None,
                step,
                epoch=epoch,
                batch=batch,
                spare=slot.arrays,
                parts=parts,
                members=members,
                retained=beside,
            )
        else:
            state = held.captured(parts, place, slot.arrays, members)
        self._copy_s = 0.0 if beside else BESIDE_FACTOR * (SystemClock().now() - started_s)
        state = _with_part(state, chiefs, self._sent or [])
        self._finishing = spawn(lambda: self._finish(slot, state, paused, held), "sparktrain-memory")
        if paused:
            self._pause_due = False
            self.settle()
            pause(PAUSE_S)
            notice("the gang was to continue on other agents, and has not: none was there any more; training continues")

    def close(self) -> None:
        """Wait for the newest snapshot. A later `take` does nothing."""
        self.settle()
        self.able = False

    def settle(self) -> None:
        """Wait until the newest snapshot is handed over, for a minute at most."""
        if self._finishing is not None:
            self._finishing.join(FINISH_TIMEOUT_S)
            if self._finishing.is_alive():
                self._give_up(f"a snapshot did not end within {FINISH_TIMEOUT_S:g} s")
            self._finishing = None

    def _finish(self, slot: _Slot, state: State, paused: bool, held: HeldParts | None) -> None:
        started_cpu_s = thread_cpu_s()
        started_s = SystemClock().now()
        try:
            again = _same_layout(slot.arrays, state.tensors)
            try:
                self._copy_to(slot, state, again)
            except BaseException:
                if held is not None:
                    held.exchange(None)
                raise
            finally:
                is_intact = state.retention.end()
            self._copy_s += SystemClock().now() - started_s
            if not is_intact:  # some of it is of a later moment: the next copies are made while training waits
                self._retains = False
                self._slots.reverse()  # the newest whole snapshot stays until the next one is whole
                return
            division = () if held is None else (held.layout, held.exchange(slot.folder))
            checksum = folder_checksum(slot.folder, slot.files)
            self._link.send(MemoryWritten(state.step, str(slot.folder), checksum, paused, *division))
        except (OSError, ValueError, SparktrainError) as error:
            self._give_up(str(error))
            return
        if again:  # the first ones take new memory, once
            self.beside_s = (thread_cpu_s() - started_cpu_s) / len(os.sched_getaffinity(0))

    def _copy_to(self, slot: _Slot, state: State, again: bool) -> None:
        """Bring the state to the files of the slot, those of an earlier snapshot if it is one `again`."""
        if again:
            _copy(state, slot)
        else:
            self._write(slot, state)
            state.tensors.clear()

    def _write(self, slot: _Slot, state: State) -> None:
        """Write new files. Raises CheckpointError when shared memory is too small."""
        remove(slot.folder)
        slot.files = slot.arrays = {}
        needed = sum(tensor.nbytes for tensor in state.tensors.values())
        stats = os.statvfs(slot.folder.parent)
        free = stats.f_bavail * stats.f_frsize
        copies = sum(not buffer.arrays for buffer in self._slots)
        # A write beyond what shared memory has ends the process by SIGBUS, and not by an error.
        if needed * copies > free:
            in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
            step = "; mount an emptyDir of medium Memory there, as conf/kubernetes/executor.yaml does" if in_pod else ""
            raise CheckpointError(
                f"its state of {size(needed)} needs {size(needed * copies)} more of shared memory, and "
                f"{slot.folder.parent.parent.parent} on {socket.gethostname()} has {size(free)}{step}"
            )
        if state.part is None:
            tensor_files.save(slot.folder, state.tensors, state.document, ONE_FILE)
        else:
            tensor_files.save_held(slot.folder, state.part.rank, state.tensors, state.part.slices, state.document)
        slot.files = mapped_files(slot.folder)
        slot.arrays = arrays_in(slot.files, state.tensors)

    def _give_up(self, problem: str) -> None:
        self.able = False
        notice(
            f"this member takes no snapshots in memory any more: {problem}; after a loss training continues from "
            "another member's, or from the newest checkpoint in the store"
        )


def part_bytes(start: bytes) -> int:
    """The length of the part that starts with `start`."""
    length = _LENGTH_BYTES + int.from_bytes(start[:_LENGTH_BYTES])
    return length + -length % PART_BYTES


def _with_part(state: State, part: ChiefPart, arrays: list[PackedArray]) -> State:
    """The state with the chief's part in place of this member's own."""
    tensors = dict(state.tensors)
    for name, packed in part.seeds.items():
        tensors[name] = packed.array()
    for number, packed in enumerate(arrays):
        tensors[f"{EXTRA}{number}"] = packed.array()
    document = {**state.document, "generators": part.generators, "extra": part.extra, "arrays": part.paths}
    return replace(state, tensors=tensors, document=document)


def _equal(one: Array, other: Array) -> bool:
    return one is other or (one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def _same_layout(mapped: Mapping[str, Array], tensors: Mapping[str, Array]) -> bool:
    return mapped.keys() == tensors.keys() and all(
        (mapped[name].dtype, mapped[name].shape) == (array.dtype, array.shape) for name, array in tensors.items()
    )


def _copy(state: State, slot: _Slot) -> None:
    """Bring what the capture has not copied yet to the files of the slot, and forget it."""
    while state.tensors:
        name, array = state.tensors.popitem()
        if array is not slot.arrays[name]:
            np.copyto(slot.arrays[name], array)
    tensor_files.save_document(slot.folder, state.document)


def mapped_files(folder: Path) -> dict[str, Array]:
    """The bytes of the files of tensors in `folder` by name, mapped for reading and writing while a view lives.

    Raises OSError.
    """
    files = {}
    for path in folder.glob("*.safetensors"):
        with path.open("r+b") as file:
            mapping = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        files[path.name] = np.frombuffer(mapping, np.uint8)
    return files


def arrays_in(files: Mapping[str, Array], like: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors that `tensor_files.save` has written to `files`, none of them cut, as views of their bytes.

    `like` has their dtypes and shapes: some dtypes are stored as integers. Raises ValueError for other files.
    """
    arrays: dict[str, Array] = {}
    for content in files.values():
        start = _HEADER_BYTES + int.from_bytes(content[:_HEADER_BYTES].tobytes(), "little")
        header: dict[str, Any] = json.loads(content[_HEADER_BYTES:start].tobytes())
        for name, entry in header.items():
            if name != "__metadata__":
                first, end = entry["data_offsets"]
                arrays[name] = content[start + first : start + end].view(like[name].dtype).reshape(like[name].shape)
    if arrays.keys() != like.keys():
        raise ValueError(f"{len(files)} files have {len(arrays)} tensors, and {len(like)} were saved")
    return arrays
