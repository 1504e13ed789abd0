"""What the members of a gang agree on when they take a snapshot in memory."""

from typing import Any

import pytest

from sparktrain.training.checkpoint.memory_saver import PART_BYTES
from sparktrain.training.data.position import Position
from sparktrain.training.elastic.step_boundary import StepBoundary
from sparktrain.training.frameworks.keras.boundary_callback import MeetAtBoundary
from sparktrain.training.frameworks.keras.user_callbacks import CallbackStateKeeper, ResumedState
from tests.training.gluing import Hand, ids, member
from tests.training.rings import ThreadRing, together


@pytest.mark.parametrize(
    ("length", "broadcasts"),
    [(10, ["memory_part"]), (PART_BYTES - 8, ["memory_part"]), (3 * PART_BYTES, ["memory_part", "memory_rest"])],
)
def test_the_chiefs_part_of_a_snapshot_reaches_all_members_whole(length: int, broadcasts: list[str]) -> None:
    content = bytes(range(256)) * (length // 256 + 1)
    sent = length.to_bytes(8) + content[:length]
    sent += bytes(-len(sent) % PART_BYTES)

    class Kept:
        able, busy, beside_s, may_grow, is_pause_due = True, False, 0.0, False, False

        def turns(self) -> tuple[int, int]:
            return (0, 1)

        def part(self, model: Any, extra: dict[str, Any]) -> bytes:
            return sent

        def learn(self, part: bytes) -> None:
            raise AssertionError("this member takes each snapshot")

        def take(
            self, parts: Any, place: Any, part: bytes, members: list[Any], *, paused: bool, pace_s: float, held: None
        ) -> None:
            self.taken = part

    def train(ring: ThreadRing) -> Any:
        position, kept = Position(), Kept()
        boundary = StepBoundary(ring, Hand(), lambda: False, memory=kept, interval_s=0.0)  # type: ignore[arg-type]
        callback = MeetAtBoundary(boundary, CallbackStateKeeper(position, ResumedState()))
        model = member()
        model(ids[:2])
        callback.set_model(model)
        callback.on_train_begin()
        position.step = 1
        callback.on_epoch_end(0)
        return kept.taken, [name for name in ring.operations if name.startswith("memory_")]

    for found in together(2, train):
        assert found == (sent, broadcasts)
