"""Snapshots of a model in memory, in a process that may import TensorFlow."""

import json
import math
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from sparktrain.protocol.pipe_messages import MemoryWritten
from sparktrain.rundir.folder_checksum import folder_checksum
from sparktrain.training import notices
from sparktrain.training.checkpoint import memory_saver, saver, sent_files
from sparktrain.training.checkpoint.memory_saver import MemorySaver
from tests.training.resuming import compare, everything, small_model, train_step


class Holder:
    """An agent that keeps the messages of its member."""

    def __init__(self) -> None:
        self.taken: list[MemoryWritten] = []

    def send(self, message: MemoryWritten) -> None:
        self.taken.append(message)

    def take_asked(self, *, in_store: bool = False) -> bool:
        return False


def take(memory: MemorySaver, model: Any, step: int, **extra: Any) -> None:
    memory.take((model,), (step, 1, step), memory.part((model,), extra), [])
    memory.settle()


def alternate(folder: str) -> dict[str, Any]:
    """Five snapshots; each is whole at once, and stays so until the one after the next."""
    holder, model = Holder(), small_model()
    memory = MemorySaver(holder, folder)
    inodes = []
    files_left = ExitStack()  # the number of a file that is open is not used again
    for step in range(1, 6):
        train_step(model)
        take(memory, model, step, note=[step, np.arange(step > 3, dtype="int64")])
        np.savez(Path(folder) / f"{step}.npz", *everything(model))
        newest = Path(holder.taken[-1].folder)
        files = [files_left.enter_context(path.open("rb")) for path in sorted(newest.glob("*.safetensors"))]
        inodes.append([os.fstat(file.fileno()).st_ino for file in files])
        for message in holder.taken[-2:]:
            assert folder_checksum(Path(message.folder)) == message.checksum, message.step
    files_left.close()
    resumed = small_model(shift=True)
    train_step(resumed)  # Keras builds the metrics of compile() with the first batch
    restored = saver.restore(resumed, Path(holder.taken[-2].folder), rank=0)
    compare(resumed, Path(folder) / "4.npz")
    return {
        "steps": [each.step for each in holder.taken],
        "folders": [Path(each.folder).name for each in holder.taken],
        "in place": [inodes[0] == inodes[2], inodes[2] == inodes[4]],
        "restored": [restored.step, restored.epoch, restored.batch, restored["note"][0]],
        "beside": memory.beside_s > 0,
    }


def copy_beside_steps(folder: str) -> dict[str, Any]:
    """Two steps end while copies wait to start: each copy has the values after its own step."""
    holder, model = Holder(), small_model()
    memory = MemorySaver(holder, folder)
    may_copy = threading.Event()

    def wait(copy: Any) -> Any:
        def late(*arguments: Any) -> None:
            assert may_copy.wait(60)
            copy(*arguments)

        return late

    memory_saver._copy = wait(memory_saver._copy)
    memory._write = wait(memory._write)  # type: ignore[method-assign]
    beside = []
    blocked = []
    for step in range(1, 6):
        train_step(model)
        pace_s = 0.0 if step == 4 else math.inf  # no copy ends within steps that take no time
        memory.take((model,), (step, 1, step), memory.part((model,), {}), [], pace_s=pace_s)
        beside.append(memory._copy_s == 0)
        np.savez(Path(folder) / f"{step}.npz", *everything(model))
        for _ in range(2):
            train_step(model)
        blocked.append(memory.busy and len(holder.taken) == step - 1)
        may_copy.set()
        memory.settle()
        may_copy.clear()
        resumed = small_model(shift=True)
        train_step(resumed)
        saver.restore(resumed, Path(holder.taken[-1].folder), rank=0)
        compare(resumed, Path(folder) / f"{step}.npz")
    return {"beside": beside, "blocked": blocked, "steps": [each.step for each in holder.taken]}


def send_part(folder: str) -> dict[str, Any]:
    """A member gets the chief's random numbers, and large arrays only where they have changed.

    A neighbor on its host takes the last snapshot alone, and has learned of the arrays before.
    """
    chief, member = MemorySaver(Holder(), folder + "/0"), MemorySaver(holder := Holder(), folder + "/1")
    neighbor = MemorySaver(holder, folder + "/2", turns=lambda: (1, 2))
    for each in "012":
        (Path(folder) / each).mkdir()
    model, large, sizes = small_model(), np.zeros(10**6), []
    for step in range(1, 5):
        if step == 3:
            large = np.ones(10**6)
        part = chief.part((model,), {"best": {"weights": large}, "step": step})
        if step != 2:  # one that is not sent does not count as known
            chief.take((model,), (step, 0, step), part, [])
            np.random.random()
            member.take((model,), (step, 0, step), part, [])
            member.settle()
            if step < 4:
                neighbor.learn(part)
            else:
                neighbor.take((model,), (step, 0, step), part, [])
            neighbor.settle()
        sizes.append(len(part) > large.nbytes)
    restored = saver.peek(Path(holder.taken[-1].folder))
    document = json.loads((Path(holder.taken[-1].folder) / "state.json").read_text())
    drawn = np.random.get_state()[2]
    return {
        "large": sizes,
        "best": [float(restored["best"]["weights"].sum()), restored["step"]],
        "folders": [Path(each.folder).parent.name for each in holder.taken],
        "drawn after": drawn != document["generators"]["numpy"][1],
    }


def lack_memory(folder: str, monkeypatched: int) -> dict[str, Any]:
    """Shared memory is smaller than two copies of the state, in a pod."""
    os.environ["KUBERNETES_SERVICE_HOST"] = "192.0.2.1"
    os.statvfs = lambda path: SimpleNamespace(f_bavail=monkeypatched, f_frsize=1)  # type: ignore[assignment, misc]
    holder, model = Holder(), small_model()
    memory = MemorySaver(holder, folder)
    take(memory, model, 1)
    take(memory, model, 2)
    return {"able": memory.able, "taken": len(holder.taken), "notices": list(notices.issued_notices())}


def get_files(source: str, target: str, ring: Any, rank: int, hidden: bool, is_new: bool) -> dict[str, Any]:
    """The members but rank 0 lack a snapshot; `hidden`: they do not see the shared memory of its host either.

    `is_new`: rank 0 has just written it.
    """
    if hidden and rank:
        sent_files._on_this_host = lambda folder, identity, is_new: None
    found = sent_files.send_files(ring, None if rank else Path(source), Path(target) / str(rank), is_new=is_new)
    content = {path.name: path.read_text() for path in found.iterdir() if path.name != "number"}
    return {"folder": str(found), "content": content}
