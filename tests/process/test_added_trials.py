"""A trial that is added to a running sweep trains, and counts as one of the sweep's."""

import threading
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli


def wait_for_word(lr: float, folder: str, ctx: Any) -> float:
    import time

    while not (Path(folder) / "go").exists() and not ctx.should_stop():
        time.sleep(0.01)
    return lr


@pytest.mark.all(
    case="a trial that is added to a running sweep",
    covered_by="`unit/driver/test_enqueued_sampler`, `unit/runs/additions/test_enqueued`",
)
def test_an_added_trial_trains_as_one_of_the_sweep(runs: Path, tmp_path: Path) -> None:
    results: list[st.SweepResult] = []
    space = {"lr": st.uniform(0, 1), "folder": st.choice([str(tmp_path)])}
    options: dict[str, Any] = {"metric": "score", "mode": "max", "trials": 4, "dir": str(runs), "name": "it"}

    def sweep() -> None:
        results.append(st.sweep(wait_for_word, space, spark=st.local(slots=1), progress=False, **options))

    thread = threading.Thread(target=sweep)
    thread.start()
    directory, deadline = str(runs / "it"), threading.Event()
    for _ in range(600):
        if (runs / "it" / "trials").exists():
            break
        deadline.wait(0.1)
    assert cli.main(["enqueue", directory, "--param", "lr=0.75", "--param", f"folder={tmp_path}"]) == 0
    (tmp_path / "go").touch()
    thread.join(60)
    [result] = results
    assert len(result.trials) == 4
    assert [trial.params["lr"] for trial in result.trials].count(0.75) == 1
    assert cli.main(["fsck", directory]) == 0
    assert cli.main(["enqueue", directory, "--param", "lr=0.5", "--param", f"folder={tmp_path}"]) == 2
