"""The errors of members when a ring cannot be connected, or breaks."""

from itertools import product
from pathlib import Path

import pytest

from sparktrain.base.ids import Rank
from sparktrain.config.gang_spec import Role
from sparktrain.state.topology import Formation, MemberAddress
from tests.training import breaking
from tests.training.gangs import gang_ends, run_gang

OTHER_LOSSES = pytest.mark.all(
    case="the other members and functions of a broken ring",
    covered_by="two of eight combinations, which have each backend, rank and function",
)

TIMEOUT_S = 4.0
LATE_S = 4.0
"""Beyond the ring's timeout, on a busy machine."""

both = pytest.mark.parametrize("backend", ["tensorflow", "horovod"])
TORCH = pytest.param("torch", marks=pytest.mark.torch)
JAX = pytest.param(
    "jax",
    marks=pytest.mark.all(
        case="a stuck or absent member, other shapes, and threads of a ring of JAX",
        covered_by="a killed member; `process/test_eager_gangs`: members that call different collectives",
    ),
)
all_rings = pytest.mark.parametrize("backend", ["tensorflow", "horovod", JAX, TORCH])


FUNCTIONS = {"fit": breaking.lost_in_fit, "eagerly": breaking.lost_eagerly}
OFTEN = {("tensorflow", 0, "fit"), ("horovod", 1, "eagerly"), ("jax", 1, "eagerly")}
"""Losses of `make test`: each backend, rank and way of working; `make test-all` has their product."""
LOSSES = [
    pytest.param(*loss, marks=() if loss in OFTEN else OTHER_LOSSES)
    for loss in (*product(("tensorflow", "horovod"), (0, 1), FUNCTIONS), ("jax", 1, "eagerly"))
] + [pytest.param("torch", rank, "eagerly", marks=pytest.mark.torch) for rank in (0, 1)]


@pytest.mark.parametrize(("backend", "victim", "how"), LOSSES)
def test_the_others_report_a_killed_member(backend: str, victim: int, how: str, tmp_path: Path) -> None:
    note = str(tmp_path / "killed")
    ends = gang_ends(FUNCTIONS[how], ["here"] * 3, backend, ring_timeout_s=TIMEOUT_S, victim=victim, note=note)

    assert "status -9" in str(ends.pop(victim).error)
    for end in ends:
        assert end.result["ring"], end
        assert end.result["after"] < TIMEOUT_S + LATE_S
        assert end.result["typed"] == (how == "eagerly")


@all_rings
def test_the_wait_for_a_stuck_member_ends_with_the_timeout(backend: str) -> None:
    *others, _ = run_gang(breaking.stuck, 3, backend, ring_timeout_s=TIMEOUT_S)

    for result in others:
        assert result["typed"], result
        assert result["after"] < 2 * TIMEOUT_S + LATE_S


@all_rings
def test_operations_leave_no_thread(backend: str) -> None:
    for early, late in run_gang(breaking.threads, 2, backend):
        assert late < early + 20


@both
def test_a_mistake_of_one_member_is_no_loss(backend: str) -> None:
    mistaken, other = run_gang(breaking.mistaken, 2, backend, ring_timeout_s=TIMEOUT_S)

    assert "a mistake of the user" in mistaken["text"]
    assert not mistaken["ring"]
    assert other["ring"]


@all_rings
def test_other_shapes_are_an_error_on_all_members(backend: str) -> None:
    for result in run_gang(breaking.out_of_step, 2, backend, ring_timeout_s=TIMEOUT_S):
        assert result["typed"], result
        assert "passed another shape" in result["text"]


def test_an_operation_of_tensorflow_times_out_on_rank_0_first() -> None:
    """With equal timeouts one of 80 members ended with SIGSEGV in the test above."""
    from sparktrain.training.frameworks.tensorflow.collectives.tf_collectives import NO_TIMEOUT, CollectiveRing

    places = tuple(MemberAddress("here", "127.0.0.1", 4000 + rank, Role.WORKER) for rank in range(2))
    chief, worker = (CollectiveRing(Formation(Rank(rank), places), TIMEOUT_S) for rank in range(2))
    assert chief._operation_timeout_s() == TIMEOUT_S < worker._operation_timeout_s()
    worker.timeout_s = NO_TIMEOUT
    assert worker._operation_timeout_s() == NO_TIMEOUT


def test_a_ring_of_tensorflow_is_not_used_again_after_an_error() -> None:
    assert run_gang(breaking.closed_after_an_error, 2, "tensorflow", ring_timeout_s=TIMEOUT_S) == [[], []]


@all_rings
def test_a_member_that_does_not_join_is_named(backend: str) -> None:
    first, _, third = run_gang(breaking.never_comes, 3, backend, ring_timeout_s=1.0, missing=1)

    assert first == third
    assert "after 1 s rank 1 on here had not started to join" in first


@both
def test_a_member_that_ends_while_it_joins_is_an_error_on_the_others(backend: str) -> None:
    ends = gang_ends(breaking.vanishes, ["here"] * 2, backend, ring_timeout_s=2.0, missing=1)

    assert ends[0].error is None
    assert "could not be formed" in ends[0].result
    assert ("rank 1 on here" in ends[0].result) == (backend == "horovod")


@pytest.mark.parametrize(("backend", "thief"), [("tensorflow", 1), ("jax", 0)])
def test_a_stolen_port_is_named(backend: str, thief: int) -> None:
    members = run_gang(breaking.joined, 2, backend, ring_timeout_s=2.0, thief=thief)
    robbed = members.pop(thief)
    [other] = members

    assert f"cannot listen on port {robbed['port']}" in robbed["error"]
    assert robbed["ring error"]
    assert f"rank {thief} on here had not started to join" in other["error"]


def test_an_operation_before_the_ring_is_an_error_of_the_function() -> None:
    for result in run_gang(breaking.after_an_operation, 2, "none"):
        assert result.startswith("FunctionError")
        assert "move what the training function's module does" in result


def test_the_error_for_a_missing_horovod_names_the_build_command() -> None:
    (result,) = run_gang(breaking.without_horovod, 1, "none")

    assert "scripts/build_horovod.sh" in result
    assert "make horovod" in result
