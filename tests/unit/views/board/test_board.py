"""What keeps a board from starting, before any process does."""

import socket
import sys
from pathlib import Path

import pytest

from sparktrain.base.optional_packages import check_tensorboard
from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.checked_call import compose
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import SpecError
from sparktrain.search.space import grid
from sparktrain.store.localfs import LocalStore
from sparktrain.views.board.board import Board
from tests.unit.scripted import of_a_script


@of_a_script
def train(x: int) -> float:
    raise NotImplementedError


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)


@pytest.mark.usefixtures("missing")
def test_a_missing_package_is_named_with_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"tensorboard is not installed .* pip install 'sparktrain\[tensorboard\]'"):
        Board.start(LocalStore(tmp_path), "run")


@pytest.mark.usefixtures("missing")
def test_a_run_that_wants_tensorboard_does_not_start_without_it(tmp_path: Path) -> None:
    options = SweepOptions(metric="loss", dir=str(tmp_path), tensorboard=True, preload=[])
    with pytest.raises(SpecError, match="tensorboard is not installed"):
        compose(train, grid(x=[1]), options)
    with pytest.raises(SpecError, match="tensorboard is not installed"):
        compose_again(str(tmp_path / "run"), settled(ResumeKeywords, {"tensorboard": True}))
    assert not list(tmp_path.iterdir())


def test_a_run_that_does_not_want_it_needs_no_package(tmp_path: Path, missing: None) -> None:
    call = compose(train, grid(x=[1]), SweepOptions(metric="loss", dir=str(tmp_path), preload=[]))
    assert not call.observers.tensorboard


@pytest.mark.parametrize("value", ["abc", "-1", "65536"])
def test_a_port_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("TENSORBOARD_PORT", value)
    with pytest.raises(SpecError, match=rf"TENSORBOARD_PORT \('?{value}'?\) must be a port below 65536"):
        Board.start(LocalStore(tmp_path), "run")


def test_a_port_that_another_process_has_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORBOARD_PORT", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SpecError, match=rf"port \({port}\) cannot be had on 127.0.0.1: .*choose another"):
            Board.start(LocalStore(tmp_path), "run", port=port)


def test_the_package_is_part_of_this_environment() -> None:
    check_tensorboard()
