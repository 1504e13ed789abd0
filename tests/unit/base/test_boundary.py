"""Errors of the API end at the user's line."""

import traceback
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

import sparktrain as st
from sparktrain.base.boundary import users_call
from sparktrain.cli import main
from sparktrain.errors import BugError, InfraError, SpecError, UserError


def train(lr: float) -> float:
    return lr


CALLS: dict[str, Callable[[], object]] = {
    "sweep": lambda: st.sweep(train, {"lr": []}, metric="y"),
    "launch": lambda: st.launch(None, train, {"lr": [1], "x": [1, 2]}),
    "run": lambda: st.run(train, {"lr": 1}, workers=0),
    "resume": lambda: st.resume("/no/such/run"),
    "extend": lambda: st.extend("/no/such/run", trials=2),
    "refit": lambda: st.refit("/no/such/run", workers=2),
    "pool": lambda: st.pool(agents=2),
    "grid": lambda: st.grid(lr=[]),
    "zipped": lambda: st.zipped(lr=[1], x=[1, 2]),
    "cases": lambda: st.cases([1]),  # type: ignore[list-item]
    "when": lambda: st.when(3, [1]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_error_of_the_api_has_no_frame_of_ours(call: Callable[[], object]) -> None:
    with pytest.raises(UserError) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert {Path(frame.filename).name for frame in frames} == {"test_boundary.py"}
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("Traceback") == 1, "the message is not repeated as its cause"


def raising(error: BaseException, cause: BaseException | None) -> Callable[[], None]:
    @users_call
    def called() -> None:
        raise error from cause

    return called


def test_a_cause_that_the_message_does_not_have_stays() -> None:
    with pytest.raises(InfraError) as caught:
        raising(InfraError("the store failed"), OSError("disk on fire"))()
    assert isinstance(caught.value.__cause__, OSError)


def test_a_cause_that_the_message_has_goes() -> None:
    with pytest.raises(SpecError) as caught:
        raising(SpecError("lr: must be a number"), ValueError("must be a number\nsecond line"))()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_bug_of_ours_keeps_its_frames() -> None:
    with pytest.raises(BugError) as caught:
        raising(BugError("broken"), None)()
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-2:] == ["called", "called"]


def test_ctrl_c_points_to_the_users_line() -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        raising(KeyboardInterrupt("run r was interrupted"), TimeoutError())()
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 1
    assert caught.value.__cause__ is None


@pytest.fixture
def lost_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()


@pytest.mark.usefixtures("lost_folder")
@pytest.mark.parametrize(
    "call",
    [
        lambda: st.sweep(train, {"lr": [1]}, metric="y", mode="max", spark=st.local()),
        lambda: st.launch(st.local(), train, {"lr": [1]}),
        lambda: st.run(train, {"lr": 1}, workers=1, spark=st.local()),
        lambda: st.optuna.optimize(optuna.create_study(), lambda trial: 1.0, 1, spark=st.local()),
        lambda: st.resume("runs/r"),
        lambda: st.extend("runs/r", trials=2),
        lambda: st.refit("runs/r", workers=1),
        lambda: st.load(Path("runs", "r")),
    ],
    ids=["sweep", "launch", "run", "optimize", "resume", "extend", "refit", "load"],
)
def test_a_working_directory_that_was_deleted_is_named(call: Callable[[], object]) -> None:
    with pytest.raises(SpecError, match=r"working directory of this process no longer exists.*change to one") as caught:
        call()
    assert {Path(each.filename).name for each in traceback.extract_tb(caught.value.__traceback__)} == {
        "test_boundary.py"
    }
    assert caught.value.__cause__ is None


@pytest.mark.usefixtures("lost_folder")
@pytest.mark.parametrize("line", ["ls", "status runs/r", "best runs/r"])
def test_so_it_is_on_the_command_line(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    assert "error: the working directory of this process no longer exists" in capfd.readouterr().err


@pytest.mark.usefixtures("lost_folder")
def test_a_file_that_lacks_is_an_error_of_its_own_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        raising(FileNotFoundError("no such file"), None)()
