"""What `callbacks=`, `tracking=` and `notify=` take, and what is wrong with the rest."""

import importlib.util
from typing import Any

import pytest

import sparktrain as st
from sparktrain.config.call_option import settled
from sparktrain.config.option_catalog import LaunchKeywords
from sparktrain.config.tracking_options import MLflow, callbacks, masked, notice, tracking
from sparktrain.driver.prepare.checked_call import callbacks_of
from sparktrain.driver.tracking.mlflow_tracker import MLflowTracker
from sparktrain.driver.tracking.notice import NoticeSender
from sparktrain.errors import SpecError


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("htp://host:5000", r"\(htp:\.\.\.\) must start with one of http://, https://, sqlite://"),
        ("/srv/mlruns", r"a path.*keeps no runs in plain folders: write http://host:5000 or sqlite"),
        ("file:///srv/mlruns", r"\(file:\.\.\.\)"),
        ("http://", "must name a host"),
        ("http://user:word@host:99999/x", "must name a host and a valid port"),
    ],
)
def test_an_address_that_mlflow_cannot_use_is_refused_without_its_secrets(uri: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as refused:
        tracking(MLflow(uri=uri))
    assert "word@" not in str(refused.value)


def test_mlflow_needs_an_address_and_takes_that_of_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(SpecError, match="no address: set MLFLOW_TRACKING_URI"):
        callbacks_of(settled(LaunchKeywords, {"tracking": "mlflow"}), ())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    (made,) = callbacks_of(settled(LaunchKeywords, {"tracking": "mlflow"}), ())
    assert isinstance(made, MLflowTracker)


@pytest.mark.parametrize(
    ("missing", "options", "words"),
    [
        ("mlflow", {"uri": "http://host"}, r"not installed: run pip install 'sparktrain\[mlflow\]'"),
        ("sqlalchemy", {"uri": "sqlite:///x.db"}, "needs sqlalchemy and alembic.*pip install sqlalchemy alembic"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_command(
    missing: str, options: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == missing else known(name, *rest)
    )
    with pytest.raises(SpecError, match=words):
        tracking(MLflow(**options))


def test_other_wrong_values_are_named_with_their_rule() -> None:
    with pytest.raises(SpecError, match=r"tracking \('wandb'\) must be 'mlflow' or sparktrain.MLflow.*callbacks="):
        tracking("wandb")
    with pytest.raises(SpecError, match=r"log_model \('all'\) must be 'best' or 'none'"):
        MLflow(log_model="all")  # type: ignore[arg-type]  # what a user may write
    with pytest.raises(SpecError, match="tags must be a dict of texts"):
        MLflow(tags={"a": 1})  # type: ignore[dict-item]  # what a user may write
    with pytest.raises(SpecError, match="experiment is ''"):
        MLflow(experiment="")
    with pytest.raises(SpecError, match=r"callbacks has .*print.*one of the methods run_started"):
        callbacks([print])
    with pytest.raises(SpecError, match="an instance of a subclass"):
        callbacks(st.Callback)
    with pytest.raises(SpecError, match="notify is 7"):
        notice(7)
    with pytest.raises(SpecError, match=r"notify \(https://\) must name a host"):
        notice("https://")


def test_one_callback_needs_no_list_and_notices_are_callbacks() -> None:
    mine = st.Callback()
    assert callbacks(mine) == callbacks([mine]) == (mine,)
    assert callbacks_of(settled(LaunchKeywords, {}), ()) == ()
    made = callbacks_of(settled(LaunchKeywords, {"notify": "true", "notify_after": "5m"}), (mine,))
    assert made[0] is mine
    assert isinstance(made[1], NoticeSender)


def test_the_options_of_mlflow_show_no_address() -> None:
    assert "word" not in repr(MLflow(uri="https://me:word@host/x"))
    assert masked("https://me:word@host:8/x?y=z") == "https://host:8/..."
    assert masked("http://[") == "the address"
