"""Checkpoints of models that members of PyTorch hold in parts: any number of members, and torch alone, reads them."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial

from sparktrain.errors import CheckpointError, UserError
from sparktrain.state.gangs.memory_parts import numbered
from sparktrain.training.checkpoint import sent_files, training_state
from sparktrain.training.checkpoint.held_parts import HeldParts
from sparktrain.training.checkpoint.tensor_files import save_held
from sparktrain.training.frameworks.torch import torch_state
from tests.torch import sharded_programs
from tests.torch.parts import member, write_part
from tests.torch.sharded_programs import network, optimizer_of

pytestmark = pytest.mark.torch
SIZE = 4
WRITTEN = 3
"""A step."""


def fill(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Give weights and slots values that their names decide."""
    for name, weight, slots in tensors(model, optimizer):
        for number, tensor in enumerate((weight, *slots)):
            generator = torch.Generator().manual_seed(10 * len(name) + sum(map(ord, name)) + number)
            with torch.no_grad():
                own(tensor).copy_(part_of(torch.randn(tensor.shape, generator=generator), tensor))


def tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Any, list[Any]]]:
    """The name of each weight, it, and its slots. An optimizer that has made no step makes one without gradients."""
    if not optimizer.state:
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
        optimizer.step()
    for name, weight in model.named_parameters():
        yield name, weight, [slot for key, slot in optimizer.state[weight].items() if key != "step"]


def own(tensor: Any) -> Any:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor.detach()


def part_of(whole: torch.Tensor, like: Any) -> torch.Tensor:
    if not isinstance(like, DTensor):
        return whole
    [chunk] = like.__create_chunk_list__()
    return whole[tuple(slice(first, first + extent) for first, extent in zip(chunk.offsets, chunk.sizes, strict=True))]


def write(folder: Path, plan: str = "fsdp", dtype: torch.dtype = torch.float32) -> list[int]:
    """What four members store; the bytes of each."""
    folder.mkdir()
    sizes = []
    for rank in range(SIZE):
        with member(rank, SIZE):
            model = network(plan).to(dtype)
            optimizer = optimizer_of(model)
            fill(model, optimizer)
            sizes.append(write_part(folder, WRITTEN, rank, model, optimizer))
    return sizes


def assert_restored(folder: Path, model: nn.Module, rank: int = 0, size: int = 1) -> None:
    """A member with other weights, and an optimizer that is new, gets its parts of what was stored."""
    optimizer = optimizer_of(model)
    restored = training_state.restore(None, folder, rank, size=size, parts=(model, optimizer))
    assert restored.step == WRITTEN
    found = [
        (name, own(weight).clone(), [own(slot).clone() for slot in slots])
        for name, weight, slots in tensors(model, optimizer)
    ]
    fill(model, optimizer)
    for (_, weight, slots), (name, expected, expected_slots) in zip(found, tensors(model, optimizer), strict=True):
        assert torch.equal(weight, own(expected)), name
        assert len(slots) == len(expected_slots) == 2
        assert all(torch.equal(slot, own(other)) for slot, other in zip(slots, expected_slots, strict=True)), name


def plain(dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model, whole."""
    torch.manual_seed(1)
    layers = [nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 1)]
    return nn.Sequential(*layers).to(dtype)


@pytest.mark.parametrize("plan", sharded_programs.PLANS)
def test_any_number_of_members_gets_its_parts(tmp_path: Path, plan: str) -> None:
    sizes = write(tmp_path / "state", plan)
    for other, size in [("fsdp", 2), ("fsdp", 3), ("tensor", 2), ("hybrid", 4), ("both", 4), (plan, 4)]:
        for rank in range(size):
            with member(rank, size):
                assert_restored(tmp_path / "state", network(other, seed=1), rank, size)
    assert_restored(tmp_path / "state", plain())
    whole = 4 * 3 * sum(weight.numel() for weight in plain().parameters())
    shares = [size / whole for size in sizes[1:]]  # rank 0 has the state of the generator too
    assert max(shares) < 0.4 if plan == "both" else max(shares) < 0.32


class Values:
    """An object of a user with tensors."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def state_dict(self) -> dict[str, Any]:
        return self.values

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = state


class Values2(Values):
    """One with a digit at the end of its name."""


def test_tensors_with_equal_names_stay_apart(tmp_path: Path) -> None:
    """As of one optimizer for two models."""
    (tmp_path / "state").mkdir()
    lookalikes = {"a.b": torch.zeros(2), "a": {"b": torch.ones(2)}, "numbers": {1: torch.ones(1), "1": torch.zeros(1)}}
    kept = [Values(**lookalikes), *(Values2(value=torch.full((2,), number)) for number in (3.0, 4.0))]

    def parts() -> list[Any]:
        models = [network(), network(seed=1)]
        return [*models, torch.optim.SGD([weight for model in models for weight in model.parameters()], 0.1, 0.9)]

    for rank in range(2):
        with member(rank, 2):
            first, second, optimizer = parts()
            for number, weight in enumerate([*first.parameters(), *second.parameters()]):
                optimizer.state[weight]["momentum_buffer"] = torch.full_like(weight, number)
            write_part(tmp_path / "state", WRITTEN, rank, first, second, optimizer, *kept)
    with member(1, 2):
        first, second, optimizer = parts()
        found = [Values(), Values2(), Values2()]
        training_state.restore(None, tmp_path / "state", 1, size=2, parts=(first, second, optimizer, *found))
        for number, weight in enumerate([*first.parameters(), *second.parameters()]):
            assert (own(optimizer.state[weight]["momentum_buffer"]) == number).all()
    for other, expected in zip(found, kept, strict=True):
        assert repr(other.values) == repr(expected.values)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_averages_of_weights_have_parts_again(tmp_path: Path, size: int) -> None:
    """In objects of the user, in dicts and lists."""

    def averages(model: nn.Module, number: float) -> Values:
        like = {name: torch.full_like(weight.detach(), number) for name, weight in model.named_parameters()}
        return Values(shadow=like, history=[like["0.weight"], torch.zeros(2)])

    (tmp_path / "state").mkdir()
    for rank in range(2):
        with member(rank, 2):
            model = network()
            write_part(tmp_path / "state", WRITTEN, rank, model, averages(model, 3.0))
    for rank in range(size):
        with member(rank, size):
            model = network()
            found = averages(model, 0.0)
            training_state.restore(None, tmp_path / "state", rank, size=size, parts=(model, found))
            [first, other] = found.values["history"]
            assert torch.equal(other, torch.zeros(2))
            for average, weight in [
                *zip(found.values["shadow"].values(), model.parameters(), strict=True),
                (first, model[0].weight),
            ]:
                assert average.placements == weight.placements
                assert average.shape == weight.shape
                assert (own(average) == 3.0).all()
                assert own(average).shape == own(weight).shape


class Masters(torch.optim.SGD):
    """Has copies of the weights in another type, as for training in bfloat16, and loads them as they are."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        weights = [weight for group in self.param_groups for weight in group["params"]]
        for index, slots in state_dict["state"].items():
            self.state[weights[index]] = slots


def test_slots_keep_their_types(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for rank in range(3):  # one has no rows of the last layer
        with member(rank, 3):
            model = network().to(torch.bfloat16)
            optimizer = Masters(model.parameters(), 0.1)
            for weight in model.parameters():
                optimizer.state[weight] = {"master": weight.detach().float() + 1e-5, "mask": weight.detach() > 0}
            write_part(tmp_path / "state", WRITTEN, rank, model, optimizer)
            expected = {name: own(optimizer.state[weight]["master"]) for name, weight in model.named_parameters()}
    with member(2, 3):
        model = network(seed=1).to(torch.bfloat16)
        optimizer = Masters(model.parameters(), 0.1)
        training_state.restore(None, tmp_path / "state", 2, size=3, parts=(model, optimizer))
        for name, weight in model.named_parameters():
            slots = optimizer.state[weight]
            assert slots["mask"].dtype == own(slots["mask"]).dtype == torch.bool
            assert torch.equal(own(slots["master"]), expected[name])
            assert own(slots["master"]).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # it is one process
@pytest.mark.parametrize("plan", sharded_programs.PLANS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_alone_reads_the_files(tmp_path: Path, plan: str, dtype: torch.dtype) -> None:
    write(tmp_path / "state", plan, dtype)
    model = plain(dtype)
    optimizer = optimizer_of(model)
    weights, slots = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": slots}
    dcp.load(
        state,
        storage_reader=dcp.HuggingFaceStorageReader(str(tmp_path / "state")),
        planner=dcp.DefaultLoadPlanner(allow_partial_load=True),  # numbers are in state.json
    )
    expected = plain(dtype)
    again = optimizer_of(expected)
    fill(expected, again)
    for name, weight, (average, square) in tensors(expected, again):
        assert torch.equal(weights[name], weight), name
        assert torch.equal(slots["state"][name]["exp_avg"], average), name
        assert torch.equal(slots["state"][name]["exp_avg_sq"], square), name
    assert_restored(tmp_path / "state", plain(dtype))


def test_members_get_parts_of_what_one_process_has_saved(tmp_path: Path) -> None:
    model = plain()
    optimizer = optimizer_of(model)
    fill(model, optimizer)
    training_state.write_state(tmp_path / "state", training_state.capture(None, WRITTEN, parts=(model, optimizer)))
    for rank in range(3):
        with member(rank, 3):
            assert_restored(tmp_path / "state", network(seed=1), rank, 3)


def test_a_group_of_one_saves_all_of_it(tmp_path: Path) -> None:
    with member(0, 1):
        model = network()
        optimizer = optimizer_of(model)
        fill(model, optimizer)
        assert not torch_state.is_split((model, optimizer))
        training_state.write_state(tmp_path / "state", training_state.capture(None, WRITTEN, parts=(model, optimizer)))
    assert_restored(tmp_path / "state", plain())


def test_what_does_not_fit_changes_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "state")
    with member(1, 2):
        model = sharded_programs.split(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 8)))
        before = own(model[2].weight).clone()
        with pytest.raises(
            UserError, match=r"of another \w*Sequential: 2.bias has shape \[7\] in it, and \[8\] in the m"
        ):
            training_state.restore(None, tmp_path / "state", 1, size=2, parts=(model, optimizer_of(model)))
        assert torch.equal(own(model[2].weight), before)
        model = network(seed=1)
        before = own(model[2].weight).clone()
        fewer = torch.optim.AdamW(list(model.parameters())[2:])
        with pytest.raises(UserError, match=r"of another AdamW: it has groups of \[6\] .*, and this one has \[4\]"):
            training_state.restore(None, tmp_path / "state", 1, size=2, parts=(model, fewer))
        assert torch.equal(own(model[2].weight), before)
    assert "call fully_shard(model)" not in capfd.readouterr().err
    model_again = plain()
    training_state.restore(None, tmp_path / "state", 1, size=2, parts=(model_again, optimizer_of(model_again)))
    assert "each member now gets all of it (2.2 KiB): call fully_shard(model) before ctx.ch" in capfd.readouterr().err


def hold(folder: Path, plan: str) -> list[int]:
    """What four members hold in memory, each in a folder; the part of each."""
    digests = []
    for rank in range(SIZE):
        with member(rank, SIZE):
            digests.append(torch_state.held_digest((network(plan),)))
    layout = numbered(digests)
    for rank in range(SIZE):
        with member(rank, SIZE):
            model = network(plan)
            optimizer = optimizer_of(model)
            fill(model, optimizer)
            held = HeldParts(SimpleNamespace(rank=rank), layout, ())
            state = held.captured((model, optimizer), (WRITTEN, None, None), {}, [])
            assert state.part is not None
            save_held(folder / f"{rank}", state.part.rank, state.tensors, state.part.slices, state.document)
    return list(layout)


@pytest.mark.parametrize(("plan", "layout"), [("fsdp", [0, 1, 2, 3]), ("hybrid", [0, 1, 0, 1]), ("both", [0, 1, 2, 3])])
def test_a_member_restores_what_it_held_in_memory_and_another_gang_all_of_it(
    tmp_path: Path, plan: str, layout: list[int]
) -> None:
    assert hold(tmp_path, plan) == layout
    for rank in range(SIZE):
        with member(rank, SIZE):
            assert_restored(tmp_path / f"{layout.index(layout[rank])}", network(plan, seed=1), rank, SIZE)
    joined = sent_files._joined([tmp_path / f"{rank}" for rank in range(SIZE)], tmp_path / "joined")
    for rank in range(3):
        with member(rank, 3):
            assert_restored(joined, network(seed=1), rank, 3)
    assert_restored(joined, plain())


def test_a_part_in_memory_that_another_plan_needs_is_named(tmp_path: Path) -> None:
    hold(tmp_path, "fsdp")
    with pytest.raises(CheckpointError, match=r"'model.0.weight' .*: the files have 18 of the 72 .*Call fully_shard"):
        training_state.restore(None, tmp_path / "0", 0, parts=(model := plain(), optimizer_of(model)))


@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        (["slices-0002.json", "part-0002-00000.safetensors"], "elements, of rank 0, 1, 3: the files slices"),
        (["part-0002-00000.safetensors"], "lack .* slices .*, such as 'model.0.bias@2.*' of rank 2"),
    ],
)
def test_a_part_that_is_missing_is_named(tmp_path: Path, lost: list[str], problem: str) -> None:
    write(tmp_path / "state")
    for name in lost:
        (tmp_path / "state" / name).unlink()
    with pytest.raises(CheckpointError, match=problem):
        training_state.restore(None, tmp_path / "state", 0, parts=(plain(),))


def test_a_part_that_is_damaged_is_named(tmp_path: Path) -> None:
    write(tmp_path / "state")
    path = tmp_path / "state" / "part-0002-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=f"are no saved state: {path.name}: "):
        training_state.restore(None, tmp_path / "state", 0, parts=(plain(),))


def test_what_cannot_be_saved_in_parts_is_refused() -> None:
    with member(0, 2):
        mesh = init_device_mesh("cpu", (2,))
        model = network()
        terms = DTensor.from_local(torch.ones(3), mesh, [Partial()], run_check=False)
        model.register_buffer("terms", terms)
        with pytest.raises(TypeError, match=r"DTensor of shape \[3\] .* terms of a sum over members: redistribute"):
            training_state.capture(None, 1, parts=(model,), rank=0)
        with pytest.raises(TypeError, match=r"\['terms'\] is a DTensor, and other members hold parts of it: every"):
            training_state.capture(None, 1, parts=(model,))
        with pytest.raises(TypeError, match=r"extra is a DTensor, .* full_tensor\(\) of PyTorch"):
            training_state.capture(None, 1, extra={"extra": terms})


def test_a_second_save_reuses_the_memory_of_the_first() -> None:
    with member(1, 2):
        model = network()
        optimizer = optimizer_of(model)
        fill(model, optimizer)
        first = training_state.capture(None, 1, parts=(model, optimizer), rank=1)
        second = training_state.capture(None, 2, parts=(model, optimizer), rank=1, spare=first.tensors)
        assert all(second.tensors[key] is array for key, array in first.tensors.items())
        assert first.part == second.part
