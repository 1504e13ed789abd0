"""Trials on one GPU: what a process of its own costs, with PyTorch and with JAX, where they are installed with CUDA.

    python -m benchmarks.gpu_trials [--trials 32] [--calls 3]

Each trial multiplies two matrices on the GPU, in a slice of its memory. On a pool of two agents the process of a trial
is forked from one that has imported the framework, and has only CUDA's context to make. The rival starts a new Python
for each trial, two at a time. The numbers are seconds of a call over the number of trials on a slot.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import sparktrain as st
from benchmarks.machine import show
from benchmarks.session import quiet, seconds_of
from sparktrain.base.optional_packages import is_installed
from sparktrain.driver.engines.local_engine import gpus_here

SLOTS = 2
SIDE = 2048
SLICE = "8GiB"
_PRODUCTS = {
    "torch": f"import torch; a = torch.ones({SIDE}, {SIDE}, device='cuda'); print(float((a @ a)[0, 0]))",
    "jax": f"import jax; a = jax.numpy.ones(({SIDE}, {SIDE})); print(float((a @ a)[0, 0]))",
}
"""What a trial computes, as a program."""


def by_torch(trial: int) -> dict[str, float]:
    """A product of matrices by PyTorch."""
    import torch

    factor = torch.ones(SIDE, SIDE, device="cuda")
    return {"corner": float((factor @ factor)[0, 0])}


def by_jax(trial: int) -> dict[str, float]:
    """A product of matrices by JAX."""
    import jax

    assert jax.default_backend() == "gpu"
    factor = jax.numpy.ones((SIDE, SIDE))
    return {"corner": float((factor @ factor)[0, 0])}


FUNCTIONS: dict[str, Callable[[int], dict[str, float]]] = {"torch": by_torch, "jax": by_jax}


def on_pool(framework: str, trials: int, calls: int) -> list[float]:
    """Seconds of a trial, for each call but the first."""
    with (
        tempfile.TemporaryDirectory() as runs,
        st.pool(st.local(slots=SLOTS), gpu_memory=SLICE, preload=[framework]) as pool,
    ):

        def call() -> None:
            space = {"trial": list(range(trials))}
            result = pool.sweep(FUNCTIONS[framework], space, metric="corner", mode="max", **quiet(runs))
            assert [trial.metrics for trial in result.trials] == [{"corner": float(SIDE)}] * trials

        return [seconds_of(call) * SLOTS / trials for _ in range(calls + 1)][1:]


def in_new_processes(framework: str, trials: int, calls: int) -> list[float]:
    """The same for a new Python for each trial."""

    def product(_: int) -> float:
        command = [sys.executable, "-c", _PRODUCTS[framework]]
        return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120.0).stdout)

    def call() -> None:
        with ThreadPoolExecutor(SLOTS) as threads:
            assert list(threads.map(product, range(trials))) == [float(SIDE)] * trials

    return [seconds_of(call) * SLOTS / trials for _ in range(calls + 1)][1:]


def row(name: str, values: list[float]) -> tuple[str, ...]:
    return name, f"{median(values):.2f}", "  ".join(f"{value:.2f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--calls", type=int, default=3)
    options = parser.parse_args()
    if not gpus_here():
        sys.exit("gpu_trials: nvidia-smi lists no GPU here: run it on a machine with an NVIDIA GPU")
    rows = []
    for framework in filter(is_installed, FUNCTIONS):
        rows.append(
            row(f"pool: a process per trial, {framework} loaded", on_pool(framework, options.trials, options.calls))
        )
        rows.append(
            row(f"rival: a new Python per trial, {framework}", in_new_processes(framework, options.trials // 4, 1))
        )
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, timeout=20.0, check=True).stdout.strip()
    title = f"A trial of one product of {SIDE} x {SIDE} matrices on {SLOTS} slots of {gpu}"
    show(title, ("seconds of a slot", "median", "each call"), rows)


if __name__ == "__main__":
    main()
