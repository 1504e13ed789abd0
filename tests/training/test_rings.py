"""Members of a ring train what one process trains on all rows; and the other collectives of a ring."""

from typing import Any

import numpy as np
import pytest

from tests.training import fits, operations
from tests.training.gangs import gang_ends, run_gang

EVERY_FIT = pytest.mark.all(
    case="every fit on both rings",
    covered_by="four fits on TensorFlow's ring, two on Horovod's; `training/test_programs_gang`: other fits",
)
THREE_MEMBERS = pytest.mark.all(case="rings of three members", covered_by="rings of two")
BF16 = pytest.mark.all(case="compression to bf16", covered_by="to fp16")

EVERY = list(fits.CASES)
SOME = ["sgd", "adam_with_clipnorm", "embedding_as_rows", "several_steps_per_execution"]
ON_HOROVOD = SOME[2:]
"""Sparse gradients, and steps in a loop of the graph: `training/test_horovod_programs` has plain ones."""

both = pytest.mark.parametrize("backend", ["tensorflow", "horovod"])


class Alone:
    """The weights of each case, trained by one process on all rows when a test asks for them."""

    def __init__(self) -> None:
        self._weights: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._weights:
            names = SOME if name in SOME else [each for each in EVERY if each not in SOME]
            self._weights |= run_gang(fits.train, 1, "none", names=names)[0]
        return self._weights[name]


@pytest.fixture(scope="module")
def alone() -> Alone:
    """One process, for the gangs of this file."""
    return Alone()


@pytest.mark.parametrize(
    ("backend", "size", "names"),
    [
        ("tensorflow", 2, SOME),
        ("horovod", 2, ON_HOROVOD),
        pytest.param("tensorflow", 2, EVERY, marks=EVERY_FIT),
        pytest.param("horovod", 2, EVERY, marks=EVERY_FIT),
        pytest.param("tensorflow", 3, SOME, marks=THREE_MEMBERS),
        pytest.param("horovod", 3, SOME, marks=THREE_MEMBERS),
    ],
    ids=["tensorflow-2-some", "horovod-2-some", "tensorflow-2", "horovod-2", "tensorflow-3", "horovod-3"],
)
def test_equals_one_process(backend: str, size: int, names: list[str], alone: Alone) -> None:
    members = run_gang(fits.train, size, backend, names=names)

    for name in names:
        assert all(member[name] == members[0][name] for member in members), name
        np.testing.assert_allclose(members[0][name], alone[name], rtol=0, atol=1e-6, err_msg=name)


@both
def test_carries_every_type_of_number(backend: str) -> None:
    first, second = run_gang(operations.numbers, 2, backend)

    assert first == second
    for name in (*operations.TYPES, *operations.FLOATS, "complex64"):
        one, two = ([1, 1], [1, 1]) if name == "bool" else ([1, 1], [2, 2])
        assert first[f"sent {name}"] == one, name
        assert first[f"gathered {name}"] == [one, two, two], name
    for name in (*operations.TYPES[1:], *operations.FLOATS):
        assert first[f"sum {name}"] == [90, 3], name
        assert first[f"mean {name}"] == [45, 1.5 if name in operations.FLOATS else 1], name


@both
def test_takes_shapes_that_change_and_loops(backend: str) -> None:
    results = run_gang(operations.shapes, 2, backend)

    rest = [[[2, 2], [1.5]], [[], [1]], [[0, 3], []], [[3_000_000], [1.5 * 2_999_999]]]
    for result in results:
        assert result["eager"] == [[[3], [1.5]], *rest]
        assert result["changing"] == [[[[count], [1.5]], *rest] for count in (3, 4, 5, 4)]
        assert result["gathered"] == [[[2, 2]], [[1, 1]] * 2 + [[2, 2]] * 3, [[2, 2]]]
        assert result["loop"] == [9, 9]
        assert result["same name"] == [[3, 3], [30, 30]]
        assert result["large"] == [[[3_000_000], [2_999_999]]]


@both
def test_takes_the_values_of_users(backend: str) -> None:
    first, second = run_gang(operations.users_values, 2, backend)

    assert first == second
    assert first["mean"] == {"loss": 1.5, "count": 1.5, "array": [1.5, 0]}
    assert first["total"] == [3, 1, 3]
    assert first["sent"] == [1, True, [1]]
    assert first["gathered"] == [[1, 2], [1, 2, 2]]
    assert first["refused"] == 3


@both
def test_a_large_sparse_gradient_is_sent_as_rows(backend: str) -> None:
    first, second = run_gang(operations.rows, 2, backend)

    assert first == second == [[0, 3.0], [5, 0.5], [6, 1.0]]


@both
@pytest.mark.parametrize(("compression", "error"), [("fp16", 1e-3), pytest.param("bf16", 1e-2, marks=BF16)])
def test_compression_costs_little_accuracy(backend: str, compression: str, error: float, alone: Alone) -> None:
    large, none, third, half = run_gang(operations.compressed, 2, backend, compression=compression)[0]
    weights = run_gang(operations.compressed_fit, 2, backend, compression=compression)[0]

    assert [large, none, third, half] == pytest.approx([-30000.5, 0, -1 / 3, -1], rel=error)
    assert third != np.float32(-1 / 3), "nothing was compressed"
    np.testing.assert_allclose(weights, alone["sgd"], rtol=0, atol=error)


@both
def test_members_agree_about_an_overflow(backend: str) -> None:
    first, second = run_gang(operations.overflow, 2, backend)

    assert first == second
    assert first["wrapped first"] == first["wrapped late"] == [1 - 8 / 8 - 8 / 4, 4]
    assert "SpecError" in first["unchecked"][0]
    assert "wrap it first" in first["unchecked"][1]


@both
def test_a_distributed_optimizer_is_saved_as_the_plain_one(backend: str) -> None:
    for found in run_gang(operations.saved, 2, backend):
        assert found["same"]
        assert found["class"] == "keras.src.optimizers.adam.Adam"
        assert not found["distributed"]
        assert found["iterations"] == 5 + fits.EPOCHS * fits.ROWS // fits.BATCH
        assert "distributed already" in found["twice"]
        assert "distributed already" in found["wrapped"]
        assert "a Keras 3 optimizer is expected" in found["no optimizer"]
        assert "'none', 'fp16', 'bf16'" in found["compression"]


@both
def test_members_that_differ_are_reported(backend: str) -> None:
    first, second = run_gang(operations.diverging, 2, backend)

    assert first == second
    assert "rank 1 differs from the others in 'sequential/dense/kernel'" in first["not reduced"]
    assert "rank 1: optimizer's learning_rate is 0.2" in first["rate"]
    assert "rank 1: variable 0 is sequential" in first["shape"]
    assert "(5, 4) float32" in first["shape"]
    assert "rank 1: steps is 6, on the others 5" in first["steps"]
    assert "jit_compile=False" in first["compiled"]


def test_numbers_that_keras_gives_to_names_do_not_count() -> None:
    assert len(set(run_gang(operations.alike, 2, "tensorflow"))) == 2


def test_a_ring_of_one_leaves_all_as_it_is() -> None:
    assert run_gang(operations.alone, 1, "none") == [{"plain": True, "gradient": 3.0, "values": [2.0, 3, [4]]}]


def test_horovod_takes_members_of_several_hosts() -> None:
    ends = gang_ends(operations.rows, ["a", "b", "a"], "horovod")

    assert [end.error for end in ends] == [None, None, None]


@pytest.mark.all(case="the time that operations take", covered_by="the operations of both; `make bench-fusion`")
@both
def test_is_fast_enough_to_train(backend: str) -> None:
    formed = [max(run_gang(operations.forms, size, backend)) for size in (2, 3)]
    measured = run_gang(operations.timed, 2, backend)[0]

    print(f"{backend}: formed in {formed[0]} s (2), {formed[1]} s (3); {measured} ms")
    assert max(formed) < 10
    assert measured["40 x 1 KB, joined"] < 250
    assert measured["100 MB"] < 5000
