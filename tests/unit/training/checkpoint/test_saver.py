"""Saving and restoring without a model, against an agent made of data."""

import os
import random
import re
import threading
from pathlib import Path
from queue import Empty, Queue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparktrain.base.clock import SystemClock
from sparktrain.errors import CheckpointError, UserError
from sparktrain.protocol.pipe_messages import Snapshot, SnapshotAnswered, Unsaved
from sparktrain.training.checkpoint import saver, tensor_files, training_state
from sparktrain.training.checkpoint.process_generators import OWN, packed
from sparktrain.training.checkpoint.saver import CheckpointSaver
from sparktrain.training.checkpoint.tensor_slices import TensorSlice
from sparktrain.training.checkpoint.training_state import capture

SOON_S = 30.0


class Agent:
    """The agent's side: takes snapshots, and answers on the test's request, or at once."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.snapshots: Queue[Snapshot] = Queue()
        self.answers: Queue[SnapshotAnswered | OSError] = Queue()
        self.unsaved: list[Unsaved] = []
        self.at_once = at_once
        self.gone = False
        self.moves = False

    def take_asked(self, *, in_store: bool = False) -> bool:
        """Whether the trial is to continue elsewhere, since the last call."""
        moves = self.moves and in_store
        self.moves = False
        return moves

    def send(self, message: Snapshot | Unsaved) -> None:
        if self.gone:
            raise BrokenPipeError("the agent is gone")
        if isinstance(message, Unsaved):
            self.unsaved.append(message)
            return
        self.snapshots.put(message)
        if self.at_once:
            self.answers.put(SnapshotAnswered(message.step))

    def snapshot_answer(self, timeout_s: float) -> SnapshotAnswered | None:
        try:
            answer = self.answers.get(timeout=timeout_s)
        except Empty:
            return None
        if isinstance(answer, OSError):
            raise answer
        return answer

    def steps(self) -> list[int]:
        return [self.snapshots.get_nowait().step for _ in range(self.snapshots.qsize())]


@pytest.fixture
def agent() -> Agent:
    return Agent()


def checkpoints(agent: Agent, tmp_path: Path, restore_dir: str = "", rank: int = 0, **waits: float) -> CheckpointSaver:
    return CheckpointSaver(agent, tmp_path / "scratch", restore_dir, rank, SystemClock(), **waits)


def test_a_loop_without_keras_resumes(agent: Agent, tmp_path: Path) -> None:
    first = checkpoints(agent, tmp_path)
    assert first.restore() is None is first.peek()
    weights = np.zeros(4)
    first.save(10, weights=weights, position=3, epoch=1, batch=7, keep=5, score=np.float32(0.5))
    weights += 1
    first.wait(SOON_S)
    snapshot = agent.snapshots.get_nowait()
    assert (snapshot.step, snapshot.keep, snapshot.score) == (10, 5, 0.5)
    restored = checkpoints(agent, tmp_path, snapshot.folder).restore()
    assert restored is not None
    assert (restored.step, restored.epoch, restored.batch, restored["position"]) == (10, 1, 7, 3)
    assert restored["weights"].tolist() == [0.0] * 4
    first.finish(SOON_S)


def test_a_loop_makes_no_step_after_the_checkpoint_with_which_it_continues_elsewhere(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saving = checkpoints(agent, tmp_path)
    waited: list[float] = []
    monkeypatch.setattr(saver, "pause", waited.append)
    saving.save(1)
    assert not waited
    agent.moves = True
    saving.save(2)
    assert waited == [saver.MOVE_S]
    assert [agent.snapshots.get_nowait().step for _ in range(2)] == [1, 2], "it waits for the checkpoint first"
    saving.finish(SOON_S)


def test_the_global_generators_resume(agent: Agent, tmp_path: Path) -> None:
    saving = checkpoints(agent, tmp_path)
    saving.save(1)
    straight = [random.random(), random.gauss(0, 1), np.random.normal(size=3).tolist()]
    saving.finish(SOON_S)
    snapshot = agent.snapshots.get_nowait()
    random.seed(0)
    np.random.seed(0)
    state = random.getstate()
    checkpoints(agent, tmp_path, snapshot.folder, rank=1).restore()
    found = checkpoints(agent, tmp_path, snapshot.folder).peek()
    assert found is not None
    assert (found.step, random.getstate()) == (1, state)
    checkpoints(agent, tmp_path, snapshot.folder, rank=1).restore(alike=True)
    assert [random.random(), random.gauss(0, 1), np.random.normal(size=3).tolist()] == straight
    checkpoints(agent, tmp_path, snapshot.folder).restore()
    assert [random.random(), random.gauss(0, 1), np.random.normal(size=3).tolist()] == straight


def _draw(rank: int) -> None:
    """Draw numbers of a member's own: Python's generator then has one more in store."""
    random.seed(rank)
    np.random.seed(rank)
    random.gauss(0, 1)


def test_each_member_of_a_gang_of_the_same_size_continues_with_its_own_generators(tmp_path: Path) -> None:
    members = []
    for rank in range(2):
        _draw(rank)
        members.append({OWN: packed()})
    state = training_state.capture(None, 4, members=members)
    tensor_files.save(tmp_path / "state", state.tensors, state.document)
    assert state.document["members"] == 0, "no framework has arrays of its own"
    for rank in range(2):
        _draw(rank)
        expected = [random.gauss(0, 1), random.random(), *np.random.normal(size=3).tolist()]
        np.random.seed(9)
        training_state.restore(None, tmp_path / "state", rank, size=2)
        assert [random.gauss(0, 1), random.random(), *np.random.normal(size=3).tolist()] == expected
    before = random.getstate()
    training_state.restore(None, tmp_path / "state", 1, size=3)
    assert random.getstate() == before, "rank 1 of another gang is another member"


def test_members_that_draw_alike_all_continue_as_the_chief(agent: Agent, tmp_path: Path) -> None:
    saving = checkpoints(agent, tmp_path)
    saving.are_alike = lambda: True
    saving.save(1)
    expected = random.random()
    saving.finish(SOON_S)
    folder = agent.snapshots.get_nowait().folder
    checkpoints(agent, tmp_path, folder, rank=1).restore()
    assert random.random() == expected


class SplitModel:
    """A model with a tensor of 6 elements: rank 0 has two, rank 1 has four. It is its own state module too."""

    def is_split(self, parts: Any) -> bool:
        return True

    def captured_part(self, parts: Any, spare: Any, rank: int) -> Any:
        if rank > 1:
            return {"variables": {}}, {}, []
        start = (2 * rank,)
        stop = (6,) if rank else (2,)
        key = f"w@{rank}.0"
        entry = TensorSlice(key=key, name="w", dtype="float32", shape=(6,), start=start, stop=stop)
        whole = {} if rank else {"bias": np.ones(2)}
        return {"variables": {}}, {key: np.arange(*start, *stop, dtype="float32"), **whole}, [entry]

    def assign(self, parts: Any, files: Any, document: Any, place: Any, *, alike: bool) -> None:
        parts[0].value = files.read("w")
        parts[0].part = files.read_slice("w", (slice(1, 4),))


def test_each_member_of_a_split_model_saves_its_part_and_any_reads_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SplitModel()
    monkeypatch.setattr(training_state, "state_module", lambda parts, call: model)
    whole = tmp_path / "whole"
    whole.mkdir()
    for rank in range(3):
        agent = Agent()
        saving = CheckpointSaver(agent, tmp_path / f"scratch-{rank}", "", rank, SystemClock(), size=3)
        saving.save(4, model, loss=0.5, score=1.0)
        saving.finish(SOON_S)
        snapshot = agent.snapshots.get_nowait()
        assert (snapshot.step, snapshot.part) == (4, True)
        for path in Path(snapshot.folder).iterdir():
            path.rename(whole / path.name)
    names = ["slices-0000.json", "slices-0001.json", "slices-0002.json", "state.json"]
    assert sorted(path.name for path in whole.glob("*.json")) == names

    restored = CheckpointSaver(Agent(), tmp_path / "scratch", str(whole), 1, SystemClock(), size=2).restore(model)
    assert restored is not None
    assert (restored.step, restored["loss"], vars(model)["value"].tolist()) == (4, 0.5, [0, 1, 2, 3, 4, 5])
    assert vars(model)["part"].tolist() == [1, 2, 3]


def test_a_part_that_cannot_be_written_is_reported_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training_state, "state_module", lambda parts, call: SplitModel())
    agent = Agent()
    (tmp_path / "scratch").write_text("no folder")
    saving = CheckpointSaver(agent, tmp_path / "scratch", "", 1, SystemClock(), size=2)
    saving.save(4, object())
    saving.finish(SOON_S)
    assert [(each.step, each.part) for each in agent.unsaved] == [(4, True)]
    assert "step 4 was not checkpointed" in capfd.readouterr().err


def test_training_gets_no_more_than_two_intervals_ahead(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A save waits for the one before it: a crash costs two intervals, and no third."""
    quiet_s, agent = 0.1, Agent(at_once=False)
    saving = checkpoints(agent, tmp_path, quiet_s=quiet_s)
    for step in (10, 20, 30):
        due = threading.Thread(target=saving.save, args=(step,), daemon=True)
        due.start()
        if step > 10:
            due.join(2 * quiet_s)
            assert due.is_alive(), f"training continues from step {step} without a checkpoint since {step - 20}"
            agent.answers.put(SnapshotAnswered(step - 10))
        due.join(SOON_S)
        assert not due.is_alive()
        assert agent.snapshots.get(timeout=SOON_S).step == step
    agent.answers.put(SnapshotAnswered(30))
    saving.finish(SOON_S)
    words = r"\[sparktrain\] step \d0 is still being checkpointed, and step \d0 is due: training waits, up to 20 s for"
    assert len(re.findall(words, capfd.readouterr().err)) == 1


def test_a_failure_of_the_save_before_ends_the_wait(agent: Agent, tmp_path: Path) -> None:
    agent.at_once = False
    agent.answers.put(SnapshotAnswered(1, "the disk is full"))
    saving = checkpoints(agent, tmp_path)
    saving.save(1)
    saving.save(2)
    agent.answers.put(SnapshotAnswered(2))
    saving.finish(SOON_S)
    assert agent.steps() == [1, 2]


def test_after_the_timeout_only_the_newest_save_waits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    agent = Agent(at_once=False)
    saving = checkpoints(agent, tmp_path, save_timeout_s=0.0)
    saving.save(1)
    assert agent.snapshots.get(timeout=SOON_S).step == 1
    for step in (2, 3, 4):
        saving.save(step)
    assert capfd.readouterr().err.count("[sparktrain] step 1 is still being checkpointed, and step 2 is due:") == 1
    agent.answers.put(SnapshotAnswered(1))
    assert agent.snapshots.get(timeout=SOON_S).step == 4
    with pytest.raises(CheckpointError, match="step 4 was not checkpointed within 0 s"):
        saving.wait(0.0)
    agent.answers.put(SnapshotAnswered(1))  # an answer that comes twice is for another step
    agent.answers.put(SnapshotAnswered(4))
    saving.finish(SOON_S)
    assert agent.steps() == []


def test_a_failed_save_is_reported_once_and_training_continues(
    agent: Agent, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    agent.at_once = False
    saving = checkpoints(agent, tmp_path)
    for step in (1, 2):
        saving.save(step)
        agent.answers.put(SnapshotAnswered(step, "the disk is full"))
        with pytest.raises(CheckpointError, match=f"step {step} was not checkpointed: the disk is full"):
            saving.wait(SOON_S)
    saving.save(3)
    agent.answers.put(SnapshotAnswered(3))
    saving.wait(SOON_S)
    saving.finish(SOON_S)
    assert capfd.readouterr().err.count("[sparktrain] step 1 was not checkpointed: the disk is full; training") == 1


def test_finish_reports_a_late_save(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    saving = checkpoints(Agent(at_once=False), tmp_path)
    saving.save(1)
    saving.finish(0.0)
    printed = capfd.readouterr().err
    assert "step 1 is still being checkpointed, and the function has ended: its process waits, up to 0 s" in printed
    assert "step 1 was not checkpointed within 0 s" in printed


@pytest.mark.parametrize("when", ["sending", "waiting"])
def test_an_agent_that_is_gone(agent: Agent, tmp_path: Path, when: str) -> None:
    agent.at_once, agent.gone = False, when == "sending"
    agent.answers.put(BrokenPipeError("the agent is gone"))
    saving = checkpoints(agent, tmp_path)
    saving.save(1)
    with pytest.raises(CheckpointError, match="the agent is gone"):
        saving.wait(SOON_S)
    saving.finish(SOON_S)
    left = [*(tmp_path / "scratch").iterdir()]
    assert bool(left) == (when == "waiting"), "what the agent never got is removed"


def test_a_local_disk_that_fails(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "scratch").touch()
    saving = checkpoints(agent, tmp_path)
    saving.save(1, a=np.ones(2))
    with pytest.raises(CheckpointError, match=r"step 1 was not checkpointed: state cannot be written to .*Not a dir"):
        saving.wait(SOON_S)
    saving.finish(SOON_S)
    assert agent.steps() == []
    [unsaved] = agent.unsaved
    assert (unsaved.step, unsaved.disk) == (1, True)
    assert "Not a directory" in unsaved.problem


def test_saving_never_blocks_without_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk and an agent that hang stop the writer alone."""
    hangs, written = threading.Event(), tensor_files.save

    def save(*arguments: Any) -> None:
        assert hangs.wait(SOON_S)
        written(*arguments)

    monkeypatch.setattr(tensor_files, "save", save)
    agent = Agent()
    saving = checkpoints(agent, tmp_path, save_timeout_s=0.0)
    for step in range(50):
        saving.save(step)
    hangs.set()
    saving.finish(SOON_S)
    assert agent.steps()[-1] == 49


# ---- what is refused


def test_only_the_chief_saves(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"was called on rank 1: only rank 0 saves; guard with `if ctx.rank == 0`"):
        checkpoints(agent, tmp_path, rank=1).save(1)


def test_a_forked_process_does_not_save(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saving = checkpoints(agent, tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(RuntimeError, match="belongs to process"):
        saving.save(1)


def test_steps_grow(agent: Agent, tmp_path: Path) -> None:
    saving = checkpoints(agent, tmp_path)
    saving.save(5)
    for step in (5, 4):
        with pytest.raises(ValueError, match=rf"save\(step={step}\) came after step 5: steps must grow"):
            saving.save(step)
    saving.finish(SOON_S)
    folder = agent.snapshots.get_nowait().folder
    later = checkpoints(agent, tmp_path, folder)
    later.restore()
    later.save(5)
    later.save(6)
    with pytest.raises(ValueError, match="came after step 6"):
        later.save(5)
    later.finish(SOON_S)
    assert agent.steps() == [6]


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"step": 1.5}, TypeError, "save(step=1.5): an integer is needed, not float"),
        ({"step": True}, TypeError, "save(step=True): an integer is needed, not bool"),
        ({"step": 2**70}, ValueError, "save(): step has 71 bits, and must be below 2**63"),
        ({"step": -1}, ValueError, "save(step=-1): counts from 0"),
        ({"step": 1, "keep": 0}, ValueError, "save(keep=0): at least 1"),
        ({"step": 1, "data": object()}, TypeError, "save(data=...): data is of type object"),
    ],
)
def test_what_cannot_be_saved(
    agent: Agent, tmp_path: Path, values: dict[str, Any], error: type[Exception], words: str
) -> None:
    saving = checkpoints(agent, tmp_path)
    with pytest.raises(error) as caught:
        saving.save(**values)
    assert str(caught.value).startswith(f"ctx.checkpoint.{words}")
    saving.wait(0.0)
    assert agent.steps() == []


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
def test_a_score_that_is_no_number_counts_as_none(agent: Agent, tmp_path: Path, score: float | None) -> None:
    saving = checkpoints(agent, tmp_path)
    saving.save(1, score=score)
    saving.finish(SOON_S)
    assert agent.snapshots.get_nowait().score is None


def test_a_model_is_asked_of_a_checkpoint_without_one(agent: Agent, tmp_path: Path) -> None:
    state = capture(None, 3)
    tensor_files.save(tmp_path / "state", state.tensors, state.document)
    with pytest.raises(UserError, match="step 3 was saved without a Keras model"):
        checkpoints(agent, tmp_path, str(tmp_path / "state")).restore(
            SimpleNamespace(built=True, variables=[], metrics_variables=[])
        )
    with pytest.raises(TypeError, match=r"ctx.checkpoint.restore got an object of type builtins.object: pass one Ker"):
        checkpoints(agent, tmp_path, str(tmp_path / "state")).restore(object())


def test_a_state_of_another_version(agent: Agent, tmp_path: Path) -> None:
    tensor_files.save(tmp_path / "state", {}, {"version": 2})
    with pytest.raises(CheckpointError, match="has version 2, and this sparktrain reads 1"):
        checkpoints(agent, tmp_path, str(tmp_path / "state")).restore()
