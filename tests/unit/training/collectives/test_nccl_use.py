"""All members decide alike whether they reduce by NCCL: each needs a GPU of its own."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.training.collectives import gpu_identity
from sparktrain.training.collectives.gpu_identity import each_has_its_own, gpu_uuid, pop_uuids

UUID = bytes(range(16))


@pytest.mark.parametrize(
    ("uuids", "size", "by_nccl"),
    [
        ([b"a", b"b"], 2, True),
        ([b"a", b"a"], 2, False),
        ([b"a"], 2, False),
        ([], 2, False),
        ([b"a", b"b", b"c"], 3, True),
        ([b"a", b"b", b"a"], 3, False),
        ([b"a", b""], 2, False),
    ],
)
def test_each_member_needs_a_gpu_of_its_own(uuids: list[bytes], size: int, by_nccl: bool) -> None:
    assert each_has_its_own(uuids, size) is by_nccl


def test_what_members_share_about_gpus_does_not_reach_the_rendezvous() -> None:
    shared = {"gpu/1": b"b", "1/global/key": b"value"}
    assert sorted(pop_uuids(shared, {"gpu/0": b"a"})) == [b"a", b"b"]
    assert shared == {"1/global/key": b"value"}
    assert pop_uuids({"gpu/1": b"b"}, {}) == [b"b"], "also in a member without NCCL"


class Driver(SimpleNamespace):
    """libcuda of a machine: calls return `status`."""

    def __init__(self, status: int, devices: int = 1) -> None:
        super().__init__()
        self.cuInit = lambda flags: status
        self.cuDeviceGet = lambda device, number: 0 if devices else 101
        self.cuDeviceGetUuid = self._uuid

    def _uuid(self, into: Any, device: Any) -> int:
        ctypes.memmove(into, UUID, len(UUID))
        return 0


@pytest.mark.parametrize(
    ("driver", "uuid"),
    [(Driver(0), UUID), (Driver(100), b""), (Driver(0, devices=0), b"")],
    ids=["one", "broken", "none"],
)
def test_the_gpu_is_known_by_its_uuid(monkeypatch: pytest.MonkeyPatch, driver: Driver, uuid: bytes) -> None:
    monkeypatch.setattr(gpu_identity.ctypes, "CDLL", lambda name: driver)
    assert gpu_uuid() == uuid


def test_a_machine_without_a_driver_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(gpu_identity.ctypes, "CDLL", missing)
    assert gpu_uuid() == b""
