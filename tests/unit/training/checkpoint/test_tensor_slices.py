"""Slices of tensors that several members write: any part is read back from the slices that have it."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from sparktrain.errors import CheckpointError
from sparktrain.training.checkpoint import tensor_files
from sparktrain.training.checkpoint.tensor_files import TensorFiles, as_plain, save, save_part
from sparktrain.training.checkpoint.tensor_slices import TensorSlice, bounds_of, cut, index_file, within

DTYPES = ["float32", "bool", "int64", "complex64", "complex128", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
SHAPES: list[tuple[int, ...]] = [(8,), (4, 6), (2, 4, 2)]


def grid(shape: tuple[int, ...], divisors: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The bounds of equal pieces, so many in each dimension."""
    sizes = [extent // count for extent, count in zip(shape, divisors, strict=True)]
    starts = product(*(range(0, extent, size) for extent, size in zip(shape, sizes, strict=True)))
    return [(start, tuple(first + size for first, size in zip(start, sizes, strict=True))) for start in starts]


def write(
    folder: Path,
    split: Mapping[str, tuple[Any, tuple[int, ...]]],
    whole: Mapping[str, Any],
    size: int = 2,
    most: int = 2**20,
) -> None:
    """What `size` members write: of each split tensor a piece each in turn, in a grid; rank 0 also what is whole."""
    for rank in range(size):
        tensors = {} if rank else dict(whole)
        slices = []
        for name, (tensor, divisors) in split.items():
            for outer in grid(tensor.shape, divisors)[rank::size]:
                for start, stop in cut(outer, tensor.dtype.itemsize, most):
                    key = f"{name}@{rank}.{len(slices)}"
                    tensors[key] = np.array(as_plain(tensor[within((start, stop), (0,) * tensor.ndim)]), order="C")
                    entry = {"key": key, "name": name, "dtype": tensor.dtype.name, "shape": tensor.shape}
                    slices.append(TensorSlice(**entry, start=start, stop=stop))
        part = folder / f"part-{rank}"
        save_part(part, rank, tensors, slices, None if rank else {"step": 3}, shard_bytes=most)
        for path in part.iterdir():
            path.rename(folder / path.name)
        part.rmdir()


def numbers(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("most", [2**20, 16])
def test_any_part_is_read_from_the_slices_of_all_members(tmp_path: Path, dtype: Any, most: int) -> None:
    chance = Random(1)
    for number, shape in enumerate(SHAPES):
        folder = tmp_path / str(number)
        folder.mkdir()
        tensor = numbers(shape, dtype)
        divisors = (2,) * (len(shape) - 1) + (1,) if len(shape) > 1 else (4,)
        write(folder, {"w": (tensor, divisors)}, {"b": np.ones(3, dtype)}, most=most)
        with TensorFiles(folder) as files:
            assert list(files) == ["b", "w"]
            assert "w" in files
            assert files.document == {"step": 3}
            assert files.read("b").tobytes() == np.ones(3, dtype).tobytes()
            whole = files.read("w")
            assert (whole.dtype, whole.shape, whole.tobytes()) == (tensor.dtype, shape, tensor.tobytes())
            for _ in range(10):
                ends = [sorted(chance.sample(range(extent + 1), 2)) for extent in shape]
                index = tuple(slice(*pair) for pair in ends)
                assert files.read_slice("w", index).tobytes() == tensor[index].tobytes(), index
            assert files.read_slice("w", tuple(slice(None) for _ in shape)).tobytes() == tensor.tobytes()


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16])
def test_a_part_of_a_tensor_that_one_member_wrote_is_read_too(tmp_path: Path, dtype: Any) -> None:
    tensor = numbers((4, 6), dtype)
    save(tmp_path / "state", {"w": tensor, "scalar": np.array(2, dtype)}, {})
    index = slice(1, 3), slice(2, None)
    with TensorFiles(tmp_path / "state") as files:
        assert files.read_slice("w", index).tobytes() == tensor[index].tobytes()
        assert files.read_slice("scalar", ()).tobytes() == np.array(2, dtype).tobytes()


def test_only_the_slices_that_overlap_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"w": (numbers((8, 2), "float32"), (4, 1))}, {})
    keys: list[str] = []
    real = TensorFiles._stored

    def stored(self: TensorFiles, name: str, index: Any = None) -> Any:
        keys.append(name)
        return real(self, name, index)

    monkeypatch.setattr(TensorFiles, "_stored", stored)
    with TensorFiles(tmp_path) as files:
        files.read_slice("w", (slice(2, 5), slice(0, 1)))
    assert keys == ["w@0.1", "w@1.0"]


def test_pieces_are_as_small_as_asked_and_cover_everything() -> None:
    for start, stop in [((0, 0), (5, 7)), ((2, 3), (3, 9)), ((0,), (11,)), ((), ())]:
        pieces = list(cut((start, stop), 4, 16))
        hits = np.zeros(stop, int)
        for piece in pieces:
            hits[within(piece, (0,) * len(start))] += 1
            assert hits[within(piece, (0,) * len(start))].size <= 4
        assert hits.sum() == np.prod([last - first for first, last in zip(start, stop, strict=True)])
        assert hits.max() == 1
    assert list(cut(((0, 2), (4, 2)), 4, 16)) == [], "it has no elements"


@pytest.mark.parametrize("index", [(slice(0, 2),), (slice(0, 4, 2), slice(0, 1))])
def test_what_is_no_part_of_a_tensor_is_refused(tmp_path: Path, index: Any) -> None:
    write(tmp_path, {"w": (numbers((4, 2), "float32"), (2, 1))}, {})
    with TensorFiles(tmp_path) as files, pytest.raises(CheckpointError, match="is no part of a tensor of shape"):
        files.read_slice("w", index)
    with pytest.raises(ValueError, match="is no part"):
        bounds_of(index, (4, 2))


def changed(folder: Path, **fields: Any) -> None:
    """Change the only slice of rank 1."""
    path = index_file(folder, 1)
    [entry] = msgspec.json.decode(path.read_bytes(), type=list[TensorSlice])
    path.write_bytes(msgspec.json.encode([msgspec.structs.replace(entry, **fields)]))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"start": (1, 0), "stop": (3, 2)}, "overlap"),
        ({"start": (0, 0), "stop": (2, 2)}, "have 4 of its 8 elements, of rank 0, 1: the files slices-"),
        ({"start": (2, 0), "stop": (5, 2)}, r"reach beyond its shape \(4, 2\)"),
        ({"start": (-1, 0), "stop": (1, 2)}, r"reach beyond its shape \(4, 2\)"),
        ({"start": (3, 0)}, "have 6 of its 8 elements, of rank 0, 1: the files slices-"),
        ({"start": (2,), "stop": (4,)}, r"have other dimensions than \(4, 2\)"),
        ({"dtype": "float64"}, "are of several tensors"),
        ({"key": "elsewhere"}, "safetensors lack 1 slices of tensors .*, such as 'elsewhere'"),
    ],
)
def test_slices_that_do_not_make_a_tensor(tmp_path: Path, fields: dict[str, Any], problem: str) -> None:
    write(tmp_path, {"w": (numbers((4, 2), "float32"), (2, 1))}, {})
    changed(tmp_path, **fields)
    with pytest.raises(CheckpointError, match=problem):
        TensorFiles(tmp_path)


def test_files_of_other_numbers_than_the_index_has(tmp_path: Path) -> None:
    write(tmp_path, {"w": (numbers((4, 2), "float32"), (2, 1))}, {})
    for rank in range(2):
        path = index_file(tmp_path, rank)
        path.write_bytes(path.read_bytes().replace(b"float32", b"float64"))
    with TensorFiles(tmp_path) as files, pytest.raises(CheckpointError, match="is of float32, and not of float64"):
        files.read("w")


@pytest.mark.parametrize(
    ("lost", "problem"),
    [
        (
            "slices-0001.json",
            r"4 of its 8 elements, of rank 0: .*rank are missing; copy all of them again, or use another",
        ),
        ("part-0001-00000.safetensors", r"part-\*.safetensors lack 1 slices .*, such as 'w@1.0' of rank 1; copy all"),
    ],
)
def test_a_member_whose_file_is_missing_is_named(tmp_path: Path, lost: str, problem: str) -> None:
    write(tmp_path, {"w": (numbers((4, 2), "float32"), (2, 1))}, {})
    (tmp_path / lost).unlink()
    with pytest.raises(CheckpointError, match=problem):
        TensorFiles(tmp_path)


@pytest.mark.parametrize("name", ["slices-0001.json", "part-0001-00000.safetensors"])
def test_a_file_that_is_cut_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"w": (numbers((4, 2), "float32"), (2, 1))}, {})
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-8])
    with pytest.raises(CheckpointError, match=f"are no saved state: {name}: .*; copy all of them again"):
        TensorFiles(tmp_path)


def test_a_disk_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensor_files, "save_index", full)
    with pytest.raises(CheckpointError, match="No space left on device; free some space there"):
        save_part(tmp_path / "new", 1, {}, [])
