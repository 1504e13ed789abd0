"""Drivers are killed one after the other: each trial has one result, and no finished one is repeated."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import RunDirectoryError
from sparktrain.state.outcome import DRIVER_LOST
from sparktrain.state.records import RunEnded, TrialConcluded
from tests.faults.learning import EPOCHS, EXAMPLES, examples_of
from tests.support import drill
from tests.support.local_driver import SEVERAL
from tests.support.mortal import NAME, Mortal, generations
from tests.support.processes import Sighted

MORE_DEATHS = pytest.mark.all(
    case="a sweep that loses two drivers, and three on Spark",
    covered_by="a sweep without Spark that loses one; `histories/test_drivers`; `faults/test_orphans`: a sweep on "
    "Spark that loses its JVM raises AgentsLostError and leaves no process",
)

ALSO_SEVERAL = pytest.mark.all(
    case="two runs on one session that lose their driver, and two that the next one resumes in turn",
    covered_by="two runs on one pool that lose their driver, and continue there at once",
)

pytestmark = pytest.mark.timeout(300)

Start = Callable[..., Mortal]

TRIALS = 8
GONE_S = 10.0
TERMINATED_S = 10.0
"""From SIGTERM to the end of the driver, on a busy machine."""
RESUMED_S = 12.0
"""From the start of the next driver, which imports, to its first trial: less than a lease."""
MOST_LOST = 2 * drill.EVERY
"""Steps that an asynchronous checkpoint may lose."""


LOCAL, ON_SPARK = "tests.support.local_driver", "tests.support.mortal"
"""Programs of drivers on this machine's slots, and on Spark's."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts drivers, and kills all their processes after the test."""
    started: list[Mortal] = []

    def start_one(what: str, program: str = LOCAL) -> Mortal:
        started.append(Mortal(what if ":" in what else f"{program}:{what}", tmp_path, program).start())
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def results(driver: Mortal, name: str = NAME) -> Counter[int]:
    """The number of durable results of each trial of a run."""
    return Counter(
        each.trial for each in driver.journal(name).records if isinstance(each, TrialConcluded) and each.status.observed
    )


@pytest.mark.parametrize(
    ("program", "ends"),
    [
        pytest.param(LOCAL, ("python",), id="local"),
        pytest.param(LOCAL, ("python", "python"), id="twice", marks=MORE_DEATHS),
        pytest.param(ON_SPARK, ("python", "jvm", "both"), id="spark", marks=MORE_DEATHS),
    ],
)
def test_a_sweep_survives_the_death_of_its_drivers(
    tmp_path: Path, start: Start, program: str, ends: tuple[str, ...]
) -> None:
    (tmp_path / "trials").write_text(str(TRIALS))
    rng, finished, gone = random.Random(7), Counter[int](), Sighted([])
    for end in ends:
        driver = start("sweep", program)
        driver.wait_batches(rng.randint(3, 6))
        gone = driver.strike(end)
        assert driver.wait_end() != 0
        if end == "jvm":
            assert driver.raised().startswith("AgentsLostError: the Spark job of the agents ended"), driver.printed()
        started = generations(tmp_path, "start")
        finished = results(driver)
    last = start("resume", program)
    trials = last.result()
    gone.wait_gone(GONE_S)
    assert [each[:3] for each in trials] == [[x, "succeeded", {"y": float(x * x)}] for x in range(TRIALS)]
    assert results(last) == Counter(range(TRIALS)) >= finished
    after = generations(tmp_path, "start")
    assert {x: after[x] for x in finished} == {x: started[x] for x in finished}, "a finished trial was repeated"
    for x, _, _, generation, *_ in trials:
        assert after[x][-1] == generation
        assert len(after[x]) == len(set(after[x]))
        assert generation in generations(tmp_path, "end")[x]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("several", "several"),
        pytest.param("several", "several_in_turn", marks=ALSO_SEVERAL),
        pytest.param("several_on_a_session", "several_on_a_session", marks=ALSO_SEVERAL),
    ],
)
def test_two_runs_on_one_pool_survive_the_death_of_their_driver(
    tmp_path: Path, start: Start, first: str, then: str
) -> None:
    driver = start(first)
    driver.wait(lambda: all(results(driver, name) for name in SEVERAL), "a result of each run")
    everything = driver.strike("python")
    assert driver.wait_end() != 0
    everything.wait_gone(GONE_S)
    finished = {name: results(driver, name) for name in SEVERAL}
    started = generations(tmp_path, "start")
    last = start(then)
    trials = last.result()
    for name, values in SEVERAL.items():
        assert [each[:3] for each in trials[name]] == [[x, "succeeded", {"y": float(x * x)}] for x in values]
        assert results(last, name) == Counter(range(len(values))) >= finished[name], "one result of each trial"
    after = generations(tmp_path, "start")
    repeated = [
        values[trial] for name, values in SEVERAL.items() for trial in finished[name]
        if after[values[trial]] != started[values[trial]]
    ]  # fmt: skip
    assert not repeated, "a finished trial was repeated"
    assert all(len(each) == len(set(each)) for each in after.values()), "two members of one generation"


@pytest.mark.all(
    case="a gang that loses its drivers",
    covered_by="a sweep that loses its driver; `histories/test_drivers` for the matrix of deaths",
)
def test_a_gang_survives_the_death_of_its_drivers(tmp_path: Path, start: Start) -> None:
    rng, step = random.Random(3), 0
    for generation, end in enumerate(("python", "python"), 1):
        driver = start("gang")
        step = rng.randint(max(step, drill.EVERY) + 2, step + 30)
        driver.wait(lambda at=step, now=generation: at in steps(tmp_path).get((now, 0), ()), f"step {step}")
        members = driver.members()
        driver.strike(end)
        members.wait_gone(GONE_S)
    result = start("gang").result()
    assert result["metrics"] == {"value": drill.expected()}
    assert [cause for cause, _ in result["restarts"]] == [DRIVER_LOST] * 2
    restored = drill.notes(tmp_path, "from")
    for generation, (_, resumed_from) in enumerate(result["restarts"], 1):
        assert restored[generation + 1, 0] == restored[generation + 1, 1] == [resumed_from or 0]
        assert (resumed_from or 0) % drill.EVERY == 0
        assert max(steps(tmp_path)[generation, 0]) - (resumed_from or 0) <= MOST_LOST


def steps(folder: Path) -> dict[tuple[int, int], list[int]]:
    """The steps that each rank of each generation has made."""
    return drill.notes(folder, "step")


@pytest.mark.all(
    case="the same weights after the death of a driver",
    covered_by="a sweep that loses its driver; `histories/test_drivers` for the matrix of deaths",
)
@pytest.mark.parametrize("program", ["learn_twice", "learn_rows_twice"])
def test_a_training_whose_driver_was_killed_ends_with_the_same_weights(
    tmp_path: Path, start: Start, program: str
) -> None:
    first = start(f"tests.faults.learning:{program}")
    first.wait((tmp_path / "run" / "01-0-0014.json").exists, "step 14")
    first.strike("python")
    resumed, whole = start(f"tests.faults.learning:{program}").result()
    assert whole == []
    assert len(resumed) == 1
    assert resumed[0] in (8, 12, 16), "it lost more than two intervals, or wrote no checkpoint"
    with np.load(tmp_path / "run" / "weights.npz") as one, np.load(tmp_path / "whole" / "weights.npz") as other:
        assert one.files == other.files != []
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])
    for name in ("run", "whole"):
        assert [sorted(epoch) for epoch in examples_of(tmp_path / name)] == [list(range(EXAMPLES))] * EPOCHS


@pytest.mark.all(
    case="a gang that heals loses its driver", covered_by="`unit/state/test_healing_rings`: a driver that takes over"
)
def test_a_gang_that_loses_its_driver_while_it_heals_restarts_as_a_whole(tmp_path: Path, start: Start) -> None:
    first = start("tests.faults.healing_programs:driven")
    first.wait((tmp_path / "broken" / "killed-1").exists, "the next process of the lost member")
    members = first.members()
    first.strike("python")
    members.wait_gone(GONE_S)
    broken, whole = start("tests.faults.healing_programs:driven").result()
    assert (broken, whole) == ([DRIVER_LOST], [])
    for rank in range(2):
        with (
            np.load(tmp_path / "broken" / f"member-{rank}.npz") as one,
            np.load(tmp_path / "whole" / f"member-{rank}.npz") as other,
        ):
            assert one.files == other.files != []
            for name in one.files:
                np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.all(
    case="a driver that is suspended, and replaced", covered_by="`histories/test_drivers`: drivers that sleep"
)
def test_a_suspended_driver_that_was_replaced_ends_when_it_continues(tmp_path: Path, start: Start) -> None:
    (tmp_path / "trials").write_text("2")
    (tmp_path / "hold").touch()
    first = start("sweep")
    first.wait(lambda: len(generations(tmp_path, "start")) == 2, "two trials")
    with pytest.raises(RunDirectoryError, match=rf"in use: process {first.pid} on .* has owned this run since 20"):
        attach(compose_again(str(tmp_path / "runs" / NAME), settled(ResumeKeywords, {})))
    members = first.members()
    os.kill(first.pid, signal.SIGSTOP)
    second = start("sweep")
    second.wait(lambda: set(map(len, generations(tmp_path, "start").values())) == {2}, "both start again")
    os.kill(first.pid, signal.SIGCONT)
    assert first.wait_end() != 0
    assert first.raised().startswith(f"DeposedError: another driver (process {second.pid} on "), first.printed()
    members.wait_gone(GONE_S)
    (tmp_path / "hold").unlink()
    assert [each[:4] for each in second.result()] == [[x, "succeeded", {"y": float(x * x)}, 2] for x in range(2)]
    assert generations(tmp_path, "end") == {0: [2], 1: [2]}


@pytest.mark.all(
    case="a driver that is interrupted twice", covered_by="`histories/test_drivers`: drivers that are interrupted"
)
def test_a_run_whose_driver_was_interrupted_twice_is_resumed(tmp_path: Path, start: Start) -> None:
    (tmp_path / "trials").write_text("2")
    (tmp_path / "hold").touch()
    first = start("sweep")
    first.wait(lambda: len(generations(tmp_path, "start")) == 2, "two trials")
    members = first.members()
    everything = first.strike("ctrl-c")
    members.wait_gone(GONE_S)
    os.kill(first.pid, signal.SIGINT)
    assert first.wait_end() != 0
    assert first.raised().startswith("KeyboardInterrupt"), first.printed()
    everything.wait_gone(GONE_S)
    (tmp_path / "hold").unlink()
    assert [each[:3] for each in start("resume").result()] == [[x, "succeeded", {"y": float(x * x)}] for x in range(2)]


def ended_by_sigterm(driver: Mortal) -> None:
    """SIGTERM to the driver alone: it stores what there is, and leaves nothing that the next one waits for."""
    everything = driver.processes()
    os.kill(driver.pid, signal.SIGTERM)
    started_at = time.monotonic()
    assert driver.wait_end() == 143, driver.printed()
    assert time.monotonic() - started_at < TERMINATED_S
    everything.wait_gone(1.0)
    [*_, last] = driver.journal().records
    assert isinstance(last, RunEnded)
    assert (last.ending, last.reason) == ("terminated", "interrupted by SIGTERM")
    assert "run run was interrupted; " in driver.printed()
    assert (driver.folder / "runs" / NAME / "results.json").exists()


def test_sigterm_ends_the_driver_of_a_sweep_and_the_next_one_continues_at_once(tmp_path: Path, start: Start) -> None:
    (tmp_path / "trials").write_text("4")
    (tmp_path / "hold").touch()
    driver = start("sweep")
    driver.wait(lambda: len(generations(tmp_path, "start")) == 2, "two trials")
    ended_by_sigterm(driver)
    started_at = time.monotonic()
    again = start("resume")
    again.wait(lambda: any(len(numbers) == 2 for numbers in generations(tmp_path, "start").values()), "it continues")
    assert time.monotonic() - started_at < RESUMED_S
    (tmp_path / "hold").unlink()
    assert [each[:3] for each in again.result()] == [[x, "succeeded", {"y": float(x * x)}] for x in range(4)]


@pytest.mark.all(case="SIGTERM ends the driver of a gang", covered_by="of a sweep")
@pytest.mark.parametrize("program", [LOCAL, ON_SPARK], ids=["local", "spark"])
def test_sigterm_ends_the_driver_of_a_gang_and_the_next_one_continues_from_its_checkpoint(
    tmp_path: Path, start: Start, program: str
) -> None:
    driver = start("gang", program)
    driver.wait(lambda: max(drill.notes(tmp_path, "step").get((1, 0), [0])) >= 2 * drill.EVERY, "steps")
    ended_by_sigterm(driver)
    reached = max(drill.notes(tmp_path, "step")[1, 0])
    result = start("gang", program).result()
    assert result["metrics"] == {"value": drill.expected()}
    [at] = drill.notes(tmp_path, "from")[2, 0]
    assert reached - at <= MOST_LOST
