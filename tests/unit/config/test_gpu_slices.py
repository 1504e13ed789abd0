"""Slots share GPUs as far as the memory that each may use fits, and amounts of memory are read as written."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparktrain.config.gpu_slices import gpu_of_each_slot, slice_in_pool
from sparktrain.config.quantities import memory
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.errors import ResourceError

H100 = 81559


@pytest.mark.parametrize(
    ("written", "amount"),
    [("8GiB", 2**33), ("8 gib", 2**33), ("1.5GiB", 3 * 2**29), ("512MiB", 2**29), ("1GB", 10**9), (2**30, 2**30)],
)
def test_an_amount_of_memory_is_read_as_written(written: int | str, amount: int) -> None:
    assert memory(written, "gpu_memory") == amount
    assert memory(amount, "gpu_memory") == amount, "once more"


def test_a_part_of_a_gpu_asks_for_one() -> None:
    spec = SweepSpec(name="run", gpu_memory=2**33)
    assert (spec.gpus, spec.gpu_mib) == (1, 8192)
    assert (SweepSpec(name="run").gpus, SweepSpec(name="run").gpu_mib) == (0, 0)


def test_four_slots_share_one_gpu_and_spread_over_two() -> None:
    assert gpu_of_each_slot({"0": H100}, 4, 19 * 1024) == ("0",) * 4
    assert gpu_of_each_slot({"0": H100, "1": H100}, 4, 19 * 1024) == ("0", "1", "0", "1")
    assert gpu_of_each_slot({"0": 24_000, "1": H100}, 4, 20_000) == ("0", "1", "1", "1"), "0 has room for one"
    assert gpu_of_each_slot({"0": H100}, 1, H100) == ("0",)


@given(some.lists(some.integers(1, 100_000), min_size=1, max_size=8), some.integers(1, 16), some.integers(1, 50_000))
def test_no_gpu_holds_more_than_it_has(totals: list[int], slots: int, part: int) -> None:
    gpus = {str(index): total for index, total in enumerate(totals)}
    if slots > sum(total // part for total in totals):
        with pytest.raises(ResourceError, match=r"^gpu_memory \("):
            gpu_of_each_slot(gpus, slots, part)
    else:
        chosen = gpu_of_each_slot(gpus, slots, part)
        assert len(chosen) == slots
        assert all(chosen.count(name) * part <= total for name, total in gpus.items())


@pytest.mark.parametrize(
    ("totals", "slots", "problem"),
    [
        ({}, 2, r"this machine has none that nvidia-smi or CUDA_VISIBLE_DEVICES names: leave gpu_memory out"),
        ({"0": 0}, 2, r"how much memory GPU 0 has, and nvidia-smi does not report it: check that nvidia-smi works"),
        ({"0": 16_000}, 1, r"is more than a GPU of this machine has \(15\.6 GiB\): lower it"),
        ({"0": H100}, 5, r"for each of 5 slots is more .* of 1 GPU of this machine \(79\.6 GiB\): lower it, or use "
                         r"local\(slots=4\) \(--slots 4\)"),
        ({"0": H100, "1": 16_000}, 5, r"of 2 GPUs of this machine \(79\.6 GiB, 15\.6 GiB\): .* local\(slots=4\)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_would(totals: dict[str, int], slots: int, problem: str) -> None:
    with pytest.raises(ResourceError, match=rf"^gpu_memory \(19\.0 GiB\) .*{problem}"):
        gpu_of_each_slot(totals, slots, 19 * 1024)


def test_a_call_has_the_memory_of_the_agents_of_its_pool_or_less() -> None:
    assert slice_in_pool(0, 0) == 0
    assert slice_in_pool(0, 8192) == 8192, "a member without a limit would take the memory of the others"
    assert slice_in_pool(4096, 8192) == 4096
    with pytest.raises(
        ResourceError, match=r"^gpu_memory \(16\.0 GiB\) .* have 8\.0 GiB each: pass gpu_memory= to pool"
    ):
        slice_in_pool(16_384, 8192)
    with pytest.raises(ResourceError, match=r"^gpu_memory \(8\.0 GiB\) .* share no GPUs: pass gpu_memory= to pool"):
        slice_in_pool(8192, 0)
