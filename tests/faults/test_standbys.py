"""Members of a `fit` that are killed while a process waits for the place of any of them: see `test_loops` for loops."""

import threading
from pathlib import Path

import pytest

import sparktrain as st
from tests.faults.standby_programs import train
from tests.support.fits import Fit, each_fit, shown
from tests.support.healed_members import Members, members_in
from tests.support.standby_kills import kill_each

pytestmark = pytest.mark.timeout(240)

OTHERS = pytest.mark.all(
    case="a process that waits, on a dataset that is shuffled",
    covered_by="one that waits on arrays; `unit/state/test_standbys`",
)


def trained(
    pool: st.Pool, fit: Fit, folder: Path, feed: str, kills: list[int], standby: int
) -> tuple[st.RunResult, Members, int]:
    notes = folder / "notes"
    notes.mkdir()
    thread = threading.Thread(target=kill_each, args=(pool, notes, kills))
    thread.start()
    params = {"folder": str(notes), "feed": feed, "holds": len(kills)}
    result = pool.run(
        train,
        params,
        workers=2,
        standby=standby,
        dir=str(folder),
        name="run",
        seed=1,
        progress=False,
        **fit.options,
    )
    thread.join(10)
    return result, *members_in(notes, 2)


@shown
@pytest.mark.parametrize("feed", ["arrays", pytest.param("dataset", marks=OTHERS)])
def test_a_process_that_waits_takes_the_place_of_each_member_and_the_bits_are_those_of_no_loss(
    three: st.Pool, fit: Fit, tmp_path: Path, feed: str
) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    whole, expected, _ = trained(three, fit, tmp_path / "whole", feed, [], 0)
    assert not whole.restarts
    result, members, processes = trained(three, fit, tmp_path / "broken", feed, [1, 0], 1)
    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (1, True, 0),
        (0, True, 0),
    ], [restart.cause for restart in result.restarts]
    assert processes >= 4, "the two processes that took places"
    for (variables, facts), (expected_variables, expected_facts) in zip(members, expected, strict=True):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert not fit.traces or facts["traces"] == 1, "no process traces its step a second time"
        assert facts["history"] == expected_facts["history"]
    survivors = {(tmp_path / "broken" / "notes" / f"held-1-{rank}").read_text() for rank in (0, 1)}
    assert str(members[1][1]["pid"]) in survivors, "the first process that waited trains to the end"


@pytest.mark.all(
    case="a process that waits, with a function that has read its rank",
    covered_by="one that waits for any rank; `unit/state/test_standbys`",
)
@each_fit
def test_a_process_with_a_function_that_has_read_its_rank_takes_the_place_of_that_rank_alone(
    three: st.Pool, fit: Fit, tmp_path: Path
) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    _, expected, _ = trained(three, fit, tmp_path / "whole", "rank", [], 0)
    result, members, _ = trained(three, fit, tmp_path / "broken", "rank", [1, 0], 1)
    assert [(restart.rank, restart.healed, restart.steps_lost) for restart in result.restarts] == [
        (1, True, 0),
        (0, True, 0),
    ], [restart.cause for restart in result.restarts]
    for (variables, facts), (expected_variables, _) in zip(members, expected, strict=True):
        assert not [name for name in variables if variables[name] != expected_variables[name]]
        assert not fit.traces or facts["traces"] == 1
    notes = tmp_path / "broken" / "notes"
    pid = (notes / "held-1-1").read_text()
    assert (notes / f"rank-1-{pid}").exists(), "the process that has waited for rank 1 trains in its place"
    ranks_read = sorted(path.name.split("-")[1] for path in notes.glob("rank-*"))
    assert ranks_read.count("0") == 2, "the chief, and the process that took its place: it started after the loss"
