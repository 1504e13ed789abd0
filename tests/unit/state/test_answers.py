"""Questions of training functions for the sampler, and trials that their function has ended."""

import pytest

from sparktrain.base.ids import AgentId, TrialId
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.outcome import EndedEarly, Outcome
from sparktrain.state.records import RungReached, TrialAnswered, TrialConcluded
from sparktrain.state.recovery import compacted, fold
from sparktrain.state.sweep import Sweep
from sparktrain.state.trial import Trial, TrialStatus
from tests.support.limits import run_limits
from tests.unit.state.world import RUN, World

END = EndedEarly(3, 0.25, "stopped at step 3: value 0.25 (MedianPruner)")


@pytest.fixture
def world() -> World:
    """A run with one trial that is in its training function."""
    made = World(cases=1)
    made.begin()
    agent = made.join("a")
    made.suggest()
    made.enter(agent)
    return made


A = AgentId("a")


def trial(world: World) -> Trial:
    assert world.machine.last is not None
    return world.machine.last.trials[TrialId(0)]


def folded(world: World) -> Trial:
    """The trial as another driver finds it."""
    sweep = Sweep(RUN, run_limits(), 0.0)
    fold(sweep, compacted(world.records))
    return sweep.trials[TrialId(0)]


def test_an_answer_is_a_record_before_the_member_has_it(world: World) -> None:
    member = world.running[A]
    asked = world.receive(A, m.MemberAsked(member, 1, b"?"))
    assert asked == [do.AskSampler(A, member, 1, b"?")]
    answered = on.QuestionAnswered(0.0, A, member, 1, b"!", params={"lr": 0.5}, memo={"note": 1})
    assert world.feed(answered) == [do.Send(A, m.AnswerMember(member, 1, b"!"), durable=True)]
    assert isinstance(world.records[-1], TrialAnswered)
    assert trial(world).params == {"x": 0, "lr": 0.5}
    assert folded(world).params == {"x": 0, "lr": 0.5}
    added = next(
        record for record in world.records if not isinstance(record, TrialAnswered) and hasattr(record, "cases")
    )
    assert added.cases == ({"x": 0},)


def test_an_answer_without_parameters_waits_for_no_record(world: World) -> None:
    member, before = world.running[A], len(world.records)
    found = world.feed(on.QuestionAnswered(0.0, A, member, 2, b"", "ValueError: no"))
    assert found == [do.Send(A, m.AnswerMember(member, 2, b"", "ValueError: no"))]
    assert len(world.records) == before


def test_a_lost_member_gets_no_answer_and_its_next_generation_has_the_parameter(world: World) -> None:
    member = world.running[A]
    world.lose(A)
    found = world.feed(on.QuestionAnswered(0.0, A, member, 1, b"!", params={"lr": 0.5}))
    assert not any(isinstance(each, do.Send) for each in found)
    world.join("b")
    [placed] = [each for each in world.commands if isinstance(each, do.PlaceMember) and each.agent == "b"]
    assert placed.params == {"x": 0, "lr": 0.5}


def test_a_question_of_an_older_generation_is_refused(world: World) -> None:
    member = world.running[A]
    world.lose(A)
    world.join("b")
    assert [type(each) for each in world.receive(AgentId("b"), m.MemberAsked(member, 1, b"?"))] == [do.Refused]


def test_a_trial_that_its_function_has_ended_is_pruned_with_the_reason(world: World) -> None:
    world.end(A, Outcome(1.0, metrics={}, pruned=END))
    assert trial(world).status is TrialStatus.PRUNED
    kinds = [type(record) for record in world.records]
    assert kinds.index(RungReached) < kinds.index(TrialConcluded)
    again = folded(world)
    assert (again.status, again.pruning) == (TrialStatus.PRUNED, (3, 0.25, END.reason))


def test_an_answer_after_the_end_of_the_trial_is_dropped(world: World) -> None:
    member = world.running[A]
    world.succeed(A)
    assert not any(
        isinstance(each, do.Send) for each in world.feed(on.QuestionAnswered(0.0, A, member, 1, b"!", params={"y": 1}))
    )
    assert trial(world).params == {"x": 0}
