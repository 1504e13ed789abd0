"""Threads that are left behind."""

from threading import Event, current_thread

import pytest

from sparktrain.store.call_timeout import OverdueError, SpareThreads


def test_a_call_gives_what_it_returns_or_raises() -> None:
    threads = SpareThreads()
    assert threads.run(lambda: 5, 10.0) == 5
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda: 1 // 0, 10.0)


def test_a_thread_is_used_again() -> None:
    threads = SpareThreads()
    first = threads.run(current_thread, 10.0)
    for _ in range(100):
        assert first.daemon
        if threads.run(current_thread, 10.0) is first:
            return
    pytest.fail("each call has run on a thread of its own")


def test_a_call_that_hangs_is_left_behind() -> None:
    threads, released, ended = SpareThreads(), Event(), Event()

    def hang() -> None:
        released.wait(30.0)
        ended.set()

    with pytest.raises(OverdueError, match=r"no answer within 0\.01 s"):
        threads.run(hang, 0.01)
    assert threads.run(lambda: "another", 10.0) == "another"
    released.set()
    assert ended.wait(10.0)


def test_a_call_that_nobody_waits_for() -> None:
    done = Event()
    SpareThreads().start(done.set)
    assert done.wait(10.0)


def test_at_the_end_calls_have_a_moment_and_further_ones_are_refused() -> None:
    threads, released, ended = SpareThreads(), Event(), Event()

    def finish() -> None:
        released.wait(30.0)
        ended.set()

    threads.start(finish)
    threads.start(lambda: released.set() if not ended.wait(0.05) else None)
    threads.end()
    assert ended.is_set()
    with pytest.raises(OverdueError, match="no call is made any more: this process ends"):
        threads.run(lambda: 5, 10.0)
