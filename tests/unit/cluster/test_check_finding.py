"""A finding keeps the words of an error, its next step apart."""

import pytest

from sparktrain.cluster.check_finding import Level, failed, of_message, passed, warned, worst

MESSAGES = [
    ("agents (5) exceeds the 2 slots (yarn): lower it, or give more", "agents (5) exceeds the 2 slots (yarn)",
     "lower it, or give more"),
    ("it cannot be written: denied; ask its owner", "it cannot be written: denied", "ask its owner"),
    ("the quota is full: free some (HDFS charges a block; it shows: -q)", "the quota is full",
     "free some (HDFS charges a block; it shows: -q)"),
    ("spark://host:7077 is gone", "spark://host:7077 is gone", ""),
]  # fmt: skip


@pytest.mark.parametrize(("message", "expected", "fix"), MESSAGES)
def test_the_next_step_is_what_follows_the_last_colon_or_semicolon(message: str, expected: str, fix: str) -> None:
    found = of_message("slots", Level.FAIL, message)
    assert (found.check, found.level, found.message, found.fix) == ("slots", Level.FAIL, expected, fix)


def test_the_worst_counts() -> None:
    well, costs, broken = passed("a", "well"), warned("b", "costs", "pay"), failed("c", "broken", "replace")
    assert worst([]) is Level.PASS
    assert worst([well, costs, well]) is Level.WARN
    assert worst([broken, costs, well]) is Level.FAIL
