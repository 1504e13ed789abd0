"""A run ends early when its first trials all fail in the same way, or when as many fail as it may have."""

import pytest

from sparktrain.base.ids import AgentId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state.ending import Ending
from sparktrain.state.failure_limits import alike
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.training.metrics import read_result
from tests.unit.state.test_recovery import successor
from tests.unit.state.world import World

TRACE = 'Traceback (most recent call last):\n  File "train.py", line {line}, in train\n    build()\n{error}'


def raised(error: str, line: int = 7) -> Failure:
    return Failure(FailureKind.EXCEPTION, error, TRACE.format(line=line, error=error))


@pytest.fixture
def world() -> World:
    return World(cases=30)


def begin(world: World, agents: int = 2, **limits: object) -> list[AgentId]:
    world.begin(agents=agents, lookahead=2, **{"alike_failures": 4, "total": 30, **limits})
    names = [world.join(f"a{index}") for index in range(agents)]
    world.suggest()
    return names


def fail(world: World, agent: AgentId, failure: Failure) -> None:
    world.enter(agent)
    world.end(agent, Outcome(1.0, failure=failure))
    world.suggest()


# ---- in the same way


@pytest.mark.parametrize(
    "failures",
    [
        [raised("ValueError: no layer 3"), raised("ValueError: no layer 17")],
        [raised("KeyError: 'relu'"), raised("KeyError: 'tanh'")],
        [raised("NameError: name 'np' is not defined", 3), raised("NameError: name 'np' is not defined", 4)],
        [Failure(FailureKind.EXIT, "exited with code 3"), Failure(FailureKind.EXIT, "exited with code 4")],
        [read_result({"acc": 1.0}, "accuracy"), read_result({"acc": 2}, "accuracy")],
        [read_result({"acc": 1.0}, "accuracy"), read_result({"loss": 2}, "accuracy")],
        [read_result({"accuracy": "a"}, "accuracy"), read_result({"accuracy": None}, "accuracy")],
        [read_result("text", "accuracy"), read_result(None, "accuracy")],
    ],
)  # fmt: skip
def test_the_same_line_or_the_same_words_are_one_way(failures: list[Failure]) -> None:
    assert alike(failures)


@pytest.mark.parametrize(
    "failures",
    [
        [raised("ValueError: a"), raised("TypeError: a")],
        [raised("ValueError: a", 3), raised("ValueError: b", 4)],
        [Failure(FailureKind.EXCEPTION, "ValueError: a"), Failure(FailureKind.EXCEPTION, "ValueError: b")],
        [raised("x"), Failure(FailureKind.EXIT, "x")],
        [read_result(float("nan"), "accuracy")] * 2,
        [Failure(FailureKind.MEMORY, "killed")] * 2,
        [Failure(FailureKind.TIMEOUT, "ran longer")] * 2,
    ],
)
def test_others_are_not_and_neither_is_what_other_values_may_mend(failures: list[Failure]) -> None:
    assert not alike(failures)


# ---- auto


def test_a_run_ends_when_the_first_trials_fail_alike_and_says_what_is_left(world: World) -> None:
    first, second = begin(world)
    for agent in (first, second, first):
        fail(world, agent, raised("NameError: name 'np' is not defined"))
        assert not world.machine.sweep.stop
    fail(world, second, raised("NameError: name 'np' is not defined"))
    assert world.machine.sweep.stop
    world.enter(first)
    assert do.Send(first, m.Advise(world.running[first])) in world.commands
    world.tick(5.0)
    world.fail(first, FailureKind.STOPPED)
    [end] = world.all(do.EndRun)
    assert end.ending == Ending.FAILING
    assert end.reason == (
        "the first 4 trials failed alike, with: NameError: name 'np' is not defined; 26 of 30 trials have no result. "
        "Fix the function and call it again under this name with retry_failed=True, allow_changed='code' "
        "(--retry-failed --allow-changed code), or continue as it is with max_failures=None (--max-failures none)"
    )
    statuses = [trial.status for trial in world.machine.last.trials.values()]
    assert statuses[:4] == ["failed"] * 4
    assert set(statuses[4:]) == {"stopped"}


def test_one_that_succeeds_or_fails_otherwise_keeps_the_run_going(world: World) -> None:
    for outcome in (Outcome(1.0, metrics={"accuracy": 0.5}), Outcome(1.0, failure=raised("OSError: gone"))):
        world = World(cases=30)
        [agent] = begin(world, 1)
        world.enter(agent)
        world.end(agent, outcome)
        world.suggest()
        for _ in range(9):
            fail(world, agent, raised("ValueError: a"))
        assert not world.machine.sweep.stop


def test_one_of_the_first_that_is_still_training_keeps_the_run_going(world: World) -> None:
    first, second = begin(world)
    world.enter(first)
    for _ in range(9):
        fail(world, second, raised("ValueError: a"))
    assert not world.machine.sweep.stop
    world.succeed(first)
    world.suggest()
    fail(world, second, raised("ValueError: a"))
    assert not world.machine.sweep.stop


def test_one_that_is_lost_is_none_of_the_first(world: World) -> None:
    [agent] = begin(world, 1, max_retries=0)
    world.enter(agent)
    world.fail(agent, FailureKind.LOST)
    world.suggest()
    for _ in range(4):
        assert not world.machine.sweep.stop
        fail(world, agent, raised("ValueError: a"))
    assert world.machine.last.stop


def test_a_run_whose_last_trials_fail_is_complete(world: World) -> None:
    world.cases = 4
    [agent] = begin(world, 1, total=4)
    for _ in range(4):
        fail(world, agent, raised("ValueError: a"))
    assert [end.ending for end in world.all(do.EndRun)] == [Ending.COMPLETE]


def test_without_a_limit_all_trials_run(world: World) -> None:
    [agent] = begin(world, 1, alike_failures=None)
    for _ in range(30):
        fail(world, agent, raised("ValueError: a"))
    assert [end.ending for end in world.all(do.EndRun)] == [Ending.COMPLETE]


# ---- a number


def test_as_many_as_may_fail_end_the_run_however_they_fail(world: World) -> None:
    [agent] = begin(world, 1, alike_failures=None, max_failures=3)
    fail(world, agent, raised("ValueError: a"))
    world.enter(agent)
    world.succeed(agent)
    world.suggest()
    fail(world, agent, raised("OSError: b", 4))
    assert not world.machine.sweep.stop
    fail(world, agent, Failure(FailureKind.TIMEOUT, "ran longer"))
    [end] = world.all(do.EndRun)
    assert end.ending == Ending.FAILING
    assert end.reason.startswith("3 trials failed (max_failures=3), the last with: ran longer; 26 of 30 trials have no")


# ---- the next driver


def test_a_driver_that_goes_on_counts_anew_and_knows_what_has_succeeded(world: World) -> None:
    [agent] = begin(world, 1)
    for _ in range(4):
        fail(world, agent, raised("ValueError: a"))
    new = successor(world, alike_failures=4)
    assert new.machine.sweep is not None
    again = new.join("b")
    new.suggest()
    for _ in range(3):
        fail(new, again, raised("ValueError: a"))
        assert not new.machine.sweep.stop
    new.enter(again)
    new.succeed(again)
    third = successor(new, alike_failures=2)
    last = third.join("c")
    third.suggest()
    for _ in range(5):
        fail(third, last, raised("ValueError: a"))
    assert not third.machine.sweep.stop
