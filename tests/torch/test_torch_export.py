"""A model of PyTorch in the run directory: weights without pickle, and programs that need no class."""

from pathlib import Path
from typing import Any

import pytest
import torch

import sparktrain as st
from sparktrain.errors import SpecError
from sparktrain.rundir.layout import EXPORTED, MemberLayout
from sparktrain.runs.exported_model import find_model, load_other, local_copy
from sparktrain.store.localfs import LocalStore
from sparktrain.training.export import export
from tests.torch.ddp_programs import network

pytestmark = pytest.mark.torch


class Tied(torch.nn.Module):
    """Two layers with one weight, in a type that NumPy lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        self.second = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(()))


class WithExtra(torch.nn.Linear):
    """A state with an object."""

    def get_extra_state(self) -> Any:
        return {"vocabulary": ["a"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a member, as it is in the run directory, too."""
    return tmp_path / "runs" / "member"


def loaded(home: Path, **options: Any) -> Any:
    store = LocalStore(home.parent)
    model = find_model(store, MemberLayout(home.name))
    assert model is not None
    with local_copy(store, model) as copy:
        return load_other(copy, model, options)


def test_weights_come_back_by_name_and_in_a_module(home: Path) -> None:
    model = Tied()
    export(model, home, 0)
    tensors = loaded(home)
    assert {path.name for path in (home / EXPORTED).iterdir()} == {"model.safetensors", "sparktrain-model.json"}
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        name: tensor.tolist() for name, tensor in model.state_dict().items()
    }
    module = loaded(home, module=Tied())
    assert not module.training
    assert torch.equal(module.first.weight, model.first.weight)
    assert module.second.weight is module.first.weight
    with pytest.raises(
        SpecError, match=r"(?s)weights of Tied do not fit load_model\(module=Linear\(\)\):.*Missing key"
    ):
        loaded(home, module=torch.nn.Linear(4, 4))


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("kind", ["export", "script"])
def test_a_program_needs_no_class(home: Path, kind: str) -> None:
    model = network().eval()
    x = torch.ones(3, 5)
    if kind == "export":
        export(torch.export.export(model, (x,)), home, 0)
        program = loaded(home).module()
    else:
        export(torch.jit.trace(model, x), home, 0)
        program = loaded(home)
    assert torch.equal(program(x), model(x))


def test_what_is_no_model_is_refused_with_the_next_step(home: Path) -> None:
    optimizer = torch.optim.SGD(network().parameters(), 0.1)
    with pytest.raises(SpecError, match=r"object of PyTorch \(SGD\), which is no model: pass a torch.nn.Module, or a"):
        export(optimizer, home, 0)
    with pytest.raises(
        SpecError, match=r"WithExtra has '_extra_state' of type dict, and weights are dense tensors: have"
    ):
        export(WithExtra(2, 2), home, 0)
    assert not (home / EXPORTED).exists()


def export_one(ctx: Any) -> dict[str, float]:
    """A member of a gang exports a distributed model."""
    torch.manual_seed(ctx.rank)
    model = ctx.distribute(network())
    ctx.export(model)
    return {"sum": sum(float(weight.detach().sum()) for weight in model.parameters())}


def test_a_gang_exports_the_chiefs_model_without_its_wrapper(tmp_path: Path) -> None:
    result = st.run(export_one, {}, workers=2, spark=st.local(slots=2), dir=str(tmp_path), progress=False)
    module = result.load_model(module=network())
    total = sum(float(weight.detach().sum()) for weight in module.parameters())
    assert total == pytest.approx(result.metrics["sum"])
