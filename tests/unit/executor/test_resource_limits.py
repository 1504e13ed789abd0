"""What agents add to the environment of their members."""

import os

import pytest

from sparktrain.executor.zygote_process import resource_limits

THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "PJRT_NPROC", "POLARS_MAX_THREADS")
NAMES = (*THREADS, "MALLOC_ARENA_MAX", "ARROW_DEFAULT_MEMORY_POOL")


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_threads_and_arenas_are_those_of_the_slot() -> None:
    limits = resource_limits(4)
    assert set(limits) == set(NAMES)
    assert {limits[name] for name in THREADS} == {"4"}
    assert (limits["MALLOC_ARENA_MAX"], limits["ARROW_DEFAULT_MEMORY_POOL"]) == ("4", "system")
    assert resource_limits(1)["MALLOC_ARENA_MAX"] == "2", "the threads of one core need not wait for each other"


def test_without_a_number_of_cores_threads_have_no_limit() -> None:
    assert resource_limits(None) == {
        "MALLOC_ARENA_MAX": str(max(2, os.cpu_count() or 1)),
        "ARROW_DEFAULT_MEMORY_POOL": "system",
    }


def test_what_the_user_sets_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "7")
    assert resource_limits(4) == {}
