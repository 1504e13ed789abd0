"""Arrays for rows: where they are in memory, and when that memory is used again."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktrain.datasets import row_arrays
from sparktrain.datasets.row_arrays import ScatteredRows, empties, empty, run_of

LENGTH = 300_000
"""Bytes of an array with memory that is used again."""


def address(array: Any) -> int:
    return int(array.ctypes.data)


def test_arrays_of_one_block_are_aligned_and_apart() -> None:
    arrays = empties([((3, 5), "float32"), ((7,), "int8"), ((0, 4), "int64"), ((LENGTH,), "uint8")])
    for number, array in enumerate(arrays):
        array[...] = number

    assert [(array.shape, str(array.dtype)) for array in arrays] == [
        ((3, 5), "float32"), ((7,), "int8"), ((0, 4), "int64"), ((LENGTH,), "uint8")
    ]  # fmt: skip
    assert all((array == number).all() for number, array in enumerate(arrays))
    assert all(address(array) % 64 == 0 for array in arrays if array.size)


def test_memory_is_used_again_once_no_view_of_it_is_left() -> None:
    first = empty((LENGTH,), "uint8")
    part = first[10:20].view(np.int16)
    place = address(first)
    del first
    second = empty((LENGTH,), "uint8")
    assert address(second) != place, "a view has the memory of the first array"
    del part

    assert address(empty((LENGTH,), "uint8")) == place


@pytest.mark.parametrize("size", [1000, 2**22])
def test_memory_of_other_sizes_is_not_kept(size: int) -> None:
    before = {bits: len(blocks) for bits, blocks in row_arrays._FREE.items()}
    arrays = [empty((size,), "uint8") for _ in range(3)]
    del arrays

    assert {bits: len(blocks) for bits, blocks in row_arrays._FREE.items()} == before


def test_threads_never_share_memory() -> None:
    def fill(number: int) -> None:
        for _ in range(200):
            array = empty((LENGTH,), "uint8")
            array[:] = number
            assert (array == number).all()

    with ThreadPoolExecutor(6) as pool:
        for filled in [pool.submit(fill, number) for number in range(6)]:
            filled.result(60)
    assert len(row_arrays._FREE[19]) <= 4


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5).filter(any), st.integers(1, 9), st.integers(0, 99))
def test_rows_of_several_arrays_have_one_index(lengths: list[int], width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = rng.integers(0, 256, 1000, np.uint8)
    places = np.cumsum([0, *(length * width + 3 for length in lengths)])
    arrays = [memory[at : at + rows * width].reshape(rows, width) for at, rows in zip(places, lengths, strict=False)]
    order = rng.permutation(sum(lengths))
    rows = empty((len(order), width), "uint8")
    ScatteredRows(arrays, order).take(slice(0, len(order)), rows)

    assert rows.tolist() == np.concatenate(arrays)[order].tolist()


@pytest.mark.parametrize(
    ("places", "run"),
    [([], None), ([4], slice(4, 5)), ([2, 3, 4], slice(2, 5)), ([2, 4, 3, 5], None), ([3, 3, 5], None), ([2, 1], None)],
)
def test_a_run_is_what_ascends_by_one(places: list[int], run: slice | None) -> None:
    assert run_of(np.array(places, np.int64)) == run
