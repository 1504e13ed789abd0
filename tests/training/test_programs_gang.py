"""Ordinary Keras programs in a gang: equal to one process on the whole batch, refused, or reported in one line."""

from typing import Any

import numpy as np
import pytest

from tests.training import programs
from tests.training.gangs import run_gang

ON_HOROVOD = pytest.mark.all(case="programs on Horovod's ring", covered_by="thirteen programs on TensorFlow's ring")
RARE_PROGRAMS = pytest.mark.all(
    case="eleven programs on either ring, with losses, layers and weights of other kinds",
    covered_by="thirteen programs on TensorFlow's ring",
)

EQUAL, APART = 1e-6, 10.0

TABLE: dict[str, float | str] = {
    "a_loss_that_sums": EQUAL,
    "a_loss_that_sums_and_a_penalty": EQUAL,
    "sample_weights": EQUAL,
    "a_mean_with_sample_weights": EQUAL,
    "masked_sequences": EQUAL,
    "a_class_that_does_not_count": EQUAL,
    "two_outputs_one_sums": EQUAL,
    "a_loss_without_reduction": "reduction='sum'",
    "a_function_that_returns_one_number": EQUAL,
    "evaluated_by_the_chief_alone": EQUAL,
    "synchronized_batches": EQUAL,
    "synchronized_batches_of_a_tape": EQUAL,
    "a_small_embedding_under_adam": EQUAL,
    "adversaries": EQUAL,
    "adversaries_with_late_optimizers": EQUAL,
    "adversaries_with_one_forgotten": "judge_optimizer=ctx.distribute(...)",
    "without_callbacks_from_equal_weights": EQUAL,
    "without_callbacks_from_other_weights": "callbacks=ctx.keras_callbacks()",
    "without_distribute": APART,
    "each_on_the_same_data": EQUAL,
    "without_shard": EQUAL,
    "averaged_by_hand": EQUAL,
    "a_dataset_of_the_run": EQUAL,
    "a_shuffled_dataset_of_the_run": EQUAL,
}
"""How far the weights of a gang may be from those of one process; or the text of the error that refuses it."""

RARE = frozenset(
    {
        "a_loss_that_sums_and_a_penalty",
        "sample_weights",
        "a_class_that_does_not_count",
        "a_function_that_returns_one_number",
        "synchronized_batches",
        "a_small_embedding_under_adam",
        "adversaries",
        "adversaries_with_late_optimizers",
        "adversaries_with_one_forgotten",
        "without_callbacks_from_equal_weights",
        "each_on_the_same_data",
    }
)
"""Programs that `make test-all` alone trains."""
PART = 7
"""How many programs a gang trains: few, so that it does not last on a busy machine."""

NOTICES = {
    "a_function_that_returns_one_number": ["let it return one number for each example where it is a sum"],
    "without_distribute": ["optimizer=ctx.distribute(...)"],
    "without_shard": ["model.fit(ctx.shard(data), ...)"],
    "adversaries_with_late_optimizers": ["maker_optimizer.build(...)", "judge_optimizer.build(...)"],
}
"""The notices in the chief's log for a program, line by line."""


class Trained:
    """What each member of a gang found, by program; a program is trained when it is asked for, with some others."""

    def __init__(self, size: int, backend: str) -> None:
        self._size = size
        self._backend = backend
        self._found: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._found:
            alike = [each for each in TABLE if (each in RARE) == (name in RARE)]
            start = alike.index(name) // PART * PART
            members = run_gang(programs.run, self._size, self._backend, names=alike[start : start + PART])
            self._found |= {each: [member[each] for member in members] for each in members[0]}
        return self._found[name]


@pytest.fixture(scope="module")
def alone() -> Trained:
    """The results in one process, on all rows."""
    return Trained(1, "none")


@pytest.fixture(scope="module", params=["tensorflow", pytest.param("horovod", marks=ON_HOROVOD)])
def gang(request: pytest.FixtureRequest) -> Trained:
    """The results of a gang of two."""
    return Trained(2, request.param)


@pytest.mark.timeout(300)  # some train others too
@pytest.mark.parametrize("name", [pytest.param(name, marks=RARE_PROGRAMS if name in RARE else ()) for name in TABLE])
def test_a_gang_trains_what_one_process_trains_or_names_the_reason(name: str, gang: Trained, alone: Trained) -> None:
    first, second = gang[name]
    limit = TABLE[name]
    if isinstance(limit, str):
        assert limit in first["error"]
        assert limit in second["error"]
        return
    (whole,) = alone[name]
    assert first.get("error") == second.get("error") == whole.get("error") is None
    np.testing.assert_allclose(first["weights"], whole["weights"], rtol=0, atol=limit)
    np.testing.assert_allclose(second["weights"], first["weights"], rtol=0, atol=limit)
    assert len(first["printed"]) == len(NOTICES.get(name, []))
    assert all(words in line for words, line in zip(NOTICES.get(name, []), first["printed"], strict=True))


def test_a_gang_of_three_trains_on_datasets_what_one_process_trains(alone: Trained) -> None:
    members = run_gang(programs.run, 3, "tensorflow", names=list(programs.FED))

    whole = {name: alone[name][0]["weights"] for name in programs.FED}
    for name, weights in whole.items():
        assert [each[name].get("error") for each in members] == [None] * 3
        for member in members:
            np.testing.assert_allclose(member[name]["weights"], weights, rtol=0, atol=EQUAL)
    assert np.abs(np.subtract(*whole.values())).max() > 100 * EQUAL


def test_a_loop_is_checked_too() -> None:
    begins_apart = run_gang(programs.run, 2, "tensorflow", names=["a_loop_from_other_weights"])
    same_batch, _ = run_gang(programs.run, 2, "tensorflow", names=["a_loop_without_shard"])

    for member in begins_apart:
        error = member["a_loop_from_other_weights"]["error"]
        assert "rank 1 differs from the others in 'sequential/dense/kernel'" in error
        assert "model.set_weights(ctx.broadcast(model.get_weights()))" in error
    assert ["ctx.shard(data)" in line for line in same_batch["a_loop_without_shard"]["printed"]] == [True]
