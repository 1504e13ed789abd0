"""The driver is killed again and again: each trial has one result, none is lost, and none runs again after its end."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparktrain.state.records import TrialConcluded
from sparktrain.testing import drill
from sparktrain.testing.mortal import Mortal, generations
from sparktrain.testing.processes import Sighted

pytestmark = pytest.mark.timeout(300)

TRIALS = 8
GONE_S = 10.0
MOST_LOST = 2 * drill.EVERY
"""Steps that an asynchronous checkpoint may lose."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Mortal]]:
    """Starts a driver, and leaves nothing of it in the end."""
    started: list[Mortal] = []

    def start_one(what: str) -> Mortal:
        started.append(Mortal(what, tmp_path).start())
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def results(driver: Mortal) -> Counter[int]:
    """How many durable results each trial has."""
    return Counter(
        each.trial for each in driver.journal().records if isinstance(each, TrialConcluded) and each.status.observed
    )


def test_a_sweep_outlives_its_drivers(tmp_path: Path, start: Callable[[str], Mortal]) -> None:
    (tmp_path / "trials").write_text(str(TRIALS))
    rng, finished, gone = random.Random(7), Counter[int](), Sighted([])
    for end in ("python", "jvm", "both"):
        driver = start("sweep")
        driver.wait_batches(rng.randint(3, 6))
        gone = driver.strike(end)
        assert driver.wait_end() != 0
        if end == "jvm":
            assert "ended by AgentsLostError: the Spark job of the agents ended" in driver.said()
        begun = generations(tmp_path, "begin")
        finished = results(driver)
    last = start("resume")
    told = last.result()
    gone.wait_gone(GONE_S)
    assert [each[:3] for each in told] == [[x, "succeeded", {"y": float(x * x)}] for x in range(TRIALS)]
    assert results(last) == Counter(range(TRIALS)) >= finished
    after = generations(tmp_path, "begin")
    assert {x: after[x] for x in finished} == {x: begun[x] for x in finished}, "a trial ran again after its end"
    for x, _, _, generation in told:
        assert after[x][-1] == generation
        assert len(after[x]) == len(set(after[x]))
        assert generation in generations(tmp_path, "end")[x]
