"""Settings of the tests of the driver."""

import pytest

from sparktrain.driver.continuation import program


@pytest.fixture(autouse=True)
def as_a_program_without_settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has what other tests and their libraries have set and assigned, and calls would name it."""
    if not request.module.__name__.endswith(".test_taken_settings"):
        monkeypatch.setattr(program, "_changed", lambda target, sources: {})
