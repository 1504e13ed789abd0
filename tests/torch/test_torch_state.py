"""Checkpoints of what has a state_dict: written without pickle, and restored bit for bit."""

from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sparktrain as st
from sparktrain.errors import UserError
from sparktrain.training import own_devices
from sparktrain.training.checkpoint import tensor_files, training_state
from sparktrain.training.frameworks.torch import torch_state
from sparktrain.training.frameworks.torch.torch_framework import Torch
from tests.support.eager_gangs import KINDS
from tests.torch import ddp_programs

pytestmark = pytest.mark.torch


CYCLE: dict[str, Any] = {}
CYCLE["again"] = CYCLE


class Holder:
    """Anything with a state."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state = state


def stored(folder: Path, *parts: Any) -> Path:
    state = training_state.capture(None, 3, parts=parts)
    tensor_files.save(folder, state.tensors, state.document)
    return folder


def test_a_state_comes_back_with_its_types(tmp_path: Path) -> None:
    numbers = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in (*KINDS, "bool")}
    state = {
        "tensors": numbers | {"scalar": torch.tensor(2.5), "part": torch.arange(9)[::2]},
        0: [1, (0.9, 0.999), None, True, "text", float("inf")],
        (1, ("a", 2.5)): {None: {}, True: [], 0.5: ()},
        "numpy": [np.arange(6, dtype="int32").reshape(2, 3), np.float64(0.25), np.int64(7)],
        "ordered": OrderedDict(b=1, a=2),
        "milestones": Counter({4: 2}),
    }
    folder = stored(tmp_path / "state", Holder(state))
    empty = Holder()
    training_state.restore(None, folder, 1, parts=(empty,))
    for name, tensor in state["tensors"].items():  # type: ignore[attr-defined]
        again = empty.state["tensors"][name]
        assert again.dtype is tensor.dtype
        assert torch.equal(again, tensor), name
    assert empty.state[0] == state[0]
    assert empty.state[1, ("a", 2.5)] == {None: {}, True: [], 0.5: ()}
    assert [value.tolist() for value in empty.state["numpy"]] == [[[0, 1, 2], [3, 4, 5]], 0.25, 7]
    assert [type(value) for value in empty.state["numpy"]] == [np.ndarray, np.float64, np.int64]
    assert [*empty.state["ordered"].items()] == [("b", 1), ("a", 2)]
    assert type(empty.state["milestones"]) is Counter
    assert empty.state["milestones"] == state["milestones"]


def test_rank_0_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    folder = stored(tmp_path / "state", Holder({}))
    expected = torch.rand(3)
    torch.rand(7)
    training_state.restore(None, folder, 0, parts=(Holder(),))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"a": [object()]}, r"of Holder\['a'\]\[0\] is <object object> \(object\), and cannot be saved.* leave it out"),
        ({"schedule": [len]}, r"of Holder\['schedule'\]\[0\] is .*builtin_function_or_method.* without pickle"),
        ({"kinds": {torch.float32}}, r"of Holder\['kinds'\] is .*set\), and cannot be saved"),
        (
            {(1, b"x"): 3},
            r"has the key b'x' of type bytes, and cannot be saved: keys must be strings, numbers, or tuples",
        ),
        ({"s": torch.eye(2).to_sparse()}, r"\['s'\] is a sparse or quantized tensor.*to_dense\(\)"),
        ({"m": torch.ones(2, device="meta")}, r"\['m'\] is a tensor on the device meta.* materialize it first"),
        ({"n": np.array(["a"])}, r"\['n'\] is an array of <U1, and only numbers can be saved: convert it to a list"),
        (CYCLE, r"nested more than 100 deep, and cannot be saved: a value may contain itself"),
    ],
    ids=["object", "function", "set", "key", "sparse", "meta", "text", "cycle"],
)
def test_what_cannot_be_saved_is_named(state: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        training_state.capture(None, 1, parts=(Holder(state),))


def schedulers(optimizer: torch.optim.Optimizer) -> list[Any]:
    """One of each kind that has options of another kind in its state."""
    kinds = torch.optim.lr_scheduler
    return [
        kinds.LambdaLR(optimizer, [lambda epoch: 0.9**epoch]),
        kinds.MultiStepLR(optimizer, [2, 4]),
        kinds.CyclicLR(optimizer, 0.01, 0.1),
        kinds.CosineAnnealingWarmRestarts(optimizer, 3),
        kinds.ReduceLROnPlateau(optimizer),
        kinds.SequentialLR(optimizer, [kinds.ConstantLR(optimizer), kinds.ExponentialLR(optimizer, 0.9)], [2]),
        kinds.ChainedScheduler([kinds.LinearLR(optimizer), kinds.StepLR(optimizer, 2)], optimizer),
        kinds.OneCycleLR(optimizer, 0.1, total_steps=20),
    ]


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Adagrad", "RMSprop", "LBFGS", "Adafactor", "NAdam"])
def test_optimizers_and_schedulers_continue_as_they_were(tmp_path: Path, kind: str) -> None:
    def trained(seed: int) -> tuple[Any, ...]:
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 2)
        options = {"momentum": 0.9} if kind == "SGD" else {}
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05, **options)
        plans = schedulers(torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))
        scaler = torch.amp.GradScaler("cpu")
        for _ in range(3):
            step(model, optimizer, plans)
        return model, optimizer, *plans, scaler

    def step(model: Any, optimizer: Any, plans: list[Any]) -> float:
        x = torch.arange(12.0).reshape(4, 3) / 12

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value: torch.Tensor = (model(x) - 1).square().mean()
            value.backward()
            return value

        value = optimizer.step(loss).detach()
        for plan in plans:
            plan.step(*[float(value)] if "Plateau" in type(plan).__name__ else [])
        return float(value)

    first = trained(1)
    folder = stored(tmp_path / "state", *first)
    second = trained(2)
    training_state.restore(None, folder, 0, parts=second)
    for _ in range(3):
        assert step(first[0], first[1], [*first[2:-1]]) == step(second[0], second[1], [*second[2:-1]])
    for one, other in zip(first[2:-1], second[2:-1], strict=True):
        assert one.state_dict().keys() == other.state_dict().keys()
        assert one.get_last_lr() == other.get_last_lr()


def test_members_of_a_gang_of_the_same_size_get_their_own_buffers_and_generators(tmp_path: Path) -> None:
    def model() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).bfloat16()

    members = []
    means = []
    draws = []
    for rank in range(2):
        torch.manual_seed(rank)
        trained = model()
        trained(torch.randn(8, 2).bfloat16())
        members.append(torch_state.own((trained,)))
        means.append(trained[1].running_mean)
        draws.append(torch.rand(3))
    # The files are those of rank 1, as where another host has lost its copy.
    state = training_state.capture(None, 3, parts=(trained,), members=members)
    tensor_files.save(tmp_path / "state", state.tensors, state.document)
    for rank in range(2):
        again = model()
        training_state.restore(None, tmp_path / "state", rank, size=2, parts=(again,))
        assert torch.equal(again[1].running_mean, means[rank])
        assert torch.equal(torch.rand(3), draws[rank])
    grown = model()
    training_state.restore(None, tmp_path / "state", 1, size=3, parts=(grown,))
    assert torch.equal(grown[1].running_mean, means[0]), "in another gang, all have those of rank 0"


def test_another_model_changes_nothing(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 3)
    folder = stored(tmp_path / "state", model)
    other = torch.nn.Linear(2, 4)
    weights = other.weight.clone()
    with pytest.raises(UserError, match=r"of another Linear: bias has shape \[3\] in it, and \[4\] in the model"):
        training_state.restore(None, folder, 0, parts=(other,))
    assert torch.equal(other.weight, weights)
    with pytest.raises(UserError, match=r"has states of Linear, and restore\(\) got Linear, SGD: pass what"):
        training_state.restore(None, folder, 0, parts=(model, torch.optim.SGD(model.parameters(), 0.1)))


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


@pytest.mark.parametrize("device", ["/dev/null", "/dev/no-such-device"])
def test_a_seed_is_that_of_torch_with_and_without_a_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    seeds: list[int] = []
    manual_seed = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda value: (seeds.append(value), manual_seed(value)))
    monkeypatch.setattr(own_devices, "_TORCH_DEVICES", (device,))
    Torch().seed(7)
    assert torch.equal(torch.rand(3), expected)
    assert seeds == ([7] if device == "/dev/null" else [])
