"""Members that average weights after some steps: what they compute, exactly, and what they refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training import fits, local_stepping
from tests.training.gangs import run_gang
from tests.training.local_stepping import OPTIMIZERS

ON_HOROVOD = pytest.mark.all(
    case="the simulation of six optimizers, and averages of plain descent, on Horovod's ring",
    covered_by="on TensorFlow's ring",
)
OTHER_OPTIMIZERS = pytest.mark.all(
    case="the simulation of plain gradient descent, Adam and scaled losses",
    covered_by="of momentum, moving averages and accumulated gradients; an average after each step of plain descent; "
    "`training/test_local_gangs`: mixed precision",
)
OTHER_INTERVALS = pytest.mark.all(
    case="the simulation with averages after three steps, and at the ends of epochs alone",
    covered_by="after four steps; an average after each step",
)

EQUAL = 1e-6
EVERY = list(OPTIMIZERS)
SOME = ["momentum", "ema", "accumulating"]
OTHERS = [name for name in EVERY if name not in SOME]
PLAIN = ["sgd", "eagerly", "embedding"]
"""Fits with plain gradient descent: the mean of its steps is the step by the mean gradient."""

both = pytest.mark.parametrize("backend", ["tensorflow", pytest.param("horovod", marks=ON_HOROVOD)])


@pytest.fixture(scope="module")
def on_whole_batches() -> Any:
    """The weights of each plain fit by one process."""
    return run_gang(fits.train, 1, "none", names=PLAIN)[0]


def close(found: Any, expected: Any, name: str = "") -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=EQUAL, err_msg=name)


@both
def test_an_average_after_each_step_of_plain_sgd_is_one_process_on_the_whole_batch(
    backend: str, on_whole_batches: Any
) -> None:
    members = run_gang(local_stepping.every_step, 2, backend, names=PLAIN)
    for name in PLAIN:
        assert members[0][name] == members[1][name], name
        close(members[0][name], on_whole_batches[name], name)


@both
@pytest.mark.parametrize(
    ("local", "names"),
    [
        (4, SOME),
        pytest.param(4, OTHERS, marks=OTHER_OPTIMIZERS),
        *(pytest.param(steps, EVERY, marks=OTHER_INTERVALS) for steps in (3, 100)),
    ],
)
def test_members_compute_what_a_simulation_in_one_process_computes(backend: str, local: int, names: list[str]) -> None:
    expected = run_gang(local_stepping.simulated, 1, "none", size=2, names=names, local=local)[0]
    members = run_gang(local_stepping.member, 2, backend, names=names, local=local)
    for name in names:
        assert members[0][name] == members[1][name], name
        close(members[0][name], expected[name], name)


def test_several_steps_in_one_call_average_between_them() -> None:
    one = run_gang(local_stepping.member, 2, "tensorflow", names=["adam"], local=3)
    several = run_gang(local_stepping.member, 2, "tensorflow", names=["adam"], local=3, execution=4)
    close(several[0]["adam"], one[0]["adam"])


def test_a_member_alone_trains_as_without_the_option() -> None:
    [local] = run_gang(local_stepping.member, 1, "none", names=SOME, local=3)
    [plain] = run_gang(local_stepping.simulated, 1, "none", size=1, names=SOME, local=100)
    assert local == plain


def test_members_step_as_computed_by_hand() -> None:
    """Two members, an average after two steps each; a fifth step remains."""
    x, y, rate = [1.0, 2.0, -1.0, 0.5, 3.0, 1.5, 0.25, -2.0, 1.0, 1.0], [2.0, 1, 0, 3, 1, 1, 2, 2, -1, 4], 0.05
    own, expected = [0.0, 0.0], ([], [])
    for step in range(5):
        for rank in range(2):
            a, b = x[2 * step + rank], y[2 * step + rank]
            own[rank] -= rate * 2 * a * (own[rank] * a - b)
        if step % 2:
            own = [sum(own) / 2] * 2
        for rank in range(2):
            expected[rank].append(own[rank])
    members = run_gang(local_stepping.line, 2, "tensorflow", local=2, rate=rate, x=x, y=y)
    assert [each["since"] for each in members] == [1, 1]
    for member, weights in zip(members, expected, strict=True):
        close(member["weights"], weights)


def test_momentum_and_moving_averages_stay_with_their_member() -> None:
    first, second = run_gang(local_stepping.kept_apart, 2, "tensorflow", local=2)
    assert first["weights"] == second["weights"]
    assert first["momentum"] != second["momentum"]
    assert first["moving"] != second["moving"]


def test_a_constraint_holds_for_the_mean() -> None:
    for member in run_gang(local_stepping.bound, 2, "tensorflow", local=2):
        close(member["lengths"], np.ones(3))


def test_a_loss_that_adds_up_does_so_over_members() -> None:
    [alone] = run_gang(local_stepping.summed, 1, "none", local=None)
    for member in run_gang(local_stepping.summed, 2, "tensorflow", local=1):
        close(member["weights"], alone["weights"])


def test_what_such_members_cannot_do_is_refused() -> None:
    for found in run_gang(local_stepping.wrong, 2, "tensorflow"):
        assert "a tape averages gradients in each step" in found["tape"]
        assert "members send weights" in found["fp16"]
        assert "distribute the LossScaleOptimizer" in found["late scale"]
        assert "before the first step" in found["other start"]


def test_members_with_the_same_batch_are_noticed() -> None:
    [found], nothing = run_gang(local_stepping.fed, 2, "tensorflow", alike=True)
    assert "same gradients in the first step" in found
    assert nothing == []
    assert run_gang(local_stepping.fed, 2, "tensorflow", alike=False) == [[], []]


def test_a_loop_that_saves_and_ends_between_averages_is_noticed(tmp_path: Path) -> None:
    [saved, left], nothing = run_gang(local_stepping.left_over, 2, "tensorflow", folder=str(tmp_path))
    assert "with the chief's weights alone" in saved
    assert "1 of local_steps after their newest average" in left
    assert nothing == []
