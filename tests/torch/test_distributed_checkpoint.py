"""Folders that torch.distributed.checkpoint has written are read without pickle, by any number of members."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict

from sparktrain.errors import CheckpointError, UserError
from sparktrain.torch import load_checkpoint
from tests.torch.parts import member
from tests.torch.sharded_programs import network, optimizer_of
from tests.torch.test_split_state import fill, own, plain, tensors, write

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]
RATE = 0.007


def save(folder: Path, writer: Any = None, **more: Any) -> None:
    """What torch writes in one process."""
    model = plain()
    optimizer = optimizer_of(model)
    optimizer.param_groups[0]["lr"] = RATE
    fill(model, optimizer)
    weights, slots = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": slots, **more}, checkpoint_id=folder, storage_writer=writer, no_dist=True)


def assert_loaded(folder: Path, model: torch.nn.Module, rate: float = RATE) -> None:
    optimizer = optimizer_of(model)
    load_checkpoint(folder, model=model, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] == rate
    states = [own(tensor).clone() for _, weight, slots in tensors(model, optimizer) for tensor in (weight, *slots)]
    fill(model, optimizer)
    expected = [own(tensor) for _, weight, slots in tensors(model, optimizer) for tensor in (weight, *slots)]
    assert len(states) == 18
    assert all(map(torch.equal, states, expected))


def test_any_number_of_members_reads_what_torch_wrote(tmp_path: Path) -> None:
    save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {"", ".distcp"}
    assert_loaded(tmp_path, plain())
    for rank in range(3):
        with member(rank, 3):
            assert_loaded(tmp_path, network(seed=1))


def test_files_of_a_gang_are_read_too(tmp_path: Path) -> None:
    write(tmp_path / "state")
    assert_loaded(tmp_path / "state", plain(), rate=0.03)  # numbers stay: safetensors has none


class Harmless:
    """Leaves a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_other_classes_are_not_loaded(tmp_path: Path) -> None:
    save(tmp_path / "state")
    metadata = tmp_path / "state" / ".metadata"
    content = pickle.loads(metadata.read_bytes())
    content.planner_data = Harmless(tmp_path / "loaded")
    metadata.write_bytes(pickle.dumps(content))
    with pytest.raises(
        CheckpointError, match=r"\.metadata cannot be read: it has pathlib\.Path\.touch, which is no class of a"
    ):
        load_checkpoint(tmp_path / "state", model=plain())
    assert not (tmp_path / "loaded").exists()
    dcp.FileSystemReader(tmp_path / "state").read_metadata()
    assert (tmp_path / "loaded").exists(), "torch itself loads it"


def test_values_that_are_no_plain_data_are_not_loaded(tmp_path: Path) -> None:
    class Part:
        def state_dict(self) -> dict[str, Any]:
            return {"value": 1}

        def load_state_dict(self, state: Any) -> None:
            raise AssertionError

    save(tmp_path / "state", part={"value": Harmless(tmp_path / "loaded")})
    with pytest.raises(CheckpointError, match=r"part\.value in \S+ is no plain data, and is not loaded: "):
        load_checkpoint(tmp_path / "state", part=Part())
    assert not (tmp_path / "loaded").exists()


def test_a_file_elsewhere_is_not_read(tmp_path: Path) -> None:
    save(tmp_path / "state")
    metadata = tmp_path / "state" / ".metadata"
    metadata.write_bytes(metadata.read_bytes().replace(b"__0_0.distcp", b"../_0.distcp"))
    with pytest.raises(CheckpointError, match=r"names '\.\./_0\.distcp', and a file must be beside it"):
        load_checkpoint(tmp_path / "state", model=plain())


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    save(tmp_path / "state")
    model = plain()
    before = model[0].weight.clone()
    with pytest.raises(UserError, match=r"lacks 6 tensors, such as net\.0\.bias, .* pass each object by its name in"):
        load_checkpoint(tmp_path / "state", net=model)
    with pytest.raises(UserError, match=r"does not fit: Size mismatch between saved .* for model\.4\.weight"):
        load_checkpoint(tmp_path / "state", model=torch.nn.Sequential(*model[:4], torch.nn.Linear(7, 2)))
    with pytest.raises(UserError, match="got a AdamW without the model that it trains: pass that too"):
        load_checkpoint(tmp_path / "state", optimizer=optimizer_of(model))
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"empty has neither \.metadata nor files of safetensors: pass the fol"):
        load_checkpoint(tmp_path / "empty", model=model)
    assert torch.equal(model[0].weight, before)
