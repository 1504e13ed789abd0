"""Modes and backup workers that cannot be are refused."""

import pytest

from sparktrain.config.server_settings import ServerMode, ServerSettings, server_mode
from sparktrain.errors import SpecError


@pytest.mark.parametrize("name", ["async", "staleness-aware", "sync", "local-sgd"])
def test_each_mode_has_a_name(name: str) -> None:
    assert server_mode(name).value == name


@pytest.mark.parametrize("value", ["synch", "", None, 3, ["sync"]])
def test_other_modes_are_refused(value: object) -> None:
    with pytest.raises(SpecError, match=r"ps_mode .* must be one of 'async'"):
        server_mode(value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": ServerMode.SYNC, "workers": 2, "backup_workers": 2}, "less than workers"),
        ({"mode": ServerMode.ASYNC, "workers": 2, "backup_workers": 1}, "only 'sync'"),
        ({"mode": ServerMode.LOCAL_SGD, "workers": 2, "backup_workers": 1}, "only 'sync'"),
        ({"mode": ServerMode.SYNC, "workers": 2, "backup_workers": -1}, "at least 0"),
        ({"workers": 0}, "at least 1"),
    ],
)
def test_settings_that_break_a_rule_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        ServerSettings(**settings)  # type: ignore[arg-type]
