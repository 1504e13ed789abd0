"""A machine without Kerberos has no tickets. One with it: tests/hadoop/test_kerberos.py."""

import pytest

from sparktrain.driver import ticket
from sparktrain.driver.tokens import has_ticket


def test_without_the_library_there_is_no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticket, "_LIBRARY", "libgssapi_krb5.so.of-nobody")
    assert ticket.ticket() is None
    assert not has_ticket(ticket.ticket)
