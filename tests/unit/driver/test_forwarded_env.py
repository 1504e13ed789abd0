"""Variables of trials on their way: named by the user, sent to agents only, and stored nowhere."""

from pathlib import Path
from typing import Any

import pytest

from sparktrain.cli.common import variables_of
from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.forwarded_env import environment
from sparktrain.driver.options import SweepOptions
from sparktrain.driver.prepare.attached_run import attach
from sparktrain.driver.prepare.checked_call import CheckedCall, compose
from sparktrain.driver.prepare.stored_call import compose_again
from sparktrain.errors import ResumeError, SpecError
from sparktrain.search.space import grid
from tests.support.run_stages import named, requested
from tests.unit.scripted import of_a_script

SECRET = "hunter2"


@of_a_script
def train(x: int) -> float:
    return float(x)


def prepared(folder: Path, **options: Any) -> CheckedCall:
    asked = {"metric": "loss", "dir": str(folder), "name": "run", "backend": "none", "preload": [], **options}
    return compose(train, grid(x=[1]), SweepOptions(**asked))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HF_HOME": "/hf", "WANDB_KEY": SECRET, "WANDB_DIR": "/w", "SPARK_X": "1"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("here")
def test_what_is_named_is_forwarded_and_what_is_given_prevails() -> None:
    assert environment({}, ()) == {}
    assert environment({"HF_HOME": "/mine", "A": 1}, ["HF_HOME", "WANDB_*"]) == {
        "HF_HOME": "/mine", "A": "1", "WANDB_KEY": SECRET, "WANDB_DIR": "/w",
    }  # fmt: skip


@pytest.mark.usefixtures("here")
def test_no_pattern_brings_what_leads_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", SECRET)
    monkeypatch.setenv("PYTHONPATH", "/x")
    found = environment({}, ["*"])
    assert found["HF_HOME"] == "/hf"
    assert not {"HADOOP_TOKEN_FILE_LOCATION", "SPARK_X", "PYTHONPATH"} & found.keys()
    with pytest.raises(SpecError, match="leads to its secrets"):
        environment({}, ["HADOOP_TOKEN_FILE_LOCATION"])


def test_a_name_that_is_not_set_is_refused() -> None:
    with pytest.raises(SpecError, match=r"forward_env \('NOT_SET_HERE'\) is not set"):
        environment({}, ["NOT_SET_HERE"])


def test_the_command_line_tells_values_and_names_apart() -> None:
    assert variables_of(["A=b=c", "KEY", "E="]) == {"env": {"A": "b=c", "E": ""}, "forward_env": ("KEY",)}
    assert variables_of(None) == variables_of([]) == {}


def test_values_are_in_no_file_of_the_run_and_in_no_text_of_the_driver(tmp_path: Path) -> None:
    call = prepared(tmp_path, env={"TOKEN": SECRET})
    work = requested(call)
    assert work.owned.run.call.env == {"TOKEN": SECRET}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
    assert call.definition.plan.env == ("TOKEN",)
    for each in (call, work, SweepOptions(env={"TOKEN": SECRET})):
        assert SECRET not in repr(each)


def test_a_run_that_is_resumed_by_its_directory_wants_them_again(tmp_path: Path) -> None:
    named(prepared(tmp_path, env={"TOKEN": SECRET, "OTHER": "1"}))
    with pytest.raises(ResumeError, match=r"not stored: pass OTHER by env= \(--env OTHER"):
        compose_again(str(tmp_path / "run"), settled(ResumeKeywords, {"env": {"TOKEN": "x"}}))
    values = {"TOKEN": "x", "OTHER": "y"}
    assert compose_again(str(tmp_path / "run"), settled(ResumeKeywords, {"env": values})).env == values
    assert attach(prepared(tmp_path, env={"TOKEN": "new"})).stored_run is not None, "other variables are no other run"
