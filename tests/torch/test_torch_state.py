"""Checkpoints of what has a state_dict: written without pickle, and restored bit for bit."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparktrain as st
from sparktrain.errors import UserError
from sparktrain.training.checkpoint import saver, tensor_files
from tests.torch import ddp_programs

pytestmark = pytest.mark.torch


class Holder:
    """Anything with a state."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def stored(folder: Path, *parts: Any) -> Path:
    state = saver.capture(None, 3, parts=parts)
    tensor_files.save(folder, state.tensors, state.document)
    return folder


def test_a_state_comes_back_with_its_types(tmp_path: Path) -> None:
    numbers = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in (*ddp_programs.KINDS, "bool")}
    state = {
        "tensors": numbers | {"scalar": torch.tensor(2.5), "part": torch.arange(9)[::2]},
        0: [1, (0.9, 0.999), None, True, "text", float("inf")],
        "milestones": Counter({4: 2}),
    }
    folder = stored(tmp_path / "state", Holder(state))
    empty = Holder()
    saver.restore(None, folder, 1, parts=(empty,))
    for name, tensor in state["tensors"].items():  # type: ignore[attr-defined]
        again = empty.state["tensors"][name]
        assert again.dtype is tensor.dtype
        assert torch.equal(again, tensor), name
    assert empty.state[0] == state[0]
    assert type(empty.state["milestones"]) is Counter
    assert empty.state["milestones"] == state["milestones"]


def test_rank_0_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    folder = stored(tmp_path / "state", Holder({}))
    expected = torch.rand(3)
    torch.rand(7)
    saver.restore(None, folder, 0, parts=(Holder(),))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"a": [object()]}, r"state_dict\(\) of Holder\['a'\]\[0\] is of type object, and cannot be saved"),
        ({(1, 2): 3}, r"has the key \(1, 2\) of type tuple: keys must be strings or integers"),
        ({"s": torch.eye(2).to_sparse()}, r"\['s'\] is a sparse or quantized tensor"),
    ],
)
def test_what_cannot_be_saved_is_named(state: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        saver.capture(None, 1, parts=(Holder(state),))


def test_another_model_changes_nothing(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    folder = stored(tmp_path / "state", model)
    other = torch.nn.Linear(2, 4)
    weights = other.weight.clone()
    with pytest.raises(UserError, match=r"of another Linear: bias has shape \[3\] in it, and \[4\] in the model"):
        saver.restore(None, folder, 0, parts=(other,))
    assert torch.equal(other.weight, weights)
    with pytest.raises(UserError, match=r"has states of Linear, and restore\(\) got Linear, SGD: pass what"):
        saver.restore(None, folder, 0, parts=(model, torch.optim.SGD(model.parameters(), 0.1)))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_training_ends_as_one_that_lives(tmp_path: Path, workers: int) -> None:
    with st.pool(st.local(slots=workers), preload=["torch"]) as pool:
        for kill_at in (0, 6):
            result = pool.run(
                ddp_programs.resume, {"folder": str(tmp_path), "kill_at": kill_at}, workers=workers,
                dir=str(tmp_path / "runs"), progress=False,
            )  # fmt: skip
            assert result.metrics["lr"] == pytest.approx(0.0125)
            assert result.metrics["from"] == kill_at
            assert len(result.restarts) == bool(kill_at)
    for rank in range(workers):
        alive, killed = (np.load(tmp_path / f"{kill_at}-rank-{rank}.npy") for kill_at in (0, 6))
        np.testing.assert_allclose(killed, alive, rtol=0, atol=0 if workers == 1 else 1e-6)
