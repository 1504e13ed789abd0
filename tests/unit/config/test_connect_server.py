"""The names of operations in the tags of Spark's jobs, and the times of a Connect server."""

import pytest

from sparktrain.config.connect_server import ConnectLimits, ConnectOperation, operation_in, seconds_of

SESSION = "a0c84ff6-9ba1-4d51-b7c3-8fbffb64c813"
OPERATION = "126f3811-c512-46d5-86b8-07ff38c15aa5"


@pytest.mark.parametrize("user", ["", "alice", "a_Session_b", "alice@lab.test"])
def test_a_task_knows_its_operation_by_its_tags(user: str) -> None:
    tags = (
        f"SparkConnect_OperationTag_User_{user}_Session_{SESSION}_Operation_{OPERATION},"
        f"SparkConnect_SessionTag_User_{user}_Session_{SESSION}_Tag_sparktrain-x,spark-session-1"
    )
    assert operation_in(tags) == ConnectOperation(user=user, session=SESSION, operation=OPERATION)


def test_a_task_of_a_classic_session_has_none() -> None:
    assert operation_in(None) is None
    assert operation_in("sparktrain-x,spark-session-1-execution-root-id-0") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300000ms", 300.0), ("300000", 300.0), ("5m", 300.0), ("2min", 120.0), ("15s", 15.0), ("30d", 2592000.0),
     ("-1", -1.0), (None, 7.0), ("soon", 7.0), ("3 fortnights", 7.0)],
)  # fmt: skip
def test_times_are_read_as_spark_reads_them(text: str | None, seconds: float) -> None:
    assert seconds_of(text, 7.0) == seconds


@pytest.mark.parametrize("limits", [ConnectLimits(), ConnectLimits(detached_s=15.0), ConnectLimits(session_s=40.0)])
def test_another_process_stands_in_before_half_of_the_time_is_over(limits: ConnectLimits) -> None:
    waits_s = min(limits.detached_s, limits.session_s)
    assert limits.gone_s + limits.touch_s <= waits_s / 2
    assert limits.touch_s <= waits_s / 5
    assert limits.gone_s >= 3 * limits.heartbeat_s, "two heartbeats may be lost"


def test_a_session_without_end_limits_nothing() -> None:
    limits = ConnectLimits(session_s=-1.0)
    assert (limits.left_s, limits.touch_s) == (420.0, 60.0)
    assert ConnectLimits(detached_s=86400.0).left_s == 3600.0
