"""A ring of Horovod sums gradients by NCCL where each member has a GPU of its own, and otherwise on hosts."""

import pytest

from tests.training import nccl_members
from tests.training.gangs import run_gang

HOST, GPU = "/device:CPU:0", "/device:GPU:0"


@pytest.mark.parametrize(
    ("uuids", "device"),
    [
        (["GPU-a", "GPU-b"], GPU),
        (["GPU-a", "GPU-a"], HOST),
        (["GPU-a", ""], HOST),
        (["", ""], HOST),
    ],
    ids=["own", "shared", "one-without-nccl", "without-nccl"],
)
def test_gradients_stay_on_gpus_where_each_member_has_its_own(uuids: list[str], device: str) -> None:
    for member in run_gang(nccl_members.joins, 2, "horovod", uuids=uuids):
        assert member["values"] == [[1.0, 2.0], [1], [0.0, 1.0]]
        assert member["on"] == {
            "HorovodGroupedAllreduce float32": device,
            "HorovodGroupedAllreduce int32": HOST,
            "HorovodBroadcast float32": HOST,
        }
