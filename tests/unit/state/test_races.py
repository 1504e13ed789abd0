"""Racing in whole runs: which cases are closed, against what follows from the ends of trials alone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparktrain.state import commands as do
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.records import AnyRecord, CaseClosed, GangFormed, TrialConcluded
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World

CASES = 4
losses = st.none() | st.sampled_from([0.0, 1.0, 2.0, 3.0, 8.0, 9.0])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def hopeless(size: int, ended: dict[int, float | None]) -> set[int]:
    """The cases with trials left that can no longer win, of at most four trials, where no test is made.

    `ended` has the loss of each trial that has ended by itself; None of failed ones.
    """
    known = {trial: loss for trial, loss in ended.items() if loss is not None}
    of_case = [{place: known.get(case * size + place) for place in range(size)} for case in range(CASES)]
    whole = [case for case in range(CASES) if all(case * size + place in ended for place in range(size))]
    measured = {case: [value for value in of_case[case].values() if value is not None] for case in whole}
    ranked = sorted((mean(values), case) for case, values in measured.items() if values)
    if not ranked:
        return set()
    best = of_case[ranked[0][1]]
    found = set()
    for case in set(range(CASES)) - set(whole):
        mine = [value for value in of_case[case].values() if value is not None]
        pairs = [(value, best[place]) for place, value in of_case[case].items() if value is not None]
        compared = [(one, other) for one, other in pairs if other is not None]
        left = sum(case * size + place not in ended for place in range(size))
        if len(compared) >= 2 and all(one > other for one, other in compared):
            reachable = (sum(mine) + left * min(known.values())) / (len(mine) + left)
            if reachable > ranked[0][0]:
                found.add(case)
    return found


def check(size: int, records: list[AnyRecord]) -> None:
    """Each decision follows from the ends before it, and comes before the next start of a trial."""
    ended: dict[int, float | None] = {}
    closed: set[int] = set()
    for record in records:
        match record:
            case CaseClosed(case=case):
                assert case not in closed, "it is closed once"
                assert case in hopeless(size, ended), f"case {case} could still win"
                closed.add(case)
            case GangFormed(trial=trial):
                assert trial // size not in closed, "a trial of a closed case starts"
                assert trial // size not in hopeless(size, ended), f"case {trial // size} cannot win, and continues"
            case TrialConcluded(trial=trial, status=status, metrics=metrics) if status in ("succeeded", "failed"):
                ended[trial] = metrics.get("loss")


@given(st.integers(2, 4), st.integers(1, 3), st.lists(losses, min_size=16, max_size=16), st.data())
def test_cases_are_closed_once_they_cannot_win(
    size: int, agents: int, values: list[float | None], data: st.DataObject
) -> None:
    """The driver of the run may be lost after each end of a trial."""
    limits: dict[str, Any] = {"metric": "loss", "mode": "min", "repeats": size}
    world, commands = World(cases=CASES), list[do.Command]()
    world.begin(**limits)
    while True:
        for name in "abc"[:agents]:
            world.join(name)
        world.suggest()
        lost = False
        while not lost and not world.all(do.EndRun):
            agent = data.draw(st.sampled_from(sorted(world.running)))
            loss = values[world.running[agent].trial % 16]
            failure = Failure(FailureKind.EXCEPTION, "ValueError") if loss is None else None
            world.enter(agent)
            world.end(agent, Outcome(1.0, metrics=None if loss is None else {"loss": loss}, failure=failure))
            world.suggest()
            lost = data.draw(st.integers(0, 9)) == 0
        commands += world.commands
        if world.all(do.EndRun):
            break
        world = successor(world, **limits)
    check(size, world.records)
    concluded = [each.trial for each in world.records if isinstance(each, TrialConcluded)]
    assert sorted(concluded) == list(range(CASES * size)), "each trial has one end"
    complete = [each.trial // size for each in commands if isinstance(each, do.ConcludeTrial) and not each.partial]
    assert sorted(complete) == list(range(CASES)), "each case is observed once"
