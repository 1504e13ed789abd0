"""What finished fits leave in a checkpoint, and how a process that resumes finds it again."""

import json
from typing import Any

import numpy as np

from sparktrain.training.checkpoint.extras import pack, unpack
from sparktrain.training.data.fit_stages import StagePosition, Stages


class Model:
    """What stages know of a model: that it is held."""


def saved(stages: Stages, stage: int) -> StagePosition:
    """Where a process was that saved then, as another reads it."""
    packed, arrays = pack({"stage": stage, **stages.packed()})
    content = unpack(json.loads(json.dumps(packed)), [(path, array.copy()) for path, array in arrays])
    return StagePosition(10 * stage, 0, 3, content)


def weights(*values: float, size: int = 4) -> dict[str, Any]:
    return {f"layer-{number}": np.full(size, value) for number, value in enumerate(values)}


def test_a_process_finds_what_others_have_finished() -> None:
    first, model = Stages(), Model()
    first.open(None, alike=True)
    first.finish(1, {"step": 8, "callbacks": {"History#1": {"epoch": [0, 1]}}}, weights(1, 2), model)
    first.finish(2, {"step": 16, "callbacks": {}}, weights(1, 3), model)
    assert [first.finished_before(fit) for fit in (1, 2, 3)] == [None] * 3
    second = Stages()
    second.open(saved(first, 3), alike=True)

    assert [each and each.facts["step"] for each in map(second.finished_before, (1, 2, 3, 4))] == [8, 16, None, None]
    assert [(second.behind(fit), second.resumes(fit)) for fit in (2, 3, 4)] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    found = second.finished_before(2)
    assert found is not None
    assert {name: each.tolist() for name, each in found.weights.items()} == {"layer-0": [1] * 4, "layer-1": [3] * 4}
    assert saved(second, 3).content.keys() == saved(first, 3).content.keys()
    assert len(saved(second, 3).content["tensors"]) == 3


def test_tensors_that_did_not_change_are_saved_once_and_never_copied() -> None:
    stages, model = Stages(), Model()
    for fit in range(1, 6):
        stages.finish(fit, {}, weights(0, fit), model)
    _, arrays = pack(stages.packed())

    assert len(arrays) == 6
    held = [each for fit in stages.packed()["tensors"] for each in [fit]]
    assert all(array is own for (_, array), own in zip(arrays, held, strict=True))


def test_weights_that_take_too_much_memory_are_dropped_oldest_first_and_reported_once() -> None:
    stages, model, other = Stages(kept_bytes=2 * 4 * 8), Model(), Model()
    stages.finish(1, {}, weights(-1), other)
    for fit in range(2, 6):
        stages.finish(fit, {}, weights(fit), model)
    notices = [stages.make_room(model) for _ in range(2)]
    second = Stages()
    second.open(saved(stages, 6), alike=True)

    assert notices[0].startswith("the weights after fit 3 are too large to be kept beside the newest")
    assert notices[1] == ""
    found = [second.finished_before(fit) for fit in range(1, 6)]
    assert [each is not None and bool(each.weights) for each in found] == [True, False, False, True, True]


def test_a_fit_that_left_no_weights_is_reported_once() -> None:
    stages, model = Stages(), Model()
    assert stages.lacking() == ""
    stages.finish(1, {}, {}, model)
    stages.finish(2, {}, weights(2), model)
    assert stages.lacking().startswith("the weights after fit 1 are too large to be kept beside the newest")
    assert stages.lacking() == ""


def test_others_returns_the_newest_state_of_each_held_model() -> None:
    stages, one, two = Stages(), Model(), Model()
    stages.finish(1, {"step": 1}, weights(1), one)
    stages.finish(2, {"step": 2}, weights(2), two)
    stages.finish(3, {"step": 3}, weights(3), one)
    assert [each.facts["step"] for each in stages.other_stages(two)] == [3]
    assert [each.facts["step"] for each in stages.other_stages(one)] == [2]
    del two
    assert stages.other_stages(one) == []
