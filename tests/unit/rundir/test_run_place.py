"""Whether the directory of a run is the one that a file in it was written in, or a copy of it."""

import pytest

from sparktrain.rundir.run_place import RunPlace

HERE = RunPlace("/runs/s", "8-77")


@pytest.mark.parametrize(
    ("before", "now", "is_still", "is_elsewhere"),
    [
        (HERE, RunPlace("/link/t", "8-77"), True, False),
        (HERE, RunPlace("/runs/t", "8-78"), False, True),
        (HERE, RunPlace("/runs/s", "8-78"), False, False),  # a copy in its place, or a store that has moved
        (HERE, RunPlace("/runs/s", "9-77"), True, False),  # after a restart of the host
        (HERE, RunPlace("/mnt/s", "9-77"), False, False),  # on another host
        (RunPlace("s3://a/s"), RunPlace("s3://a/s"), True, False),
        (RunPlace("s3://a/s"), RunPlace("s3://b/s"), False, True),
        (RunPlace("hdfs://one:8020/a/s"), RunPlace("webhdfs://two/a/s"), True, False),
        (RunPlace("hdfs://one:8020/a/s"), RunPlace("hdfs://one/b/s"), False, True),
        (RunPlace(), HERE, False, False),  # of an older version
    ],
)
def test_places(before: RunPlace, now: RunPlace, is_still: bool, is_elsewhere: bool) -> None:
    assert (before.is_still(now), before.is_elsewhere(now)) == (is_still, is_elsewhere)
