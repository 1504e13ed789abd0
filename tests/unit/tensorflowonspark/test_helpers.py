"""`gpu_info` and `util`: the GPUs of a slot, and what the original's helpers return."""

import socket
from pathlib import Path

import pytest

from sparktrain.errors import ResourceError, SpecError
from sparktrain.tensorflowonspark import gpu_info, util


def test_the_gpus_are_those_of_the_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_info, "gpus_here", lambda: ("2", "5"))
    assert gpu_info.is_gpu_available()
    assert gpu_info.get_gpus() == "2"
    assert gpu_info.get_gpus(2, 1) == "2,5"
    assert gpu_info.get_gpus(2, format=gpu_info.AS_LIST) == ["2", "5"]
    with pytest.raises(ResourceError, match=r"get_gpus\(3\) wants more GPUs than this process has \(2\)"):
        gpu_info.get_gpus(3)
    with pytest.raises(SpecError, match=r"format is 'tuple'.*; pass 'string' or 'list'"):
        gpu_info.get_gpus(format="tuple")


@pytest.mark.parametrize(("gpus", "wanted", "seen"), [((), 1, ""), (("3",), 0, ""), (("3", "4"), 1, "3")])
def test_tensorflow_sees_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, gpus: tuple[str, ...], wanted: int, seen: str
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(gpu_info, "gpus_here", lambda: gpus)
    monkeypatch.setattr(util, "show_alone", shown.append)
    util.single_node_env(wanted, worker_index=1, nodes=["a:1", "b:2"])
    assert shown == [seen]


def test_the_address_is_one_of_this_host() -> None:
    with socket.socket() as probe:
        probe.bind((util.get_ip_address(), 0))


def test_a_file_is_found_in_the_first_folder_that_has_it(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "python").mkdir()
    (tmp_path / "two" / "python").touch()
    assert util.find_in_path(f"{tmp_path}/one:{tmp_path}/two", "python") == f"{tmp_path}/two/python"
    assert util.find_in_path(str(tmp_path / "one"), "python") is False


def test_files_with_the_number_of_an_executor_are_gone() -> None:
    with pytest.raises(AttributeError, match=r"util\.read_executor_id is gone: a member knows its number"):
        util.read_executor_id  # noqa: B018
    with pytest.raises(AttributeError, match=r"tensorflowonspark\.util has no attribute 'nothing'"):
        util.nothing  # noqa: B018
