"""The same call in the same directory keeps finished trials, and runs the others."""

import json
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import pause
from tests.support.functions import square

TWO_SLOTS = st.local(slots=2)


def started(folder: Path) -> list[str]:
    """Trial and generation of each start of `slow` and `fussy`, in order."""
    return (folder / "started").read_text().split()


def starts_of_trial_0(folder: Path) -> list[str]:
    return [start for start in started(folder) if start.startswith("0.")]


def slow(x: int, folder: str, ctx: Any) -> float:
    """Trial 0 returns at once; the others run while FOLDER/hold exists."""
    with Path(folder, "started").open("a") as file:
        file.write(f"{x}.{ctx.generation} ")
    while x and Path(folder, "hold").exists():
        pause(0.02)
    return float(x)


def fussy(x: int, folder: str, ctx: Any) -> float:
    """Trial 1 fails while FOLDER/wrong exists."""
    with Path(folder, "started").open("a") as file:
        file.write(f"{x}.{ctx.generation} ")
    if x == 1 and Path(folder, "wrong").exists():
        raise ValueError("x is 1")
    return float(x)


def no_agents(*_: Any, **__: Any) -> None:
    raise AssertionError("the call started agents")


def test_a_run_that_reached_its_timeout_is_resumed(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    space = {"x": [0, 1, 2], "folder": [str(tmp_path)]}
    options: dict[str, Any] = {"metric": "result", "mode": "max", "dir": str(runs), "name": "timed", "preload": []}
    with st.pool(TWO_SLOTS, preload=[]) as pool:
        pool.sweep(square, {"x": [1, 2]}, metric="y", mode="max", dir=str(runs))  # agents start outside the timeout
        timeouts = iter(("2s", "4s", "8s", "16s", "32s"))
        first = pool.sweep(slow, space, timeout=next(timeouts), **options)
        while not first.trials:  # on a busy machine the first trial takes longer: it is resumed then, too
            first = pool.sweep(slow, space, timeout=next(timeouts), **options)
        assert first.status == "stopped"
        (tmp_path / "hold").unlink()
        earlier = starts_of_trial_0(tmp_path)
        second = pool.sweep(slow, space, timeout="60s", **options)
    assert [trial.status for trial in second.trials] == ["succeeded"] * 3
    assert second.trials[0] == first.trials[0]
    assert second.seconds > first.seconds
    assert starts_of_trial_0(tmp_path) == earlier
    assert json.loads((runs / "timed" / "results.json").read_text())["status"] == "succeeded"


def test_a_failed_run_raises_its_error_again_and_retry_failed_runs_it(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong").touch()
    call: dict[str, Any] = {"workers": 1, "backend": "none", "dir": str(runs), "name": "failed", "preload": []}
    call["spark"] = TWO_SLOTS
    params = {"x": 1, "folder": str(tmp_path)}
    with pytest.raises(st.RunFailedError, match="ValueError: x is 1") as first:
        st.run(fussy, params, **call)
    with monkeypatch.context() as without:
        without.setattr("sparktrain.driver.agent_sources.AgentPool", no_agents)
        with pytest.raises(st.RunFailedError) as second:
            st.run(fussy, params, **call)
        with pytest.raises(st.RunFailedError) as third:
            st.resume(str(runs / "failed"), spark=TWO_SLOTS)
    assert str(first.value) == str(second.value) == str(third.value)
    assert first.value.traceback == third.value.traceback
    (tmp_path / "wrong").unlink()
    assert st.resume(str(runs / "failed"), spark=TWO_SLOTS, retry_failed=True).metrics == {"result": 1.0}
    assert started(tmp_path) == ["1.1", "1.2"]


def test_a_second_sweep_of_the_same_name_on_a_pool_returns_the_stored_result(runs: Path) -> None:
    call: dict[str, Any] = {"metric": "y", "mode": "max", "dir": str(runs), "name": "twice"}
    with st.pool(TWO_SLOTS, preload=[]) as pool:
        first = pool.sweep(square, {"x": [1, 2]}, **call)
        (runs / "twice" / "results.json").unlink()
        assert pool.sweep(square, {"x": [1, 2]}, **call) == first
        assert (runs / "twice" / "results.json").exists()
        more = pool.sweep(square, {"x": [1, 2, 3]}, allow_changed="space", **call)
    assert more.trials[:2] == first.trials
    assert [trial.metrics["y"] for trial in more.trials] == [1.0, 4.0, 9.0]


def test_changed_code_is_refused_and_where_it_is_allowed_results_stay(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong").touch()
    call: dict[str, Any] = {"metric": "y", "mode": "max", "dir": str(runs), "name": "code", "preload": []}
    call["spark"] = TWO_SLOTS
    space = {"x": [1, 2], "folder": [str(tmp_path)]}

    def train(x: int, folder: str, ctx: Any) -> dict[str, float]:
        return {"y": fussy(x, folder, ctx)}

    first = st.sweep(train, space, **call)
    (tmp_path / "wrong").unlink()

    def train(x: int, folder: str, ctx: Any) -> dict[str, float]:  # type: ignore[no-redef]
        return {"y": 10 * fussy(x, folder, ctx)}

    with pytest.raises(st.ResumeError, match=r"(?s)started with other code.*function train"):
        st.sweep(train, space, **call)
    second = st.sweep(train, space, allow_changed=["code"], retry_failed=True, **call)
    assert [trial.status for trial in first.trials] == ["failed", "succeeded"]
    assert [trial.metrics for trial in second.trials] == [{"y": 10.0}, {"y": 2.0}]
    assert started(tmp_path).count("2.1") == 1
