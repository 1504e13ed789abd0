"""What members are told when a ring cannot be formed, or breaks."""

from itertools import product
from pathlib import Path

import pytest

from tests.training import breaking
from tests.training.gangs import gang_ends, run_gang

TIMEOUT_S = 4.0
LATE_S = 4.0
"""Beyond the ring's timeout, on a busy machine."""

both = pytest.mark.parametrize("backend", ["tensorflow", "horovod"])


FUNCTIONS = {"fit": breaking.lost_in_fit, "eagerly": breaking.lost_eagerly}
OFTEN = {("tensorflow", 0, "fit"), ("tensorflow", 1, "eagerly"), ("horovod", 1, "fit"), ("horovod", 0, "eagerly")}
"""Losses of `make test`: each backend, rank and way of working; `make test-all` has their product."""
LOSSES = [
    pytest.param(*loss, marks=() if loss in OFTEN else pytest.mark.all)
    for loss in product(("tensorflow", "horovod"), (0, 1), FUNCTIONS)
]


@pytest.mark.parametrize(("backend", "victim", "how"), LOSSES)
def test_the_others_are_told_of_a_killed_member(backend: str, victim: int, how: str, tmp_path: Path) -> None:
    note = str(tmp_path / "killed")
    ends = gang_ends(FUNCTIONS[how], ["here"] * 3, backend, ring_timeout_s=TIMEOUT_S, victim=victim, note=note)

    assert "status -9" in str(ends.pop(victim).error)
    for end in ends:
        assert end.result["ring"], end
        assert end.result["after"] < TIMEOUT_S + LATE_S
        assert end.result["typed"] == (how == "eagerly")


@both
def test_nobody_waits_longer_for_a_stuck_member_than_the_timeout(backend: str) -> None:
    *others, _ = run_gang(breaking.stuck, 3, backend, ring_timeout_s=TIMEOUT_S)

    for told in others:
        assert told["typed"], told
        assert told["after"] < 2 * TIMEOUT_S + LATE_S


@both
def test_a_mistake_of_one_member_is_not_taken_for_a_loss(backend: str) -> None:
    mistaken, other = run_gang(breaking.mistaken, 2, backend, ring_timeout_s=TIMEOUT_S)

    assert "a mistake of the user" in mistaken["text"]
    assert not mistaken["ring"]
    assert other["ring"]


@both
def test_members_that_pass_other_shapes_are_told(backend: str) -> None:
    for told in run_gang(breaking.out_of_step, 2, backend, ring_timeout_s=TIMEOUT_S):
        assert told["typed"], told
        assert "passed another shape" in told["text"]


@both
def test_a_member_that_does_not_join_is_named(backend: str) -> None:
    first, _, third = run_gang(breaking.never_comes, 3, backend, ring_timeout_s=1.0, missing=1)

    assert first == third
    assert "after 1 s rank 1 on here had not started to join" in first


@both
def test_a_member_that_ends_while_it_joins_is_no_crash_of_the_others(backend: str) -> None:
    ends = gang_ends(breaking.vanishes, ["here"] * 2, backend, ring_timeout_s=2.0, missing=1)

    assert ends[0].error is None
    assert "could not be formed" in ends[0].result
    assert ("rank 1 on here" in ends[0].result) == (backend == "horovod")


def test_a_stolen_port_is_named() -> None:
    other, robbed = run_gang(breaking.joined, 2, "tensorflow", ring_timeout_s=2.0, thief=1)

    assert f"cannot listen on port {robbed['port']}" in robbed["error"]
    assert robbed["ring error"]
    assert "rank 1 on here had not started to join" in other["error"]


def test_operations_before_the_ring_are_the_users_to_move() -> None:
    for told in run_gang(breaking.after_an_operation, 2, "none"):
        assert told.startswith("FunctionError")
        assert "move what the training function's module does" in told


def test_a_missing_horovod_is_told_with_the_way_to_build_it() -> None:
    (told,) = run_gang(breaking.without_horovod, 1, "none")

    assert "scripts/build_horovod.sh" in told
    assert "make horovod" in told
