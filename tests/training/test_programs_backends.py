"""Ordinary Keras programs on JAX and PyTorch, in a gang of two: equal to one process, or refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparktrain as st
from tests.training import programs, programs_by_ctx
from tests.training.test_programs_gang import TABLE

EQUAL = 1e-5
TORCH: dict[str, float | str] = {name: EQUAL if isinstance(limit, float) else limit for name, limit in TABLE.items()}
TORCH |= {
    "without_distribute": 10.0,
    "synchronized_batches": "synchronized=True is only supported with the TensorFlow backend",
    "synchronized_batches_of_a_tape": "synchronized=True is only supported with the TensorFlow backend",
}
OF_A_TAPE = {
    "adversaries",
    "adversaries_with_late_optimizers",
    "adversaries_with_one_forgotten",
    "averaged_by_hand",
    "synchronized_batches_of_a_tape",
}
"""Programs with a train_step or a loop in which JAX has no gradients."""
JAX = {name: limit for name, limit in TORCH.items() if name not in OF_A_TAPE}
JAX["a_loss_without_reduction"] = "Gradient only defined for scalar-output functions"
TABLES = {"torch": TORCH, "jax": JAX}
"""As `TABLE`: the limit for the weights, or the text of the error that refuses the program."""
pytestmark = pytest.mark.timeout(400)  # each member imports Keras, and trains some twenty models
ON_JAX = pytest.mark.all(
    case="ordinary programs on JAX", covered_by="`process/test_keras_jax_gangs`; the same programs on TensorFlow"
)


@pytest.fixture(
    scope="module", params=[pytest.param("jax", marks=ON_JAX), pytest.param("torch", marks=pytest.mark.torch)]
)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The table of the backend, and how each program ends in one process, and in each member of two."""
    folder = tmp_path_factory.mktemp("programs")
    table = TABLES[request.param]
    with st.pool(st.local(slots=2), preload=["numpy"]) as pool:
        for workers in (1, 2):
            pool.run(
                programs_by_ctx.train, {"folder": str(folder), "names": list(table)}, workers=workers,
                env={"KERAS_BACKEND": request.param}, dir=str(folder / "runs"), progress=False, seed=7,
                data={"train": programs.table()},
            )  # fmt: skip
    files = ["1-rank-0.json", "2-rank-0.json", "2-rank-1.json"]
    return table, [json.loads(Path(folder, file).read_text()) for file in files]


def test_a_gang_trains_what_one_process_trains_or_names_the_reason(trained: Any) -> None:
    table, (alone, first, second) = trained
    for name, limit in table.items():
        if isinstance(limit, str):
            assert limit in first[name], name
            assert limit in second[name], name
            continue
        assert [type(end) for end in (alone[name], first[name], second[name])] == [list] * 3, (name, first[name])
        np.testing.assert_allclose(first[name], alone[name], rtol=0, atol=limit, err_msg=name)
        np.testing.assert_allclose(second[name], first[name], rtol=0, atol=limit, err_msg=name)
