"""Tensors in files: every dtype and shape comes back bit by bit, and corrupt files are errors."""

from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from sparktrain.errors import CheckpointError
from sparktrain.training.checkpoint.tensor_files import DOCUMENT, SHARD_BYTES, TensorFiles, save, send

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "longdouble"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4),
]


def load(folder: Path) -> dict[str, Any]:
    with TensorFiles(folder) as files:
        return {name: files.read(name) for name in files}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (0, 3), (1, 1, 1)])
def test_every_dtype_and_shape(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    save(tmp_path / "state", {"a/b:0": tensor, "plain": np.ones(3)}, None)
    found = load(tmp_path / "state")
    assert sorted(found) == ["a/b:0", "plain"]
    assert (found["a/b:0"].dtype, found["a/b:0"].shape) == (tensor.dtype, shape)
    assert found["a/b:0"].tobytes() == tensor.tobytes()


def test_numbers_that_are_none(tmp_path: Path) -> None:
    odd = np.array([np.nan, -0.0, np.inf, np.finfo("float32").smallest_subnormal], "float32")
    save(tmp_path / "state", {"odd": odd}, {"odd": [float("nan"), float("-inf")]})
    assert load(tmp_path / "state")["odd"].tobytes() == odd.tobytes()
    with TensorFiles(tmp_path / "state") as files:
        assert str(files.document) == "{'odd': [nan, -inf]}"


def test_a_large_state_goes_to_several_files(tmp_path: Path) -> None:
    tensors = {f"t{index:02d}": np.full(100, index, "uint8") for index in range(10)}
    save(tmp_path / "state", tensors, {}, shard_bytes=300)
    assert [path.name for path in sorted((tmp_path / "state").iterdir())] == [
        DOCUMENT,
        *(f"tensors-{number:05d}.safetensors" for number in range(4)),
    ]
    assert {name: each.tolist() for name, each in load(tmp_path / "state").items()} == {
        name: each.tolist() for name, each in tensors.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shard_bytes", [1, 16, 100])
def test_a_tensor_that_is_larger_than_a_file_is_cut(tmp_path: Path, dtype: Any, shard_bytes: int) -> None:
    tensors = {"before": np.ones(3, "int8"), "large/0": np.arange(48).reshape(2, 24).astype(dtype), "after": np.ones(2)}
    save(tmp_path / "state", tensors, {}, shard_bytes)
    files = sorted((tmp_path / "state").glob("*.safetensors"))
    sizes = [sum(each.nbytes for each in safetensors.numpy.load_file(path).values()) for path in files]
    assert sum(sizes) == sum(each.nbytes for each in tensors.values())
    assert max(sizes) <= max(shard_bytes, np.dtype(dtype).itemsize, 8)
    found = load(tmp_path / "state")
    assert {name: (each.dtype, each.shape, each.tobytes()) for name, each in found.items()} == {
        name: (each.dtype, each.shape, each.tobytes()) for name, each in tensors.items()
    }


def test_no_file_is_larger_than_a_block_of_hdfs(tmp_path: Path) -> None:
    save(tmp_path / "state", {"large": np.zeros(150 * 2**20, "uint8"), "small": np.zeros(1000)}, {})
    sizes = [path.stat().st_size for path in sorted((tmp_path / "state").glob("*.safetensors"))]
    assert len(sizes) == 2
    assert max(sizes) <= 128 * 2**20


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_a_view_has_the_bits_of_the_tensor_and_a_change_of_it_leaves_the_file(tmp_path: Path, dtype: Any) -> None:
    tensor = np.arange(6).reshape(2, 3).astype(dtype)
    save(tmp_path / "state", {"a": tensor}, None)
    with TensorFiles(tmp_path / "state") as files:
        content = files.view("a")
        assert (content.dtype, content.shape, content.tobytes()) == (tensor.dtype, (2, 3), tensor.tobytes())
        content[:] = 0
        changed = content.tobytes()
    assert load(tmp_path / "state")["a"].tobytes() == tensor.tobytes()
    (tmp_path / "state" / "tensors-00000.safetensors").unlink()
    assert content.tobytes() == changed, "it outlives the file"


def test_a_state_for_a_process_that_waits_has_no_cut_tensor(tmp_path: Path) -> None:
    tensors = {"large": np.arange(SHARD_BYTES // 4 + 1, dtype="int32"), "small": np.arange(3.0)}
    tensors["last"] = tensors["large"][::-1].copy()
    send(tmp_path / "state", tensors, {"step": 3})
    assert len(list((tmp_path / "state").glob("*.safetensors"))) == 3
    with TensorFiles(tmp_path / "state") as files:
        assert files.document == {"step": 3}
        for name, tensor in tensors.items():
            assert np.array_equal(files.view(name), tensor)
            assert isinstance(files.view(name), np.memmap), "in the memory of its file"


def test_a_disk_that_fails_for_one_of_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save_file(parts: Any, path: Path, metadata: Any) -> None:
        if "last" in parts:
            raise OSError("no space left on device")

    monkeypatch.setattr("sparktrain.training.checkpoint.tensor_files.save_file", save_file)
    large = np.zeros(SHARD_BYTES, "uint8")
    with pytest.raises(CheckpointError, match="no space left on device; free some space"):
        send(tmp_path / "state", {"first": large, "last": large}, None)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_is_an_error(tmp_path: Path, missing: int) -> None:
    save(tmp_path / "state", {"large": np.arange(3.0)}, {}, shard_bytes=8)
    (tmp_path / "state" / f"tensors-{missing:05d}.safetensors").unlink()
    with TensorFiles(tmp_path / "state") as files, pytest.raises(CheckpointError, match="tensor 'large' cannot be"):
        files.read("large")


def test_no_tensors(tmp_path: Path) -> None:
    save(tmp_path / "state", {}, [1, "ä"])
    with TensorFiles(tmp_path / "state") as files:
        assert (list(files), files.document) == ([], [1, "ä"])


@pytest.mark.parametrize(
    "tensor", [np.array(["a"]), np.array([None]), np.zeros(1, "i4,f4"), np.zeros(1, "M8[s]")], ids=str
)
def test_what_is_no_number_is_refused(tmp_path: Path, tensor: Any) -> None:
    with pytest.raises(CheckpointError, match=r"tensor 'odd' has dtype .* must be of numbers"):
        save(tmp_path / "state", {"odd": tensor}, None)


def test_a_disk_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"state cannot be written to .*file/state: .*Not a directory"):
        save(tmp_path / "file" / "state", {}, None)


@pytest.mark.parametrize("name", [DOCUMENT, "tensors-00000.safetensors"])
@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 200, None])
def test_corrupt_files(tmp_path: Path, name: str, content: bytes | None) -> None:
    save(tmp_path / "state", {"a": np.ones(3)}, {})
    path = tmp_path / "state" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"no saved state|tensor 'a' cannot be read"):
        TensorFiles(tmp_path / "state").read("a")


FOREIGN = [
    "[1]",
    "3",
    '{"t": 3}',
    '{"t": ["nope", [4]]}',
    '{"t": ["bfloat16", "four"]}',
    '{"t": ["bfloat16", [-4]]}',
    '{"t": ["bfloat16", [4000000000000]]}',
    '{"t": ["bfloat16", [1e400]]}',
    '{"t": ["bfloat16", [[4]]]}',
    '{"t": ["object", [4]]}',
    "[" * 100_000,
]


@pytest.mark.parametrize("metadata", FOREIGN, ids=lambda metadata: metadata[:30])
def test_wrong_metadata_is_corruption(tmp_path: Path, metadata: str) -> None:
    save(tmp_path / "state", {}, {})
    path = tmp_path / "state" / "tensors-00000.safetensors"
    safetensors.numpy.save_file({"t": np.arange(4, dtype="uint16")}, path, {"sparktrain": metadata})
    with pytest.raises(CheckpointError, match=r"no saved state|cannot be read|must be of numbers"):
        load(tmp_path / "state")


def test_whatever_bytes_change_no_other_error_is_raised(tmp_path: Path) -> None:
    """Corruption raises only CheckpointError: any other error would count as the training function's."""
    tensors = {"a": np.arange(40).astype(ml_dtypes.bfloat16), "b": np.ones((2, 3)), "c": np.arange(4, dtype="uint8")}
    save(tmp_path / "state", tensors, {"step": 3}, shard_bytes=60)
    files = sorted((tmp_path / "state").iterdir())
    random, damaged = Random(7), 0
    for turn in range(300):
        path = random.choice(files)
        whole = path.read_bytes()
        start = random.randrange(len(whole))
        changed = bytes(random.randrange(256) for _ in range(random.choice((1, 1, 2, 8))))
        path.write_bytes((whole[:start] + changed + whole[start + len(changed) :])[: len(whole) if turn % 5 else start])
        try:
            load(tmp_path / "state")
        except CheckpointError:
            damaged += 1
        path.write_bytes(whole)
    assert damaged > 100
    assert load(tmp_path / "state").keys() == tensors.keys()
