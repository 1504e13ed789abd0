"""What an agent reports about its checkpoints leads the driver to no file but those of its own trial and generation."""

from unittest.mock import patch

import pytest

from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.protocol import messages as m
from sparktrain.protocol.transport import Link
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.outcome import Report
from sparktrain.state.records import CheckpointAcknowledged
from tests.unit.driver import drivers
from tests.unit.driver.drivers import NAME, Driver, World, outcome, play, prepared, whole

VICTIMS = (
    "other-run/trials/0000/checkpoints/gen-0001/manifest-00000001",
    f"{NAME}/trials/0001/checkpoints/gen-0001/manifest-00000001",
    f"{NAME}/trials/0000/checkpoints/gen-0007/manifest-00000001",
    f"{NAME}/../other-run/run.json",
    "../outside",
    "/etc/hostname",
    "",
)


class Rogue(drivers.Agent):
    """Claims checkpoints of three steps, which lie where it wants; the first is deleted when the third counts."""

    path = ""
    digest = "0" * 64
    first = 1

    def _obey(self, link: Link, message: m.Message) -> None:
        if not isinstance(message, m.StartMember) or message.member.trial != 0:
            super()._obey(link, message)
            return
        member = message.member
        link.post(m.MemberStarted(member, 0))
        for step in range(self.first, self.first + 3):
            claimed = Checkpoint(member.generation, step, self.path, self.digest)
            link.post(m.CheckpointStored(member, claimed))
        link.post(m.MemberReported(member, (Report(1, {"y": 0.0}),)))
        link.post(m.MemberEnded(member, outcome(0)))
        link.post(m.MemberStored(member))


def acknowledged(world: World) -> list[str]:
    return [each.checkpoint.manifest for each in world.records() if isinstance(each, CheckpointAcknowledged)]


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_claimed_path_is_neither_deleted_nor_kept(victim: str) -> None:
    world, run = World(), prepared(2)
    files = {path: b"precious" for path in VICTIMS if path and ".." not in path and not path.startswith("/")}
    world.store.files.update(files)
    with patch.object(drivers, "Agent", type("Liar", (Rogue,), {"path": victim})):
        ran = play(Driver(world, run, whole, agents=1).run())
    assert [trial.metrics for trial in ran.trials] == [{"y": 0.0}, {"y": 1.0}]
    place = RunLayout(NAME).generation(TrialId(0), Generation(1))
    assert set(acknowledged(world)) == {place.manifest(step) for step in (1, 2, 3)}
    assert {path: world.store.files.get(path) for path in files} == files


@pytest.mark.parametrize("claim", [{"digest": "../../elsewhere"}, {"digest": "0" * 63}, {"first": -5}])
def test_a_claim_that_no_checkpoint_can_have_counts_for_nothing(claim: dict[str, object]) -> None:
    world, run = World(), prepared(1)
    with patch.object(drivers, "Agent", type("Liar", (Rogue,), claim)):
        ran = play(Driver(world, run, whole, agents=1).run())
    assert [trial.metrics for trial in ran.trials] == [{"y": 0.0}]
    assert acknowledged(world) == []


class Thief(drivers.Agent):
    """Claims checkpoints of a trial that another agent has."""

    def _obey(self, link: Link, message: m.Message) -> None:
        if isinstance(message, m.StartMember):
            for trial in (0, 1):
                member = Member(RunId(NAME), TrialId(trial), message.member.generation)
                if member != message.member:
                    link.post(m.CheckpointStored(member, Checkpoint(member.generation, 9, "", Rogue.digest)))
        super()._obey(link, message)


def test_a_checkpoint_of_another_agents_trial_counts_for_nothing() -> None:
    world, run = World(), prepared(2)
    with patch.object(drivers, "Agent", Thief):
        play(Driver(world, run, whole, agents=2).run())
    assert acknowledged(world) == []
