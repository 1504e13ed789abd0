"""Calls with a timeout, and the threads that run them."""

from threading import Event, current_thread

import pytest

from sparktrain.store.call_timeout import OverdueError, SpareThreads


def test_a_call_returns_or_raises_its_outcome() -> None:
    threads = SpareThreads()
    assert threads.run(lambda: 5, 10.0) == 5
    with pytest.raises(ZeroDivisionError):
        threads.run(lambda: 1 // 0, 10.0)


def test_a_thread_is_reused() -> None:
    threads = SpareThreads()
    first = threads.run(current_thread, 10.0)
    for _ in range(100):
        assert first.daemon
        if threads.run(current_thread, 10.0) is first:
            return
    pytest.fail("each call has run on a new thread")


def test_a_call_that_hangs_is_abandoned() -> None:
    threads, released, ended = SpareThreads(), Event(), Event()

    def hang() -> None:
        released.wait(30.0)
        ended.set()

    with pytest.raises(OverdueError, match=r"no answer within 0\.01 s"):
        threads.run(hang, 0.01)
    assert threads.run(lambda: "another", 10.0) == "another"
    released.set()
    assert ended.wait(10.0)


def test_a_call_in_the_background() -> None:
    done = Event()
    SpareThreads().start(done.set)
    assert done.wait(10.0)


def test_at_exit_running_calls_may_finish_and_new_ones_are_refused() -> None:
    threads, released, ended = SpareThreads(), Event(), Event()

    def finish() -> None:
        released.wait(30.0)
        ended.set()

    threads.start(finish)
    threads.start(lambda: released.set() if not ended.wait(0.05) else None)
    threads.end()
    assert ended.is_set()
    with pytest.raises(OverdueError, match="no call is accepted any more: this process is exiting"):
        threads.run(lambda: 5, 10.0)
