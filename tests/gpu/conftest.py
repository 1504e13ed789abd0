"""The ring that needs an NVIDIA GPU: `make test-gpu`. Without one, all its tests are skipped, for one reason."""

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from sparktrain.driver.engines.local_engine import memory_of
from sparktrain.training.own_devices import VARIABLE, gpus_here
from tests.support.processes import wait_until

NO_GPU = "there is no GPU here, nvidia-smi lists none: run `make test-gpu` on a machine with an NVIDIA GPU"
FREED_S = 30.0
"""The driver frees the memory of a killed process within a second or two; the agents end first."""
SLACK_MIB = 32
"""What the driver itself may take more or less."""
TIMEOUT_S = 400
"""The first use of each kernel on a GPU that TensorFlow was not compiled for takes its compilation."""

Used = Callable[[], int]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if not found():
        pytest.skip(NO_GPU)  # here, not in a fixture: pytest then shows one line for all tests


@cache
def found() -> tuple[str, ...]:
    return gpus_here()


@pytest.fixture(scope="session", autouse=True)
def gpu() -> str:
    """The one GPU that all tests use, as `CUDA_VISIBLE_DEVICES` names it."""
    os.environ[VARIABLE] = found()[0]
    return found()[0]


@pytest.fixture(scope="session")
def total_mib(gpu: str) -> int:
    """MiB of its memory."""
    return memory_of((gpu,))[gpu]


@pytest.fixture(scope="session")
def used_mib(gpu: str) -> Used:
    """Measures the MiB of its memory that any process uses."""
    return lambda: int(_asked(gpu, "--query-gpu=memory.used"))


@pytest.fixture(autouse=True)
def nothing_left(used_mib: Used, record_property: Callable[[str, object], None]) -> Iterator[None]:
    """After each test, no process of it holds memory of the GPU: agents and zygotes of an open pool hold none."""
    before = used_mib()
    yield
    took = wait_until(
        lambda: used_mib() <= before + SLACK_MIB, FREED_S, f"the GPU uses {before} MiB as before, and not {used_mib()}"
    )
    record_property("freed_s", round(took, 2))


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Callable[[str, float], None]:
    """Records a measurement for the report, and prints it."""

    def keep(name: str, value: float) -> None:
        record_property(name, round(value, 3))
        print(f"{name}: {value:.3f}")

    return keep


def _asked(gpu: str, query: str) -> str:
    command = ["nvidia-smi", f"--id={gpu}", query, "--format=csv,noheader,nounits"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20.0, check=True).stdout.strip()
