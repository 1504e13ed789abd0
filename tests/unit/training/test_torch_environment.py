"""The environment of torchrun that a member of a gang of PyTorch has."""

import os
import sys
from types import SimpleNamespace

import pytest

from sparktrain.config.gang_spec import Role
from sparktrain.errors import FormError
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.training.frameworks.torch.torch_environment import enter, environment, on_rank_read

PLACES = tuple(
    MemberAddress(host, address, 4000 + rank, Role.WORKER if rank else Role.CHIEF)
    for rank, (host, address) in enumerate([("a", "127.0.0.1"), ("b", "10.1.0.2"), ("a", "127.0.0.1")])
)


def test_a_member_finds_the_store_of_rank_0_and_its_place() -> None:
    values = environment(Formation(2, PLACES), 3, {})
    assert {name: value for name, value in values.items() if not name.endswith("_IFNAME")} == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4000",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_RUN_ID": "sparktrain",
    }
    assert values["GLOO_SOCKET_IFNAME"] == values["NCCL_SOCKET_IFNAME"] == "lo"


def test_lightning_that_a_zygote_has_imported_has_the_rank_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    rank_zero_only = SimpleNamespace(rank=0)
    monkeypatch.setitem(
        sys.modules, "lightning_utilities.core.rank_zero", SimpleNamespace(rank_zero_only=rank_zero_only)
    )
    monkeypatch.setattr(os, "environ", environ := dict(os.environ))
    enter(Formation(2, PLACES), 1)
    assert rank_zero_only.rank == 2
    assert environ["RANK"] == "2"


def test_pods_of_a_node_are_groups_of_their_own() -> None:
    addresses = ("127.0.0.1", "10.1.0.2", "127.0.0.1")
    places = tuple(MemberAddress("node-a", address, 4000, Role.WORKER) for address in addresses)
    values = environment(Formation(2, places), 1, {})
    assert [values[name] for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")] == list(
        "1202"
    )


@pytest.mark.parametrize(
    ("devices", "local_rank", "local_size"), [("GPU-7", "0", "1"), ("0,1", "1", "2"), ("", "1", "2"), (" , ", "1", "2")]
)
def test_a_member_that_sees_its_own_gpu_alone_is_the_first_there(
    devices: str, local_rank: str, local_size: str
) -> None:
    values = environment(Formation(2, PLACES), 1, {"CUDA_VISIBLE_DEVICES": devices})
    assert (values["LOCAL_RANK"], values["LOCAL_WORLD_SIZE"]) == (local_rank, local_size)


def test_the_interfaces_that_the_user_has_chosen_stay() -> None:
    values = environment(Formation(0, PLACES), 1, {"GLOO_SOCKET_IFNAME": "ib0"})
    assert "GLOO_SOCKET_IFNAME" not in values
    assert values["NCCL_SOCKET_IFNAME"] == "lo"


def test_an_address_that_no_interface_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.net_if_addrs", dict)
    with pytest.raises(FormError, match="rank 1 on b: no network interface of this host has the address "):
        environment(Formation(1, PLACES), 1, {})


def test_who_reads_a_rank_is_noted_until_the_process_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    reads: list[int] = []
    on_rank_read(lambda: reads.append(1))
    try:
        os.environ.update({"LOCAL_RANK": "0"})
        assert os.environ["PATH"] == os.getenv("PATH")
        assert not reads
        assert os.environ["RANK"] == "1"
        assert os.environ.get("LOCAL_RANK", "5") == "0"
        assert os.getenv("GROUP_RANK") is None
        assert len(reads) == 3
        assert os.environ.copy()["RANK"] == "1"
        assert len(reads) > 3
    finally:
        on_rank_read(None)
        os.environ.pop("LOCAL_RANK")
    reads.clear()
    assert os.environ["RANK"] == "1"
    assert not reads
