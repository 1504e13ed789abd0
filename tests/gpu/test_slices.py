"""Trials at a time on one GPU are isolated: each has its slice, and one that wants more fails alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparktrain as st
from sparktrain.base.threads import spawn
from sparktrain.state.outcome import FailureKind
from tests.gpu.conftest import Used
from tests.gpu.on_gpu import greedy, one_after_another, side_by_side, wait_for

SLICE_MIB = 2048
Record = Callable[[str, float], None]


def sweep(function: Callable[..., Any], xs: list[int], runs: Path, slots: int, mib: int, **params: Any) -> Any:
    space = {"x": xs, **{name: [value] for name, value in params.items()}}
    return st.sweep(
        function, space, metric="y", mode="max", spark=st.local(slots=slots), dir=str(runs / "runs"), progress=False,
        gpu_memory=f"{mib}MiB",
    )  # fmt: skip


def test_two_trials_at_a_time_each_have_a_logical_device_with_their_limit(
    tmp_path: Path, used_mib: Used, record: Record
) -> None:
    before = used_mib()

    def measure() -> None:
        for x in range(2):
            wait_for(tmp_path / f"there-{x}")
        record("beside_the_slice_mib", (used_mib() - before) / 2 - SLICE_MIB)
        (tmp_path / "measured").touch()

    measuring = spawn(measure, "measure")
    result = sweep(side_by_side, [0, 1], tmp_path, 2, SLICE_MIB, folder=str(tmp_path))
    measuring.join(10.0)
    assert [trial.metrics for trial in result.trials] == [{"y": 1.0, "limit": SLICE_MIB}] * 2


def test_a_trial_that_wants_more_than_its_slice_fails_alone(tmp_path: Path) -> None:
    result = sweep(greedy, [0, 1], tmp_path, 2, SLICE_MIB, folder=str(tmp_path))
    failed, succeeded = result.trials
    assert (failed.status, failed.generations) == ("failed", 1), "it is its result, and is not retried"
    assert failed.error.kind is FailureKind.MEMORY
    assert failed.error.summary.startswith("ResourceExhaustedError: ")
    assert (succeeded.status, succeeded.metrics) == ("succeeded", {"y": 1.0})


def test_the_slice_of_a_trial_that_is_over_is_there_for_the_next(tmp_path: Path, total_mib: int) -> None:
    """Each needs more than half of the GPU."""
    result = sweep(one_after_another, [0, 1, 2], tmp_path, 1, int(total_mib * 0.8))
    assert [trial.metrics for trial in result.trials] == [{"y": 1.0}] * 3
