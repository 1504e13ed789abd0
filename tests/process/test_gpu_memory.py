"""Members on parts of one GPU: TensorFlow gets their limit before any code of the user, and a member that is over has
none. nvidia-smi and the device are stand-ins; tests/gpu has the same on a GPU."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.config.backends import Backend
from sparktrain.errors import ResourceError
from sparktrain.training.own_devices import VARIABLE
from tests.support.nvidia_smi import STAND_IN, list_gpus, write_stand_in
from tests.support.processes import wait_until

PRELOAD = ["tensorflow", STAND_IN]


@pytest.fixture(autouse=True)
def one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has a GPU of 16 GB, as far as nvidia-smi and TensorFlow know."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "modules").mkdir()
    monkeypatch.setenv("PATH", f"{list_gpus(tmp_path / 'bin', [16384])}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(write_stand_in(tmp_path / "modules")))
    monkeypatch.delenv(VARIABLE, raising=False)


def limits(ctx: Any) -> dict[str, Any]:
    """What TensorFlow is configured to use, and which GPU the member sees."""
    import tensorflow as tf
    from tensorflow.python.eager import context

    options = context.context().config.gpu_options
    virtual = [list(each.memory_limit_mb) for each in options.experimental.virtual_devices]
    gpus = len(tf.config.list_physical_devices("GPU"))
    total = float(tf.reduce_sum(tf.ones([2])))  # TensorFlow starts with that configuration
    return {"y": total, "mib": virtual[0][0] if virtual else 0, "gpus": gpus, "seen": os.environ[VARIABLE]}


def swept(train: Callable[..., Any], values: list[int], runs: Path, *, slots: int, **options: Any) -> Any:
    """A sweep over `x` on this machine."""
    place = {"dir": str(runs), "spark": st.local(slots=slots)}
    return st.sweep(train, {"x": values}, metric="y", mode="max", **place, **options)


def of_both(result: Any, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(trial.metrics[name] for name in names) for trial in result.trials]


@pytest.mark.all(
    case="three trials side by side on one GPU, without a pool", covered_by="two trials, and a gang of two, of a pool"
)
def test_trials_side_by_side_each_have_their_part_of_the_one_gpu(runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        found = limits(ctx)
        return {"y": found["y"], "mib": found["mib"], "gpus": found["gpus"], "seen": float(found["seen"])}

    result = swept(train, [1, 2, 3], runs, slots=3, gpu_memory="5GiB", preload=PRELOAD)
    assert of_both(result, "y", "mib", "gpus", "seen") == [(2.0, 5120.0, 1.0, 0.0)] * 3


def test_a_limit_holds_where_tensorflow_is_imported_by_the_function(runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        assert "tensorflow" not in sys.modules
        import tensorflow  # noqa: F401

        return {"y": 1.0}

    result = swept(train, [1], runs, slots=1, gpu_memory="5GiB", preload=[])
    [trial] = result.trials
    assert trial.status == "failed", "without the stand-in there is no GPU"
    assert trial.error is not None
    assert trial.error.summary.startswith(
        "EnvironmentMismatchError: gpu_memory (5120 MiB) limits TensorFlow on a GPU, and"
    )
    assert "install tensorflow[and-cuda]" in trial.error.summary


def test_calls_of_a_pool_share_its_gpu(runs: Path) -> None:
    def train(x: int, ctx: Any) -> dict[str, float]:
        return {"y": 1.0, "mib": limits(ctx)["mib"]}

    def gang(ctx: Any) -> dict[str, float]:
        found = limits(ctx)
        assert (found["gpus"], found["seen"]) == (1, "0")
        return {"y": ctx.size, "mib": found["mib"]}

    with st.pool(st.local(slots=2), gpu_memory="4GiB", preload=PRELOAD) as pool:
        options: dict[str, Any] = {"metric": "y", "mode": "max", "dir": str(runs)}
        assert of_both(pool.sweep(train, {"x": [1, 2]}, **options), "mib") == [(4096.0,)] * 2
        assert of_both(pool.sweep(train, {"x": [1]}, gpu_memory="1GiB", **options), "mib") == [(1024.0,)]
        assert pool.run(gang, {}, workers=2, backend=Backend.NONE, **options).metrics == {"y": 2.0, "mib": 4096.0}
        with pytest.raises(ResourceError, match=r"^gpu_memory \(6\.0 GiB\) .* have 4\.0 GiB each: pass gpu_memory= to"):
            pool.sweep(train, {"x": [1]}, gpu_memory="6GiB", **options)


def test_calls_at_the_same_time_have_gpus_of_their_own(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(folder: str, number: int) -> float:
        """Ends when both calls have a trial."""
        (Path(folder) / f"there-{number}").touch()
        wait_until(lambda: len(list(Path(folder).glob("there-*"))) == 2, 60.0, "the other call has a trial")
        return float(os.environ[VARIABLE])

    monkeypatch.setenv(VARIABLE, "0,1")
    machine, one = st.local(slots=2), {"max_concurrent_trials": 1, "dir": str(runs), "preload": []}
    with ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(
                st.sweep, train, {"folder": [str(tmp_path)], "number": [number]}, metric="y", mode="max",
                backend="none", spark=machine, name=f"call-{number}", **one,
            )
            for number in range(2)
        ]  # fmt: skip
        seen = [trial.metrics["y"] for call in calls for trial in call.result(120).trials]
    assert sorted(seen) == [0.0, 1.0]


def test_a_trial_that_is_over_holds_its_part_no_longer_when_the_next_one_starts(runs: Path, tmp_path: Path) -> None:
    def train(x: int) -> float:
        """Its process outlives its result by a second, in a thread of its own."""
        import threading

        def alive(pid: str) -> bool:
            try:
                return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
            except OSError:
                return False

        there = sum(alive(each.name) for each in tmp_path.glob("pids/*"))
        (tmp_path / "pids" / str(os.getpid())).touch()
        threading.Thread(target=lambda: threading.Event().wait(1.0)).start()
        return float(there)

    (tmp_path / "pids").mkdir()
    result = swept(train, [1, 2, 3], runs, slots=1, gpu_memory="16GiB", preload=[])
    assert of_both(result, "y") == [(0.0,)] * 3


@pytest.mark.parametrize(
    ("slots", "memory", "problem"),
    [
        (4, "5GiB", r"for each of 4 slots is more than the memory of 1 GPU of this machine \(16\.0 GiB\): .*slots=3"),
        (1, "20GiB", r"is more than a GPU of this machine has \(16\.0 GiB\): lower it"),
    ],
)
@pytest.mark.parametrize("call", ["sweep", "run", "launch", "pool"])
def test_what_does_not_fit_is_refused_before_anything_starts(
    runs: Path, slots: int, memory: str, problem: str, call: str
) -> None:
    machine, started = st.local(slots), runs / "started"
    options: dict[str, Any] = {"spark": machine, "gpu_memory": memory}
    place = {"dir": str(runs), "name": "refused"}

    def train(x: int) -> float:
        started.touch()
        return 1.0

    calls: dict[str, Callable[[], object]] = {
        "sweep": lambda: st.sweep(train, {"x": [1]}, metric="y", mode="max", **options, **place),
        "run": lambda: st.run(train, {"x": 1}, workers=1, **options, **place),
        "launch": lambda: st.launch(machine, train, {"x": [1]}, gpu_memory=memory, **place),
        "pool": lambda: st.pool(machine, gpu_memory=memory),
    }
    with pytest.raises(ResourceError, match=rf"^gpu_memory \(.* GiB\) {problem}"):
        calls[call]()
    assert not started.exists()
    assert not (runs / "refused").exists()
