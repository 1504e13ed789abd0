"""Local runs lose a process of any kind: each trial has one result, and no process is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mortal import NAME, Mortal, generations

OTHER_SIGNALS = pytest.mark.all(
    case="SIGKILL, SIGTERM and SIGHUP end the driver of a local run",
    covered_by="Ctrl-C ends it; `faults/test_driver_death`: a sweep on this machine loses its driver by SIGKILL",
)
LOST_ZYGOTE = pytest.mark.all(
    case="a killed zygote of a local run", covered_by="a killed agent; `faults/test_gangs`: a killed zygote"
)

GONE_S = 20.0
PROGRAM = "tests.support.local_driver"
SQUARES = [[x, "succeeded", {"y": float(x * x)}] for x in range(2)]

Start = Callable[[str], Mortal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts drivers, and kills all their processes after the test."""
    started: list[Mortal] = []

    def start_one(what: str) -> Mortal:
        started.append(Mortal(f"{PROGRAM}:{what}", tmp_path, PROGRAM).start())
        return started[-1]

    yield start_one
    for each in started:
        each.close()


@pytest.fixture
def holding(tmp_path: Path, start: Start) -> Mortal:
    """A sweep with two running trials that last while FOLDER/hold exists."""
    (tmp_path / "trials").write_text("2")
    (tmp_path / "hold").touch()
    driver = start("sweep")
    driver.wait(lambda: len(generations(tmp_path, "start")) == 2, "two trials")
    return driver


def members(folder: Path) -> dict[int, int]:
    """The newest process of each trial of `marked`."""
    started = [path.name.split("-") for path in folder.glob("start-*")]
    return {int(x): int(pid) for _, x, _, pid in sorted(started, key=lambda words: int(words[2]))}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def has_cause(journal: str) -> bool:
    """Whether the journal has the cause of the loss of an agent."""
    return any(b"ended by SIGKILL" in path.read_bytes() for path in Path(journal).glob("batch-*"))


def ancestors(pid: int) -> dict[str, int]:
    """The processes from the member `pid` to its driver."""
    zygote = parent_of(pid)
    agent = parent_of(zygote)
    return {"member": pid, "zygote": zygote, "agent": agent, "nursery": parent_of(agent)}


@pytest.mark.parametrize("victim", ["member", "agent", "nursery", pytest.param("zygote", marks=LOST_ZYGOTE)])
def test_a_trial_is_retried_after_a_kill_in_it_or_beside_it(tmp_path: Path, holding: Mortal, victim: str) -> None:
    os.kill(ancestors(members(tmp_path)[0])[victim], signal.SIGKILL)
    holding.wait(lambda: max(generations(tmp_path, "start")[0]) == 2, "trial 0 starts again")
    journal = str(tmp_path / "runs" / NAME / "journal")
    if victim == "agent":
        holding.wait(lambda: has_cause(journal), "the journal has the cause of the loss")
    (tmp_path / "hold").unlink()
    result = holding.result()
    assert [each[:3] for each in result] == SQUARES
    # the agents of both slots end with the nursery; otherwise the other trial continues
    assert [each[3] for each in result] == [2, 2 if victim == "nursery" else 1]
    if victim == "agent":
        assert "by SIGKILL from outside of sparktrain, and not for lack of memory" in result[0][4][0]


@pytest.mark.parametrize(
    "signum",
    [
        signal.SIGINT,
        pytest.param(signal.SIGKILL, marks=OTHER_SIGNALS),
        pytest.param(signal.SIGTERM, marks=OTHER_SIGNALS),
        pytest.param(signal.SIGHUP, marks=OTHER_SIGNALS),
    ],
)
def test_a_killed_driver_leaves_no_process_and_its_run_is_resumed(
    tmp_path: Path, holding: Mortal, start: Start, signum: signal.Signals
) -> None:
    everything = holding.processes()
    assert len(everything.processes) >= 8, "driver, nursery, and agent, zygote and member of two slots"
    os.killpg(holding.pid, signum)  # as a terminal does
    everything.wait_gone(GONE_S)
    assert holding.wait_end() != 0
    if signum == signal.SIGINT:
        assert holding.raised().startswith("KeyboardInterrupt: run run was interrupted"), holding.printed()
    (tmp_path / "hold").unlink()
    assert [each[:3] for each in start("resume").result()] == SQUARES


def test_a_pool_keeps_its_agents_for_sweeps_and_gangs_without_spark(start: Start) -> None:
    [first, second], metrics, spark = start("pooled").result()
    assert first == second
    assert len(first) == 2
    assert metrics == {"size": 2}
    assert spark == []


def test_the_command_line_trains_locally_and_imports_no_spark(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\n"
        "def train(x):\n"
        "    assert x < 3, 'too large'\n"
        "    return {'y': x, 'spark': float('pyspark' in sys.modules)}\n"
    )
    script = "import sys; from sparktrain.cli import main; code = main(); "
    script += "print(sorted({'pyspark', 'py4j', 'pandas', 'pyarrow'} & set(sys.modules)), file=sys.stderr); "
    script += "sys.exit(code)"

    def sparktrain(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, *words, "--local", "--json"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)

    ended = sparktrain("sweep", "train.py:train", "--grid", "x=1,3", "--metric", "y", "--mode", "max", "--name", "m")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.endswith("[]\n")
    assert "m: 2 slots on this machine" in ended.stderr
    trials = json.loads(ended.stdout)["trials"]
    assert [each["status"] for each in trials] == ["succeeded", "failed"]
    assert trials[0]["metrics"] == {"y": 1.0, "spark": 0.0}
    again = sparktrain("resume", "sparktrain-runs/m", "--retry-failed", "--slots", "1")
    assert again.returncode == 0, again.stderr
    assert [each["status"] for each in json.loads(again.stdout)["trials"]] == ["succeeded", "failed"]
