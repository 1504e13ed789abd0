"""The steps of a gang as text, and as a trace for Perfetto."""

from typing import Any

import pytest

from sparktrain.base.ids import Rank
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.step_file import StepFile, decoded, encoded
from sparktrain.runs.steps.step_lines import step_lines, step_time
from sparktrain.runs.steps.step_trace import same_steps, trace_of
from sparktrain.state.gangs.step_times import GangTimes, SlowCause, SlowMember, StepTimes

MS = 1_000_000
HOSTS = ("host-a", "host-b")


def content(clock_ns: int, work_ns: int) -> StepFile:
    """Ten steps of 100 ms by a clock of their own, in which the member works for `work_ns`."""
    ends = [clock_ns + number * 100 * MS for number in range(11)]
    steps = [(number, end, 5 * MS) for number, end in enumerate(ends)]
    calls = [(end - 100 * MS + work_ns, end) for end in ends]
    [part] = decoded(encoded(StepFile(list(steps), list(calls))), "steps.msgpack")
    return part


def shown(trace: dict[str, Any], rank: int, track: int) -> list[tuple[str, float, float]]:
    """Name, start and length in milliseconds of the events of one track."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    return [
        (event["name"], event["ts"] / 1000, event["dur"] / 1000)
        for event in events
        if (event["pid"], event["tid"]) == (rank, track)
    ]


def test_a_trace_has_the_last_steps_of_all_ranks_by_one_clock() -> None:
    trace = trace_of({Rank(0): content(7, 60 * MS), Rank(1): content(10**15, 98 * MS)}, HOSTS, last=2)
    for rank in (0, 1):
        assert shown(trace, rank, 0) == [("step 9", 0.0, 100.0), ("step 10", 100.0, 100.0)]
        assert shown(trace, rank, 2) == [("data", 0.0, 5.0), ("data", 100.0, 5.0)]
    assert shown(trace, 0, 1) == [("collective", 60.0, 40.0), ("collective", 160.0, 40.0)]
    assert shown(trace, 1, 1) == [("collective", 98.0, 2.0), ("collective", 198.0, 2.0)]
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert names == ["rank 0 on host-a", "rank 1 on host-b"]


def test_a_trace_of_more_steps_than_there_are_has_all() -> None:
    trace = trace_of({Rank(1): content(7, 60 * MS)}, (), last=1000)
    assert len(shown(trace, 1, 0)) == 10


def test_another_file_is_refused() -> None:
    with pytest.raises(RunDirectoryError, match=r"^run/steps has no times of steps .*: remove it"):
        decoded(b"\0\0\0\1\x01", "run/steps")


def test_a_file_that_grows_has_its_whole_parts() -> None:
    part = encoded(content(7, 60 * MS))
    for length in (0, 3, 4, len(part) - 1):
        assert decoded(part[:length], "run/steps") == []
        assert decoded(part + part[:length], "run/steps") == [content(7, 60 * MS)]


def test_members_that_train_are_shown_to_the_same_step() -> None:
    def parts(*ends: int) -> list[StepFile]:
        return [StepFile([(end - 1, end), (end, end)], []) for end in ends]

    running = same_steps({Rank(0): parts(32, 64, 96, 128), Rank(1): parts(64, 128, 160)})
    assert {rank: part.steps[-1][0] for rank, part in running.items()} == {0: 128, 1: 128}
    apart = same_steps({Rank(0): parts(32, 96), Rank(1): parts(64)})
    assert {rank: part.steps[-1][0] for rank, part in apart.items()} == {0: 96, 1: 64}


def test_the_lines_of_a_gang() -> None:
    slow = SlowMember(1, 0.112, 0.1, SlowCause.COMPUTE)
    times = GangTimes((StepTimes(0.1, 0.014, 0.0), StepTimes(0.105, 0.0021, 0.007)), slow)
    assert step_lines(times, HOSTS) == [
        "rank 0 on host-a: computes 100 ms, waits for the others 14 ms, waits for data 0 ms",
        "rank 1 on host-b: computes 105 ms, waits for the others 2.1 ms, waits for data 7.0 ms",
        "rank 1 on host-b is slow: its steps take 112 ms, those of the others 100 ms; it computes longer",
    ]
    lines = step_lines(GangTimes((StepTimes(0.1),) * 20), ())
    assert lines[15].startswith("rank 15: computes 100 ms")
    assert lines[16:] == ["and 4 more members"]
    assert step_time(12.34) == "12.3 s"
    quota = GangTimes(times.members, SlowMember(1, 0.112, 0.1, SlowCause.QUOTA))
    assert step_lines(quota, HOSTS)[-1].endswith("; it computes longer, because a CPU quota stops it")
    lossy = GangTimes((StepTimes(0.1, 0.1, resent=0.025), StepTimes(0.1, 0.1)))
    assert step_lines(lossy, HOSTS)[-1] == (
        "rank 0 on host-a sends 2.5 % of its TCP segments again, and all members wait long for each other: its network "
        "loses packets"
    )
