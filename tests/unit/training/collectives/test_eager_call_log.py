"""The log of collectives that run eagerly: what members compare."""

from sparktrain.training.collectives.eager_call_log import CLOSING, LOGGED_CALLS, EagerCallLog


def test_equal_collectives_have_equal_keys_and_others_have_not() -> None:
    logs = [EagerCallLog(), EagerCallLog()]
    for log, shape in zip(logs, ("float32[3]", "float32[4]"), strict=True):
        log.note("allreduce", "value", ("int64[1]",))
        log.note("allreduce", "value", (shape,))
    one, two = (log.newest() for log in logs)
    assert one[0] == two[0]
    assert one[1].key != two[1].key
    assert one[1].shown == "allreduce 'value' of float32[3]"


def test_a_member_that_has_returned_calls_none() -> None:
    log = EagerCallLog()
    log.note(CLOSING, CLOSING, ())
    assert log.newest()[0].shown == "none, for its function has returned"


def test_the_log_keeps_the_newest_calls() -> None:
    log = EagerCallLog()
    for number in range(LOGGED_CALLS + 5):
        log.note("broadcast", str(number), ())
    assert [*log.newest()] == [*range(5, LOGGED_CALLS + 5)]
