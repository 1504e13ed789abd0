"""The file of a member's steps, which grows while it trains."""

from pathlib import Path

import pytest

from sparktrain.rundir.step_file import decoded
from sparktrain.training.collectives.step_notes import FRAME_STEPS, OF_AGE, SHORTEST_S, StepLog, StepNotes
from tests.unit.clocks import InstantClock


def ends(path: Path) -> list[int]:
    """The newest step of each part."""
    return [part.steps[-1][0] for part in decoded(path.read_bytes(), str(path))]


def train(path: Path, steps: int, step_s: float, start_s: float = 0.0) -> StepLog:
    clock = InstantClock()
    notes = StepNotes(lambda: int(1e9 * clock.now()))
    log = StepLog(path, notes, clock)
    clock.pause(start_s)
    for number in range(1, steps + 1):
        clock.pause(step_s)
        notes.call(notes.now_ns())
        notes.step(number)
        log.stepped(number)
    return log


@pytest.mark.parametrize("step_s", [0.005, 0.3, 7.0])
def test_members_write_a_part_every_few_seconds_after_the_same_steps(tmp_path: Path, step_s: float) -> None:
    steps = int(300 / step_s)
    train(tmp_path / "a", steps, step_s)
    train(tmp_path / "b", steps, step_s, start_s=1.7)
    common = set(ends(tmp_path / "a")) & set(ends(tmp_path / "b"))
    assert 300 / max(step_s, 2 * SHORTEST_S) / 2 < len(common) <= 300 / max(step_s, SHORTEST_S / 2)
    assert max(common) > steps - 2 * SHORTEST_S / step_s - 2
    newest = decoded((tmp_path / "a").read_bytes(), "a")[-1]
    assert len(newest.steps) == min(FRAME_STEPS, newest.steps[-1][0])
    assert len(newest.calls) == len(newest.steps)


def test_the_parts_of_an_old_log_are_rarer(tmp_path: Path) -> None:
    train(tmp_path / "a", 100_000, 1.0)
    assert len(ends(tmp_path / "a")) < 10 / OF_AGE


def test_the_last_part_has_all_that_are_noted_and_a_disk_that_fails_ends_the_log(tmp_path: Path) -> None:
    train(tmp_path / "a", 200, 0.1).close()
    assert len(decoded((tmp_path / "a").read_bytes(), "a")[-1].steps) == 200
    train(tmp_path / "nowhere" / "a", 200, 0.1).close()
