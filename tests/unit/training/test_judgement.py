"""How long a member waits for what rules make of its report."""

import pytest

from sparktrain.training.judgement import LEAST_S, MOST_S, SHARE, Judgement
from tests.unit.clocks import HandClock


class Judged:
    """A wire that notes for how long it is asked to wait."""

    def __init__(self, rules: bool) -> None:
        self.rules = rules
        self.waits: list[tuple[int, float]] = []

    def judged(self, step: int, timeout_s: float) -> bool | None:
        if timeout_s:
            self.waits.append((step, timeout_s))
        return False if self.rules else None

    def stop_advised(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("took", "since", "wait"),
    [
        (4.0, 0.0, SHARE * 4.0),
        (4.0, 0.25, SHARE * 4.0 - 0.25),
        (400.0, 0.0, MOST_S),
        (400.0, 300.0, None),
        (LEAST_S / 2, 0.0, None),
    ],
)
def test_the_first_look_after_a_report_waits_for_a_part_of_its_step(took: float, since: float, wait: float) -> None:
    clock, wire = HandClock(), Judged(rules=True)
    judgement = Judgement(wire, clock)
    clock.at += took
    assert judgement.reported(7) == (took >= LEAST_S)
    clock.at += since
    assert judgement.stop()
    assert judgement.stop()
    assert wire.waits == ([] if wait is None else [(7, pytest.approx(wait))])


def test_without_rules_there_is_no_wait() -> None:
    clock, wire = HandClock(), Judged(rules=False)
    judgement = Judgement(wire, clock)
    clock.at += 60.0
    assert not judgement.reported(7)
    assert judgement.stop()
    assert wire.waits == []
